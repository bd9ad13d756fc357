//! Progress for a person: moving lines on a terminal, plain lines elsewhere. All on stderr.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    time::{Duration, Instant},
};

use ratchet::{
    journal::{Status, TrialRecord},
    progress::{Observer, Phase, Progress},
    run::Summary,
    runlog::plain,
    show::short,
    stop::Rules,
};

use crate::bars::Bars;

/// Where nothing moves, a long phase shows a sign of life this often.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// Where progress is shown.
pub(crate) struct Screen {
    metric: String,
    bars: Option<Bars>,
    colour: bool,
    /// The phase under way, when it began, and when something of it was last shown.
    phase: Option<(Phase, Instant, Instant)>,
}

impl Screen {
    /// For a task whose metric has this name.
    pub(crate) fn new(metric: &str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { metric: metric.to_owned(), bars: terminal.then(Bars::new), colour, phase: None }
    }

    /// One line that stays.
    pub(crate) fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.print(text),
            None => {
                // a reader that went away must not end a night
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }

    fn note(&self, text: &str) {
        self.line(&format!("{} {text}", self.painted("33", "note:")));
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A night begins by these rules.
    pub(crate) fn plan(&mut self, rules: &Rules) {
        if let Some(bars) = &mut self.bars {
            bars.plan(rules.trials, rules.time_left());
        }
    }

    fn begin(&self, what: String, about: Option<Duration>) {
        if let Some(bars) = &self.bars {
            bars.begin(what, about);
        }
    }

    /// Takes what moves away.
    pub(crate) fn clear(&mut self) {
        if let Some(bars) = &mut self.bars {
            bars.clear();
        }
    }

    /// What a long phase has printed: beside what moves, else a line now and then.
    fn output(&mut self, text: &str) {
        let Some((phase, began, shown)) = &mut self.phase else { return };
        if let Some(bars) = &self.bars {
            bars.say(text);
        } else if shown.elapsed() >= HEARTBEAT {
            *shown = Instant::now();
            let line = format!("  {phase}, {} s so far: {text}", began.elapsed().as_secs());
            self.line(&line);
        }
    }

    fn ended(&mut self, record: &TrialRecord, champion: Option<&TrialRecord>) {
        if let Some(bars) = &self.bars {
            bars.end();
            bars.count();
        }
        let times: Vec<String> =
            record.phases.iter().map(|(phase, seconds)| format!("{phase} {seconds:.1} s")).collect();
        let word = match record.status {
            Status::Keep => self.painted("32", "keep"),
            Status::Discard => "discard".to_owned(),
            Status::Crash => self.painted("31", "crash"),
        };
        let value = record.value.map_or(String::new(), |value| format!("  {} {value:.6}", self.metric));
        let best = champion
            .and_then(|champion| champion.value)
            .map_or(String::new(), |best| format!("  best {best:.6}"));
        self.line(&format!(
            "  {word}{value}{best}  {}",
            self.painted("2", &format!("({})", times.join(", ")))
        ));
        self.line(&format!("  {}", plain(&record.verdict.reason, 300)));
    }
}

impl Observer for Screen {
    fn tell(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Note(text) => self.note(text),
            Progress::Paused { why: None } => {
                self.note("paused: `ratchet resume` lets it go on, `ratchet stop` ends it");
            }
            Progress::Paused { why: Some(why) } => self.note(&format!(
                "waits: {why}: `ratchet review` walks them; `ratchet resume` lets this run go on all the same"
            )),
            Progress::Resumed => self.note("goes on"),
            Progress::Proposing { proposer } => self.begin(format!("{proposer} proposes"), None),
            Progress::Searching { what } => self.begin(format!("the search {what}"), None),
            Progress::NoProposal { reason } => {
                self.line(&format!("  no proposal: {}", plain(reason, 300)));
            }
            Progress::Started { trial, proposer, description } => {
                let by = if description == proposer { String::new() } else { format!("  [{proposer}]") };
                self.line(&format!("{} {description}{by}", self.painted("1", &format!("trial {trial}"))));
            }
            Progress::Phase { phase, about, .. } => {
                self.phase = Some((phase, Instant::now(), Instant::now()));
                self.begin(phase.to_string(), about);
                // where nothing moves, a long phase says that it has begun
                if self.bars.is_none()
                    && (about.is_some_and(|about| about.as_secs() >= 10)
                        || phase == Phase::Build
                        || phase == Phase::Prepare)
                {
                    self.line(&format!(
                        "  {phase}{}",
                        about.map_or(String::new(), |about| format!(", {} s", about.as_secs()))
                    ));
                }
            }
            Progress::Output(text) => self.output(text),
            Progress::Ended { record, champion } => self.ended(record, champion),
        }
    }
}

/// What a run came to, and how to read on; `page` is its report.
pub(crate) fn summary(summary: &Summary, metric: &str, tag: &str, page: Option<&Path>) -> String {
    let [keeps, discards, crashes] = summary.counts;
    let seconds = summary.elapsed.as_secs();
    let time = if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) };
    let trials =
        if summary.trials == 1 { "1 trial".to_owned() } else { format!("{} trials", summary.trials) };
    let mut text = format!(
        "{trials} in {time}; tag {tag} now has {keeps} kept, {discards} discarded, {crashes} crashed\n"
    );
    if let (Some(baseline), Some(champion)) = (&summary.baseline, &summary.champion) {
        let value = |record: &TrialRecord| record.value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        text += &format!(
            "{metric}: baseline {}, best {} (trial {}, commit {})\n",
            value(baseline),
            value(champion),
            champion.trial,
            champion.commit.as_deref().map_or("-".to_owned(), short)
        );
    }
    if let Some(page) = page {
        text += &format!("report: {}\n", page.display());
    }
    if let Some(review) = &summary.review {
        text += &format!("review: {review}\n");
    }
    text += &format!(
        "read on: results.tsv; ratchet log; ratchet show N; git log -p ratchet/{tag}\n\
         your files are as they were: ratchet sync brings the champion's into them\n"
    );
    text
}
