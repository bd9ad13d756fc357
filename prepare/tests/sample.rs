//! `sample` as the process that it is, with the real tokenizer.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use candle_core::{Device, Tensor};
use prepare::contest::{Result, contest_from};
use prepare::profile::{BOS, Profile};
use prepare::tokenizer::Tokenizer;
use prepare::{Checkpoint, Contestant, Trial};
use tempfile::TempDir;

use crate::prepared::{smoke, smoke_copy};
use crate::protocol::bigram::Bigram;

/// The contestant that a process of this test binary is to be, and its arguments, one a line.
const CONTESTANT: &str = "PREPARE_TEST_WRITER";

/// Says that each token is followed by the one with the next number, and talks.
struct Counts;

impl Contestant for Counts {
    fn fit(_: &mut Trial) -> Result<Self> {
        Ok(Counts)
    }
    fn save(&self) -> Result<Checkpoint> {
        unreachable!("it is never trained")
    }
    fn load(_: &Checkpoint, _: &Device) -> Result<Self> {
        println!("I am loaded");
        Ok(Counts)
    }
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        println!("\x1b[31mtext of mine");
        let (b, t) = x.dims2()?;
        assert_eq!((b, t), (1, Profile::Smoke.spec().context), "as long as in an exam");
        let vocab = Profile::Smoke.spec().vocab;
        let mut logits = vec![0f32; b * t * vocab];
        for (i, id) in x.flatten_all()?.to_vec1::<u32>()?.into_iter().enumerate() {
            logits[i * vocab + (id as usize + 1) % vocab] = 99.0;
        }
        Tensor::from_vec(logits, (b, t, vocab), x.device())
    }
}

/// Has no numbers.
struct Empty;

impl Contestant for Empty {
    fn fit(_: &mut Trial) -> Result<Self> {
        Ok(Empty)
    }
    fn save(&self) -> Result<Checkpoint> {
        unreachable!("it is never trained")
    }
    fn load(_: &Checkpoint, _: &Device) -> Result<Self> {
        Ok(Empty)
    }
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t) = x.dims2()?;
        Tensor::full(f32::NAN, (b, t, Profile::Smoke.spec().vocab), x.device())
    }
}

/// Not a test of its own: the process that the tests below start.
#[test]
fn child() {
    let Ok(text) = std::env::var(CONTESTANT) else { return };
    let (contestant, arguments) = text.split_once('\n').unwrap();
    let args = std::iter::once("train").chain(arguments.lines()).map(OsString::from);
    let result = match contestant {
        "bigram" => contest_from::<Bigram>(args),
        "counts" => contest_from::<Counts>(args),
        "empty" => contest_from::<Empty>(args),
        other => panic!("no contestant {other}"),
    };
    if let Err(e) = result {
        eprintln!("error: {e}");
        std::process::exit(e.exit_code().into());
    }
    std::process::exit(0);
}

/// A cache with nothing but what text needs, and a model's folder.
struct Desk {
    cache: TempDir,
    model: TempDir,
}

impl Desk {
    fn new() -> Desk {
        let desk = Desk { cache: smoke_copy(), model: tempfile::tempdir().unwrap() };
        let out = desk.model.path().to_str().unwrap();
        let fit = ["fit", "--out", out, "--steps", "3"];
        assert!(desk.run("bigram", &fit, b"").status.success());
        for gone in ["exam", "train"] {
            fs::remove_dir_all(desk.cache.path().join("smoke").join(gone)).unwrap();
        }
        desk
    }

    fn run(&self, contestant: &str, arguments: &[&str], prompt: &[u8]) -> Output {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .current_dir(self.model.path())
            .args(["--exact", "sample::child", "--nocapture"])
            .env("RATCHET_CACHE", self.cache.path())
            .env("RATCHET_PROFILE", "smoke")
            .env(CONTESTANT, [&[contestant], arguments].concat().join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(prompt).unwrap();
        child.wait_with_output().unwrap()
    }

    fn sample(&self, contestant: &str, prompt: &str, more: &[&str]) -> Output {
        let model = self.model.path().to_str().unwrap();
        self.run(contestant, &[&["sample", "--model", model], more].concat(), prompt.as_bytes())
    }

    /// What comes out, less the words of the test harness.
    fn text(&self, contestant: &str, prompt: &str, more: &[&str]) -> String {
        let output = self.sample(contestant, prompt, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let out = String::from_utf8(output.stdout).unwrap();
        out.split_once("running 1 test\n").unwrap().1.to_owned()
    }
}

fn tokenizer() -> Tokenizer {
    Tokenizer::read(&smoke().paths().tokenizer()).unwrap()
}

/// The likeliest token after each of `ids`, asked for one at a time and at the length that there is.
fn greedy(model: &Path, prompt: &str, tokens: usize) -> Vec<u16> {
    let device = Device::Cpu;
    let model = Bigram::load(&Checkpoint::read(model, &device).unwrap(), &device).unwrap();
    let mut ids = vec![BOS];
    tokenizer().encode(prompt, &mut ids);
    for _ in 0..tokens {
        let x: Vec<u32> = ids.iter().map(|&id| id.into()).collect();
        let logits = model.logits(&Tensor::new(&x[..], &device).unwrap().unsqueeze(0).unwrap()).unwrap();
        let last = logits.squeeze(0).unwrap().to_vec2::<f32>().unwrap().pop().unwrap();
        let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
        ids.push(best as u16);
    }
    ids
}

#[test]
fn greedy_text_is_that_of_a_loop_over_logits() {
    let desk = Desk::new();
    let found = desk.text("bigram", "The sea", &["--tokens", "30", "--temperature", "0", "--seed", "1"]);
    let ids = greedy(desk.model.path(), "The sea", 30);
    assert!(ids.iter().skip(1).all(|&id| id < BOS), "no document ends in the middle of this test");
    assert_eq!(found, String::from_utf8_lossy(&tokenizer().decode(&ids)));
    assert!(found.starts_with("The sea"));
    let alone = ["--tokens", "30", "--temperature", "1.5", "--top-k", "1", "--seed", "2"];
    assert_eq!(desk.text("bigram", "The sea", &alone), found, "one token to choose from");
}

#[test]
fn a_seed_repeats_its_text_and_another_does_not() {
    let desk = Desk::new();
    let of = |seed| desk.text("bigram", "", &["--tokens", "20", "--temperature", "1", "--seed", seed]);
    assert_eq!(of("1"), of("1"));
    assert_ne!(of("1"), of("2"));
}

#[test]
fn a_text_ends_with_its_document_and_holds_nothing_that_the_contestant_prints() {
    let desk = Desk::new();
    let tokenizer = tokenizer();
    // a token near the last that is whole text, and that its text leads back to
    let start = (BOS - 40..BOS - 3).find(|&id| {
        let mut back = Vec::new();
        let text = String::from_utf8(tokenizer.decode(&[id])).unwrap_or_default();
        tokenizer.encode(&text, &mut back);
        back == [id]
    });
    let start = start.unwrap();
    let prompt = String::from_utf8(tokenizer.decode(&[start])).unwrap();
    let all: Vec<u16> = (start..BOS).collect();
    let found = desk.text("counts", &prompt, &["--tokens", "500", "--temperature", "0", "--seed", "1"]);
    assert_eq!(found, String::from_utf8_lossy(&tokenizer.decode(&all)));
}

#[test]
fn a_text_longer_than_the_context_goes_on() {
    let desk = Desk::new();
    let tokens = Profile::Smoke.spec().context + 20;
    let asked = ["--tokens", &tokens.to_string(), "--temperature", "0", "--seed", "1"];
    let prompt = "a";
    let mut ids = Vec::new();
    tokenizer().encode(prompt, &mut ids);
    let ids: Vec<u16> = (ids[0]..).take(tokens + 1).collect();
    assert_eq!(desk.text("counts", prompt, &asked), String::from_utf8_lossy(&tokenizer().decode(&ids)));
}

#[test]
fn no_text_comes_of_nan_or_of_a_prompt_that_is_no_text_and_no_file_of_anything() {
    let desk = Desk::new();
    let files =
        || fs::read_dir(desk.model.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    let before = files();
    let few = ["--tokens", "3", "--temperature", "1", "--seed", "1"];
    let output = desk.sample("empty", "x", &few);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("NaN or infinite"));
    let model = desk.model.path().to_str().unwrap();
    let output = desk.run("bigram", &[&["sample", "--model", model], &few[..]].concat(), b"\xff");
    assert_eq!(output.status.code(), Some(2));
    desk.text("bigram", "x", &few);
    assert_eq!(files(), before);
}
