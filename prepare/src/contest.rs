//! The contest protocol: `fit` and `score` as separate processes of one binary.
//!
//! | arguments | does | exit codes |
//! |---|---|---|
//! | `fit --out DIR [--steps N]` | trains, leaves model, `fit.json`, `steps.csv` | 0, 1, 2, 4, 124 |
//! | `preflight --out DIR` | two steps, round trip, causality, memory; `preflight.json` | 0, 1, 2, 4 |
//! | `score --model DIR` | takes an exam on standard input, answers on standard output | 0, 1, 2 |
//! | none | `fit` and `score` for a person, then the summary block | as theirs |
//!
//! 0: done (a refused model is an answer), 1: the contestant failed, 2: usage, 4: no data or no device, 124:
//! ended by the watchdog.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use candle_core::{Device, Tensor};
use clap::{Parser, Subcommand};

use crate::cache::{Cache, CacheError};
pub use crate::checkpoint::Checkpoint;
use crate::clock::Budget;
use crate::exam::{Rejected, Verdict};
use crate::fit::Task;
use crate::profile::{Profile, UnknownProfile};
use crate::sample::{Choice, Wanted};
use crate::score::ScoreError;
pub use crate::trial::{Batch, Description, Trial};
use crate::{by_hand, device, fit, pipe, preflight, sample, score};

/// The seed when the harness gives none.
pub const DEFAULT_SEED: u64 = 42;
/// Environment variable of the seed, an unsigned integer.
pub const SEED_ENV: &str = "RATCHET_SEED";

/// Environment variable of a budget other than the profile's, seconds. A result under one is compared with
/// none under another.
pub const BUDGET_ENV: &str = "RATCHET_BUDGET_S";

/// Candle's result, so that `?` passes on what its ops return.
pub type Result<T, E = candle_core::Error> = std::result::Result<T, E>;

/// A model that can be trained, stored, and asked for logits. All that a contestant implements.
pub trait Contestant: Sized {
    /// Trains until `trial.done()`; everything in here is inside the budget.
    fn fit(trial: &mut Trial) -> Result<Self>;

    /// Named tensors and a JSON config, enough to rebuild the model. Inside the budget as well.
    fn save(&self) -> Result<Checkpoint>;

    /// The model again, on `device`; called in another process than `fit`.
    fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Self>;

    /// x: (B, T) u32 token ids → logits (B, T, vocab), f32 or bf16, before any softmax.
    /// Row b, position t may depend on `x[b][0..=t]` and on nothing else.
    fn logits(&self, x: &Tensor) -> Result<Tensor>;
}

/// Why a process of the contest ends without what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ContestError {
    /// Contestant code, or candle under it.
    #[error("{0}")]
    Contestant(#[from] candle_core::Error),
    /// The model is not admissible.
    #[error("{0}")]
    Score(#[from] ScoreError),
    /// A check of preflight failed.
    #[error("{0}")]
    Preflight(String),
    /// The data is not there.
    #[error("{0}")]
    Data(#[from] CacheError),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The exam came to no result.
    #[error("{0}")]
    Exam(String),
    /// No text can be written.
    #[error("no text: {0}")]
    Text(String),
    /// A process of the run ended with this code, having said why.
    #[error("`{0}` ended with exit code {1}")]
    Child(&'static str, u8),
}

impl ContestError {
    pub(crate) fn file(path: &Path, source: io::Error) -> ContestError {
        ContestError::File { path: path.to_owned(), source }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            ContestError::Usage(_) => 2,
            ContestError::Data(_) => 4,
            ContestError::Child(_, code) => *code,
            _ => 1,
        }
    }
}

impl From<Rejected> for ContestError {
    fn from(rejected: Rejected) -> ContestError {
        ScoreError::from(rejected).into()
    }
}

impl From<UnknownProfile> for ContestError {
    fn from(e: UnknownProfile) -> ContestError {
        ContestError::Usage(e.to_string())
    }
}

#[derive(Parser)]
#[command(about = "Trains a contestant for a fixed budget and scores it in bits per byte")]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// full, laptop or smoke [env: RATCHET_PROFILE] [default: full where it is ready, else laptop]
    #[arg(long, global = true)]
    profile: Option<Profile>,
    /// Train this many steps instead of the profile's time; not a result that counts
    #[arg(long, global = true)]
    steps: Option<u64>,
    /// Where the model, fit.json and steps.csv go
    #[arg(long, default_value = ".ratchet/by-hand")]
    out: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Train, and leave model, fit.json and steps.csv in a directory
    Fit {
        /// The directory
        #[arg(long)]
        out: PathBuf,
    },
    /// Train two steps and check what can be checked in seconds
    Preflight {
        /// Directory for preflight.json
        #[arg(long)]
        out: PathBuf,
    },
    /// Score a model on the exam that comes on standard input
    Score {
        /// Directory of the model
        #[arg(long)]
        model: PathBuf,
    },
    /// Write text with a model; what it goes on from comes on standard input
    Sample {
        /// Directory of the model
        #[arg(long)]
        model: PathBuf,
        #[command(flatten)]
        choice: Choice,
        /// Tokens at most; a document may end before
        #[arg(long)]
        tokens: u32,
        /// Seed of the draws
        #[arg(long)]
        seed: u64,
    },
}

/// The whole `main` of a contestant: `fn main() -> ExitCode { prepare::contest::<Gpt>() }`.
pub fn contest<C: Contestant>() -> ExitCode {
    match contest_from::<C>(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}

/// [`contest`] with arguments from elsewhere, the program's name first. Exits by itself on `--help` and on
/// arguments it does not know.
pub fn contest_from<C: Contestant>(args: impl IntoIterator<Item = OsString>) -> Result<(), ContestError> {
    let begun = Instant::now();
    let args = Args::parse_from(args);
    let steps = args.steps;
    let budget = |profile: Profile| steps.map_or(Budget::Time(profile.spec().budget), Budget::Steps);
    match args.command {
        Some(Command::Score { model }) => {
            seal();
            take_exam::<C>(&model)
        }
        Some(Command::Fit { out }) => {
            seal();
            let witness = pipe::take_witness().map_err(|e| ContestError::Exam(e.to_string()))?;
            let profile = choose_profile(args.profile)?;
            let budget = match asked_budget()? {
                Some(asked) if steps.is_none() => Budget::Time(asked),
                _ => budget(profile),
            };
            fit::fit::<C>(Task { profile, seed: seed()?, budget }, &out, witness, begun)
        }
        Some(Command::Preflight { out }) => {
            seal();
            preflight::preflight::<C>(choose_profile(args.profile)?, seed()?, &out, begun)
        }
        Some(Command::Sample { model, choice, tokens, seed }) => {
            seal();
            let prompt = io::read_to_string(io::stdin().lock())
                .map_err(|e| ContestError::Usage(format!("the prompt is not UTF-8 text: {e}")))?;
            let to = pipe::private_stdout().map_err(|e| ContestError::Text(e.to_string()))?;
            let wanted = Wanted { prompt, tokens, choice, seed };
            sample::sample::<C>(choose_profile(args.profile)?, &model, &wanted, to)
        }
        None => by_hand::run(choose_profile(args.profile)?, steps, &args.out, begun),
    }
}

/// Contestant code starts no process and becomes no other program: a child could train on when the clock has
/// stopped, and a program started anew would have a new clock. Where the kernel cannot, the driver's own sandbox
/// and clock have to do.
fn seal() {
    if let Err(e) = sandbox::seal() {
        eprintln!("note: {e}");
    }
}

/// `score`: takes the exam before anything else, then loads and scores the model. Writes no file.
fn take_exam<C: Contestant>(model: &Path) -> Result<(), ContestError> {
    let (header, rows, mut answers) = pipe::take().map_err(|e| ContestError::Exam(e.to_string()))?;
    let device = device::claim()?;
    let model = C::load(&Checkpoint::read(model, &device)?, &device)?;
    // a driver that went away is noticed with the last answer
    let scored = score::score(&model, &header, &rows, &device, |done| drop(answers.progress(done)));
    let verdict = match scored {
        Ok(scored) => Verdict::Scored(scored),
        Err(ScoreError::Rejected(rejected)) => Verdict::Rejected(rejected),
        Err(e) => return Err(e.into()),
    };
    answers.finish(verdict).map_err(|e| ContestError::Exam(format!("cannot answer the driver: {e}")))
}

fn choose_profile(flag: Option<Profile>) -> Result<Profile, ContestError> {
    let requested = Profile::requested(flag)?;
    let cuda = requested.is_none() && matches!(device::choose()?, Device::Cuda(_));
    let choice = Profile::choose(requested, cuda, cuda && Cache::is_prepared(Profile::Full));
    if requested.is_none() {
        eprintln!("profile {}: {}", choice.profile, choice.why);
    }
    Ok(choice.profile)
}

/// The budget that the harness asks for in the place of the profile's.
fn asked_budget() -> Result<Option<Duration>, ContestError> {
    let Ok(text) = std::env::var(BUDGET_ENV) else { return Ok(None) };
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(Some).ok_or_else(|| {
        ContestError::Usage(format!("{BUDGET_ENV} is `{text}`; it must be a number of seconds above 0"))
    })
}

fn seed() -> Result<u64, ContestError> {
    match std::env::var(SEED_ENV) {
        Err(_) => Ok(DEFAULT_SEED),
        Ok(text) => text.parse().map_err(|_| {
            ContestError::Usage(format!("{SEED_ENV} is `{text}`; it must be an unsigned integer"))
        }),
    }
}
