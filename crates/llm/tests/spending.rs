//! Caps: across threads, processes, crashes and broken files; what a call costs.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use llm::{Amount, AskError, Cap, Caps, Config, Metered, Model, Prices, Provider, Purse, Spender, Usage};
use standin::{Fault, Protocol, Reply, Server, faults::Plan};

use crate::setup::{KeyFile, PROVIDERS, call, config, live, user};

const WORST: Amount = Amount { tokens: 10, usd: Some(0.25) };

fn spender(run: &str, tag: &str) -> Spender {
    Spender { run: run.to_owned(), tag: tag.to_owned() }
}

fn night(tokens: u64) -> Caps {
    Caps { night: Cap { tokens: Some(tokens), usd: None }, day: Cap::default() }
}

/// Reserves until the cap refuses; gives how many calls that were.
fn spend_all(path: &Path, caps: &Caps, actual: Amount) -> u64 {
    let mut purse = Purse::open(path).unwrap();
    let mut calls = 0;
    loop {
        match purse.reserve(caps, WORST, &spender("run", "tag")) {
            Ok(ticket) => purse.settle(ticket, actual).unwrap(),
            Err(AskError::Cap(_)) => return calls,
            Err(error) => panic!("{error}"),
        }
        calls += 1;
    }
}

#[test]
fn threads_together_never_pass_a_cap_nor_leave_room_unused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spending.jsonl");
    let calls: u64 = thread::scope(|scope| {
        let spend = || spend_all(&path, &night(405), Amount { tokens: 7, usd: None });
        (0..8).map(|_| scope.spawn(spend)).collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).sum()
    });
    let spent = Purse::open(&path).unwrap().spent("run").unwrap();
    assert_eq!((spent.calls, spent.tokens), (calls, 7 * calls));
    // Each call needs 10 tokens of room and uses 7: the last to fit begins at 395 or below.
    assert!(spent.tokens <= 405 && spent.tokens + WORST.tokens > 405, "{spent:?}");
}

#[test]
fn processes_together_never_pass_a_cap_and_a_dead_one_s_call_counts_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spending.jsonl");
    let child = |role: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "spending::child"]);
        command.env("PURSE", &path).env("ROLE", role);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    assert!(!child("dies").wait().unwrap().success());
    let children: Vec<_> = (0..3).map(|_| child("spends")).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let spent = Purse::open(&path).unwrap().spent("run").unwrap();
    // One call of 10 that nobody settled, then calls of 7 while 10 more fit below 200.
    assert_eq!((spent.calls, spent.tokens), (1 + 26, 10 + 26 * 7));
}

/// Not a claim: what the test above runs in processes of its own.
#[test]
fn child() {
    let (Some(path), Ok(role)) = (std::env::var_os("PURSE"), std::env::var("ROLE")) else { return };
    if role == "dies" {
        let _ticket =
            Purse::open(Path::new(&path)).unwrap().reserve(&night(200), WORST, &spender("run", "tag"));
        std::process::abort();
    }
    spend_all(Path::new(&path), &night(200), Amount { tokens: 7, usd: None });
}

#[test]
fn a_night_is_one_run_and_a_day_holds_all_runs_and_tags() {
    let dir = tempfile::tempdir().unwrap();
    let mut purse = Purse::open(&dir.path().join("spending.jsonl")).unwrap();
    let day = Cap { tokens: None, usd: Some(0.8) };
    let caps = Caps { night: Cap { tokens: Some(20), usd: None }, day };
    let mut reserve = |run: &str, tag: &str| purse.reserve(&caps, WORST, &spender(run, tag)).map(drop);
    reserve("a", "x").unwrap();
    reserve("a", "x").unwrap();
    let full = reserve("a", "y").unwrap_err();
    assert!(full.to_string().contains("the night may use 20 tokens, 20 are used"), "{full}");
    reserve("b", "y").unwrap();
    let full = reserve("c", "z").unwrap_err();
    assert!(full.to_string().contains("the day may cost $0.8, $0.7500"), "{full}");
    assert_eq!(purse.spent("a").unwrap().tokens, 20);
    assert_eq!(purse.spent_today().unwrap().tokens, 30);
    assert_eq!(purse.spent_by("y").unwrap().usd, 0.25);
}

#[test]
fn a_torn_last_line_is_cut_off_and_a_foreign_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spending.jsonl");
    spend_all(&path, &night(50), WORST);
    let whole = fs::read(&path).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"reserve\":{\"tick").unwrap();
    let mut purse = Purse::open(&path).unwrap();
    assert_eq!(purse.spent("run").unwrap().tokens, 50);
    assert_eq!(fs::read(&path).unwrap(), whole);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"nonsense\n").unwrap();
    let error = purse.spent("run").unwrap_err().to_string();
    assert!(error.contains("spending.jsonl line 11"), "{error}");
}

#[test]
fn prices_are_taken_apart_by_cache_and_length() {
    let prices = Prices::bundled().unwrap();
    let sonnet = prices.of("claude-sonnet-4-5").unwrap();
    let usage = Usage { input: 1_000, cached: 400, written: 100, output: 200, usd: None };
    // By hand, in dollars a million: 500 × 3 + 400 × 0.30 + 100 × 3.75 + 200 × 15.
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(close(sonnet.of(&usage), 4_995e-6), "{}", sonnet.of(&usage));
    let long = Usage { input: 300_000, cached: 0, written: 0, output: 1_000, usd: None };
    assert!(close(sonnet.of(&long), (300_000.0 * 6.0 + 1_000.0 * 22.5) * 1e-6));
    assert!(close(sonnet.worst(1_000, 200), (1_000.0 * 3.75 + 200.0 * 15.0) * 1e-6));
    assert_eq!(prices.of("anthropic/claude-sonnet-4.5"), prices.of("openrouter/anthropic/claude-sonnet-4.5"));
    assert!(prices.of("anthropic/claude-sonnet-4.5").is_some());
    assert_eq!(prices.of("a-model-of-next-year"), None);
}

#[test]
fn a_user_s_price_file_goes_over_the_snapshot_and_may_hold_what_is_no_price() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prices.json");
    let text = r#"{
        "sample_spec": {"max_tokens": "legacy", "input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
        "dall-e-3": {"mode": "image_generation", "input_cost_per_pixel": 1e-8},
        "gpt-4o": {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "litellm_provider": "openai"}
    }"#;
    fs::write(&file, text).unwrap();
    let prices = Prices::with_file(&file).unwrap();
    let usage = Usage { input: 1, output: 1, ..Usage::default() };
    assert_eq!(prices.of("gpt-4o").unwrap().of(&usage), 3e-6);
    assert!(prices.of("gpt-4o-mini").is_some());
    fs::write(&file, "[]").unwrap();
    assert!(Prices::with_file(&file).unwrap_err().to_string().contains("prices.json"));
}

/// A model at a server that answers by `script`, held to `caps`.
fn metered(server: &Server, key: &KeyFile, caps: Caps, retries: u32) -> Metered<llm::Live> {
    let at = (Provider::Anthropic, Protocol::Anthropic);
    let model = live(Config { model: "claude-sonnet-4-5".to_owned(), retries, ..config(server, at, key) });
    let price = Prices::bundled().unwrap().of(model.name());
    let purse = Purse::open(&key.0.path().join("spending.jsonl")).unwrap();
    Metered::new(model, purse, caps, spender("run", "tag"), price).unwrap()
}

#[test]
fn a_night_through_the_server_stays_below_its_cap_in_tokens_and_in_money() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("word ".repeat(400))).unwrap();
    let text = "a prompt of some length ".repeat(40);
    for caps in [night(20_000), Caps { night: Cap { tokens: None, usd: Some(0.2) }, day: Cap::default() }] {
        fs::remove_file(key.0.path().join("spending.jsonl")).ok();
        let mut model = metered(&server, &key, caps, 0);
        let mut used = Amount::default();
        let cap = loop {
            match model.ask(&call("system", &user(&text))) {
                Ok(answer) => {
                    used.tokens += answer.usage.tokens();
                    used.usd = used.usd.zip(answer.usage.usd).map(|(a, b)| a + b);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(cap, AskError::Cap(_)), "{cap}");
        let usd = used.usd.unwrap();
        // The worst of one call: 4,000 tokens out and the prompt.
        let (tokens, money) = (4_000 + 600, 4_000.0 * 15e-6 + 600.0 * 3.75e-6);
        if let Some(most) = caps.night.tokens {
            assert!(used.tokens <= most && used.tokens + tokens > most, "{used:?}");
        } else {
            assert!(usd <= 0.2 && usd + money > 0.2, "{used:?}");
        }
        let told = Purse::open(&key.0.path().join("spending.jsonl")).unwrap().spent("run").unwrap();
        assert_eq!(told.tokens, used.tokens);
        assert!((told.usd - usd).abs() < 1e-9);
    }
}

#[test]
fn a_night_of_faults_through_several_clients_ends_at_its_cap_and_misses_no_spending() {
    let key = KeyFile::new();
    let kinds = [
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(401),
        Fault::Overloaded,
        Fault::Close,
        Fault::CutOff,
        Fault::Unfinished,
        Fault::Malformed,
        Fault::Hang,
        Fault::Huge,
        Fault::Empty,
        Fault::Length("an answer that is cut in half".to_owned()),
    ];
    let mut plan = Plan::new(5, 0.2, &kinds);
    let server = Server::start(move |_| match plan.draw() {
        Some(fault) => Reply::Fault(fault),
        None => Reply::Text("word ".repeat(100)),
    })
    .unwrap();
    let cap = 400_000;
    let ask_all = |at| {
        let mut used = (0, 0, 0); // answers, failures, tokens
        let config = Config { timeout: Duration::from_millis(200), ..config(&server, at, &key) };
        let purse = Purse::open(&key.0.path().join("spending.jsonl")).unwrap();
        let mut model = Metered::new(live(config), purse, night(cap), spender("run", "tag"), None).unwrap();
        loop {
            match model.ask(&call("system", &user("question"))) {
                Ok(answer) => used = (used.0 + 1, used.1, used.2 + answer.usage.tokens()),
                Err(AskError::Cap(_)) => return used,
                Err(_) => used.1 += 1,
            }
        }
    };
    let (answers, failures, tokens) = thread::scope(|scope| {
        let clients: Vec<_> = PROVIDERS[..3].iter().map(|at| scope.spawn(|| ask_all(*at))).collect();
        let all = clients.into_iter().map(|client| client.join().unwrap());
        all.fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2))
    });
    let spent = Purse::open(&key.0.path().join("spending.jsonl")).unwrap().spent("run").unwrap();
    assert!(answers > 100 && failures > 50, "{answers} answers, {failures} failures");
    assert_eq!(spent.calls, answers + failures);
    assert!(tokens <= spent.tokens && spent.tokens <= cap, "{tokens} of {spent:?}");
    assert!(spent.tokens + 4_100 > cap, "room for another call is left: {spent:?}");
}

#[test]
fn attempts_that_broke_off_count_at_their_worst_and_refused_ones_not_at_all() {
    let key = KeyFile::new();
    let mut faults = vec![Fault::Status(500), Fault::CutOff, Fault::CutOff].into_iter();
    let server = Server::start(move |_| match faults.next() {
        Some(fault) => Reply::Fault(fault),
        None => Reply::Text("good".to_owned()),
    })
    .unwrap();
    let mut model = metered(&server, &key, Caps::default(), 3);
    let answer = model.ask(&call("", &user("12345678"))).unwrap();
    let spent = Purse::open(&key.0.path().join("spending.jsonl")).unwrap().spent("run").unwrap();
    // 8 bytes of prompt are 4 tokens at most, 64 are the protocol's, 4,000 may come back.
    assert_eq!(spent.tokens, answer.usage.tokens() + 2 * (4 + 64 + 4_000));
    assert_eq!((answer.text.as_str(), spent.calls, server.requests().len()), ("good", 1, 4));
}

#[test]
fn capped_money_without_a_price_is_an_error_before_the_first_call() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("never".to_owned())).unwrap();
    let model = live(config(&server, (Provider::Compatible, Protocol::OpenaiChat), &key));
    let purse = Purse::open(&key.0.path().join("spending.jsonl")).unwrap();
    let caps = Caps { night: Cap::default(), day: Cap { tokens: None, usd: Some(5.0) } };
    let error = Metered::new(model, purse, caps, spender("run", "tag"), None).unwrap_err();
    assert!(matches!(&error, AskError::Cap(message) if message.contains("test-model")), "{error}");
    assert!(server.requests().is_empty());
}
