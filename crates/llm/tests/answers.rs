//! Good answers, in every protocol, as a stream and whole, with a schema and without.

use llm::{Model, Provider, Schema, Turn};
use serde_json::json;
use standin::{Fault, Reply, Server};

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
fn a_model_s_name_is_sent_as_it_is_whatever_it_ends_with() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("yes".to_owned())).unwrap();
    let others = [Provider::Anthropic, Provider::Gemini, Provider::Deepseek]; // name no model like this
    for at in PROVIDERS.into_iter().filter(|(provider, _)| !others.contains(provider)) {
        let model = "vendor/some-model-max".to_owned();
        live(llm::Config { model: model.clone(), ..config(&server, at, &key) })
            .ask(&call(SYSTEM, &user("go")))
            .unwrap();
        let request = server.requests().pop().unwrap();
        assert_eq!(request.model, model, "{at:?}");
        assert!(!request.body.to_string().contains("effort"), "{at:?}: {}", request.body);
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

#[test]
fn usage_is_what_the_provider_says_the_cache_included() {
    let key = KeyFile::new();
    // Four bytes a token, rounded up, each text by itself: the server's own rule.
    let tokens = |text: &str| text.len().div_ceil(4) as u64;
    let (turns, prefix) = (user("how far?"), tokens(SYSTEM));
    for at in PROVIDERS {
        for stream in [true, false] {
            let server = Server::start(|_| Reply::Text(TEXT.to_owned())).unwrap();
            let mut model = live(llm::Config { stream, ..config(&server, at, &key) });
            let first = model.ask(&call(SYSTEM, &turns)).unwrap().usage;
            let second = model.ask(&call(SYSTEM, &turns)).unwrap().usage;
            let context = format!("{at:?} stream {stream}");
            for usage in [first, second] {
                assert_eq!(usage.input, prefix + tokens("how far?"), "{context}");
                assert_eq!(usage.output, tokens(TEXT), "{context}");
                let own = (at.0 == Provider::Openrouter).then(|| usage.tokens() as f64 * 1e-6);
                assert_eq!(usage.usd, own, "{context}: only OpenRouter says what a call cost");
            }
            let caches = at.0 != Provider::Ollama;
            let marks = at.0 == Provider::Anthropic;
            assert_eq!((first.cached, first.written), (0, if marks { prefix } else { 0 }), "{context}");
            assert_eq!((second.cached, second.written), (if caches { prefix } else { 0 }, 0), "{context}");
        }
    }
}

#[test]
fn the_output_limit_is_sent_and_an_answer_that_reaches_it_is_truncated() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Fault(Fault::Length("twice,as long".to_owned()))).unwrap();
    for at in PROVIDERS {
        for stream in [true, false] {
            let mut model = live(llm::Config { stream, ..config(&server, at, &key) });
            let answer = model.ask(&call(SYSTEM, &user("go"))).unwrap();
            assert_eq!((answer.text.as_str(), answer.truncated), ("twice,", true), "{at:?} stream {stream}");
            let body = server.requests().pop().unwrap().body.to_string();
            assert!(body.contains("4000"), "{at:?}: {body}");
        }
    }
}
