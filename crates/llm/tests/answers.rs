//! Good answers, in every protocol, as a stream and whole, with a schema and without.

use llm::{Model, Schema, Turn};
use serde_json::json;
use standin::{Reply, Server};

use crate::setup::{KeyFile, PROVIDERS, call, config, live, user};

const SYSTEM: &str = "You are a careful researcher of small language models.";
const TEXT: &str = "Grüße: a «learning rate» of 0.04 → 0.05 \u{1f980}\n```rust\nconst LR: f64 = 0.05;\n```";

#[test]
fn every_provider_is_asked_and_answers_in_its_own_protocol() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text(TEXT.to_owned())).unwrap();
    let turns = vec![
        Turn::User("first".to_owned()),
        Turn::Assistant("second".to_owned()),
        Turn::User("third, with ünïcode".to_owned()),
    ];
    for at in PROVIDERS {
        for stream in [true, false] {
            let mut model = live(llm::Config { stream, ..config(&server, at, &key) });
            let answer = model.ask(&call(SYSTEM, &turns)).unwrap();
            let context = format!("{at:?} stream {stream}");
            assert_eq!(answer.text, TEXT, "{context}");
            assert!(!answer.truncated, "{context}");
            assert_eq!(model.lost(), 0, "{context}");

            let request = server.requests().pop().unwrap();
            assert_eq!(request.protocol, at.1, "{context}");
            assert_eq!(request.stream, stream, "{context}");
            assert_eq!(request.model, "test-model", "{context}");
            assert_eq!(request.system, SYSTEM, "{context}");
            let said: Vec<&str> = request.messages.iter().map(|message| message.text.as_str()).collect();
            assert_eq!(said, ["first", "second", "third, with ünïcode"], "{context}");
            let roles: Vec<&str> = request.messages.iter().map(|message| message.role.as_str()).collect();
            assert_eq!(roles, ["user", "assistant", "user"], "{context}");
        }
    }
}

#[test]
fn a_schema_goes_where_the_provider_takes_it_and_else_into_the_prompt() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("{\"idea\": \"x\"}".to_owned())).unwrap();
    let json = json!({
        "type": "object", "properties": {"idea": {"type": "string"}},
        "required": ["idea"], "additionalProperties": false,
    });
    let schema = Schema { name: "Plan".to_owned(), json: json.clone() };
    for at in PROVIDERS {
        for stream in [true, false] {
            let mut model = live(llm::Config { stream, ..config(&server, at, &key) });
            let turns = user("plan");
            model.ask(&llm::Call { schema: Some(&schema), ..call(SYSTEM, &turns) }).unwrap();
            let request = server.requests().pop().unwrap();
            let in_prompt = request.last_user().contains("additionalProperties");
            match &request.schema {
                Some(sent) => assert_eq!((sent, in_prompt), (&json, false), "{at:?}"),
                None => assert!(in_prompt, "{at:?}"),
            }
            assert_eq!(request.system, SYSTEM, "{at:?}: the prefix stays stable");
        }
    }
}
