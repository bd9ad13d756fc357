//! One message: what a webhook is posted and a command reads.

use serde::Serialize;

use crate::{config::Occasion, runlog::plain};

/// Characters of a description or a reason.
const LONGEST: usize = 300;

/// A message as JSON. Slack and what is compatible with it shows `text`; the rest is for programs, and `null` where
/// there is nothing to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message {
    /// The whole, for a person.
    pub text: String,
    /// Why it is sent.
    pub event: Occasion,
    /// The task's name.
    pub task: String,
    /// The tag.
    pub tag: String,
    /// The metric's name.
    pub metric: String,
    /// The trial that it is about.
    pub trial: Option<u64>,
    /// That trial's value.
    pub value: Option<f64>,
    /// The champion's value.
    pub best: Option<f64>,
    /// `value` minus the champion's of that time, in the metric's own sign.
    pub delta: Option<f64>,
    /// What the champion gained over the baseline; more is better, whatever the goal.
    pub gain: Option<f64>,
    /// What that trial tries.
    pub description: Option<String>,
    /// Why a run ended, or how long nothing has finished.
    pub reason: Option<String>,
    /// Trials of the tag.
    pub counts: Counts,
    /// `false`: Slack is not to fetch what an address in a description leads to.
    unfurl_links: bool,
    unfurl_media: bool,
    /// `false`: a `*` is a `*`.
    mrkdwn: bool,
}

/// Trials of the tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All.
    pub trials: u64,
    /// Kept.
    pub keeps: u64,
    /// Not kept.
    pub discards: u64,
    /// Without a score.
    pub crashes: u64,
}

impl Message {
    /// A message that says nothing yet but why it is sent.
    pub(super) fn new(event: Occasion, task: &str, tag: &str, metric: &str) -> Self {
        Self {
            text: String::new(),
            event,
            task: plain(task, LONGEST),
            tag: tag.to_owned(),
            metric: metric.to_owned(),
            trial: None,
            value: None,
            best: None,
            delta: None,
            gain: None,
            description: None,
            reason: None,
            counts: Counts::default(),
            unfurl_links: false,
            unfurl_media: false,
            mrkdwn: false,
        }
    }

    /// With what a proposer or a program wrote, made short and plain.
    pub(super) fn because(mut self, reason: &str) -> Self {
        self.reason = Some(plain(reason, LONGEST));
        self
    }

    /// The same for what a trial tries.
    pub(super) fn about(mut self, trial: u64, description: &str) -> Self {
        (self.trial, self.description) = (Some(trial), Some(plain(description, LONGEST)));
        self
    }

    /// Puts the text together from what is known.
    pub(super) fn written(mut self) -> Self {
        let mut text = format!("{} {}: ", self.task, self.tag);
        let trial = self.trial.map_or(String::new(), |trial| format!("trial {trial}"));
        let (reason, description) =
            (self.reason.as_deref().unwrap_or_default(), self.description.as_deref().unwrap_or_default());
        match self.event {
            Occasion::Keep => {
                let value = self.value.map_or(String::new(), |value| format!(", {} {value:.6}", self.metric));
                let delta = self.delta.map_or(String::new(), |delta| format!(" ({delta:+.6})"));
                text += &format!("{trial} is kept{value}{delta}: {description}");
            }
            Occasion::Stop => text += &format!("the run has ended: {reason}"),
            Occasion::Error => text += &format!("the run could not go on: {reason}"),
            Occasion::Stuck => {
                let under_way =
                    if trial.is_empty() { trial } else { format!("; {trial} is under way: {description}") };
                text += &format!("{reason}{under_way}");
            }
            Occasion::Morning => text += &format!("good morning; {reason}"),
            Occasion::Test => text += "a test: messages of this task arrive here",
        }
        let Counts { trials, keeps, discards, crashes } = self.counts;
        if trials > 0 {
            text += &format!(". {trials} trials: {keeps} kept, {discards} discarded, {crashes} crashed");
        }
        if let Some(best) = self.best {
            text += &format!("; best {} {best:.6}", self.metric);
        }
        if let Some(gain) = self.gain {
            text += &format!(", {gain:.6} better than the baseline");
        }
        self.text = harmless(&text);
        self
    }

    /// For the wire.
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // texts and numbers: cannot fail
    }
}

/// Text in which a chat sees no markup and calls nobody: Slack reads `<!channel>` and `<@U…>`, others `@everyone`.
fn harmless(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('@', "@\u{200b}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_description_is_short_plain_and_calls_nobody() {
        let hostile =
            format!("<!channel> <@U123> @everyone &amp; \u{1b}[31m*x*\n\u{202e}{}", "a".repeat(10_000));
        let message = Message::new(Occasion::Keep, "toy", "bar", "loss").about(7, &hostile).written();
        let json: serde_json::Value = serde_json::from_slice(&message.json()).unwrap();
        let text = json["text"].as_str().unwrap();
        assert!(
            text.contains("&lt;!channel&gt; &lt;@\u{200b}U123&gt; @\u{200b}everyone &amp;amp; *x* "),
            "{text}"
        );
        assert!(!text.contains(['<', '>', '\n', '\u{1b}', '\u{202e}']), "{text}");
        assert!(text.chars().count() < 500 && message.json().len() < 4096);
        let description = json["description"].as_str().unwrap();
        assert!(description.starts_with("<!channel>") && description.chars().count() <= LONGEST + 1);
        assert_eq!((&json["mrkdwn"], &json["unfurl_links"]), (&false.into(), &false.into()));
    }

    #[test]
    fn what_is_not_known_is_null() {
        let message = Message::new(Occasion::Stop, "toy", "bar", "loss").because("it is 07:00").written();
        let json: serde_json::Value = serde_json::from_slice(&message.json()).unwrap();
        for key in ["trial", "value", "best", "delta", "gain", "description"] {
            assert!(json[key].is_null(), "{key}");
        }
        assert_eq!(json["text"], "toy bar: the run has ended: it is 07:00");
        assert_eq!(json["counts"]["keeps"], 0);
    }
}
