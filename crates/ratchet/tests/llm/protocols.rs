//! A proposal through each protocol, whole and as a stream, by one and by a team.

use std::sync::{Arc, Mutex};

use standin::{Protocol, Reply, Server};

use super::{
    calls,
    model::{LESSON, Role, edit, line_of, proposing, tokens},
    proposal, toy,
};

/// US dollars a million tokens, in the file that the toy names: reading 1, writing 10.
const PRICES: &str = r#"{"model-1": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-5}}"#;

/// Three trials through one protocol; all that is recorded of them, held against what the server saw.
fn three_trials(protocol: Protocol, stream: bool, roles: &str) {
    let case = format!("{protocol:?}, stream {stream}, {roles}");
    let counted = Arc::new(Mutex::new((0, 0.0)));
    let (mut model, count) = (proposing(8..10), Arc::clone(&counted));
    let server = Server::start(move |request| {
        let reply = model(request);
        if let Reply::Text(text) = &reply {
            let (all, output) = (tokens(request, text), text.len().div_ceil(4) as u64);
            let mut count = count.lock().unwrap();
            count.0 += all;
            count.1 += 1e-6 * (all - output) as f64 + 1e-5 * output as f64;
        }
        reply
    });
    let server = server.unwrap();
    let toy = toy(
        &server,
        protocol,
        "prices = \"prices.json\"\nlookahead = false",
        &format!("stream = {stream}\nroles = \"{roles}\"\nretries = 0"),
    );
    toy.write("prices.json", PRICES);
    toy.commit("prices");
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    let rows = toy.rows();
    let column = |name: &str| rows.iter().map(|row| row[name].as_str()).collect::<Vec<_>>();
    assert_eq!(column("loss"), ["50.000000", "26.000000", "37.000000"], "{case}");
    assert_eq!(column("status"), ["keep", "keep", "discard"], "{case}");
    assert_eq!(column("description")[1..], ["x to 8", "x to 9"], "{case}");
    assert_eq!(column("proposer")[1..], ["llm", "llm"], "{case}");

    let team = roles == "team";
    let purposes: [&[&str]; 2] = match team {
        false => [&["plan", "edit"], &["plan", "edit"]],
        true => [&["plan", "edit", "review"], &["retrospect", "analysis", "plan", "edit", "review"]],
    };
    for (trial, purposes) in [2, 3].into_iter().zip(purposes) {
        let (proposal, x) = (proposal(&toy, trial), trial + 6);
        assert_eq!(proposal["description"], format!("x to {x}"), "{case}");
        assert_eq!(proposal["hypothesis"], format!("{x} is nearer to the optimum"), "{case}");
        assert_eq!(
            (&proposal["category"], &proposal["expected_delta"]),
            (&"constant".into(), &(-1.5).into())
        );
        let calls = calls(&toy, &format!("trials/{trial:04}"));
        assert_eq!(calls.iter().map(|call| &call["purpose"]).collect::<Vec<_>>(), purposes, "{case}");
        for call in &calls {
            assert!(call["answer"].as_str().is_some_and(|answer| !answer.is_empty()), "{case}: {call}");
            assert!(call["prompt"].as_array().is_some_and(|turns| !turns.is_empty()), "{case}: {call}");
        }
        let used = calls.iter().flat_map(|call| ["input", "output"].map(|kind| call["usage"][kind].as_u64()));
        assert_eq!(proposal["usage"]["tokens"].as_u64(), used.sum(), "{case}");
    }

    let requests = server.requests();
    assert_eq!(calls(&toy, "trials").len(), requests.len(), "{case}: every call is recorded");
    for request in &requests {
        assert_eq!((request.protocol, request.stream), (protocol, stream), "{case}");
        assert_eq!((request.model.as_str(), request.key()), ("model-1", Some(super::KEY)), "{case}");
    }
    assert_eq!(requests.iter().any(|request| Role::of(request) == Role::Review), team, "{case}");
    let (tokens, usd) = *counted.lock().unwrap();
    let spent = toy.status()["spent"].clone();
    assert_eq!(spent["tokens"], tokens, "{case}");
    assert!((spent["usd"].as_f64().unwrap() - usd).abs() < 1e-9, "{case}: {spent}, not {usd}");
    let lessons = std::fs::read_to_string(toy.path(".ratchet/tags/bar/lessons.md")).unwrap_or_default();
    assert_eq!(lessons.contains(LESSON), team, "{case}: {lessons}");
}

#[test]
fn a_proposal_through_openais_chat_is_described_recorded_and_paid_for() {
    for stream in [false, true] {
        three_trials(Protocol::OpenaiChat, stream, "solo");
        three_trials(Protocol::OpenaiChat, stream, "team");
    }
}

#[test]
fn a_proposal_through_openais_responses_is_described_recorded_and_paid_for() {
    for stream in [false, true] {
        three_trials(Protocol::OpenaiResponses, stream, "solo");
        three_trials(Protocol::OpenaiResponses, stream, "team");
    }
}

#[test]
fn a_proposal_through_anthropics_messages_is_described_recorded_and_paid_for() {
    for stream in [false, true] {
        three_trials(Protocol::Anthropic, stream, "solo");
        three_trials(Protocol::Anthropic, stream, "team");
    }
}

#[test]
fn a_failed_build_goes_back_to_the_model_as_a_quotation() {
    let mut model = proposing([11, 9]);
    let server = Server::start(move |request| match request.last_user().contains("error: eleven") {
        true => Reply::Text(edit("cand/x.txt", &line_of("11"), &line_of("9"))),
        false => model(request),
    });
    let server = server.unwrap();
    let toy = toy(&server, Protocol::Anthropic, "lookahead = false", "retries = 0");
    let script = "! grep -q 'x = 11' cand/x.txt || { echo 'error: eleven' >&2; exit 1; }";
    let build = format!("[build]\ncommand = [\"sh\", \"-c\", \"{script}\"]\ntimeout_s = 20\n");
    toy.write("ratchet.toml", &format!("{}{build}", toy.read("ratchet.toml")));
    toy.commit("a build that knows what it does not want");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["50.000000", "37.000000"]);
    assert_eq!(toy.column("description")[1], "x to 11", "the idea is the first one's");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let told = requests[2].last_user().lines().find(|line| line.contains("error: eleven")).unwrap();
    assert!(told.starts_with("> "), "{told}");
    assert_eq!(calls(&toy, "trials/0002").len(), 3, "the repair's call is kept as well");
}

#[test]
fn a_block_that_does_not_fit_goes_back_with_what_resembles_it_most() {
    let mut model = proposing([5]);
    let server = Server::start(move |request| match (Role::of(request), request.messages.len()) {
        (Role::Edit, 3) => Reply::Text(edit("cand/x.txt", "x = 10 # a knob", &line_of("5"))),
        _ => model(request),
    });
    let server = server.unwrap();
    let toy = toy(&server, Protocol::OpenaiResponses, "lookahead = false", "retries = 0");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["50.000000", "5.000000"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2].last_user().contains("x = 10 # knob: lin -20..20"), "{}", requests[2].last_user());
}
