//! A server that speaks OpenAI's chat and nothing more: no schemas, so that these stand in the prompt.

use standin::{Protocol, Reply, Request, Server};

use crate::toy::Toy;

const PLAN: &str = r#"{"hypothesis": "lower is nearer", "plan": "one less", "description": "x is one less", "category": "constant", "expected_delta": -9.0}"#;

/// The model: lowers the number that stands in the champion's file by one.
fn lowers(request: &Request) -> Reply {
    let x = request.system.split("\nx = ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let line = |x: i32| format!("x = {x} # knob: lin -20..20\n");
    let x: i32 = x.parse().unwrap();
    Reply::Text(match request.last_user() {
        told if told.contains("# Now: the plan") => PLAN.to_owned(),
        told if told.contains("# Now: the edit") => {
            format!("cand/x.txt\n<<<<<<< SEARCH\n{}=======\n{}>>>>>>> REPLACE\n", line(x), line(x - 1))
        }
        other => panic!("{other}"),
    })
}

fn toy(url: &str, key: &str) -> Toy {
    Toy::and(&format!(
        "[proposer]\nkind = \"llm\"\nfallback = \"none\"\nlookahead = false\n[proposer.llm]\n\
         provider = \"compatible\"\nmodel = \"m\"\nbase_url = \"{url}\"\nkey_variable = \"{key}\"\nretries = 0\n"
    ))
}

#[test]
fn a_model_improves_the_champion_and_its_calls_stand_with_the_trial() {
    let server = Server::start(lowers).unwrap();
    let toy = toy(&server.url(Protocol::OpenaiChat), "TOY_KEY").env("TOY_KEY", "sk-toy-0123456789abcdef");
    toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["50.000000", "37.000000", "26.000000", "17.000000"]);
    assert_eq!(toy.column("description")[1..], ["x is one less"; 3]);
    let calls = toy.read(".ratchet/tags/bar/trials/0003/calls.jsonl");
    let purposes: Vec<String> = calls
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["purpose"].as_str().unwrap().into()
        })
        .collect();
    assert_eq!(purposes, ["plan", "edit"]);
    assert!(!calls.contains("sk-toy"), "no key in a record");
    let requests = server.requests();
    assert_eq!(requests.len(), 6);
    assert_eq!(requests[0].system, requests[1].system, "the stable part is one, for the provider's cache");
    assert!(requests[4].last_user().contains("| 3 | keep | 26.000000 |"));
}
