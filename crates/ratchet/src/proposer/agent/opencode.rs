//! opencode; flags and output as of 1.18.

use super::tool::{Output, Said, Tool, Trouble, count};

pub(super) const TOOL: Tool = Tool {
    // the title is given, or a model is asked for one and its cost told to nobody
    command: &["opencode", "run", "--format", "json", "--title", "ratchet", "--auto"],
    confined: &[],
    model: "--model",
    max_usd: None,
    tells_usd: true,
    settings: &[
        "~/.config/opencode/",
        "~/.local/share/opencode/",
        "~/.local/state/opencode/",
        "~/.cache/opencode/",
    ],
    // --auto grants all that is not denied
    set: &[
        ("OPENCODE_PERMISSION", r#"{"bash":"deny","webfetch":"deny","external_directory":"deny"}"#),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ],
    unset: &[],
    read,
};

fn read(output: &Output<'_>) -> Said {
    let mut said = Said::default();
    let mut usd = 0.0;
    for event in output.events() {
        let part = &event["part"];
        match event["type"].as_str().unwrap_or_default() {
            "text" => said.text = part["text"].as_str().map(str::to_owned),
            "step_finish" => {
                let kinds = ["/input", "/output", "/reasoning", "/cache/read", "/cache/write"];
                let usage = said.usage.get_or_insert_default();
                usage.tokens += kinds.map(|kind| count(&part["tokens"], kind)).iter().sum::<u64>();
                usd += part["cost"].as_f64().unwrap_or(0.0);
                // 0 is what it says of a model whose price it does not know
                usage.usd = (usd > 0.0).then_some(usd);
            }
            "error" => {
                let error = &event["error"];
                let name = error["name"].as_str().unwrap_or("it failed");
                let message = error["data"]["message"].as_str().unwrap_or(name);
                said.trouble = Some(Trouble::of(error["data"]["statusCode"].as_u64(), message));
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
    fn steps_are_added_up() {
        // as printed by 1.18.33, shortened; the second step is made up
        let said = said(
            &TOOL,
            0,
            r#"{"type":"step_start","part":{"type":"step-start"}}
{"type":"text","part":{"type":"text","text":"Raised the rate"}}
{"type":"step_finish","part":{"reason":"tool-calls","tokens":{"total":1020,"input":700,"output":20,"reasoning":0,"cache":{"write":0,"read":300}},"cost":0.25}}
{"type":"step_finish","part":{"reason":"stop","tokens":{"total":15,"input":1,"output":2,"reasoning":3,"cache":{"write":4,"read":5}},"cost":0.5}}"#,
        );
        assert_eq!(said.usage, Some(Usage { tokens: 1035, usd: Some(0.75) }));
        assert_eq!((said.text.as_deref(), said.trouble), (Some("Raised the rate"), None));
    }

    #[test]
    fn a_price_of_nothing_is_no_price_and_an_error_has_a_status() {
        let free = said(&TOOL, 0, r#"{"type":"step_finish","part":{"tokens":{"input":1},"cost":0}}"#);
        assert_eq!(free.usage, Some(Usage { tokens: 1, usd: None }));
        let error = r#"{"type":"error","error":{"name":"APIError","data":{"message":"invalid key","statusCode":401}}}"#;
        assert_eq!(said(&TOOL, 1, error).trouble, Some(Trouble::SetUp("invalid key".into())));
    }
}
