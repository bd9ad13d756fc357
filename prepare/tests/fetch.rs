//! Downloads from a server that truncates, stalls, refuses and lies: a file is whole or it is not there.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prepare::corpus::shard_name;
use prepare::fetch::{FetchError, Fetcher, Patience};
use prepare::manifest::{hex, sha256_file};
use prepare::progress::{Progress, Silent, Task, Unit};
use tempfile::TempDir;

use crate::prepared::shard;
use crate::server::{ETAG, Reply, Request, Server};

fn file() -> Arc<Vec<u8>> {
    Arc::new(fs::read(shard(2)).unwrap())
}

/// Three tries, no waits worth noticing.
fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(2),
        response: Duration::from_secs(2),
        stall: Duration::from_millis(60),
        tries: 3,
        backoff: Duration::from_millis(1),
        longest_wait: Duration::from_millis(40),
    }
}

fn fetch_from(dir: &Path, urls: &[String], shards: &[u32]) -> Result<(), FetchError> {
    Fetcher::new(dir, urls, &patience(), &Silent).fetch(shards, 2)
}

/// Fetches shard 7 from one server into a new directory.
fn fetch_one(
    reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
) -> (Server, TempDir, Result<(), FetchError>) {
    let (server, dir) = (Server::start(reply), tempfile::tempdir().unwrap());
    let result = fetch_from(dir.path(), &[server.url()], &[7]);
    (server, dir, result)
}

fn fetched(dir: &TempDir) -> Vec<u8> {
    fs::read(dir.path().join("shard_00007.parquet")).unwrap()
}

fn names(dir: &TempDir) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_whole_file_arrives_and_nothing_else_is_left() {
    let (server, dir, result) = fetch_one(|_, _| Reply::File(file(), ETAG));
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
    assert_eq!(names(&dir), ["shard_00007.parquet"]);
    assert_eq!(server.requests()[0].path, "/data/shard_00007.parquet");
    // and once it is there, nobody is asked again
    fetch_from(dir.path(), &[server.url()], &[7]).unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_truncated_download_is_resumed_where_it_ended() {
    let (server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Truncated(file(), 100_000),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
    let resumed = server.requests()[1].clone();
    assert_eq!(resumed.range, Some(100_000));
    assert_eq!(resumed.if_range.as_deref(), Some(ETAG));
}

#[test]
fn a_stalled_server_is_left_and_the_download_resumed() {
    let (server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Stalled(file(), 50_000),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
    assert_eq!(server.requests()[1].range, Some(50_000));
}

#[test]
fn progress_earns_more_tries_than_a_standstill() {
    // breaks ten times, each time further on: more breaks than tries, but always new bytes
    let (server, dir, result) = fetch_one(|_, n| match n {
        0..10 => Reply::Truncated(file(), 10_000),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
    assert_eq!(server.requests().len(), 11);
    // always breaks at the same place
    let (server, dir, result) = fetch_one(|r, _| Reply::Truncated(file(), 10_000 - r.range.unwrap_or(0)));
    assert!(result.unwrap_err().failed[0].0.contains("shard_00007"));
    assert_eq!(server.requests().len(), 3);
    assert!(!dir.path().join("shard_00007.parquet").exists());
}

#[test]
fn a_server_without_ranges_sends_it_all_again() {
    let (_server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Truncated(file(), 100_000),
        _ => Reply::Whole(file()),
    });
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
}

#[test]
fn not_found_is_final_for_a_mirror_and_the_next_one_is_asked() {
    let (server, _dir, result) = fetch_one(|_, _| Reply::Status(404, String::new()));
    let error = result.unwrap_err();
    assert_eq!(server.requests().len(), 1, "asking again would not help");
    assert!(!error.local);
    let message = error.to_string();
    assert!(message.contains("shard_00007.parquet") && message.contains("HTTP 404"), "{message}");

    let mirror = Server::start(|_, _| Reply::File(file(), ETAG));
    let dir = tempfile::tempdir().unwrap();
    fetch_from(dir.path(), &[server.url(), mirror.url() + "/"], &[7]).unwrap();
    assert_eq!(fetched(&dir), *file());
}

#[test]
fn a_part_from_one_mirror_is_not_continued_from_another() {
    let breaks = Server::start(|_, n| match n {
        0 => Reply::Truncated(file(), 100_000),
        _ => Reply::Status(404, String::new()),
    });
    let mirror = Server::start(|_, _| Reply::File(file(), ETAG));
    let dir = tempfile::tempdir().unwrap();
    fetch_from(dir.path(), &[breaks.url(), mirror.url()], &[7]).unwrap();
    assert_eq!(mirror.requests()[0].range, None);
    assert_eq!(fetched(&dir), *file());
}

#[test]
fn server_errors_are_retried_then_given_up() {
    let (server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Status(500, String::new()),
        1 => Reply::Status(429, String::new()),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap();
    assert_eq!((fetched(&dir), server.requests().len()), ((*file()).clone(), 3));

    let (server, _dir, result) = fetch_one(|_, _| Reply::Status(503, String::new()));
    assert!(result.unwrap_err().to_string().contains("HTTP 503"));
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn retry_after_is_honoured_within_the_longest_wait() {
    let start = Instant::now();
    let (_server, _dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Status(429, "Retry-After: 3600\r\n".into()),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap();
    // the back-off alone would have waited 1 ms
    let waited = start.elapsed();
    assert!(waited >= patience().longest_wait && waited < Duration::from_secs(60), "{waited:?}");
}

#[test]
fn a_file_with_a_broken_footer_is_never_put_in_place() {
    let (server, dir, result) = fetch_one(|_, _| {
        let mut bad = (*file()).clone();
        bad.extend_from_slice(b"more");
        Reply::File(Arc::new(bad), ETAG)
    });
    assert!(result.unwrap_err().to_string().contains("parquet"));
    assert!(server.requests().iter().all(|r| r.range.is_none()), "a corrupt file is not resumed");
    assert!(!dir.path().join("shard_00007.parquet").exists());

    let page = b"<html>your network wants you to log in first, and says 200 OK</html>";
    let (_server, dir, result) = fetch_one(|_, _| Reply::File(Arc::new(page.to_vec()), ETAG));
    assert!(result.unwrap_err().to_string().contains("does not begin as a parquet file"));
    assert!(!dir.path().join("shard_00007.parquet").exists());
}

/// Leaves the first 100,000 bytes of a download that broke for good.
fn broken_off() -> (Server, TempDir) {
    let (server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Truncated(file(), 100_000),
        1 => Reply::Status(404, String::new()),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap_err();
    assert_eq!(fs::metadata(dir.path().join("shard_00007.parquet.partial")).unwrap().len(), 100_000);
    (server, dir)
}

#[test]
fn a_later_run_resumes_and_finds_a_corrupt_part() {
    let (server, dir) = broken_off();
    fetch_from(dir.path(), &[server.url()], &[7]).unwrap();
    assert_eq!(server.requests()[2].range, Some(100_000));
    assert_eq!(fetched(&dir), *file());

    let (server, dir) = broken_off();
    fs::write(dir.path().join("shard_00007.parquet.partial"), vec![0; 120_000]).unwrap();
    fetch_from(dir.path(), &[server.url()], &[7]).unwrap();
    let requests = server.requests();
    assert_eq!((requests[2].range, requests[3].range), (Some(120_000), None), "started over");
    assert_eq!(fetched(&dir), *file());

    // longer than the file: the server cannot satisfy the range
    let (server, dir) = broken_off();
    fs::write(dir.path().join("shard_00007.parquet.partial"), vec![0; 1_000_000]).unwrap();
    fetch_from(dir.path(), &[server.url()], &[7]).unwrap();
    assert_eq!(fetched(&dir), *file());
}

#[test]
fn parts_of_two_versions_never_mix() {
    let (_server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Truncated(Arc::new(fs::read(shard(3)).unwrap()), 100_000),
        _ => Reply::File(file(), "\"two\""),
    });
    result.unwrap();
    assert_eq!(fetched(&dir), *file());

    let (_server, dir, result) = fetch_one(|_, n| match n {
        0 => Reply::Truncated(file(), 100_000),
        1 => Reply::Shifted(file(), 10),
        _ => Reply::File(file(), ETAG),
    });
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
}

#[test]
fn a_named_hash_must_be_the_files() {
    let headed =
        |hash: String| move |_: &Request, _| Reply::Headed(file(), format!("X-Linked-ETag: \"{hash}\"\r\n"));
    let (_server, dir, result) = fetch_one(headed(sha256_file(&shard(2)).unwrap()));
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
    let (_server, dir, result) = fetch_one(headed(hex(&[0; 32])));
    assert!(result.unwrap_err().to_string().contains("SHA-256"));
    assert!(!dir.path().join("shard_00007.parquet").exists());
}

#[test]
fn a_hash_named_on_a_redirect_must_be_the_files() {
    let store = Server::start(|_, _| Reply::File(file(), ETAG));
    let hub = |hash: String| {
        let place = format!("{}/store", store.url());
        move |_: &Request, _| {
            Reply::Status(302, format!("Location: {place}\r\nX-Linked-ETag: \"{hash}\"\r\n"))
        }
    };
    let (_hub, dir, result) = fetch_one(hub(sha256_file(&shard(2)).unwrap()));
    result.unwrap();
    assert_eq!(fetched(&dir), *file());
    let (_hub, dir, result) = fetch_one(hub(hex(&[0; 32])));
    assert!(result.unwrap_err().to_string().contains("SHA-256"));
    assert!(!dir.path().join("shard_00007.parquet").exists());
}

#[test]
fn one_failed_shard_is_named_and_the_others_are_fetched() {
    let server = Server::start(|r, _| match r.path.as_str() {
        "/data/shard_00002.parquet" => Reply::Status(404, String::new()),
        _ => Reply::File(file(), ETAG),
    });
    let dir = tempfile::tempdir().unwrap();
    let error = fetch_from(dir.path(), &[server.url()], &[1, 2, 3]).unwrap_err();
    assert_eq!((error.failed.len(), error.of), (1, 3));
    assert!(error.to_string().starts_with("1 of 3 shards failed; shard_00002.parquet: "), "{error}");
    assert_eq!(names(&dir), [1, 3].map(shard_name));
}

#[test]
fn a_disk_that_refuses_stops_at_once() {
    let server = Server::start(|_, _| Reply::File(file(), ETAG));
    let dir = tempfile::tempdir().unwrap();
    let error = fetch_from(&dir.path().join("gone"), &[server.url()], &[7]).unwrap_err();
    assert!(error.local && error.to_string().contains("cannot write"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_goes_wrong_is_told_while_it_happens() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);
    impl Progress for Heard {
        fn start(&self, what: &str, _: Option<u64>, _: Unit) -> Box<dyn Task> {
            self.0.lock().unwrap().push(what.to_owned());
            Box::new(Silent)
        }
        fn say(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }
    let server = Server::start(|_, n| match n {
        0 => Reply::Status(500, String::new()),
        _ => Reply::File(file(), ETAG),
    });
    let (dir, heard) = (tempfile::tempdir().unwrap(), Heard::default());
    Fetcher::new(dir.path(), &[server.url()], &patience(), &heard).fetch(&[7], 1).unwrap();
    let heard = heard.0.into_inner().unwrap();
    assert_eq!(heard[0], "shard_00007.parquet");
    assert!(heard[1].contains("HTTP 500") && heard[1].contains("trying again"), "{heard:?}");
}
