//! Claude Code; flags and output as of 2.1.

use serde_json::Value as Json;

use super::tool::{Output, Said, Tool, Trouble};
use crate::proposer::Usage;

pub(super) const TOOL: Tool = Tool {
    // no shell: an edit needs none, and there is nobody to grant it; no servers that the user has set up
    command: &[
        "claude",
        "-p",
        "--output-format",
        "json",
        "--permission-mode",
        "acceptEdits",
        "--tools",
        "Read,Edit,Write,Glob,Grep",
        "--strict-mcp-config",
        "--max-turns",
        "60",
    ],
    confined: &[],
    model: "--model",
    max_usd: Some("--max-budget-usd"),
    tells_usd: true,
    settings: &["~/.claude/", "~/.claude.json", "~/.cache/claude-cli-nodejs/"],
    // a refused key would be tried for three minutes; the driver has a patience of its own
    set: &[("CLAUDE_CODE_MAX_RETRIES", "3"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")],
    unset: &["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"],
    read,
};

fn read(output: &Output<'_>) -> Said {
    let Some(json) = output.events().rev().find(|json| json["type"] == "result") else {
        return Said::default();
    };
    let text = json["result"].as_str().map(str::to_owned);
    let said = text.as_deref().unwrap_or_default();
    let trouble = match json["subtype"].as_str().unwrap_or_default() {
        "error_max_turns" => Some(Trouble::Ended("it met its limit of turns".into())),
        "error_max_budget_usd" => Some(Trouble::Ended("it met its limit of money".into())),
        _ if json["is_error"] == true => Some(Trouble::of(json["api_error_status"].as_u64(), said)),
        "success" | "" => None,
        other => Some(Trouble::of(None, other)),
    };
    Said { usage: usage(&json), text, trouble }
}

/// Over all models, not `usage`, which can miss the last turn.
fn usage(json: &Json) -> Option<Usage> {
    let kinds = ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"];
    let models = json["modelUsage"].as_object()?.values();
    let tokens = models.flat_map(|model| kinds.iter().filter_map(|kind| model[kind].as_u64())).sum();
    Some(Usage { tokens, usd: json["total_cost_usd"].as_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposer::agent::tests::said;

    #[test]
    fn usage_is_that_of_all_models_caches_included() {
        // as printed by 2.1.197, shortened
        let said = said(
            &TOOL,
            0,
            r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.\nRaised the rate","total_cost_usd":0.12,"usage":{"input_tokens":1},"modelUsage":{"a":{"inputTokens":10,"outputTokens":5,"cacheReadInputTokens":100,"cacheCreationInputTokens":7},"b":{"inputTokens":1,"outputTokens":2}}}"#,
        );
        assert_eq!(said.usage, Some(Usage { tokens: 125, usd: Some(0.12) }));
        assert_eq!((said.text.as_deref(), said.trouble), (Some("Done.\nRaised the rate"), None));
    }

    #[test]
    fn limits_refused_keys_and_lost_connections_are_told_apart() {
        let trouble =
            |rest: &str| said(&TOOL, 1, &format!("{{\"type\":\"result\",{rest}}}")).trouble.unwrap();
        assert!(matches!(trouble(r#""subtype":"error_max_turns","is_error":true"#), Trouble::Ended(_)));
        assert!(matches!(
            trouble(
                r#""subtype":"success","is_error":true,"api_error_status":401,"result":"Failed to authenticate""#
            ),
            Trouble::SetUp(_)
        ));
        assert!(matches!(
            trouble(
                r#""subtype":"success","is_error":true,"api_error_status":null,"result":"API Error: Unable to connect to API (ConnectionRefused)""#
            ),
            Trouble::Down(_)
        ));
    }
}
