//! Which protocol a path belongs to, and what each demands of a request.

use crate::Request;

/// A provider's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI chat completions, and everybody compatible.
    OpenaiChat,
    /// OpenAI responses.
    OpenaiResponses,
    /// Anthropic messages.
    Anthropic,
    /// Gemini `generateContent` and `streamGenerateContent`.
    Gemini,
    /// Ollama chat.
    Ollama,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::OpenaiChat, Self::OpenaiResponses, Self::Anthropic, Self::Gemini, Self::Ollama];

    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        match path {
            "/v1/chat/completions" => Some(Self::OpenaiChat),
            "/v1/responses" => Some(Self::OpenaiResponses),
            "/v1/messages" => Some(Self::Anthropic),
            "/api/chat" => Some(Self::Ollama),
            _ if path.starts_with("/v1beta/models/") => Some(Self::Gemini),
            _ => None,
        }
    }

    /// The path that a client's base URL ends with.
    pub(crate) fn base_path(self) -> &'static str {
        match self {
            Self::OpenaiChat | Self::OpenaiResponses | Self::Anthropic => "/v1",
            Self::Gemini => "/v1beta",
            Self::Ollama => "",
        }
    }

    /// Why a real provider would refuse `request`: (status, message).
    pub(crate) fn objection(self, request: &Request) -> Option<(u16, &'static str)> {
        let keyed = match self {
            Self::OpenaiChat | Self::OpenaiResponses => {
                request.header("authorization").is_some_and(|value| value.starts_with("Bearer "))
            }
            Self::Anthropic => request.header("x-api-key").is_some(),
            Self::Gemini => request.header("x-goog-api-key").is_some(),
            Self::Ollama => true,
        };
        if !keyed {
            return Some((401, "no API key was given"));
        }
        if self == Self::Anthropic && request.header("anthropic-version").is_none() {
            return Some((400, "anthropic-version: header is required"));
        }
        if self == Self::Anthropic && !request.body["max_tokens"].is_u64() {
            return Some((400, "max_tokens: field required"));
        }
        if request.messages.is_empty() {
            return Some((400, "at least one message is required"));
        }
        None
    }
}
