//! The `prepare` binary as a person meets it: exit codes and one clear line.

use std::path::Path;
use std::process::{Command, Output};

use prepare::cache::Cache;
use prepare::profile::Profile;

use crate::prepared::smoke_root;
use crate::server::{Reply, Server};

/// The binary, run in an empty directory with this cache.
fn prepare(cache: &Path, args: &[&str]) -> Output {
    let elsewhere = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_prepare"))
        .args(args)
        .current_dir(elsewhere.path())
        .env("RATCHET_CACHE", cache)
        .env_remove("RATCHET_PROFILE")
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn prepared_data_is_said_to_be_prepared() {
    let output = prepare(smoke_root(), &["--profile", "smoke"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.starts_with("smoke is already prepared in ") && line.lines().count() == 1, "{line}");
}

#[test]
fn the_environment_names_the_profile() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prepare"));
    command.env("RATCHET_CACHE", smoke_root()).env("RATCHET_PROFILE", "smoke");
    assert!(String::from_utf8(command.output().unwrap().stdout).unwrap().starts_with("smoke is already"));
    let output = command.env("RATCHET_PROFILE", "huge").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "prepare: RATCHET_PROFILE: `huge` is no profile; there are full, laptop and smoke\n"
    );
}

#[test]
fn misuse_exits_2() {
    let cache = tempfile::tempdir().unwrap();
    for args in [&["--profile", "huge"][..], &["--shards", "0"], &["--base-url", "ftp://x"], &["--nonsense"]]
    {
        assert_eq!(prepare(cache.path(), args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(prepare(cache.path(), &["--help"]).status.code(), Some(0));
}

#[test]
fn a_failed_shard_exits_4_and_is_named() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::Status(404, String::new()));
    let url = server.url();
    let output = prepare(cache.path(), &["--profile", "full", "--shards", "1", "--base-url", &url]);
    assert_eq!(output.status.code(), Some(4));
    let told = stderr(&output);
    let line = told.lines().last().unwrap();
    assert!(line.starts_with("prepare: 3 of 3 shards failed; shard_00000.parquet: HTTP 404"), "{told}");
    assert!(output.stdout.is_empty(), "nothing says that it is ready");
}

#[test]
fn a_full_disk_exits_1_with_one_line_and_leaves_nothing_trusted() {
    let cache = tempfile::tempdir().unwrap();
    // a limit on the size of files makes writes fail as a full disk does, without needing one
    let limited =
        format!("trap '' XFSZ; ulimit -f 64; exec '{}' --profile smoke", env!("CARGO_BIN_EXE_prepare"));
    let output =
        Command::new("sh").args(["-c", &limited]).env("RATCHET_CACHE", cache.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let told = stderr(&output);
    let errors: Vec<&str> = told.lines().filter(|l| l.starts_with("prepare: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains("cannot write"), "{told}");
    assert!(Cache::open_at(cache.path(), Profile::Smoke).is_err());
    assert!(!cache.path().join("smoke/staging").exists(), "the space is given back");
}

#[test]
fn a_killed_preparation_is_done_by_the_next() {
    let cache = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_prepare"))
        .args(["--profile", "smoke"])
        .env("RATCHET_CACHE", cache.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // its first line comes in the middle of the work, once the tokenizer is trained
    let mut first = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut first)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let output = prepare(cache.path(), &["--profile", "smoke"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (ours, theirs) = (Cache::open_at(cache.path(), Profile::Smoke), crate::prepared::smoke());
    assert_eq!(ours.unwrap().manifest(), theirs.manifest());
}
