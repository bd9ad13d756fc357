//! A search that stalls, and how it gets out: two nights on a simulated training run, in seconds and without a key.
//!
//!     cargo run --release -p ratchet --example escape
//!
//! The same script proposes in both nights. It believes in larger batches, and the best batch is a smaller one. The
//! second night may change how it searches. All goes through the real binary; nothing is staged but the landscape.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ratchet::{
    journal::{self, Status, TrialRecord},
    search::listing::Entry,
    show::View,
    sim::{Landscape, SIGMA, START, Settings, Sim},
};
use serde_json::Value;

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
    println!(
        "Two nights of {} trials on a simulated training run, landscape {}. The same script proposes in both, and it \
         believes in larger batches.\n",
        args.trials, args.landscape
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
    println!(
        "{}",
        match escaped.gain > stalled.gain + SIGMA {
            true => "Why: what the proposer never tried of its own accord, a mechanism tried.",
            false =>
                "Level 2 was no better this time: one night shows what can happen, not how often. \
                 `ratchet ablate --task sim` measures that.",
        }
    );
    Ok(())
}

/// What a night has led to.
struct Night {
    trials: Vec<TrialRecord>,
    /// Reasons of proposals that came to nothing, as words.
    refusals: Vec<String>,
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
    let champion =
        run(Command::new("git").current_dir(root).args(["show", &format!("ratchet/{TAG}:settings.toml")]))?;
    let settings = Settings::parse(&champion).map_err(anyhow::Error::msg)?;
    let start = Settings::parse(START).map_err(anyhow::Error::msg)?;
    let landscape = Landscape::new(args.landscape);
    Ok(Night {
        trials: history.trials().to_vec(),
        refusals: refusals.filter_map(|event| Some(event["kind"].as_str()?.to_owned())).collect(),
        mechanisms: View::open(root, None)?.mechanisms()?,
        gain: landscape.truth(&start)? - landscape.truth(&settings)?,
        settings,
    })
}

impl Night {
    fn tell(&self) {
        let raises = |record: &&TrialRecord| {
            let mut changes =
                record.proposal.changes.iter().filter(|change| BATCH.contains(&change.name.as_str()));
            let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
            changes.any(|change| number(&change.to) > number(&change.from))
        };
        let raised: Vec<&TrialRecord> = self.trials.iter().filter(raises).collect();
        let count = |status| raised.iter().filter(|record| record.status == status).count();
        let refused = |kind: &str| self.refusals.iter().filter(|refusal| *refusal == kind).count();
        println!(
            "  {} of {} trials raised a batch size: {} kept, {} crashed; {} more proposals had been tried before",
            raised.len(),
            self.trials.len(),
            count(Status::Keep),
            count(Status::Crash),
            refused("duplicate")
        );
        if refused("steered") > 0 {
            println!("  {} proposals were refused by the search itself", refused("steered"));
        }
        for entry in &self.mechanisms {
            let counts: Vec<String> = entry
                .calls
                .iter()
                .map(|(hook, calls)| format!("{hook} {calls} ({} used)", entry.acted.get(hook).unwrap_or(&0)))
                .collect();
            println!(
                "  mechanism {}, {}: {}; on in {} trials, off in {}; {}",
                entry.id,
                entry.name,
                counts.join(", "),
                entry.on,
                entry.off,
                entry.standing.map_or("not used", |standing| standing.as_str())
            );
        }
        for record in self.trials.iter().skip(1).filter(|record| record.status == Status::Keep) {
            println!(
                "  trial {:3}, {}: {} is kept, {:+.4}",
                record.trial,
                record.proposer,
                record.proposal.description,
                record.delta.unwrap_or_default()
            );
        }
        println!("  STEP_TOKENS, which began at 524288, stands at {}\n", self.settings.step_tokens);
    }
}

/// The driver, built beside this example.
fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folder =
        here.parent().and_then(Path::parent).context("an example lies in target/PROFILE/examples")?;
    let ratchet = folder.join("ratchet");
    ensure!(ratchet.exists(), "{} is not built: cargo build --release -p ratchet", ratchet.display());
    Ok(ratchet)
}

/// Runs a command for what it prints.
fn run(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output()?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
