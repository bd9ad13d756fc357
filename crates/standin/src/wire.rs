//! Answers and errors as each provider writes them, whole and as a stream.

use serde_json::{Value, json};

use crate::{Protocol, Request};

/// An answer before it is put into a protocol.
pub(crate) struct Made {
    pub(crate) text: String,
    /// Ended by the output limit.
    pub(crate) cut: bool,
    /// Tokens of the prompt, all.
    pub(crate) input: u64,
    /// Of `input`, read from the cache.
    pub(crate) cached: u64,
    /// Of `input`, written to the cache.
    pub(crate) written: u64,
    pub(crate) output: u64,
    /// The request's number.
    pub(crate) number: usize,
}

/// The whole answer as one JSON document.
pub(crate) fn whole(request: &Request, made: &Made) -> Value {
    let Made { text, number, .. } = made;
    let model = &request.model;
    match request.protocol {
        Protocol::OpenaiChat => json!({
            "id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 1_764_460_800, "model": model,
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": null},
                "finish_reason": finish(request.protocol, made.cut),
            }],
            "usage": usage(request, made),
        }),
        Protocol::OpenaiResponses => response(request, made),
        Protocol::Anthropic => json!({
            "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": finish(request.protocol, made.cut), "stop_sequence": null,
            "usage": usage(request, made),
        }),
        Protocol::Gemini => {
            let mut body = gemini(request, text);
            body["candidates"][0]["finishReason"] = finish(request.protocol, made.cut).into();
            body["usageMetadata"] = usage(request, made);
            body
        }
        Protocol::Ollama => {
            let mut body = ollama(request, text);
            ollama_end(&mut body, made);
            body
        }
    }
}

/// The pieces of the answer as they go over the line.
pub(crate) fn stream(request: &Request, made: &Made) -> Vec<String> {
    let pieces = pieces(&made.text);
    let protocol = request.protocol;
    let reason = finish(protocol, made.cut);
    match protocol {
        Protocol::OpenaiChat => {
            let chunk = |choices: Value| {
                json!({
                    "id": format!("chatcmpl-{}", made.number), "object": "chat.completion.chunk",
                    "created": 1_764_460_800, "model": request.model, "choices": choices,
                })
            };
            let delta = |delta: Value, reason: Value| {
                chunk(json!([{"index": 0, "delta": delta, "finish_reason": reason}]))
            };
            let mut frames = vec![data(&delta(json!({"role": "assistant", "content": ""}), Value::Null))];
            frames.extend(pieces.iter().map(|text| data(&delta(json!({"content": text}), Value::Null))));
            frames.push(data(&delta(json!({}), reason.into())));
            if request.body["stream_options"]["include_usage"] == true {
                let mut last = chunk(json!([]));
                last["usage"] = usage(request, made);
                frames.push(data(&last));
            }
            frames.push("data: [DONE]\n\n".to_owned());
            frames
        }
        Protocol::OpenaiResponses => {
            let mut begun = response(request, made);
            begun["status"] = "in_progress".into();
            begun["output"] = json!([]);
            begun["usage"] = Value::Null;
            let id = format!("msg_{}", made.number);
            let delta = |text: &String| json!({"type": "response.output_text.delta", "item_id": id, "output_index": 0, "content_index": 0, "delta": text});
            let end = if made.cut { "response.incomplete" } else { "response.completed" };
            let mut frames = vec![event(&json!({"type": "response.created", "response": begun}))];
            frames.extend(pieces.iter().map(|text| event(&delta(text))));
            frames.push(event(&json!({"type": end, "response": response(request, made)})));
            frames
        }
        Protocol::Anthropic => {
            let mut start = whole(request, made);
            start["content"] = json!([]);
            start["stop_reason"] = Value::Null;
            start["usage"]["output_tokens"] = 1.into();
            let delta = |text: &String| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
            let mut frames = vec![
                event(&json!({"type": "message_start", "message": start})),
                event(
                    &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                ),
                event(&json!({"type": "ping"})),
            ];
            frames.extend(pieces.iter().map(|text| event(&delta(text))));
            frames.push(event(&json!({"type": "content_block_stop", "index": 0})));
            frames.push(event(&json!({
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": null},
                "usage": {"output_tokens": made.output},
            })));
            frames.push(event(&json!({"type": "message_stop"})));
            frames
        }
        Protocol::Gemini => {
            let mut bodies: Vec<Value> = pieces.iter().map(|text| gemini(request, text)).collect();
            if let Some(last) = bodies.last_mut() {
                last["candidates"][0]["finishReason"] = reason.into();
                last["usageMetadata"] = usage(request, made);
            }
            bodies.iter().map(|body| format!("data: {body}\r\n\r\n")).collect()
        }
        Protocol::Ollama => {
            let mut last = ollama(request, "");
            ollama_end(&mut last, made);
            let mut frames: Vec<String> =
                pieces.iter().map(|text| format!("{}\n", ollama(request, text))).collect();
            frames.push(format!("{last}\n"));
            frames
        }
    }
}

/// An error's body.
pub(crate) fn error(protocol: Protocol, status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    match protocol {
        Protocol::OpenaiChat | Protocol::OpenaiResponses => {
            let code = if status == 404 { json!("model_not_found") } else { Value::Null };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
        Protocol::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Protocol::Gemini => {
            json!({"error": {"code": status, "message": message, "status": kind.to_uppercase()}})
        }
        Protocol::Ollama => json!({"error": message}),
    }
}

/// An error as it stands in a stream that had begun well.
pub(crate) fn error_frame(protocol: Protocol, message: &str) -> String {
    match protocol {
        Protocol::OpenaiResponses => {
            event(&json!({"type": "error", "code": "server_error", "message": message, "param": null}))
        }
        Protocol::Anthropic => event(&error(protocol, 529, message)),
        Protocol::OpenaiChat | Protocol::Gemini => data(&error(protocol, 503, message)),
        Protocol::Ollama => format!("{}\n", error(protocol, 503, message)),
    }
}

/// Why the answer ended.
fn finish(protocol: Protocol, cut: bool) -> &'static str {
    match (protocol, cut) {
        (Protocol::OpenaiChat | Protocol::Ollama, false) => "stop",
        (Protocol::OpenaiChat | Protocol::Ollama, true) => "length",
        (Protocol::OpenaiResponses, false) => "completed",
        (Protocol::OpenaiResponses, true) => "incomplete",
        (Protocol::Anthropic, false) => "end_turn",
        (Protocol::Anthropic, true) => "max_tokens",
        (Protocol::Gemini, false) => "STOP",
        (Protocol::Gemini, true) => "MAX_TOKENS",
    }
}

/// The usage block; Ollama has none of its own.
fn usage(request: &Request, made: &Made) -> Value {
    let Made { input, cached, written, output, .. } = made;
    let total = input + output;
    match request.protocol {
        Protocol::OpenaiChat => {
            let mut usage = json!({
                "prompt_tokens": input, "completion_tokens": output, "total_tokens": total,
                "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
            });
            if request.body["usage"]["include"] == true {
                usage["cost"] = json!(COST_PER_TOKEN * total as f64);
            }
            usage
        }
        Protocol::OpenaiResponses => json!({
            "input_tokens": input, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": total,
        }),
        Protocol::Anthropic => json!({
            "input_tokens": input - cached - written, "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached, "output_tokens": output,
        }),
        Protocol::Gemini => json!({
            "promptTokenCount": input, "cachedContentTokenCount": cached,
            "candidatesTokenCount": output, "totalTokenCount": total,
        }),
        Protocol::Ollama => Value::Null,
    }
}

/// US dollars, where the client asks for the cost as OpenRouter's do.
const COST_PER_TOKEN: f64 = 1e-6;

fn response(request: &Request, made: &Made) -> Value {
    let reason = if made.cut { json!({"reason": "max_output_tokens"}) } else { Value::Null };
    let status = finish(request.protocol, made.cut);
    json!({
        "id": format!("resp_{}", made.number), "object": "response", "status": status,
        "error": null, "incomplete_details": reason, "model": request.model,
        "output": [{
            "type": "message", "id": format!("msg_{}", made.number), "status": status, "role": "assistant",
            "content": [{"type": "output_text", "text": made.text, "annotations": []}],
        }],
        "usage": usage(request, made),
    })
}

fn gemini(request: &Request, text: &str) -> Value {
    json!({
        "candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}],
        "modelVersion": request.model,
    })
}

fn ollama(request: &Request, text: &str) -> Value {
    json!({
        "model": request.model, "created_at": "2025-11-30T00:00:00Z",
        "message": {"role": "assistant", "content": text}, "done": false,
    })
}

fn ollama_end(body: &mut Value, made: &Made) {
    body["done"] = true.into();
    body["done_reason"] = finish(Protocol::Ollama, made.cut).into();
    body["prompt_eval_count"] = made.input.into();
    body["eval_count"] = made.output.into();
}

fn data(body: &Value) -> String {
    format!("data: {body}\n\n")
}

fn event(body: &Value) -> String {
    format!("event: {}\ndata: {body}\n\n", body["type"].as_str().unwrap_or_default())
}

/// At most some twenty pieces; one, where there is no text.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(20).max(1);
    let mut pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
    if pieces.is_empty() {
        pieces.push(String::new());
    }
    pieces
}
