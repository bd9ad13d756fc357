//! aider; flags and output as of 0.86.

use super::tool::{Output, Said, Tool, Trouble, count, objects};
use crate::{plain_file, proposer::Usage};

pub(super) const TOOL: Tool = Tool {
    // its notes beside the files would be edits; --no-analytics for this run, where --analytics-disable is for good
    command: &[
        "aider",
        "--message-file",
        "{prompt}",
        "--yes-always",
        "--no-git",
        "--no-stream",
        "--no-pretty",
        "--map-tokens",
        "0",
        "--no-analytics",
        "--analytics-log",
        "{tmp}/aider.jsonl",
        "--chat-history-file",
        "{tmp}/aider.chat.md",
        "--input-history-file",
        "{tmp}/aider.input",
        "--no-check-update",
        "--no-show-release-notes",
        "--no-auto-lint",
        "--no-detect-urls",
        "--no-suggest-shell-commands",
        "{files}",
    ],
    confined: &[],
    model: "--model",
    max_usd: None,
    tells_usd: true,
    settings: &[
        "~/.aider/",
        "~/.aider.conf.yml",
        "~/.aider.model.settings.yml",
        "~/.aider.model.metadata.json",
    ],
    set: &[],
    unset: &[],
    read,
};

fn read(output: &Output<'_>) -> Said {
    let log = plain_file::read(&output.temporary.join("aider.jsonl")).unwrap_or_default();
    let mut usage: Option<Usage> = None;
    for event in objects(&String::from_utf8_lossy(&log)).filter(|event| event["event"] == "message_send") {
        let usage = usage.get_or_insert_default();
        usage.tokens += count(&event, "/properties/total_tokens");
        let cost = event["properties"]["cost"].as_f64().filter(|usd| *usd > 0.0); // 0: a price it does not know
        usage.usd = cost.map(|usd| usage.usd.unwrap_or(0.0) + usd).or(usage.usd);
    }
    // what the model said stands before the count of its tokens
    let (said, _) = output.out.rsplit_once("\nTokens: ").unwrap_or((output.out, ""));
    let text = said.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
    // it ends with 0 whatever happened, and says what in words
    let error = output.out.lines().find(|line| line.starts_with("litellm.") && line.contains("Error"));
    let no_key = output.out.lines().find(|line| line.contains("no API keys were provided"));
    let trouble = match (error, no_key) {
        (_, Some(line)) => Some(Trouble::SetUp(line.to_owned())),
        (Some(line), _) => Some(Trouble::of(None, line)),
        _ => None,
    };
    Said { usage, text, trouble }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposer::agent::tests::said_in;

    #[test]
    fn usage_stands_in_its_own_log() {
        let dir = tempfile::tempdir().unwrap();
        // as written by 0.86.2, shortened
        std::fs::write(
            dir.path().join("aider.jsonl"),
            r#"{"event": "message_send_starting", "properties": {}, "time": 1795999432}
{"event": "message_send", "properties": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020, "cost": 0.25, "total_cost": 0.25}}
{"event": "message_send", "properties": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "cost": 0.5, "total_cost": 0.75}}
{"event": "exit", "properties": {"reason": "Completed --message-file"}}
"#,
        )
        .unwrap();
        let printed = "Aider v0.86.2\nAdded x.txt to the chat.\n\nRaised the rate\n\nTokens: 1.0k sent, 20 received. Cost: $0.25 message, $0.25 session.\nApplied edit to x.txt\n";
        let said = said_in(&TOOL, 0, printed, "", dir.path());
        assert_eq!(said.usage, Some(Usage { tokens: 1032, usd: Some(0.75) }));
        assert_eq!((said.text.as_deref(), said.trouble), (Some("Raised the rate"), None));
    }

    #[test]
    fn what_fails_is_in_its_words_and_not_in_its_exit_code() {
        let trouble = |printed: &str| said_in(&TOOL, 0, printed, "", "/nowhere".as_ref()).trouble.unwrap();
        let refused = "litellm.AuthenticationError: AuthenticationError: OpenAIException - invalid key\n";
        assert!(matches!(trouble(refused), Trouble::SetUp(_)));
        assert!(matches!(trouble("litellm.InternalServerError: Connection error.\n"), Trouble::Down(_)));
        let login = "No LLM model was specified and no API keys were provided.\n";
        assert!(matches!(trouble(login), Trouble::SetUp(_)));
    }
}
