//! The calls of both levels through every protocol, to a local server. Oracle: the requests that it saw.

use std::{sync::Arc, time::Duration};

use ::llm::{Config, KeySource, Live, Provider};
use serde_json::json;
use standin::{Protocol, Reply, Request, Server};

use super::{
    cycle::cycle,
    fixture::Scene,
    research::{Outcome, Workshop, session},
};

const SCRIPT: &str = "fn guide(trace) { \"look lower\" }\n";

/// Knows what it is asked for by the heading of the question, since not every protocol takes a schema.
fn answer(request: &Request) -> Reply {
    let (_, asked) = request.last_user().rsplit_once("# Now: ").unwrap();
    let value = match asked.lines().next().unwrap().trim_start_matches("the ") {
        "settings" => {
            json!({"diagnosis": "d", "strategy": "explore", "freeze": ["K1"], "unfreeze": [], "guidance": null})
        }
        "hypotheses" => json!({"hypotheses": [
            {"domain": "bandits", "mechanism": "look lower", "target": "t", "complexity": "c", "risk": "r"}]}),
        "critique" => json!({"assessments": [
            {"hypothesis": 1, "objection": "o", "impact": 5, "feasibility": 5, "complexity": 2, "pursue": true}]}),
        "specification" => json!({"name": "n", "hooks": [{"hook": "guide", "does": "d"}], "state": "",
            "pseudocode": "p", "evidence": "e"}),
        "script" => return Reply::Text(format!("```rhai\n{SCRIPT}```")),
        other => panic!("{other}"),
    };
    Reply::Text(value.to_string())
}

#[test]
fn every_protocol_carries_the_schemas_and_the_answers_are_used() {
    for (provider, protocol) in [
        (Provider::Anthropic, Protocol::Anthropic),
        (Provider::Openai, Protocol::OpenaiChat),
        (Provider::OpenaiResponses, Protocol::OpenaiResponses),
        (Provider::Gemini, Protocol::Gemini),
        (Provider::Ollama, Protocol::Ollama),
    ] {
        let server = Server::start(answer).unwrap();
        let scene = Scene::new();
        let key = scene.path("key");
        std::fs::write(&key, "a-key-for-the-test-0123456789").unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let config = Config {
            provider,
            model: "m".to_owned(),
            base_url: Some(server.url(protocol)),
            key: KeySource::File(key),
            timeout: Duration::from_secs(20),
            retries: 0,
            stream: false,
        };
        let mut model = Live::new(config, Arc::new(|| false)).unwrap();
        let end = cycle(&scene.ground(), &mut scene.voice(&mut model), &scene.path("settings")).unwrap();
        assert_eq!((end.fault, end.settings.frozen.contains("K1")), (None, true), "{protocol:?}");
        let validate = |script: &str| {
            assert_eq!(script, SCRIPT);
            Ok([mechanism::Hook::Guide].into())
        };
        let workshop = Workshop { page: "page", example: "example", validate: &validate, hints: true };
        let end =
            session(&scene.ground(), &mut scene.voice(&mut model), &workshop, &scene.path("m")).unwrap();
        assert!(matches!(end.outcome, Outcome::Mechanism { .. }), "{protocol:?}: {end:?}");
        assert!(end.usage.tokens > 0);

        let requests = server.requests();
        assert_eq!(requests.len(), 5, "{protocol:?}");
        let fields = ["strategy", "hypotheses", "assessments", "pseudocode"];
        for (request, field) in requests.iter().zip(fields) {
            let Some(schema) = &request.schema else {
                // it takes none: the schema stands in the prompt
                assert_eq!(protocol, Protocol::Ollama);
                let told = format!("{}{}", request.system, request.last_user());
                assert!(told.contains(&format!("\"{field}\"")), "{told}");
                continue;
            };
            assert!(schema["properties"][field].is_object(), "{protocol:?}: {schema}");
            // what one provider or another refuses
            for word in ["\"oneOf\"", "\"minimum\"", "\"maximum\"", "\"format\"", "\"$ref\"", "\"const\""] {
                assert!(!schema.to_string().contains(word), "{protocol:?}: {word} in {schema}");
            }
        }
        assert_eq!(requests[4].schema, None, "code is no JSON");
    }
}
