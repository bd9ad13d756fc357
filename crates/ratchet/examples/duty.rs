//! How much of a night is training: a slow proposer, with lookahead and without, at the same time.
//!
//!     cargo run --release -p ratchet --example duty -- --trials 8 --fit 60 --thinking 45
//!
//! Both nights run the real binary on a task whose fit sleeps; what is measured is the driver's.

mod driver;

use std::{fs, path::Path, process::Command, thread};

use anyhow::{Context, Result};
use clap::Parser;

use self::driver::{binary, run};

/// Measures the duty cycle of two nights, one with lookahead and one without.
#[derive(Parser)]
struct Args {
    /// Trials of each night, the baseline included
    #[arg(long, default_value_t = 8)]
    trials: u32,
    /// Seconds that a trial trains
    #[arg(long, default_value_t = 60.0)]
    fit: f64,
    /// Seconds that a proposal takes
    #[arg(long, default_value_t = 45.0)]
    thinking: f64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let ratchet = binary()?;
    println!(
        "{} trials of {} s each, a proposer that takes {} s; training time / time of the run",
        args.trials, args.fit, args.thinking
    );
    let shares = thread::scope(|scope| {
        let nights = [true, false].map(|lookahead| {
            scope.spawn({
                let (args, ratchet) = (&args, &ratchet);
                move || night(args, ratchet, lookahead)
            })
        });
        nights.map(|night| night.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a night panicked"))))
    });
    for (name, share) in ["with lookahead", "without"].into_iter().zip(shares) {
        println!("{name:16} {:.1} %", 100.0 * share?);
    }
    Ok(())
}

/// A night in a repository of its own; the share of it that was training.
fn night(args: &Args, ratchet: &Path, lookahead: bool) -> Result<f64> {
    let root = tempfile::tempdir()?;
    let task = format!(
        "[task]\nname = \"sleep\"\neditable = [\"cand/**\"]\n[metric]\nname = \"loss\"\n\
         [fit]\ncommand = [\"sleep\", \"{}\"]\n[score]\ncommand = [\"sh\", \"score.sh\"]\n[accept]\nrule = \"strict\"\n\
         [proposer]\nkind = \"agent\"\nlookahead = {lookahead}\n\
         [proposer.agent]\ncommand = [\"sh\", \"agent.sh\", \"{}\"]\n[sandbox]\nmode = \"off\"\n",
        args.fit, args.thinking
    );
    // each proposal is a file of its own, and every fourth one helps: what is made ahead then meets a new champion
    let agent = "cat > /dev/null\nsleep \"$1\"\nn=$(date +%s%N)\n\
                 if [ $((n / 1000003 % 4)) = 0 ]; then echo good; else echo bad; fi > \"cand/$n.txt\"\n";
    let score = "echo \"{\\\"loss\\\": $((1000 - $(grep -l good cand/*.txt | wc -l)))}\"\n";
    let files = [
        ("ratchet.toml", task.as_str()),
        ("agent.sh", agent),
        ("score.sh", score),
        ("cand/start.txt", "start\n"),
    ];
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(root.path()))?;
        fs::write(path, text)?;
    }
    let git = |words: &[&str]| run(Command::new("git").args(words).current_dir(root.path()));
    git(&["init", "-q"])?;
    git(&["add", "-A"])?;
    git(&[
        "-c",
        "user.name=duty",
        "-c",
        "user.email=duty@example.invalid",
        "commit",
        "-qm",
        "a task that sleeps",
    ])?;
    let driver = || {
        let mut command = Command::new(ratchet);
        command.current_dir(root.path());
        command
    };
    run(driver().args(["run", "--tag", "night", "--trials", &args.trials.to_string()]))?;
    println!("{}", run(driver().arg("log"))?);
    let status = run(driver().args(["status", "--json"]))?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    status["duty_cycle"].as_f64().with_context(|| format!("no duty cycle in {status}"))
}
