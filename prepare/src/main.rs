//! `prepare`: makes the data of a profile ready, once.

mod terminal;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::error::ErrorKind;
use prepare::build::{self, BuildError, Options, Prepared};
use prepare::cache::Cache;
use prepare::manifest::Manifest;
use prepare::profile::{self, Corpus, Profile};
use prepare::progress::Progress;

use crate::terminal::Terminal;

/// Makes the data of a profile ready: fetches or reads the text, trains the tokenizer, tokenizes, packs the
/// exams, and writes a manifest. Does nothing when it is ready already.
#[derive(Parser)]
#[command(name = "prepare", version)]
struct Args {
    /// full, laptop or smoke; else $RATCHET_PROFILE, else what this machine is ready for
    #[arg(long)]
    profile: Option<Profile>,
    /// Training shards of `full` [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=6541))]
    shards: Option<u32>,
    /// Downloads at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Where the shards of `full` lie; repeat for mirrors, tried in this order
    #[arg(long, value_name = "URL", value_parser = base_url)]
    base_url: Vec<String>,
}

fn base_url(url: &str) -> Result<String, String> {
    if url.starts_with("http://") || url.starts_with("https://") {
        Ok(url.to_owned())
    } else {
        Err("it must start with http:// or https://".to_owned())
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            let asked = matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // nowhere is left to report that the terminal is gone
            let _ = e.print();
            return ExitCode::from(if asked { 0 } else { 2 });
        }
    };
    let requested = match Profile::requested(args.profile) {
        Ok(requested) => requested,
        Err(e) => {
            eprintln!("prepare: {}: {e}", profile::PROFILE_ENV);
            return ExitCode::from(2);
        }
    };
    let choice =
        Profile::choose(requested, profile::cuda_device_present(), Cache::is_prepared(Profile::Full));
    let terminal = Terminal::new();
    if requested.is_none() {
        terminal.say(&format!("profile {}: {}", choice.profile, choice.why));
    }
    if choice.profile.spec().corpus == Corpus::Bundled && (args.shards.is_some() || !args.base_url.is_empty())
    {
        terminal.say(&format!(
            "--shards and --base-url change nothing: the text of `{}` is bundled",
            choice.profile
        ));
    }
    let mut options = Options { shards: args.shards, workers: args.workers.into(), ..Options::default() };
    if !args.base_url.is_empty() {
        options.base_urls = args.base_url;
    }
    let start = Instant::now();
    match build::prepare(choice.profile, &options, &terminal) {
        Ok(prepared) => {
            println!("{}", summary(&prepared, start));
            ExitCode::SUCCESS
        }
        Err(e) => {
            terminal.say(&format!("prepare: {e}"));
            ExitCode::from(exit_code(&e))
        }
    }
}

fn exit_code(e: &BuildError) -> u8 {
    if e.is_environment() { 4 } else { 1 }
}

fn summary(prepared: &Prepared, start: Instant) -> String {
    let Prepared { cache, fresh } = prepared;
    let (profile, dir) = (cache.profile(), cache.paths().dir().display());
    if !fresh {
        return format!("{profile} is already prepared in {dir}");
    }
    let m: &Manifest = cache.manifest();
    let (tokens, documents) = (m.train_tokens(), m.train_documents());
    let bytes: u64 = m.train.iter().map(|s| s.text_bytes).sum();
    format!(
        "prepared {profile} in {:.1} s: {tokens} training tokens of {documents} documents \
         ({:.2} bytes a token), {} val rows, {} audit rows, in {dir}",
        start.elapsed().as_secs_f64(),
        bytes as f64 / tokens as f64,
        m.val.rows,
        m.audit.rows,
    )
}
