//! Contestants that cheat: each is tried through the real driver, and must end in a named refusal, a named
//! crash, or an honest score, with the champion intact and the next trial unharmed.
//!
//! `cargo run --release -p redteam` tries all of `attacks/` on the `smoke` profile in a clone of this
//! repository's HEAD and prints how each ended; `-- NAME…` only those whose name contains one of the words.

mod attack;
mod range;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use attack::Attack;
use clap::Parser;
use range::Range;

/// Trials between two honest ones.
const SALVO: usize = 15;

/// Tries every cheating contestant.
#[derive(Parser)]
struct Args {
    /// Only attacks whose name contains one of these
    names: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("../..").canonicalize()?;
    let wanted =
        |attack: &Attack| args.names.is_empty() || args.names.iter().any(|name| attack.name.contains(name));
    let attacks: Vec<Attack> = Attack::all(&here.join("attacks"))?.into_iter().filter(wanted).collect();
    ensure!(!attacks.is_empty(), "no attack is called so");

    if let sandbox::Available::Nothing(why) = sandbox::available() {
        println!("not tried: there is no sandbox here to hold them: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    let driver = build_driver(&source)?;
    let mut range = Range::open(&source, &driver)?;
    println!("baseline {:.6}", range.baseline());
    println!("{:<42} {:<18} {:>6}  reason", "attack", "ended", "s");
    let mut failures = Vec::new();
    for (i, attack) in attacks.iter().enumerate() {
        let ended = range.fire(attack)?;
        report(&attack.name, &ended);
        if !range.is_allowed(&ended, &attack.ends) {
            failures.push(format!(
                "{} ({}) ended in {}, not in {}",
                attack.name,
                attack.aim,
                ended.how,
                attack.ends.join(" or ")
            ));
        }
        failures.extend(range.damage()?.into_iter().map(|damage| format!("{}: {damage}", attack.name)));
        if (i + 1) % SALVO == 0 || i + 1 == attacks.len() {
            let honest = range.honest_trial()?;
            report("an honest edit", &honest);
            if !range.is_allowed(&honest, &["honest".to_owned()]) {
                failures.push(format!(
                    "after {} an honest edit ended in {}: {}",
                    attack.name, honest.how, honest.reason
                ));
            }
        }
    }
    failures.extend(range.unclean_views()?);
    println!("{} attacks, {} failures", attacks.len(), failures.len());
    failures.iter().for_each(|failure| println!("FAILED {failure}"));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(name: &str, ended: &range::Ended) {
    let value = ended.value.map_or(String::new(), |value| format!("{value:.6} "));
    println!("{name:<42} {:<18} {:>6.1}  {value}{}", ended.how, ended.seconds, ended.reason);
}

/// The driver of this checkout.
fn build_driver(source: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let build = ["build", "--release", "--locked", "-p", "ratchet"];
    ensure!(
        Command::new(cargo).args(build).current_dir(source).status()?.success(),
        "the driver does not build"
    );
    let this = std::env::current_exe()?;
    Ok(this.parent().context("this program lies in no folder")?.join("ratchet"))
}
