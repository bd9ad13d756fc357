//! One attempt at one call, in the provider's own protocol through genai.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use genai::{
    Client, ServiceTarget,
    chat::{
        CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, ChatStreamEvent, JsonSpec,
        ReasoningEffort, StopReason, Usage as WireUsage,
    },
};
use serde_json::{Value, json};

use crate::{
    Answer, AskError, Call, Config, Provider, Schema, Turn, Usage,
    fault::{About, Fault},
    provider::Structure,
};

/// An answer larger than this is not held.
const MOST_BYTES: usize = 1 << 20;

/// What has been seen of an answer so far.
#[derive(Debug, Default)]
struct Seen {
    begun: bool,
    /// US dollars, where the provider says so.
    usd: Option<f64>,
}

/// One attempt.
pub(crate) struct Attempt<'a> {
    request: ChatRequest,
    options: ChatOptions,
    stream: bool,
    about: About<'a>,
    seen: Arc<Mutex<Seen>>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(call: &Call<'_>, config: &Config, about: About<'a>) -> Self {
        let provider = config.provider;
        // A plain answer shows nothing before its end: once sent, it may be billed.
        let seen = Arc::new(Mutex::new(Seen { begun: !config.stream, usd: None }));
        let mut options = ChatOptions::default().with_max_tokens(call.max_output_tokens);
        if config.stream {
            let seen = Arc::clone(&seen);
            options = options.with_capture_usage(true).with_raw_frame_fn(move |_, frame| {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let error = frame.event == Some("error") || frame.data.starts_with("{\"error\"");
                seen.begun |= !error;
                if provider == Provider::Openrouter && frame.data.contains("\"cost\"") {
                    seen.usd = frame.json().as_ref().and_then(own_cost).or(seen.usd);
                }
            });
        } else {
            options = options.with_capture_raw_body(provider == Provider::Openrouter);
        }
        if provider == Provider::Anthropic {
            options = options.with_cache_control(CacheControl::Ephemeral); // others cache a prefix by themselves
        }
        if provider == Provider::Openrouter {
            options = options.with_extra_body(json!({"usage": {"include": true}}));
        }
        if matches!(
            provider,
            Provider::Openai | Provider::OpenaiResponses | Provider::Openrouter | Provider::Compatible
        ) {
            // genai would take the "-max" off "gpt-5.1-codex-max" and send it as the effort to reason with; a
            // budget of tokens keeps it from that, and is itself not sent in these protocols.
            options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
        }
        let structure = provider.structure();
        options.response_format = call.schema.and_then(|schema| match structure {
            Structure::Schema => Some(JsonSpec::new(&schema.name, schema.json.clone()).into()),
            Structure::Json => Some(ChatResponseFormat::JsonMode),
            Structure::Prompt => None,
        });
        let prompted = call.schema.filter(|_| structure != Structure::Schema);
        let request = request(call, prompted);
        Self { request, options, stream: config.stream, about, seen }
    }

    /// Whether the provider may have begun to answer.
    pub(crate) fn begun(&self) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).begun
    }

    /// Sends the call and reads the answer.
    pub(crate) async fn run(&self, client: &Client, target: ServiceTarget) -> Result<Answer, Fault> {
        if self.stream { self.streamed(client, target).await } else { self.whole(client, target).await }
    }

    async fn whole(&self, client: &Client, target: ServiceTarget) -> Result<Answer, Fault> {
        let response = client.exec_chat(target, self.request.clone(), Some(&self.options)).await;
        let response = response.map_err(|error| self.fault(&error))?;
        let usd = response.captured_raw_body.as_ref().and_then(own_cost);
        let text = response.content.texts().concat();
        if text.len() > MOST_BYTES {
            return Err(Fault::lasting(AskError::TooLarge, true));
        }
        answer(text, response.stop_reason, response.usage, usd)
    }

    async fn streamed(&self, client: &Client, target: ServiceTarget) -> Result<Answer, Fault> {
        let response = client.exec_chat_stream(target, self.request.clone(), Some(&self.options)).await;
        let mut stream = response.map_err(|error| self.fault(&error))?.stream;
        let mut text = String::new();
        while let Some(event) = stream.next().await {
            match event.map_err(|error| self.fault(&error))? {
                ChatStreamEvent::Chunk(chunk) => {
                    if text.len() + chunk.content.len() > MOST_BYTES {
                        return Err(Fault::lasting(AskError::TooLarge, true));
                    }
                    text.push_str(&chunk.content);
                }
                ChatStreamEvent::End(end) => {
                    let Some(reason) = end.captured_stop_reason else { break };
                    let usd = self.seen.lock().unwrap_or_else(PoisonError::into_inner).usd;
                    return answer(text, Some(reason), end.captured_usage.unwrap_or_default(), usd);
                }
                _ => {}
            }
        }
        // Some adapters make up an end where there was none; only a reason to stop is a real one.
        Err(Fault::down(format!("{}: the answer broke off", self.about.base_url), self.begun()))
    }

    fn fault(&self, error: &genai::Error) -> Fault {
        Fault::from_wire(error, self.begun(), self.about)
    }
}

fn request(call: &Call<'_>, prompted: Option<&Schema>) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = call
        .turns
        .iter()
        .map(|turn| match turn {
            Turn::User(text) => ChatMessage::user(text),
            Turn::Assistant(text) => ChatMessage::assistant(text),
        })
        .collect();
    if let Some(schema) = prompted {
        // Not in the system text: that stays the same for all purposes.
        let wanted =
            format!("\n\nAnswer with one JSON object of this schema and nothing else:\n{}", schema.json);
        if let Some(last) = messages.last_mut() {
            last.content.push(wanted);
        }
    }
    ChatRequest::new(messages).with_system(call.system)
}

/// What the provider itself says the call cost, in US dollars.
fn own_cost(body: &Value) -> Option<f64> {
    body["usage"]["cost"].as_f64().filter(|usd| usd.is_finite() && *usd >= 0.0)
}

/// Checks a whole answer.
fn answer(
    text: String,
    reason: Option<StopReason>,
    usage: WireUsage,
    usd: Option<f64>,
) -> Result<Answer, Fault> {
    if let Some(StopReason::ContentFilter(reason)) = &reason {
        return Err(Fault::lasting(AskError::Rejected(format!("stopped by its filter ({reason})")), true));
    }
    let truncated = reason.is_some_and(|reason| reason.is_max_tokens());
    if text.trim().is_empty() {
        let why = if truncated { "no text before the output limit" } else { "no text" };
        return Err(Fault::lasting(AskError::Malformed(why.to_owned()), true));
    }
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let details = usage.prompt_tokens_details.unwrap_or_default();
    let usage = Usage {
        input: count(usage.prompt_tokens),
        cached: count(details.cached_tokens),
        written: count(details.cache_creation_tokens),
        output: count(usage.completion_tokens),
        usd,
    };
    Ok(Answer { text, usage, truncated })
}
