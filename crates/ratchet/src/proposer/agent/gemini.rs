//! Gemini CLI; flags and output as of 0.61.

use super::tool::{Output, Said, Tool, Trouble, count, last_object};
use crate::{exec::End, proposer::Usage};

pub(super) const TOOL: Tool = Tool {
    // the words after -p follow what comes on stdin; as one argument a prompt could be too long
    command: &[
        "gemini",
        "-p",
        "Do what the text above asks for.",
        "-o",
        "json",
        "--approval-mode",
        "auto_edit",
        "--skip-trust",
    ],
    confined: &[],
    model: "--model",
    max_usd: None,
    tells_usd: false,
    settings: &["~/.gemini/"],
    set: &[],
    unset: &[],
    read,
};

fn read(output: &Output<'_>) -> Said {
    // the answer comes on stdout, an error on stderr
    if let Some(json) = last_object(output.out).filter(|json| json.get("stats").is_some()) {
        let models = json["stats"]["models"].as_object();
        // what was thought is in no other count
        let kinds = ["/tokens/prompt", "/tokens/candidates", "/tokens/thoughts", "/tokens/tool"];
        let tokens = models.map(|models| {
            models.values().flat_map(|model| kinds.map(|kind| count(model, kind))).sum::<u64>()
        });
        let usage = tokens.map(|tokens| Usage { tokens, usd: None });
        let text = json["response"].as_str().map(str::to_owned);
        let error = json.pointer("/error/message").and_then(|message| message.as_str());
        return Said { usage, text, trouble: error.map(|message| Trouble::of(None, message)) };
    }
    let error = last_object(output.err).unwrap_or_default();
    let code = match output.end {
        End::Exited(code) => {
            error.pointer("/error/code").and_then(|code| code.as_u64()).or(u64::try_from(*code).ok())
        }
        _ => None,
    };
    let message = error.pointer("/error/message").and_then(|message| message.as_str());
    let words = |known: &str| message.unwrap_or(known).to_owned();
    let trouble = match code {
        None | Some(0) => None,
        Some(41) => Some(Trouble::SetUp(words("it has no login"))),
        Some(52) => Some(Trouble::SetUp(words("its settings are wrong"))),
        Some(53) => Some(Trouble::Ended("it met its limit of turns".into())),
        Some(55) => Some(Trouble::SetUp(words("it does not trust the folder"))),
        code => Some(Trouble::of(code, message.unwrap_or("it failed"))),
    };
    Said { trouble, ..Said::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposer::agent::tests::{said, said_with};

    #[test]
    fn thoughts_are_tokens_too_and_all_models_count() {
        // as printed by 0.61.0, shortened
        let said = said(
            &TOOL,
            0,
            r#"{
  "session_id": "ef8ee8bd",
  "response": "Raised the rate",
  "stats": {
    "models": {
      "pro": {
        "api": { "totalRequests": 1 },
        "tokens": { "input": 600, "prompt": 1000, "candidates": 20, "total": 1035, "cached": 400, "thoughts": 15, "tool": 0 }
      },
      "flash": {
        "tokens": { "input": 5, "prompt": 5, "candidates": 1, "total": 6, "cached": 0, "thoughts": 0, "tool": 0 }
      }
    }
  }
}"#,
        );
        assert_eq!(said.usage, Some(Usage { tokens: 1041, usd: None }));
        assert_eq!((said.text.as_deref(), said.trouble), (Some("Raised the rate"), None));
    }

    #[test]
    fn exit_codes_and_the_error_on_stderr_say_what_is_wrong() {
        let error = |code: i32, text: &str| said_with(&TOOL, code, "", text).trouble.unwrap();
        let login = "{\n  \"session_id\": \"a\",\n  \"error\": {\n    \"type\": \"Error\",\n    \"message\": \"Please set an Auth method\",\n    \"code\": 41\n  }\n}\n";
        assert_eq!(error(41, login), Trouble::SetUp("Please set an Auth method".into()));
        assert!(matches!(error(53, ""), Trouble::Ended(_)));
        assert!(matches!(error(55, ""), Trouble::SetUp(_)));
        let status = |code: u64| {
            format!(
                "Attempt 1 failed {{\n{{\n  \"error\": {{\n    \"message\": \"odd\",\n    \"code\": {code}\n  }}\n}}"
            )
        };
        // 401 as an exit code is 145
        assert!(matches!(error(145, &status(401)), Trouble::SetUp(_)));
        assert!(matches!(error(173, &status(429)), Trouble::Down(_)));
    }
}
