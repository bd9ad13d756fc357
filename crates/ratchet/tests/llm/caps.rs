//! What may be spent: tokens and money, a night and a day, and what is known only afterwards.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use standin::{Reply, Server};

use super::{
    chat,
    model::{Role, plan, proposing, tokens},
};

/// A server that proposes for ever, the largest call it answered, and all of them.
fn generous() -> (Server, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (largest, all) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (seen, sum) = (Arc::clone(&largest), Arc::clone(&all));
    let mut model = proposing((0..).map(|n| format!("{:.3}", 9.0 - f64::from(n) / 100.0)));
    let server = Server::start(move |request| {
        let reply = model(request);
        if let Reply::Text(text) = &reply {
            seen.fetch_max(tokens(request, text), Ordering::SeqCst);
            sum.fetch_add(tokens(request, text), Ordering::SeqCst);
        }
        reply
    });
    (server.unwrap(), largest, all)
}

#[test]
fn a_cap_on_tokens_ends_the_night_with_its_reason_and_is_held_within_one_call() {
    let (server, largest, all) = generous();
    let toy = chat(&server, "", "");
    let cap = 40_000;
    toy.exits(0, &["run", "--max-tokens", &cap.to_string(), "--tag", "bar"]).says(&["token"]);
    let (spent, largest) = (all.load(Ordering::SeqCst), largest.load(Ordering::SeqCst));
    assert_eq!(toy.status()["spent"]["tokens"], spent, "the server's own count");
    assert!(spent <= cap + largest, "{spent} of {cap}, and one call is {largest}");
    assert!(spent >= cap / 2, "{spent} of {cap}: it ends because of the cap");
    assert!(toy.rows().len() > 3, "{} trials", toy.rows().len());
    assert_eq!(super::events(&toy, "bar", "run_ended").len(), 1);
    assert!(toy.git(&["worktree", "list"]).lines().count() <= 3);
}

#[test]
fn a_call_that_takes_more_than_was_set_aside_is_the_last() {
    // an answer of ten times the tokens that were asked for
    let server = Server::start(move |request| {
        assert_eq!(Role::of(request), Role::Plan);
        Reply::Text(plan(&format!("9{}", "0".repeat(40_000))))
    });
    let server = server.unwrap();
    let toy = chat(&server, "", "retries = 0");
    toy.exits(0, &["run", "--max-tokens", "4000", "--trials", "9", "--tag", "bar"]).says(&["token"]);
    assert_eq!(server.requests().len(), 1);
    assert!(toy.status()["spent"]["tokens"].as_u64().unwrap() > 10_000);
    assert_eq!(toy.rows().len(), 1, "nothing but the baseline");
}

#[test]
fn a_cap_too_small_for_any_call_asks_nobody() {
    let (server, ..) = generous();
    let toy = chat(&server, "", "");
    toy.exits(0, &["run", "--max-tokens", "500", "--trials", "9", "--tag", "bar"]).says(&["cap", "500"]);
    assert_eq!(server.requests().len(), 0);
    assert_eq!(toy.rows().len(), 1);
}

#[test]
fn a_cap_on_money_for_a_model_without_a_price_is_a_mistake_with_a_remedy() {
    let (server, ..) = generous();
    for (proposer, args) in [("", &["--max-usd", "5"][..]), ("usd_per_day = 5.0", &[][..])] {
        let toy = chat(&server, proposer, "");
        let ran = toy.exits(2, &[&["run", "--trials", "2", "--tag", "bar"], args].concat());
        ran.says(&["model-1", "price"]);
        assert!(!toy.path("results.tsv").exists() || toy.rows().is_empty(), "before anything runs");
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_cap_on_money_ends_the_night_where_the_price_is_known() {
    let (server, largest, all) = generous();
    let toy = chat(&server, "prices = \"prices.json\"", "");
    toy.write("prices.json", r#"{"model-1": {"input_cost_per_token": 1e-5, "output_cost_per_token": 1e-5}}"#);
    toy.commit("prices");
    toy.exits(0, &["run", "--max-usd", "0.4", "--tag", "bar"]).says(&["$0.4"]);
    let spent = toy.status()["spent"]["usd"].as_f64().unwrap();
    let (count, largest) = (all.load(Ordering::SeqCst) as f64, largest.load(Ordering::SeqCst) as f64);
    assert!((spent - 1e-5 * count).abs() < 1e-9, "{spent}, and {count} tokens of a thousandth of a cent");
    assert!(spent > 0.2 && spent <= 0.4 + 1e-5 * largest, "{spent}");
}

#[test]
fn a_cap_of_the_day_counts_all_tags() {
    let (server, largest, all) = generous();
    let toy = chat(&server, "tokens_per_day = 30000", "");
    toy.exits(0, &["run", "--trials", "4", "--tag", "one"]);
    let before = all.load(Ordering::SeqCst);
    assert!(before > 0 && before < 20_000, "{before}: three proposals are no day");
    toy.exits(0, &["run", "--tag", "bar"]).says(&["day", "30000"]);
    let spent = all.load(Ordering::SeqCst);
    assert!(spent <= 30_000 + largest.load(Ordering::SeqCst), "{spent}");
    let of = |tag: &str| toy.exits(0, &["status", "--json", "--tag", tag]).json()["spent"]["tokens"].clone();
    assert_eq!((of("one"), of("bar")), (before.into(), (spent - before).into()));
    toy.exits(0, &["run", "--trials", "9", "--tag", "third"]).says(&["day"]);
    let spent = all.load(Ordering::SeqCst);
    assert!(spent <= 30_000 + largest.load(Ordering::SeqCst), "the day is over for every tag: {spent}");
}
