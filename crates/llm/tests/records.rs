//! Typed answers, records of calls, and playing them back.

use std::fs;

use llm::{Answer, AskError, Call, Config, Model, Recorded, Recording, Schema, Turn, Usage, ask_as};
use schemars::JsonSchema;
use serde::Deserialize;
use standin::{Fault, Reply, Server};

use crate::setup::{KeyFile, PROVIDERS, SECRET, call, config, live, user};

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Plan {
    idea: String,
    delta: f64,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "for its schema alone")]
struct Everything {
    /// Stays.
    format: String,
    count: u32,
    maybe: Option<f64>,
    parts: Vec<Part>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "for its schema alone")]
enum Part {
    /// The first.
    One,
    /// The second.
    Two { size: i64 },
}

#[test]
fn a_derived_schema_holds_nothing_that_a_provider_refuses() {
    let schema = Schema::of::<Everything>();
    assert_eq!(schema.name, "Everything");
    let expected = serde_json::json!({
        "title": "Everything",
        "type": "object",
        "properties": {
            "format": {"description": "Stays.", "type": "string"},
            "count": {"type": "integer"},
            "maybe": {"type": ["number", "null"]},
            "parts": {"type": "array", "items": {"anyOf": [
                {"description": "The first.", "type": "string", "const": "One"},
                {
                    "description": "The second.", "type": "object",
                    "properties": {"Two": {
                        "type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"],
                    }},
                    "required": ["Two"], "additionalProperties": false,
                },
            ]}},
        },
        "required": ["format", "count", "parts"],
    });
    assert_eq!(schema.json, expected, "{:#}", schema.json);
}

/// Says what it was told to, in order, and keeps what it was asked.
struct Scripted {
    texts: Vec<&'static str>,
    asked: Vec<Vec<Turn>>,
}

impl Model for Scripted {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        assert_eq!(call.schema.unwrap().name, "Plan");
        self.asked.push(call.turns.to_vec());
        let usage = Usage { input: 10, output: 1, ..Usage::default() };
        Ok(Answer { text: self.texts.remove(0).to_owned(), usage, truncated: false })
    }

    fn name(&self) -> &str {
        "scripted"
    }
}

#[test]
fn a_typed_answer_may_stand_in_one_fence() {
    for text in ["{\"idea\": \"x\", \"delta\": -0.01}", "```json\n{\"idea\": \"x\", \"delta\": -0.01}\n```\n"]
    {
        let mut model = Scripted { texts: vec![text], asked: vec![] };
        let (plan, _) = ask_as::<Plan>(&mut model, &call("system", &user("plan"))).unwrap();
        assert_eq!(plan, Plan { idea: "x".to_owned(), delta: -0.01 });
    }
}

#[test]
fn a_parse_error_goes_back_twice_and_then_is_the_outcome() {
    let good = "{\"idea\": \"x\", \"delta\": 0}";
    let mut model = Scripted { texts: vec!["Sure! {\"idea\"", "{\"idea\": 3}", good], asked: vec![] };
    let (_, answer) = ask_as::<Plan>(&mut model, &call("system", &user("plan"))).unwrap();
    assert_eq!((answer.usage.input, answer.usage.output), (30, 3), "all three calls count");
    let last = &model.asked[2];
    assert_eq!(last.len(), 5);
    assert_eq!(last[1], Turn::Assistant("Sure! {\"idea\"".to_owned()));
    assert!(last[2].text().contains("expected value at line 1 column 1"), "{:?}", last[2]);
    assert!(last[4].text().contains("invalid type: integer `3`"), "{:?}", last[4]);

    // JSON inside prose is not scraped out of it.
    let mut model = Scripted { texts: vec!["Here: {\"idea\": \"x\", \"delta\": 0}"; 3], asked: vec![] };
    let error = ask_as::<Plan>(&mut model, &call("system", &user("plan"))).unwrap_err();
    assert!(matches!(error, AskError::Malformed(_)) && model.asked.len() == 3, "{error}");
}

#[test]
fn a_recorded_night_plays_back_answers_and_errors_in_order() {
    let key = KeyFile::new();
    let path = key.0.path().join("calls.jsonl");
    let mut replies = vec![
        Reply::Text(format!("first, with {SECRET} in it")),
        Reply::Fault(Fault::Status(500)),
        Reply::Fault(Fault::Length("cut in two".to_owned())),
        Reply::Fault(Fault::Huge),
    ]
    .into_iter();
    let server = Server::start(move |_| replies.next().unwrap()).unwrap();
    let live = live(Config { retries: 0, ..config(&server, PROVIDERS[0], &key) });
    let mut recording = Recording::new(live, &path, |text: &str| text.replace(SECRET, "[redacted]"));
    let system = "a system text that is not repeated in the record";
    let turns = user(&format!("a prompt with {SECRET}"));
    let purposes = ["plan", "edit", "review", "edit"];
    let first: Vec<_> =
        purposes.iter().map(|purpose| recording.ask(&Call { purpose, ..call(system, &turns) })).collect();

    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(SECRET) && !text.contains(system), "{text}");
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // printf '%s' "$system" | sha256sum
    assert_eq!(line["system_sha256"], SYSTEM_SHA256);
    assert_eq!(line["prompt"][0]["user"], "a prompt with [redacted]");

    let mut recorded = Recorded::read(&path).unwrap();
    for (purpose, first) in purposes.iter().zip(first) {
        let again = recorded.ask(&Call { purpose, ..call("another", &user("anything")) });
        let first = first.map(|answer| Answer { text: answer.text.replace(SECRET, "[redacted]"), ..answer });
        assert_eq!(again, first);
        assert_eq!(recorded.name(), "test-model");
    }
    let end = recorded.ask(&call("system", &turns)).unwrap_err().to_string();
    assert!(end.contains("ends before call 5, \"test\""), "{end}");
}

const SYSTEM_SHA256: &str = "196dc85ee269f8244620f459238064ac6b3363adee3e543f24e9a56ac8ec74ec";

#[test]
fn a_recording_of_another_night_is_told_by_its_purpose() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calls.jsonl");
    let server = Server::start(|_| Reply::Text("yes".to_owned())).unwrap();
    let key = KeyFile::new();
    let mut recording = Recording::new(live(config(&server, PROVIDERS[0], &key)), &path, str::to_owned);
    recording.ask(&call("system", &user("?"))).unwrap();
    // A line that was being written when the process died.
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{{\"purpose\": \"pl")).unwrap();

    let mut recorded = Recorded::read(&path).unwrap();
    let error = recorded.ask(&Call { purpose: "review", ..call("system", &user("?")) }).unwrap_err();
    assert_eq!(error.to_string(), "call 1 asks for \"review\" where the recording has \"test\"");

    fs::write(&path, "{}\n").unwrap();
    assert!(Recorded::read(&path).unwrap_err().to_string().contains("calls.jsonl line 1"));
}
