//! A search that stalls, and how it gets out: two nights on a simulated training run, in seconds and without a key.
//!
//!     cargo run --release -p ratchet --example escape
//!
//! The same script proposes in both nights. It believes in larger batches, and the best batch is a smaller one. The
//! second night may change how it searches. All goes through the real binary; nothing is staged but the landscape.

mod driver;

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use clap::Parser;
use ratchet::{
    journal::{self, Status, TrialRecord},
    search::listing::Entry,
    show::View,
    sim::{Landscape, SIGMA, START, Settings, Sim},
};
use serde_json::Value;

use self::driver::{binary, run};

const TAG: &str = "night";
/// The knobs of a batch's size.
const BATCH: [&str; 2] = ["STEP_TOKENS", "MICRO_ROWS"];

/// Shows a search that stalls, and one that changes how it searches.
#[derive(Parser)]
struct Args {
    /// Trials of each night, the baseline included
    #[arg(long, default_value_t = 60)]
    trials: u32,
    /// Which landscape
    #[arg(long, default_value_t = 0)]
    landscape: u64,
    /// Which dice the proposer throws
    #[arg(long, default_value_t = 0)]
    dice: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let ratchet = binary()?;
    let best_batch = best_batch(&Landscape::new(args.landscape))?;
    println!(
        "Two nights of {} trials on a simulated training run. The same script proposes in both, and it believes in \
         larger batches.\nOn this landscape STEP_TOKENS = {} is better by {:.4} bpb than the start's 524288, and a \
         larger one is worse.\n",
        args.trials, best_batch.0, best_batch.1
    );
    let stalled = night(&args, &ratchet, "1")?;
    println!("Level 1: propose, try, keep or reset");
    stalled.tell();
    let escaped = night(&args, &ratchet, "2")?;
    println!("Level 2: the same, and on a plateau a mechanism that changes how it searches");
    escaped.tell();
    println!(
        "Gain without the noise of runs: {:.4} at level 1, {:.4} at level 2.",
        stalled.gain, escaped.gain
    );
    let better = escaped.gain > stalled.gain + SIGMA;
    let suggested =
        |record: &TrialRecord| record.status == Status::Keep && record.proposer.starts_with("mechanism/");
    println!(
        "{}",
        match better {
            true if escaped.trials.iter().any(suggested) =>
                "Why: what the proposer never tried of its own accord, a mechanism tried.",
            true =>
                "No suggestion of a mechanism was kept: it is their advice, their refusals, the settings, or luck.",
            false => "Level 2 was no better this time.",
        }
    );
    println!("One night shows what can happen, not how often: `ratchet ablate --task sim` measures that.");
    Ok(())
}

/// The best batch with all else as at the start, and what it gains.
fn best_batch(landscape: &Landscape) -> Result<(f64, f64)> {
    let start = start()?;
    let gain = |exponent: i32| {
        let step_tokens = 2f64.powi(exponent);
        Ok((step_tokens, landscape.truth(&start)? - landscape.truth(&Settings { step_tokens, ..start })?))
    };
    let all = (9..=20).map(gain).collect::<Result<Vec<_>>>()?;
    all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).context("a range of batches")
}

fn start() -> Result<Settings> {
    Settings::parse(START).map_err(anyhow::Error::msg)
}

/// What a night has led to.
struct Night {
    trials: Vec<TrialRecord>,
    /// Proposals that came to nothing: the kind as a word, and why.
    refusals: Vec<(String, String)>,
    mechanisms: Vec<Entry>,
    /// The champion's.
    settings: Settings,
    /// How much better it is than the start, without noise.
    gain: f64,
}

/// Plays a night in a repository of its own.
fn night(args: &Args, ratchet: &Path, levels: &str) -> Result<Night> {
    // each trial is synced to disk, which takes longer than the trial; memory is quicker
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let root = root.path();
    Sim { landscape: args.landscape, sigma: SIGMA, dice: args.dice, ratchet }.write(root)?;
    let trials = args.trials.to_string();
    run(Command::new(ratchet)
        .current_dir(root)
        .args(["run", "--tag", TAG, "--levels", levels, "--trials", &trials]))?;
    let journal = root.join(format!(".ratchet/tags/{TAG}/journal.jsonl"));
    let history = journal::read(&journal)?;
    let events = fs::read_to_string(&journal)?;
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let refusals = events.filter(|event| event["event"] == "no_proposal");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let settings = format!("ratchet/{TAG}:settings.toml");
    let settings = run(Command::new("git").current_dir(root).args(["show", &settings]))?;
    let settings = Settings::parse(&settings).map_err(anyhow::Error::msg)?;
    let landscape = Landscape::new(args.landscape);
    Ok(Night {
        trials: history.trials().to_vec(),
        refusals: refusals.map(|event| (word(&event["kind"]), word(&event["reason"]))).collect(),
        mechanisms: View::open(root, None)?.mechanisms()?,
        gain: landscape.truth(&start()?)? - landscape.truth(&settings)?,
        settings,
    })
}

impl Night {
    fn tell(&self) {
        self.tell_repeats();
        for entry in self.mechanisms.iter().filter(|entry| entry.standing.is_some()) {
            self.tell_mechanism(entry);
        }
        for record in self.trials.iter().skip(1).filter(|record| record.status == Status::Keep) {
            println!(
                "  kept: trial {}, {} by {}, {:+.4}",
                record.trial,
                record.proposal.description,
                record.proposer,
                record.delta.unwrap_or_default()
            );
        }
        let last = self.trials.iter().rposition(|record| record.status == Status::Keep).unwrap_or(0);
        println!(
            "  at the end: STEP_TOKENS {}, no keep for {} trials\n",
            self.settings.step_tokens,
            self.trials.len() - 1 - last
        );
    }

    /// How often a batch was raised, and what was proposed again although it had been tried.
    fn tell_repeats(&self) {
        let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        let raises = |record: &&TrialRecord| {
            let mut changes = record.proposal.changes.iter();
            changes.any(|c| BATCH.contains(&c.name.as_str()) && number(&c.to) > number(&c.from))
        };
        let raised: Vec<&TrialRecord> =
            self.trials.iter().filter(|record| record.proposer == "llm").filter(raises).collect();
        let count = |status| raised.iter().filter(|record| record.status == status).count();
        println!(
            "  {} of {} trials raised a batch: {} kept, {} out of memory, the others no better",
            raised.len(),
            self.trials.len() - 1,
            count(Status::Keep),
            count(Status::Crash)
        );
        let again = |record: &TrialRecord| {
            let named = format!("was tried as trial {}:", record.trial);
            self.refusals.iter().filter(|(_, why)| why.contains(&named)).count()
        };
        let duplicates = self.refusals.iter().filter(|(kind, _)| kind == "duplicate").count();
        let most = self.trials.iter().max_by_key(|record| again(record));
        if let Some(most) = most.filter(|most| again(most) > 0) {
            println!(
                "  {duplicates} proposals had been tried before, {} of them as trial {}: {}",
                again(most),
                most.trial,
                most.proposal.description
            );
        }
    }

    /// When a mechanism came, what it did, and what it refused or suggested.
    fn tell_mechanism(&self, entry: &Entry) {
        let counts: Vec<String> = entry
            .calls
            .iter()
            .map(|(hook, calls)| {
                format!("{hook} {calls} times, {} used", entry.acted.get(hook).unwrap_or(&0))
            })
            .collect();
        println!(
            "  after trial {} came mechanism {}, {}\n    called: {}; now: {}",
            self.trials.len() - entry.on - entry.off,
            entry.id,
            entry.what,
            counts.join("; "),
            entry.standing.map_or("not used", |standing| standing.as_str())
        );
        let by = format!("mechanism/{}", entry.id);
        let suggested: Vec<&str> = self
            .trials
            .iter()
            .filter(|record| record.proposer == by)
            .map(|record| record.proposal.description.as_str())
            .collect();
        if let Some(first) = suggested.first() {
            println!("    suggested {}, the first: {first}", suggested.len());
        }
        let refused = |why: &&str| why.contains(&format!("by a mechanism, {}:", entry.id));
        let refused: Vec<&str> = self.refusals.iter().map(|(_, why)| why.as_str()).filter(refused).collect();
        if let Some(first) = refused.first() {
            println!("    refused {}, the first: {first}", refused.len());
        }
    }
}
