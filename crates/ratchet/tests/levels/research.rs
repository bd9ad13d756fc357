//! Level 2: a recorded research session, from the first hypothesis to the mechanism's adoption or retirement.
//!
//! `session.jsonl` holds the calls in the form of `calls.jsonl`, their prompts and usage left out. A language model
//! gave the answers, outside of the program, to the prompts of such a night: the stubborn script had raised STEP_TOKENS
//! again and again, and lost each time. The model's first script did not pass a unit case of its own; the second is what
//! it made of the error. In later sessions its critic selects none. The figures of the night are printed.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use llm::{Call, Model, Recorded};
use serde_json::Value;
use standin::{Fault, Reply, Request, Server};

use super::{KEY, proposal, sim, texts};
use crate::toy::Toy;

/// Trials after which a mechanism has been judged for the last time: 16 blocks of four since it came in, at trial 16.
const MOST: usize = 90;
/// Trials of one run.
const AT_ONCE: usize = 10;

/// What a call about the search is for.
fn purpose(request: &Request) -> &'static str {
    let asks = |words: &str| request.last_user().contains(words);
    match () {
        () if asks("# Now: hypotheses") => "explore",
        () if asks("# Now: the critique") => "critique",
        () if asks("# Now: the specification") => "specify",
        () if asks("# Now: the script") => "generate",
        () if asks("This script cannot be used.") => "repair",
        () => panic!("{}", request.last_user()),
    }
}

fn server(asked: Arc<Mutex<Vec<Request>>>) -> Server {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/levels/session.jsonl");
    let mut recorded = Recorded::read(&path).unwrap();
    let answer = move |request: &Request| {
        if let Some(text) = proposal(request) {
            return Reply::Text(text);
        }
        asked.lock().unwrap().push(request.clone());
        let purpose = purpose(request);
        let call = Call { purpose, system: "", turns: &[], schema: None, max_output_tokens: 1 };
        // where a night holds more sessions than were recorded, its provider is down
        recorded.ask(&call).map_or(Reply::Fault(Fault::Status(500)), |answer| Reply::Text(answer.text))
    };
    Server::start(answer).unwrap()
}

/// What became of mechanism 001, in order.
fn standings(toy: &Toy) -> Vec<String> {
    let changes = toy.events("mechanism");
    let own = changes.iter().filter(|change| change["id"] == "001");
    own.map(|change| change["to"].as_str().unwrap().to_owned()).collect()
}

/// The uses of mechanism 001, by trial or proposal.
fn uses(event: &Value) -> Option<&Value> {
    event["uses"].as_array()?.iter().find(|used| used["id"] == "001")
}

#[test]
fn a_recorded_session_writes_a_mechanism_that_is_validated_tried_measured_and_judged() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let server = server(Arc::clone(&asked));
    // no cycle of level 1.5 comes to pass
    let toy = sim(7, &server, "levels = \"2\"\ncycle = 1000");
    toy.exits(0, &["run", "--trials", "30", "--tag", "bar"]);
    let judged = |toy: &Toy| standings(toy).iter().any(|to| ["adopted", "retired"].contains(&to.as_str()));
    while !judged(&toy) && toy.rows().len() < MOST {
        toy.exits(0, &["run", "--trials", &AT_ONCE.to_string()]);
    }

    // the session: one script refused, the next one used
    let session = &toy.events("session")[0]["end"];
    assert_eq!((&session["outcome"], &session["name"]), (&"mechanism".into(), &"reflection".into()));
    assert_eq!(texts(&session["hooks"]), ["guide", "suggest"]);
    assert_eq!(session["chosen"], 1);
    let score = |n: usize| session["scores"][n][1].as_f64().unwrap();
    assert!(score(0) > score(2) && score(2) > score(1), "computed here: {}", session["scores"]);
    let remarks = texts(&session["remarks"]);
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].contains("20.0 sigma") && remarks[0].contains("not"), "{}", remarks[0]);
    let folder = |name: &str| toy.read(&format!(".ratchet/mechanisms/001/{name}"));
    assert_ne!(folder("generate-1.rhai"), folder("generate-2.rhai"));
    assert_eq!(folder("generate-2.rhai"), folder("mechanism.rhai"));
    assert!(folder("generate-2.json").contains("20.0 sigma"), "the error went back");
    {
        let asked = asked.lock().unwrap();
        let purposes: Vec<&str> = asked.iter().map(purpose).collect();
        assert_eq!(purposes[..5], ["explore", "critique", "specify", "generate", "repair"]);
        for (request, field) in asked.iter().zip(["hypotheses", "assessments", "pseudocode"]) {
            assert!(request.schema.as_ref().unwrap()["properties"][field].is_object());
        }
        assert!(asked[0].system.contains("\"mechanisms\": []"));
        for request in asked[5..].iter().filter(|request| purpose(request) == "explore") {
            assert!(request.system.contains("\"id\":\"001\""), "later sessions know of it");
        }
    }

    // its life: canary with the session, then on trial, then judged
    let standings = standings(&toy);
    assert_eq!(standings[0], "trial", "the canary passed");
    assert!(["adopted", "retired"].contains(&standings[1].as_str()), "{standings:?}");

    // on and off were interleaved, off was never called, and what is listed is what the journal adds up to
    let trials = toy.events("closed");
    let measured: Vec<&Value> = trials.iter().filter_map(uses).collect();
    for block in measured.chunks_exact(4).take(4) {
        assert_eq!(block.iter().filter(|used| used["on"] == true).count(), 2, "{block:?}");
    }
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for used in trials.iter().chain(&toy.events("no_proposal")).filter_map(uses) {
        assert!(used["on"] == true || used["calls"].is_null(), "{used}");
        assert!(used["fault"].is_null(), "{used}");
        for (hook, times) in used["calls"].as_object().into_iter().flatten() {
            *calls.entry(hook.clone()).or_default() += times.as_u64().unwrap();
        }
    }
    assert!(calls["suggest"] > 0 && calls["guide"] > 0, "{calls:?}");
    let listed = toy.exits(0, &["mechanisms", "--json"]).json();
    let own = listed.as_array().unwrap().iter().find(|entry| entry["id"] == "001").unwrap();
    let counted: BTreeMap<String, u64> = serde_json::from_value(own["calls"].clone()).unwrap();
    assert_eq!(counted, calls);
    assert_eq!(own["inactive"], false);
    let made = trials.iter().filter(|trial| trial["proposer"] == "mechanism/001").count();
    assert!(made > 0);

    // what it came for: the batch below the start, where the script would not look
    let best = trials.iter().rfind(|trial| trial["status"] == "keep").unwrap();
    let before: Vec<&Value> = trials.iter().take_while(|trial| uses(trial).is_none()).collect();
    let value = |trial: &Value| trial["value"].as_f64().unwrap();
    let stalled = before.iter().rfind(|trial| trial["status"] == "keep").unwrap();
    assert!(value(best) < value(stalled) - 3.0 * ratchet::sim::SIGMA);
    eprintln!(
        "{} trials; {:.6} at the start, {:.6} when the session began after trial {}, {:.6} at the end\n\
         001: {standings:?}, {made} trials of its own, calls {calls:?}, effect {} a minute\n{}",
        trials.len(),
        value(&trials[0]),
        value(stalled),
        before.len(),
        value(best),
        own["effect"],
        own["reason"],
    );

    // later sessions select none, and nothing is there then
    for later in &toy.events("session")[1..] {
        let (id, outcome) = (later["end"]["id"].as_str().unwrap(), &later["end"]["outcome"]);
        assert!(["none_selected", "failed"].contains(&outcome.as_str().unwrap()), "{later}");
        assert!(!toy.path(&format!(".ratchet/mechanisms/{id}/mechanism.rhai")).exists());
    }
    let stored =
        std::process::Command::new("grep").args(["-rl", KEY, ".ratchet"]).current_dir(toy.root()).output();
    assert_eq!(String::from_utf8(stored.unwrap().stdout).unwrap(), "", "the key is in no file");
}
