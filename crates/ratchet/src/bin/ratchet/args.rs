//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use prepare::profile::Profile;
use ratchet::{
    ablation, ahead,
    config::{Level, ProposerKind},
    cuda,
    doctor::forbidden,
    lookout, schedule,
    search::staff,
    session::Asked,
    sim,
    state::Tag,
    stop::{self, Rules},
    text::Wanted,
};

/// Improves code by experiment: proposes an edit, builds, runs, measures, keeps or resets, and logs.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Run as if started in DIR
    #[arg(short = 'C', global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the task and create the branch ratchet/TAG
    Init {
        #[command(flatten)]
        place: Place,
    },
    /// One experiment from the edits now in the working tree
    Try {
        /// What the edit does, in one line
        #[arg(short, long, value_name = "TEXT", value_parser = message)]
        message: String,
        #[command(flatten)]
        place: Place,
        /// Print one JSON line
        #[arg(long)]
        json: bool,
    },
    /// The loop: propose, try, keep or reset, until a stop rule or Ctrl-C
    Run(Box<RunArgs>),
    /// Record a tag's night as one file: proposals, answers, runs, verdicts
    Record {
        /// Where to write it
        file: PathBuf,
        #[command(flatten)]
        tag: TagArg,
    },
    /// Bring the working tree's editable files to the champion; edits are saved first
    Sync {
        #[command(flatten)]
        tag: TagArg,
    },
    /// Repeat a trial as it was and compare the values
    Rerun {
        /// The trial's number
        trial: u64,
        #[command(flatten)]
        tag: TagArg,
    },
    /// Run the champion with further seeds and say how much values vary by chance
    Noise {
        /// How many further runs
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
        #[command(flatten)]
        place: Place,
    },
    /// Score the kept models on held-out rows that no decision saw
    Audit {
        #[command(flatten)]
        tag: TagArg,
    },
    /// Whether the gain lasts: baseline and champion again, larger and longer
    Transfer {
        /// Time to train each run, for example 30m, 90s or 2h
        #[arg(long, value_name = "TIME", value_parser = span)]
        budget: Duration,
        /// Value of the knob DEPTH
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        depth: u32,
        /// Runs of each side; a standard error needs 2
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
        /// Also run the champion without each of its keeps
        #[arg(long)]
        leave_one_out: bool,
        #[command(flatten)]
        tag: TagArg,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Read what was kept, and accept, reject or defer it
    ///
    /// On a terminal it walks the keeps that are open, oldest first; elsewhere it lists them.
    Review(ReviewArgs),
    /// Make a branch of the accepted keeps, and run it against the baseline
    ///
    /// Exit code 0 when the gain is confirmed, 1 when it is not or the branch's head has no value, 2 when nothing is
    /// accepted or the branch exists, 3 when a keep needs one that is not accepted. Nothing is merged or pushed.
    Accept(AcceptArgs),
    /// Text from the champion's model, as it comes
    Sample(SampleArgs),
    /// Where it stands
    Status {
        #[command(flatten)]
        tag: TagArg,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// The night as it goes on this terminal: the trial, its loss curve, the best, the budget; keys steer the run
    Watch {
        #[command(flatten)]
        tag: TagArg,
    },
    /// Print the GPU's figures, a line a second; `watch` runs it
    #[command(name = lookout::GPU_COMMAND, hide = true)]
    GpuFigures,
    /// Serve the tools status, brief, read_trial, results and try to a coding agent, by MCP on stdin and stdout
    Mcp {
        #[command(flatten)]
        place: Place,
    },
    /// One trial whole: verdict, numbers, log, diff
    Show {
        /// The trial's number
        trial: u64,
        #[command(flatten)]
        tag: TagArg,
    },
    /// All trials
    Log {
        #[command(flatten)]
        tag: TagArg,
    },
    /// The night as a page, report.html, with progress.svg, progress.png and results.json beside it
    Report {
        /// Where to write it; default: report/ in the tag's folder below .ratchet/
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        #[command(flatten)]
        tag: TagArg,
    },
    /// Try what a confined process must not do; `doctor` runs it
    #[command(name = forbidden::COMMAND, hide = true)]
    TryForbidden {
        /// One act an argument
        acts: Vec<String>,
    },
    /// Load CUDA's libraries and ask the driver for its card; `doctor` and every trial's set-up run it
    #[command(name = cuda::COMMAND, hide = true)]
    TryCuda {
        /// Libraries by the names under which the loader looks for them
        libraries: Vec<String>,
    },
    /// Make the next proposal while a trial trains; the loop runs it
    #[command(name = ahead::COMMAND, hide = true)]
    Ahead,
    /// One simulated run of the settings in this folder; `[score]` of a simulated task runs it
    #[command(name = sim::COMMAND, hide = true)]
    Sim {
        /// Which landscape
        #[arg(long)]
        landscape: u64,
        /// Standard deviation of one run, in bpb
        #[arg(long)]
        sigma: f64,
        /// The seed of the run
        #[arg(long, env = "RATCHET_SEED", default_value_t = 0)]
        seed: u64,
    },
    /// Queue an idea for the next proposal: ratchet hint "try a cosine decay"; alone it lists the queue
    Hint {
        /// The idea, in a sentence or two
        text: Option<String>,
        /// Take number N of the list out of the queue
        #[arg(long, value_name = "N", conflicts_with = "text")]
        remove: Option<usize>,
        #[command(flatten)]
        tag: TagArg,
    },
    /// What a proposer would be told now; with --suggest, a change of program.md from the trials
    Brief {
        /// Draft a change of program.md, which only you apply
        #[arg(long)]
        suggest: bool,
        #[command(flatten)]
        tag: TagArg,
    },
    /// The mechanisms of the search, for runs with --levels 2: ratchet mechanisms enable tabu; alone it lists them
    Mechanisms {
        #[command(subcommand)]
        act: Option<MechanismAct>,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        tag: TagArg,
    },
    /// Run one mechanism's script; the loop starts it
    #[command(name = staff::COMMAND, hide = true)]
    Mechanism,
    /// Have the run wait after its trial
    Pause,
    /// Let a paused run go on
    Resume,
    /// End the run after its trial: ratchet stop; or in the middle of it: ratchet stop --now
    Stop {
        /// At once; the trial has no row
        #[arg(long)]
        now: bool,
    },
    /// Compare ways to search on equal budgets, with the controls that a claim needs
    Ablate {
        #[command(flatten)]
        plan: AblateArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Repeats at a time; default: one a core on sim, else 1
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        jobs: Option<u64>,
    },
    /// One repeat of an ablation, in its folder; `ablate` runs it
    #[command(name = ablation::COMMAND, hide = true)]
    AblateRepeat,
    /// Have nights begin by themselves: ratchet schedule --at 23:00 --until 07:00 shows what would be written
    Schedule(Box<ScheduleArgs>),
    /// Whether a scheduled night may begin now, by the exit code; timers run it
    #[command(name = schedule::COMMAND, hide = true)]
    Within {
        /// When nights begin
        #[arg(value_parser = stop::clock)]
        at: jiff::civil::Time,
        /// When they end
        #[arg(value_parser = stop::clock)]
        until: jiff::civil::Time,
    },
    /// Check toolchain, GPU, data and task, with a remedy for each failure
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Only send a test message to those that [notify] names
        #[arg(long, conflicts_with = "json")]
        notify: bool,
    },
    /// What a shell needs to complete ratchet's commands and flags, on standard output
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// The manual: a page for each command into DIR, or ratchet's own on standard output
    Man {
        /// A folder for the pages, ratchet.1 and ratchet-run.1 and so on
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) stop: StopArgs,
    /// Who proposes; else as ratchet.toml says
    #[arg(long, value_name = "KIND")]
    pub(crate) proposer: Option<Kind>,
    /// What of the search may change: 1 nothing, 1.5 its settings, 2 its mechanisms too; else as ratchet.toml says
    #[arg(long, value_name = "LEVEL")]
    pub(crate) levels: Option<Levels>,
    /// The recorded night of --proposer replay; else as ratchet.toml says
    #[arg(long, value_name = "FILE")]
    pub(crate) night: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SampleArgs {
    /// What the text goes on from
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    prompt: String,
    /// Tokens at most; it ends before where the model ends the document
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,
    /// How wild: 0 takes the likeliest token each time, 1 draws as the model says
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = temperature)]
    temperature: f64,
    /// Draw among the K likeliest tokens only
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    top_k: Option<u32>,
    /// Repeats a text; else each is another
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The model of kept trial N in place of the champion's
    #[arg(long, value_name = "N")]
    trial: Option<u64>,
    #[command(flatten)]
    pub(crate) tag: TagArg,
}

impl From<SampleArgs> for Wanted {
    fn from(args: SampleArgs) -> Self {
        Self {
            prompt: args.prompt,
            tokens: args.tokens,
            temperature: args.temperature,
            top_k: args.top_k,
            seed: args.seed.unwrap_or_else(rand::random),
            trial: args.trial,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReviewArgs {
    /// Trials that were kept; without a decision they are shown whole
    #[arg(value_name = "TRIAL")]
    pub(crate) trials: Vec<u64>,
    /// Accept them: `ratchet accept` takes them to a branch
    #[arg(long, group = "decision", requires = "trials")]
    pub(crate) accept: bool,
    /// Reject them
    #[arg(long, group = "decision", requires = "trials")]
    pub(crate) reject: bool,
    /// Put them off: `ratchet review` asks again, and they count as looked at
    #[arg(long, group = "decision", requires = "trials")]
    pub(crate) defer: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", requires = "decision")]
    pub(crate) note: Option<String>,
    /// Print the keeps with their decisions and evidence as one JSON object
    #[arg(long, conflicts_with = "decision")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tag: TagArg,
}

#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    /// The new branch's name; default: accepted/TAG
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
    /// Runs of each side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    #[command(flatten)]
    pub(crate) tag: TagArg,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// When nights begin
    #[arg(long, value_name = "HH:MM", value_parser = stop::clock, requires = "until")]
    pub(crate) at: Option<jiff::civil::Time>,
    /// When they end
    #[arg(long, value_name = "HH:MM", value_parser = stop::clock, requires = "at")]
    pub(crate) until: Option<jiff::civil::Time>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Who proposes; default: as ratchet.toml says
    #[arg(long, value_name = "KIND", requires = "at")]
    pub(crate) proposer: Option<Kind>,
    /// Write and enable what is shown
    #[arg(long, requires = "at")]
    pub(crate) install: bool,
    /// Take away what is installed here
    #[arg(long, conflicts_with_all = ["at", "until", "install"])]
    pub(crate) remove: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MechanismAct {
    /// What one has done, why it stands where it does, and its script
    Show {
        /// As the list has it
        id: String,
    },
    /// Use one or several in runs with --levels 2, on trial like any other
    Enable {
        /// As the list has them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Use one or several no more
    Disable {
        /// As the list has them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Whether one may be used: its own cases, and the hooks on the tag's trials
    Test {
        /// As the list has it, or the path of a script
        script: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TagArg {
    /// The series of trials; default: the current one
    #[arg(long, value_parser = tag)]
    pub(crate) tag: Option<Tag>,
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The series of trials; default: the current one, else today's date
    #[arg(long, value_parser = tag)]
    tag: Option<Tag>,
    /// full, laptop or smoke; default: full where a CUDA device and its data are, else laptop
    #[arg(long)]
    profile: Option<Profile>,
}

impl From<Place> for Asked {
    fn from(place: Place) -> Self {
        Self { tag: place.tag, profile: place.profile, night: None }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Stop after N trials of this run; the baseline counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    trials: Option<u64>,
    /// Stop after H hours
    #[arg(long, value_name = "H", value_parser = hours)]
    hours: Option<Duration>,
    /// Stop at this time of day
    #[arg(long, value_name = "HH:MM", value_parser = stop::clock)]
    until: Option<jiff::civil::Time>,
    /// Stop when the best value reaches X
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    target: Option<f64>,
    /// Stop after N trials without a keep
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    stall: Option<u64>,
    /// Stop when proposers have spent N tokens
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// Stop when proposers have spent X US dollars
    #[arg(long, value_name = "X", value_parser = dollars)]
    max_usd: Option<f64>,
}

impl From<StopArgs> for Rules {
    fn from(args: StopArgs) -> Self {
        Self {
            trials: args.trials,
            time: args.hours,
            until: args.until,
            target: args.target,
            stall: args.stall,
            max_tokens: args.max_tokens,
            max_usd: args.max_usd,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AblateArgs {
    /// A level 1, B + 1.5, C + 1.5 + 2, D + 2, R level 1 with C's restarts, T TPE, N D without domain hints, M level 1
    /// and the built-in mechanisms, P one that does nothing, H one that does harm; default: A to R, on sim T and N too
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    groups: Vec<ablation::Group>,
    /// Repeats of each group
    #[arg(long, value_name = "N", default_value_t = 20)]
    repeats: usize,
    /// The budget of a repeat, in trials of the task: a re-run costs as much as a trial
    #[arg(long, value_name = "N", default_value_t = 30)]
    trials: u64,
    /// The simulated task, or that of this folder
    #[arg(long, value_name = "TASK", default_value = "sim")]
    task: On,
    /// Where to write it; default: .ratchet/ablations/NNN
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What landscapes and luck are drawn from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl From<AblateArgs> for ablation::Asked {
    fn from(args: AblateArgs) -> Self {
        let on = match args.task {
            On::Sim => ablation::On::Sim,
            On::Gpt => ablation::On::Gpt,
        };
        Self {
            groups: args.groups,
            repeats: args.repeats,
            trials: args.trials,
            on,
            out: args.out,
            seed: args.seed,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum On {
    /// The simulated task; time by a price list
    Sim,
    /// The task of this folder, by the clock
    Gpt,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// The built-in search over marked tunables, offline
    Knobs,
    /// The model of [proposer.llm]
    Llm,
    /// The command of [proposer.agent]
    Agent,
    /// A recorded night, without keys or GPU: every verdict is held against the recorded one
    Replay,
}

impl From<Kind> for ProposerKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Knobs => Self::Knobs,
            Kind::Llm => Self::Llm,
            Kind::Agent => Self::Agent,
            Kind::Replay => Self::Replay,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Levels {
    /// Propose, try, keep or reset
    #[value(name = "1")]
    One,
    /// Strategy, frozen knobs and guidance are adjusted every few trials
    #[value(name = "1.5")]
    OneAndAHalf,
    /// On a plateau a new mechanism of the search is written, validated and measured
    #[value(name = "2")]
    Two,
}

impl From<Levels> for Level {
    fn from(levels: Levels) -> Self {
        match levels {
            Levels::One => Self::One,
            Levels::OneAndAHalf => Self::OneAndAHalf,
            Levels::Two => Self::Two,
        }
    }
}

fn message(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("say in a few words what the edit does: they become the trial's description".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn tag(text: &str) -> Result<Tag, String> {
    Tag::parse(text).map_err(|error| error.to_string())
}

fn hours(text: &str) -> Result<Duration, String> {
    let hours: f64 =
        text.parse().map_err(|_| "must be a number of hours, for example 8 or 0.5".to_owned())?;
    // ten years: more is a slip, and would not fit the clock
    if hours > 0.0 && hours < 87_600.0 {
        Ok(Duration::from_secs_f64(hours * 3600.0))
    } else {
        Err("must be more than 0 hours".to_owned())
    }
}

fn span(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "must be a time above 0 and below 7 days, for example 30m, 90s or 2h";
    let unit = text.chars().next_back().and_then(|unit| {
        [('s', 1.0), ('m', 60.0), ('h', 3600.0)].into_iter().find(|(name, _)| *name == unit)
    });
    let (name, seconds) = unit.ok_or(WANTED)?;
    let number: f64 = text.trim_end_matches(name).parse().map_err(|_| WANTED)?;
    let seconds = number * seconds;
    if seconds > 0.0 && seconds < 7.0 * 86_400.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(WANTED.to_owned())
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|t: &f64| t.is_finite() && *t >= 0.0)
        .ok_or_else(|| "must be a number from 0 up".to_owned())
}

fn dollars(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|usd: &f64| usd.is_finite() && *usd >= 0.0)
        .ok_or_else(|| "must be an amount".to_owned())
}
