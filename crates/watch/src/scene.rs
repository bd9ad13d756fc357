//! What is shown, as plain data. Whoever fills it has cleaned and shortened the texts.

/// One tag at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// The task's name.
    pub task: String,
    /// The metric's name.
    pub metric: String,
    /// Whether a lower value is better.
    pub lower_is_better: bool,
    /// The tag; `None` while there is none.
    pub tag: Option<String>,
    /// Profile and device, for example `laptop, cpu`.
    pub place: String,
    /// The time of day here, `23:15:04`.
    pub clock: String,
    /// Whether somebody is at work.
    pub standing: Standing,
    /// More of that: since when, why it ended, what a person has asked for.
    pub why: String,
    /// Whether it waits once its trial is over.
    pub pausing: bool,
    /// What the driver does now.
    pub now: Option<Now>,
    /// The champion's loss curve: (share of the budget, loss).
    pub champion_curve: Vec<(f64, f64)>,
    /// The champion.
    pub best: Option<Mark>,
    /// The first keep.
    pub baseline: Option<Mark>,
    /// How much better the champion is than the baseline; positive is better.
    pub gain: Option<f64>,
    /// Finished trials, oldest first.
    pub trials: Vec<Trial>,
    /// Trials by how they ended.
    pub counts: Counts,
    /// What limits the run, and how much of it is used.
    pub limits: Vec<Limit>,
    /// When the run ends by them, in words.
    pub stop: Option<String>,
    /// Hints that wait.
    pub hints: usize,
    /// The GPU's figures.
    pub gpu: Option<Gpu>,
    /// What cannot be shown, and why.
    pub trouble: Option<String>,
}

/// Whether somebody is at work on a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// There is no tag yet.
    #[default]
    NoTag,
    /// A run is under way.
    Running,
    /// A person has asked it to wait, and it waits.
    Paused,
    /// Another command of the driver is at work, which cannot be steered.
    Busy,
    /// Nobody.
    Over,
}

/// What the driver does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Now {
    /// What is under way: `trial 12`, `trial 3 again`; empty between trials.
    pub title: String,
    /// What it tries.
    pub description: String,
    /// Who proposed it.
    pub proposer: String,
    /// The phases that are over, with their seconds.
    pub done: Vec<(String, f64)>,
    /// The phase under way, or what is done between trials.
    pub doing: String,
    /// More of that: who is asked, what for.
    pub detail: String,
    /// Seconds that it has taken so far.
    pub spent_s: f64,
    /// Seconds that it takes, by its budget or by the trials so far.
    pub about_s: Option<f64>,
    /// The phases to come.
    pub to_come: Vec<String>,
    /// Seconds until the trial is over, by the trials so far.
    pub left_s: Option<f64>,
    /// The last line of a build.
    pub line: String,
    /// Training loss, nats a token; the mean over the last steps.
    pub loss: Option<f64>,
    /// The champion's at the same share of the budget.
    pub champion_loss: Option<f64>,
    /// Training steps so far.
    pub steps: Option<u64>,
    /// Tokens trained on in a second.
    pub tokens_s: Option<f64>,
    /// Memory of all its processes.
    pub memory_bytes: Option<u64>,
    /// Its loss curve: (share of the budget, loss).
    pub curve: Vec<(f64, f64)>,
}

/// One trial and its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mark {
    /// Its number.
    pub trial: u64,
    /// Its value.
    pub value: Option<f64>,
}

/// A finished trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// Its number.
    pub trial: u64,
    /// How it ended.
    pub status: Status,
    /// The verdict's word.
    pub outcome: String,
    /// Its value; `None` for a crash.
    pub value: Option<f64>,
    /// Value minus the champion's at that time.
    pub delta: Option<f64>,
    /// Seconds from the candidate to the verdict.
    pub seconds: f64,
    /// Peak memory, GB.
    pub memory_gb: f64,
    /// Who proposed it.
    pub proposer: String,
    /// What it tries.
    pub description: String,
    /// The time of day here when it ended, `23:15`.
    pub ended: String,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It became the champion.
    Keep,
    /// It was scored and not kept.
    #[default]
    Discard,
    /// It has no score.
    Crash,
}

/// Trials by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The baseline among them.
    pub keeps: usize,
    /// Scored and not kept.
    pub discards: usize,
    /// Without a score.
    pub crashes: usize,
}

/// Something that is used up, and may end a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limit {
    /// What, for example `trials`.
    pub name: String,
    /// How much, for example `12 of 50`.
    pub text: String,
    /// The share that is used, 0 to 1, where there is an end.
    pub share: Option<f64>,
}

/// A GPU's figures; what the driver does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Share of time in which a kernel ran, percent.
    pub busy_percent: Option<u32>,
    /// Memory in use and in all.
    pub memory_bytes: Option<(u64, u64)>,
    /// Degrees Celsius.
    pub celsius: Option<u32>,
    /// Power drawn, and its limit.
    pub watts: Option<(u32, Option<u32>)>,
}
