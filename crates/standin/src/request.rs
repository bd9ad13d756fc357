//! A request as the server understood it.

use serde_json::Value;

use crate::Protocol;

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `user` or `assistant`, whatever the protocol calls it.
    pub role: String,
    /// Its text parts, joined.
    pub text: String,
}

/// A request as the server understood it.
#[derive(Clone, Debug)]
pub struct Request {
    /// By its path.
    pub protocol: Protocol,
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As sent.
    pub body: Value,
    /// The model asked.
    pub model: String,
    /// The system text, wherever the protocol has it.
    pub system: String,
    /// All turns, system text apart.
    pub messages: Vec<Message>,
    /// The schema of a structured answer, where the protocol's own field has one.
    pub schema: Option<Value>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
}

impl Request {
    pub(crate) fn new(protocol: Protocol, path: String, headers: Vec<(String, String)>, body: Value) -> Self {
        let model = match protocol {
            Protocol::Gemini => {
                let name = path.trim_start_matches("/v1beta/models/");
                name.split(':').next().unwrap_or_default().to_owned()
            }
            _ => body["model"].as_str().unwrap_or_default().to_owned(),
        };
        let stream = match protocol {
            Protocol::Gemini => path.contains(":streamGenerateContent"),
            _ => body["stream"].as_bool().unwrap_or(false),
        };
        let list = match protocol {
            Protocol::Gemini => &body["contents"],
            Protocol::OpenaiResponses => &body["input"],
            _ => &body["messages"],
        };
        let all = list.as_array().into_iter().flatten().map(|turn| Message {
            role: turn["role"].as_str().unwrap_or_default().replace("model", "assistant"),
            text: text_of(if turn["parts"].is_array() { &turn["parts"] } else { &turn["content"] }),
        });
        let (systems, messages): (Vec<_>, Vec<_>) = all.partition(|message| message.role == "system");
        let system = match protocol {
            Protocol::Anthropic => text_of(&body["system"]),
            Protocol::Gemini => text_of(&body["systemInstruction"]["parts"]),
            Protocol::OpenaiResponses => text_of(&body["instructions"]),
            Protocol::OpenaiChat | Protocol::Ollama => {
                systems.into_iter().map(|message| message.text).collect()
            }
        };
        let schema = match protocol {
            Protocol::OpenaiChat => &body["response_format"]["json_schema"]["schema"],
            Protocol::OpenaiResponses => &body["text"]["format"]["schema"],
            Protocol::Anthropic => &body["output_config"]["format"]["schema"],
            Protocol::Gemini => &body["generationConfig"]["responseJsonSchema"],
            Protocol::Ollama => &body["format"],
        };
        let schema = schema.is_object().then(|| schema.clone());
        Self { protocol, path, headers, model, system, messages, schema, stream, body }
    }

    /// A header's value; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// What the user said last.
    pub fn last_user(&self) -> &str {
        let last = self.messages.iter().rev().find(|message| message.role == "user");
        last.map_or("", |message| message.text.as_str())
    }

    /// The key, wherever the protocol has it.
    pub fn key(&self) -> Option<&str> {
        let bearer = self.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        bearer.or_else(|| self.header("x-api-key")).or_else(|| self.header("x-goog-api-key"))
    }
}

/// A string, or the joined `text` of its parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
