//! Codex CLI; flags and output as of 0.171.

use super::tool::{Output, Said, Tool, Trouble, count};

pub(super) const TOOL: Tool = Tool {
    command: &[
        "codex",
        "-a",
        "never",
        "exec",
        "--json",
        "-s",
        "workspace-write",
        "--ephemeral",
        "--skip-git-repo-check",
        "-",
    ],
    // its own sandbox cannot be set up inside another
    confined: &[
        "codex",
        "-a",
        "never",
        "exec",
        "--json",
        "-s",
        "danger-full-access",
        "--ephemeral",
        "--skip-git-repo-check",
        "-",
    ],
    model: "--model",
    max_usd: None,
    tells_usd: false,
    settings: &["~/.codex/"],
    set: &[],
    unset: &["CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED"],
    read,
};

fn read(output: &Output<'_>) -> Said {
    let mut said = Said::default();
    for event in output.events() {
        match event["type"].as_str().unwrap_or_default() {
            "item.completed" if event["item"]["type"] == "agent_message" => {
                said.text = event["item"]["text"].as_str().map(str::to_owned);
            }
            // input counts cached tokens too, and output those of reasoning
            "turn.completed" => {
                let tokens = count(&event, "/usage/input_tokens") + count(&event, "/usage/output_tokens");
                said.usage.get_or_insert_default().tokens += tokens;
            }
            "turn.failed" => {
                said.trouble = event["error"]["message"].as_str().map(|message| Trouble::of(None, message));
            }
            _ => {}
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposer::{Usage, agent::tests::said};

    #[test]
    fn a_turn_is_read_from_its_events() {
        // as printed by 0.171.0
        let said = said(
            &TOOL,
            0,
            r#"{"type":"thread.started","thread_id":"01a229e6"}
{"type":"turn.started"}
2026-11-30T00:47:00Z ERROR codex_api: failed to connect
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"Raised the rate"}}
{"type":"turn.completed","usage":{"input_tokens":1000,"cached_input_tokens":600,"cache_write_input_tokens":0,"output_tokens":50,"reasoning_output_tokens":10}}"#,
        );
        assert_eq!(said.usage, Some(Usage { tokens: 1050, usd: None }));
        assert_eq!((said.text.as_deref(), said.trouble), (Some("Raised the rate"), None));
    }

    #[test]
    fn a_refused_key_fails_the_turn() {
        let said = said(
            &TOOL,
            1,
            r#"{"type":"error","message":"Reconnecting... 1/1"}
{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized: invalid key"}}"#,
        );
        assert!(matches!(said.trouble, Some(Trouble::SetUp(_))) && said.usage.is_none());
    }
}
