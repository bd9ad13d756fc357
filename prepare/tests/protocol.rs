//! `fit`, `preflight`, `score` and the run by hand as the processes that they are, on a made-up cache.

use std::ffi::OsString;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use candle_core::{Device, Tensor};
use prepare::cache::Cache;
use prepare::clock::OVERRUN_EXIT_CODE;
use prepare::contest::{Result, contest_from};
use prepare::exam::{Event, Exam, Reason, Verdict};
use prepare::preflight::PreflightRecord;
use prepare::profile::Profile;
use prepare::rows::Split;
use prepare::summary::FitRecord;
use prepare::{Checkpoint, Contestant, Trial};
use tempfile::TempDir;

use crate::fake;

#[path = "../examples/bigram.rs"]
#[allow(dead_code)] // its main
pub(crate) mod bigram;
use bigram::Bigram;

/// Names the contestant that a process of this test binary is to be.
const CONTESTANT: &str = "PREPARE_TEST_CONTESTANT";
/// Its arguments, one a line.
const ARGUMENTS: &str = "PREPARE_TEST_ARGUMENTS";

/// A bigram model that differs in one thing.
struct Faulty<F: Fault>(Bigram, std::marker::PhantomData<F>);

trait Fault {
    fn fit(trial: &mut Trial) -> Result<Bigram> {
        Bigram::fit(trial)
    }
    fn save(model: &Bigram) -> Result<Checkpoint> {
        model.save()
    }
    fn logits(model: &Bigram, x: &Tensor) -> Result<Tensor> {
        model.logits(x)
    }
}

impl<F: Fault> Contestant for Faulty<F> {
    fn fit(trial: &mut Trial) -> Result<Self> {
        Ok(Faulty(F::fit(trial)?, std::marker::PhantomData))
    }
    fn save(&self) -> Result<Checkpoint> {
        F::save(&self.0)
    }
    fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Self> {
        Ok(Faulty(Bigram::load(checkpoint, device)?, std::marker::PhantomData))
    }
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        F::logits(&self.0, x)
    }
}

/// Its second loss is NaN.
struct Diverges;
impl Fault for Diverges {
    fn fit(trial: &mut Trial) -> Result<Bigram> {
        trial.step(9.0)?;
        trial.step(f64::NAN)?;
        Bigram::fit(trial)
    }
}

/// Takes one step, and that one takes for ever.
struct Hangs;
impl Fault for Hangs {
    fn fit(trial: &mut Trial) -> Result<Bigram> {
        assert!(!trial.done());
        trial.step(9.0)?;
        loop {
            std::thread::park();
        }
    }
}

/// Records no step.
struct Silent;
impl Fault for Silent {
    fn fit(trial: &mut Trial) -> Result<Bigram> {
        while !trial.done() {}
        Bigram::fit(trial)
    }
}

/// Saves another model than it has.
struct Forgets;
impl Fault for Forgets {
    fn save(model: &Bigram) -> Result<Checkpoint> {
        let mut checkpoint = model.save()?;
        let head = checkpoint.tensor("head")?.affine(1.0, 0.5)?;
        let scaled = head.affine(1.5, 0.0)?;
        checkpoint.tensors.insert("head".into(), scaled);
        Ok(checkpoint)
    }
}

/// Reads the next token.
struct Peeks;
impl Fault for Peeks {
    fn logits(model: &Bigram, x: &Tensor) -> Result<Tensor> {
        let t = x.dim(1)?;
        let ahead = Tensor::cat(&[x.narrow(1, 1, t - 1)?, x.narrow(1, t - 1, 1)?], 1)?;
        model.logits(&ahead)? + model.logits(x)?
    }
}

/// Prints figures of its own and looks for something to read.
struct Prints;
impl Fault for Prints {
    fn logits(model: &Bigram, x: &Tensor) -> Result<Tensor> {
        println!("val_bpb: 0.000001");
        let mut rest = String::new();
        std::io::stdin().read_line(&mut rest).map_err(candle_core::Error::wrap)?;
        assert_eq!(rest, "", "the exam is out of reach");
        model.logits(x)
    }
}

/// Not a test of its own: the process that the tests below start.
#[test]
fn child() {
    let Ok(contestant) = std::env::var(CONTESTANT) else { return };
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let args = std::iter::once("train").chain(arguments.lines()).map(OsString::from);
    let result = match contestant.as_str() {
        "bigram" => contest_from::<Bigram>(args),
        "diverges" => contest_from::<Faulty<Diverges>>(args),
        "hangs" => contest_from::<Faulty<Hangs>>(args),
        "silent" => contest_from::<Faulty<Silent>>(args),
        "forgets" => contest_from::<Faulty<Forgets>>(args),
        "peeks" => contest_from::<Faulty<Peeks>>(args),
        "prints" => contest_from::<Faulty<Prints>>(args),
        other => panic!("no contestant {other}"),
    };
    if let Err(e) = result {
        eprintln!("error: {e}");
        std::process::exit(e.exit_code().into());
    }
    std::process::exit(0);
}

/// A cache, and directories for what trials leave.
struct Room {
    dir: TempDir,
}

impl Room {
    fn new() -> Room {
        let dir = tempfile::tempdir().unwrap();
        fake::prepare(&dir.path().join("cache"), &fake::documents(200));
        Room { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn equip<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(self.dir.path())
            .env("RATCHET_CACHE", self.path("cache"))
            .env("RATCHET_PROFILE", "smoke")
            .env("RATCHET_SEED", "7")
    }

    fn command(&self, contestant: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        self.equip(&mut command)
            .args(["--exact", "protocol::child", "--nocapture"])
            .env(CONTESTANT, contestant)
            .env(ARGUMENTS, arguments.join("\n"));
        command
    }

    fn run(&self, contestant: &str, arguments: &[&str]) -> Output {
        self.command(contestant, arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs and expects success.
    fn must(&self, contestant: &str, arguments: &[&str]) {
        let output = self.run(contestant, arguments);
        assert!(output.status.success(), "{}", said(&output));
    }

    fn exam(&self) -> Exam {
        let cache = Cache::open_at(&self.path("cache"), Profile::Smoke).unwrap();
        let rows = cache.exam_rows(Split::Val).unwrap();
        Exam::new(Profile::Smoke, rows, cache.token_bytes().unwrap()).unwrap()
    }

    /// Scores the model in `dir`; returns what else the scorer wrote, too.
    fn score(&self, exam: &Exam, contestant: &str, dir: &str) -> (Verdict, Vec<String>) {
        let mut child = self
            .command(contestant, &["score", "--model", dir])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut strays = Vec::new();
        let verdict = exam.hold(stdin, BufReader::new(stdout), |event| {
            if let Event::Stray(line) = event {
                strays.push(line.to_owned());
            }
        });
        assert!(child.wait().unwrap().success());
        (verdict.unwrap(), strays)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn record(dir: &Path) -> FitRecord {
    serde_json::from_slice(&fs::read(dir.join("fit.json")).unwrap()).unwrap()
}

#[test]
fn fit_leaves_model_record_and_curve_and_repeats_exactly() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a", "--steps", "4"]);
    room.must("bigram", &["fit", "--out", "b/c", "--steps", "4"]);
    let model = |dir| fs::read(room.path(dir).join("model.safetensors")).unwrap();
    assert_eq!(model("a"), model("b/c"), "the same seed gives the same weights, to the last bit");

    let record = record(&room.path("a"));
    assert_eq!((record.num_steps, record.seed, record.profile), (4, 7, Profile::Smoke));
    assert_eq!(record.tokens, 4 * 4 * 128);
    assert_eq!((record.depth, record.num_params), (1, 2 * 16 * 8192));
    assert!(record.training_seconds <= record.total_seconds && record.epochs > 0.0);

    let curve = fs::read_to_string(room.path("a").join("steps.csv")).unwrap();
    let lines: Vec<&str> = curve.lines().collect();
    assert_eq!(lines[0], "step,seconds,progress,tokens,loss");
    assert_eq!(lines.len(), 5);
    let last: Vec<&str> = lines[4].split(',').collect();
    assert_eq!((last[0], last[2], last[3]), ("3", "0.750000", "2048"));
    let loss: f64 = last[4].parse().unwrap();
    assert!((loss - record.final_loss.unwrap()).abs() < 1e-6);

    let mut files: Vec<String> = fs::read_dir(room.path("a"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["config.json", "fit.json", "model.safetensors", "steps.csv"]);
}

#[test]
fn a_time_budget_is_spent_and_kept() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a"]);
    let record = record(&room.path("a"));
    let budget = Profile::Smoke.spec().budget.as_secs_f64();
    assert!(record.training_seconds > 0.5 * budget, "{}", record.training_seconds);
    assert!(record.training_seconds < budget + 2.0, "{}", record.training_seconds);
    assert!(record.final_loss.unwrap() < 8192f64.ln(), "it learns something");
}

#[test]
fn a_trained_model_scores_better_than_chance() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a", "--steps", "20"]);
    let exam = room.exam();
    let (verdict, strays) = room.score(&exam, "bigram", "a");
    let Verdict::Scored(scored) = verdict else { panic!("{verdict:?}") };
    assert_eq!(scored.nats.len(), fake::EXAM_ROWS);
    let bpb = exam.bpb(&scored).unwrap().get();
    assert!(bpb < 13.0, "{bpb}; uniform logits cost 13 bits for each of these one-byte tokens");
    // what the test harness prints before the exam is taken is all that else comes through the pipe
    assert!(strays.iter().all(|line| line.is_empty() || line.starts_with("running")), "{strays:?}");
}

#[test]
fn scoring_is_repeatable_to_the_last_bit() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a", "--steps", "2"]);
    let exam = room.exam();
    let nats = || match room.score(&exam, "bigram", "a").0 {
        Verdict::Scored(scored) => scored.nats,
        Verdict::Rejected(rejected) => panic!("{rejected}"),
    };
    assert_eq!(nats(), nats());
}

#[test]
fn what_a_contestant_prints_never_reaches_the_pipe() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a", "--steps", "2"]);
    let (verdict, strays) = room.score(&room.exam(), "prints", "a");
    assert!(matches!(verdict, Verdict::Scored(_)), "{verdict:?}");
    assert!(!strays.iter().any(|line| line.contains("val_bpb")), "{strays:?}");
}

#[test]
fn scoring_writes_no_file() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a", "--steps", "2"]);
    let files = || {
        let names = |dir: &str| fs::read_dir(room.path(dir)).unwrap().map(|e| e.unwrap().file_name());
        names(".").chain(names("a")).collect::<Vec<_>>()
    };
    let before = files();
    room.score(&room.exam(), "bigram", "a");
    assert_eq!(files(), before);
}

#[test]
fn a_refused_model_is_an_answer() {
    let room = Room::new();
    room.must("bigram", &["fit", "--out", "a", "--steps", "2"]);
    let (verdict, _) = room.score(&room.exam(), "peeks", "a");
    assert!(matches!(&verdict, Verdict::Rejected(r) if r.reason == Reason::NonCausal), "{verdict:?}");
}

#[test]
fn a_diverging_run_ends_at_once_and_keeps_its_curve() {
    let room = Room::new();
    let output = room.run("diverges", &["fit", "--out", "a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("training diverged: loss NaN at step 1"), "{}", said(&output));
    let curve = fs::read_to_string(room.path("a").join("steps.csv")).unwrap();
    assert!(curve.lines().nth(2).is_some_and(|line| line.ends_with(",NaN")), "{curve}");
    assert!(!room.path("a").join("fit.json").exists(), "no record of a run that failed");
}

#[test]
fn a_step_longer_than_the_budget_is_the_contestants_loss() {
    let room = Room::new();
    let begun = std::time::Instant::now();
    let output = room.run("hangs", &["fit", "--out", "a"]);
    assert_eq!(output.status.code(), Some(OVERRUN_EXIT_CODE), "{}", said(&output));
    assert!(begun.elapsed() >= Profile::Smoke.spec().budget, "but the budget was there to be spent");
    let curve = fs::read_to_string(room.path("a").join("steps.csv")).unwrap();
    assert_eq!(curve.lines().count(), 2, "the curve up to then is kept");
    assert!(!room.path("a").join("fit.json").exists());
}

#[test]
fn preflight_passes_an_honest_model_and_leaves_only_its_record() {
    let room = Room::new();
    room.must("bigram", &["preflight", "--out", "a"]);
    let names: Vec<_> = fs::read_dir(room.path("a")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["preflight.json"]);
    let text = fs::read(room.path("a").join("preflight.json")).unwrap();
    let record: PreflightRecord = serde_json::from_slice(&text).unwrap();
    assert_eq!((record.steps, record.round_trip), (2, 0.0));
    assert!(record.probes.probed_rows > 0);
}

#[test]
fn preflight_names_what_fails() {
    let room = Room::new();
    for (contestant, expected) in [
        ("diverges", "training diverged: loss NaN"),
        ("silent", "fit recorded no step"),
        ("forgets", "from save to load"),
        ("peeks", "non_causal: "),
    ] {
        let output = room.run(contestant, &["preflight", "--out", "a"]);
        assert_eq!(output.status.code(), Some(1), "{contestant}");
        let said = said(&output);
        let line = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        assert!(line.contains(expected), "{contestant}: {said}");
        assert!(!room.path("a/preflight.json").exists());
    }
}

#[test]
fn missing_data_is_exit_4_and_names_the_remedy() {
    let room = Room::new();
    let output = room.run("bigram", &["fit", "--out", "a", "--profile", "laptop"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(said(&output).contains("cargo run --release -p prepare"), "{}", said(&output));
}

#[test]
fn a_seed_that_is_no_number_is_exit_2() {
    let room = Room::new();
    let mut command = room.command("bigram", &["fit", "--out", "a"]);
    let output = command.env("RATCHET_SEED", "lucky").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("RATCHET_SEED is `lucky`"), "{}", said(&output));
}

#[test]
fn score_without_an_exam_says_what_it_expects() {
    let room = Room::new();
    let output = room.run("bigram", &["score", "--model", "a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("expects an exam on its standard input"), "{}", said(&output));
}

/// The example is a binary of its own, as a contestant is; `cargo test` builds it beside this one.
#[test]
fn by_hand_it_trains_scores_and_prints_the_block() {
    let room = Room::new();
    let deps = std::env::current_exe().unwrap();
    let example = deps.parent().unwrap().parent().unwrap().join("examples/bigram");
    let mut command = Command::new(&example);
    let output = room.equip(&mut command).args(["--steps", "20", "--out", "run"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let block = String::from_utf8(output.stdout).unwrap();
    let keys: Vec<&str> = block.lines().map(|line| line.split(':').next().unwrap()).collect();
    let right = [
        "---",
        "val_bpb",
        "training_seconds",
        "total_seconds",
        "peak_vram_mb",
        "mfu_percent",
        "total_tokens_M",
        "num_steps",
        "num_params_M",
        "depth",
    ];
    assert_eq!(keys, right, "{block}");
    assert!(block.contains("\nnum_steps:        20\n") && block.contains("\nmfu_percent:      unknown\n"));
    let bpb: f64 = block.lines().nth(1).unwrap()["val_bpb:".len()..].trim().parse().unwrap();
    let exam = room.exam();
    let (verdict, _) = room.score(&exam, "bigram", "run");
    let Verdict::Scored(scored) = verdict else { panic!("{verdict:?}") };
    assert!((exam.bpb(&scored).unwrap().get() - bpb).abs() < 1e-6, "the same model has the same score");
}
