//! One question to a model and its answer.

use schemars::{JsonSchema, generate::SchemaSettings, transform::RecursiveTransform};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::AskError;

/// One question. The system text is the stable prefix, so that a provider can cache it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What the question is for, for example `plan` or `review`; stands in records.
    pub purpose: &'a str,
    /// The same for many calls; marked for the provider's cache.
    pub system: &'a str,
    /// Oldest first; the last one is a user's.
    pub turns: &'a [Turn],
    /// The answer must be JSON of this schema.
    pub schema: Option<&'a Schema>,
    /// What the provider may bill at most for the answer, reasoning included.
    pub max_output_tokens: u32,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// What the model is told.
    User(String),
    /// What the model said.
    Assistant(String),
}

impl Turn {
    /// What was said, whoever said it.
    pub fn text(&self) -> &str {
        let (Self::User(text) | Self::Assistant(text)) = self;
        text
    }
}

/// The shape that a JSON answer must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Letters, digits, `_` and `-` only (OpenAI refuses others).
    pub name: String,
    /// A JSON Schema whose root is an object.
    pub json: Value,
}

impl Schema {
    /// The schema of `T`, as derived by schemars, in what all providers take: whole in one piece, `anyOf` for
    /// alternatives, no bounds on numbers (Anthropic refuses them) nor formats of them (OpenAI).
    pub fn of<T: JsonSchema>() -> Self {
        let portable = |schema: &mut schemars::Schema| {
            for refused in ["format", "minimum", "maximum"] {
                schema.remove(refused);
            }
            if let Some(alternatives) = schema.remove("oneOf") {
                schema.insert("anyOf".to_owned(), alternatives);
            }
        };
        let settings = SchemaSettings::default().with(|settings| {
            settings.meta_schema = None;
            settings.inline_subschemas = true;
        });
        let generator = settings.with_transform(RecursiveTransform(portable)).into_generator();
        let json = generator.into_root_schema_for::<T>().to_value();
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        Self { name: T::schema_name().chars().map(plain).collect(), json }
    }
}

/// What a model said.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Never empty; at most 1 MiB.
    pub text: String,
    /// What was consumed.
    pub usage: Usage,
    /// It ended at the output limit, not by itself.
    pub truncated: bool,
}

/// What one call consumed, as the provider reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, those of `cached` and `written` included.
    pub input: u64,
    /// Of `input`, read from the provider's cache.
    pub cached: u64,
    /// Of `input`, written to the provider's cache (some charge more for it).
    #[serde(default)]
    pub written: u64,
    /// Tokens of the answer, reasoning included.
    pub output: u64,
    /// US dollars: the provider's own figure, else by [`crate::Prices`]; `None` where neither is known.
    pub usd: Option<f64>,
}

impl Usage {
    /// Input and output together, as token caps count them.
    pub fn tokens(&self) -> u64 {
        self.input + self.output
    }

    /// Both together; the cost is known only where both are.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            cached: self.cached + other.cached,
            written: self.written + other.written,
            output: self.output + other.output,
            usd: self.usd.zip(other.usd).map(|(a, b)| a + b),
        }
    }
}

/// Something that answers calls.
pub trait Model {
    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// See [`AskError`]; retries, where there are any, are over by then.
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError>;

    /// The model's name, as the provider knows it.
    fn name(&self) -> &str;

    /// Attempts of the last `ask` that broke off after the provider had begun to answer: they may be billed,
    /// and nobody says how much.
    fn lost(&self) -> u32 {
        0
    }
}

impl<M: Model + ?Sized> Model for Box<M> {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        (**self).ask(call)
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn lost(&self) -> u32 {
        (**self).lost()
    }
}
