//! Answers as typed values: the schema goes with the call, a parse error goes back to the model.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Answer, AskError, Call, Model, Schema, Turn};

/// How often a parse error goes back to the model.
const REPAIRS: usize = 2;
/// How many characters of an answer that does not parse are quoted to its author.
const QUOTED_CHARS: usize = 4_000;

/// Asks for a `T`. The schema of `T` takes the place of `call.schema`; an answer that does not parse is asked
/// for again, twice at most, with the parse error. Usage is that of all calls together.
///
/// # Errors
/// [`AskError::Malformed`] with the last parse error; whatever `model` fails with.
pub fn ask_as<T>(model: &mut (impl Model + ?Sized), call: &Call<'_>) -> Result<(T, Answer), AskError>
where
    T: DeserializeOwned + JsonSchema,
{
    let schema = Schema::of::<T>();
    let mut turns = call.turns.to_vec();
    let mut used = None;
    let mut repairs = 0;
    loop {
        let mut answer = model.ask(&Call { turns: &turns, schema: Some(&schema), ..*call })?;
        used = Some(used.map_or(answer.usage, |sum: crate::Usage| sum.plus(answer.usage)));
        answer.usage = used.unwrap_or_default();
        let error = match serde_json::from_str(unfenced(&answer.text)) {
            Ok(value) => return Ok((value, answer)),
            Err(error) => error,
        };
        let cut = if answer.truncated { "it was cut off at the output limit: " } else { "" };
        if repairs == REPAIRS {
            return Err(AskError::Malformed(format!("{}: {cut}{error}", schema.name)));
        }
        repairs += 1;
        turns.push(Turn::Assistant(answer.text.chars().take(QUOTED_CHARS).collect()));
        turns.push(Turn::User(format!(
            "This is not valid JSON of the schema {}: {cut}{error}. Answer again with the whole JSON object \
             and nothing else.",
            schema.name
        )));
    }
}

/// The text inside one fence around the whole answer; else all of it. What a model thought aloud before it, in the
/// form that local servers leave it in, is no answer.
fn unfenced(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim();
    let thought = text.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>"));
    let text = thought.map_or(text, |(_, answer)| answer.trim());
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_behind_a_thought_and_inside_a_fence_and_nowhere_else() {
        for text in
            ["{}", " {}\n", "```json\n{}\n```", "\u{feff}{}", "<think>\nhm {\n</think>\n\n```\n{}\n```"]
        {
            assert_eq!(unfenced(text).trim(), "{}", "{text:?}");
        }
        for text in ["Here it is: {}", "<think> {}", "a </think> {}"] {
            assert_ne!(unfenced(text).trim(), "{}", "{text:?}");
        }
    }
}
