//! Who provides a model, and how each is spoken to.

use genai::adapter::AdapterKind;
use serde::{Deserialize, Serialize};

/// Who provides a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Messages.
    Anthropic,
    /// Chat completions.
    Openai,
    /// Responses.
    OpenaiResponses,
    /// `generateContent`.
    Gemini,
    /// Chat completions.
    Deepseek,
    /// Chat completions; says what each call cost.
    Openrouter,
    /// Its own chat, without a key. It cuts a prompt that is longer than its context
    /// (`OLLAMA_CONTEXT_LENGTH` on the server) without saying so.
    Ollama,
    /// Any server that speaks OpenAI's chat completions; the key is optional, the base URL is not.
    Compatible,
}

/// How a JSON answer of a schema is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    /// The provider is given the schema and holds the answer to it.
    Schema,
    /// The provider makes it JSON; the schema stands in the prompt.
    Json,
    /// The schema stands in the prompt, and that is all.
    Prompt,
}

impl Provider {
    /// As it stands in configurations and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Deepseek => "deepseek",
            Self::Openrouter => "openrouter",
            Self::Ollama => "ollama",
            Self::Compatible => "compatible",
        }
    }

    /// The variable that holds the key, for a provider that wants one.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Openai | Self::OpenaiResponses => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Deepseek => Some("DEEPSEEK_API_KEY"),
            Self::Openrouter => Some("OPENROUTER_API_KEY"),
            Self::Ollama | Self::Compatible => None,
        }
    }

    /// Where the provider is, for one that is somewhere.
    pub(crate) fn base_url(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com/v1/"),
            Self::Openai | Self::OpenaiResponses => Some("https://api.openai.com/v1/"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta/"),
            Self::Deepseek => Some("https://api.deepseek.com/v1/"),
            Self::Openrouter => Some("https://openrouter.ai/api/v1/"),
            Self::Ollama => Some("http://localhost:11434/"),
            Self::Compatible => None,
        }
    }

    pub(crate) fn adapter(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Openai | Self::Compatible => AdapterKind::OpenAI,
            Self::OpenaiResponses => AdapterKind::OpenAIResp,
            Self::Gemini => AdapterKind::Gemini,
            Self::Deepseek => AdapterKind::DeepSeek,
            Self::Openrouter => AdapterKind::OpenRouter,
            Self::Ollama => AdapterKind::Ollama,
        }
    }

    pub(crate) fn structure(self) -> Structure {
        match self {
            Self::Anthropic | Self::Openai | Self::OpenaiResponses | Self::Gemini | Self::Openrouter => {
                Structure::Schema
            }
            // DeepSeek knows JSON but no schemas; genai hands Ollama none.
            Self::Deepseek | Self::Ollama => Structure::Json,
            // Many such servers answer 400 to what they do not know.
            Self::Compatible => Structure::Prompt,
        }
    }
}
