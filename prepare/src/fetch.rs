//! Downloads shards over HTTP: resumed, retried, checked, and in place only when whole.
//!
//! A download grows in `NAME.partial`, beside a note of what it is part of. It becomes `NAME` by rename, once
//! its length, its parquet footer and, where the server names one, its SHA-256 are right.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::{Agent, Body, ResponseExt};

use crate::corpus::{ShardReader, shard_name};
use crate::manifest::sha256_file;
use crate::progress::{Progress, Task, Unit};

/// Where the public data set lies.
pub const CLIMBMIX_URL: &str = "https://huggingface.co/datasets/karpathy/climbmix-400b-shuffle/resolve/main";

/// How long to wait for a server, and how often to ask again.
#[derive(Debug, Clone)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For the head of a response.
    pub response: Duration,
    /// For the next bytes of a body.
    pub stall: Duration,
    /// Tries at one mirror that bring no new bytes before it is given up.
    pub tries: u32,
    /// Wait before the second try; doubles with each one after.
    pub backoff: Duration,
    /// Longest wait between tries, also when the server asks for more.
    pub longest_wait: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            connect: Duration::from_secs(15),
            response: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            tries: 6,
            backoff: Duration::from_secs(1),
            longest_wait: Duration::from_secs(120),
        }
    }
}

/// Shards that could not be had.
#[derive(Debug)]
pub struct FetchError {
    /// File name and why, for each.
    pub failed: Vec<(String, String)>,
    /// How many were asked for.
    pub of: usize,
    /// Set when this machine refused to store them, e.g. a full disk.
    pub local: bool,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} shards failed", self.failed.len(), self.of)?;
        for (name, why) in &self.failed {
            write!(f, "; {name}: {why}")?;
        }
        write!(f, "; run the same command again to resume")
    }
}

impl std::error::Error for FetchError {}

/// Why one try failed.
#[derive(Debug)]
enum Failure {
    /// This mirror will not have it later either.
    Absent(String),
    /// Worth another try, after at least this long where the server said so.
    Passing(String, Option<Duration>),
    /// The disk, not the network: no mirror helps.
    Local(String),
}

/// What a `.partial` file is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    url: String,
    /// Bytes of the whole.
    total: Option<u64>,
    /// A strong ETag or a date, sent back as `If-Range` so that parts of two versions never mix.
    validator: Option<String>,
}

/// A fetcher of shards into one directory.
pub struct Fetcher<'a> {
    agent: Agent,
    dir: &'a Path,
    base_urls: &'a [String],
    patience: &'a Patience,
    progress: &'a dyn Progress,
    /// Set when the disk refuses: every worker stops.
    stop: AtomicBool,
}

impl<'a> Fetcher<'a> {
    /// Fetches into `dir` from the first of `base_urls` that has a shard, at `BASE/shard_NNNNN.parquet`.
    pub fn new(
        dir: &'a Path,
        base_urls: &'a [String],
        patience: &'a Patience,
        progress: &'a dyn Progress,
    ) -> Fetcher<'a> {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .save_redirect_history(true)
            .accept_encoding("identity") // lengths and ranges are those of the file
            .user_agent(concat!("ratchet-prepare/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(patience.connect))
            .timeout_recv_response(Some(patience.response))
            .timeout_per_read(Some(patience.stall))
            .build()
            .new_agent();
        Fetcher { agent, dir, base_urls, patience, progress, stop: AtomicBool::new(false) }
    }

    /// Fetches `shards` with up to `workers` downloads at a time; those already in place stay as they are.
    ///
    /// Errors: names every shard that failed, after all others have been fetched.
    pub fn fetch(&self, shards: &[u32], workers: usize) -> Result<(), FetchError> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(Vec::new());
        let work = || {
            while let Some(&shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(why) = self.shard(&shard_name(shard)) {
                    failed.lock().expect("no holder panics").push((shard_name(shard), why));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..workers.clamp(1, shards.len().max(1)) {
                scope.spawn(work);
            }
        });
        let mut failed = failed.into_inner().expect("no holder panics");
        failed.sort();
        let local = self.stop.load(Ordering::Relaxed);
        if failed.is_empty() { Ok(()) } else { Err(FetchError { failed, of: shards.len(), local }) }
    }

    fn shard(&self, name: &str) -> Result<(), String> {
        let place = self.dir.join(name);
        match check_parquet(&place) {
            Ok(()) => return Ok(()),
            Err(_) if !place.exists() => {}
            Err(why) => self.progress.say(&format!("{name} is damaged ({why}); fetching it again")),
        }
        let task = self.progress.start(name, None, Unit::Bytes);
        let mut whys = Vec::new();
        for base in self.base_urls {
            let url = format!("{}/{name}", base.trim_end_matches('/'));
            match self.mirror(&url, &place, &*task) {
                Ok(()) => return Ok(()),
                Err(Failure::Local(why)) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return Err(why);
                }
                Err(Failure::Absent(why) | Failure::Passing(why, _)) => whys.push(format!("{why} ({url})")),
            }
        }
        Err(whys.join(", "))
    }

    /// Tries one mirror until the file is there, it says it has none, or several tries brought nothing new.
    fn mirror(&self, url: &str, place: &Path, task: &dyn Task) -> Result<(), Failure> {
        let (mut furthest, mut barren) = (0, 0);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Local("stopped".into()));
            }
            let (got, result) = self.attempt(url, place, task);
            let Err(failure) = result else { return Ok(()) };
            let Failure::Passing(why, asked) = failure else { return Err(failure) };
            // a slow link that breaks every minute still arrives; a file that breaks at one place does not
            barren = if got > furthest { 1 } else { barren + 1 };
            furthest = furthest.max(got);
            if barren >= self.patience.tries {
                return Err(Failure::Passing(why, None));
            }
            let wait = asked.unwrap_or_else(|| self.backoff(barren)).min(self.patience.longest_wait);
            self.progress.say(&format!("{url}: {why}; trying again in {:.1} s", wait.as_secs_f64()));
            std::thread::sleep(wait);
        }
    }

    /// Doubling, with jitter so that workers do not return all at once.
    fn backoff(&self, barren: u32) -> Duration {
        self.patience.backoff
            * 2u32.saturating_pow(barren - 1).min(1 << 16)
            * (50 + rand::random_range(0..50))
            / 100
    }

    /// One request. Returns also how many bytes of the file were had when it ended.
    fn attempt(&self, url: &str, place: &Path, task: &dyn Task) -> (u64, Result<(), Failure>) {
        let mut got = 0;
        let result = self.request(url, place, task, &mut got);
        (got, result)
    }

    fn request(&self, url: &str, place: &Path, task: &dyn Task, got: &mut u64) -> Result<(), Failure> {
        let (partial, note) = (with_suffix(place, ".partial"), with_suffix(place, ".partial.json"));
        let known = read_note(&note).filter(|part| part.url == url);
        let have = match &known {
            Some(_) => fs::metadata(&partial).map_or(0, |m| m.len()),
            None => 0,
        };
        let mut request = self.agent.get(url);
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
            if let Some(validator) = known.as_ref().and_then(|part| part.validator.as_deref()) {
                request = request.header(header::IF_RANGE, validator);
            }
        }
        let mut response = request.call().map_err(|e| Failure::Passing(network(&e), None))?;
        let (start, total) = match response.status() {
            StatusCode::OK => (0, number(response.headers(), header::CONTENT_LENGTH)),
            StatusCode::PARTIAL_CONTENT => match content_range(response.headers()) {
                Some((start, total)) if start == have && known.as_ref().is_some_and(|p| p.total == total) => {
                    (start, total)
                }
                _ => return Err(restart(&partial, "the server resumed another file or place")),
            },
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                return Err(restart(&partial, "the partial file is not part of the server's"));
            }
            status => return Err(refusal(status, response.headers())),
        };
        let part = Part { url: url.to_owned(), total, validator: validator(response.headers()) };
        let expected = self.announced_sha256(&response, url);
        *got = start;
        let whole = self.receive(&mut response, &partial, &note, &part, task, got)?;
        if total.is_some_and(|total| total != whole) {
            return Err(Failure::Passing(format!("{whole} of {} bytes arrived", total.unwrap_or(0)), None));
        }
        check_parquet(&partial).map_err(|why| restart(&partial, &why))?;
        if let Some(expected) = expected {
            let hash = sha256_file(&partial).map_err(|e| local(&partial, &e))?;
            if hash != expected {
                return Err(restart(&partial, "its SHA-256 is not the one the server names"));
            }
        }
        fs::rename(&partial, place).and_then(|()| sync_dir(self.dir)).map_err(|e| local(place, &e))?;
        // the note of a finished download is rubbish; left behind it does no harm
        let _ = fs::remove_file(&note);
        Ok(())
    }

    /// Appends the body at `*got` of the partial file, counting up `*got`. Returns the file's length.
    fn receive(
        &self,
        response: &mut Response<Body>,
        partial: &Path,
        note: &Path,
        part: &Part,
        task: &dyn Task,
        got: &mut u64,
    ) -> Result<u64, Failure> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(partial);
        let open = file.as_mut().map_err(|e| local(partial, e))?;
        open.set_len(*got).and_then(|()| open.seek(SeekFrom::End(0))).map_err(|e| local(partial, &e))?;
        let text = serde_json::to_vec(part).expect("a part holds only strings and numbers");
        fs::write(note, text).map_err(|e| local(note, &e))?;
        let mut body = response.body_mut().as_reader();
        let mut chunk = vec![0; 128 << 10];
        loop {
            let n =
                body.read(&mut chunk).map_err(|e| Failure::Passing(network(&ureq::Error::from(e)), None))?;
            if n == 0 {
                break;
            }
            open.write_all(&chunk[..n]).map_err(|e| local(partial, &e))?;
            *got += n as u64;
            task.at(*got, part.total);
        }
        open.sync_all().map_err(|e| local(partial, &e))?;
        Ok(*got)
    }

    /// The file's SHA-256 where the server names it: the hub does so on the redirect to its store.
    fn announced_sha256(&self, response: &Response<Body>, url: &str) -> Option<String> {
        const NAME: &str = "x-linked-etag";
        let named = |headers: &HeaderMap| {
            let hash = headers.get(NAME)?.to_str().ok()?.trim_matches('"').to_ascii_lowercase();
            (hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then_some(hash)
        };
        named(response.headers()).or_else(|| {
            response.get_redirect_history().filter(|uris| uris.len() > 1)?;
            let head = self.agent.head(url).config().max_redirects(0).max_redirects_will_error(false).build();
            named(head.call().ok()?.headers())
        })
    }
}

/// Why `path` is no whole parquet file with a text column, if it is not.
fn check_parquet(path: &Path) -> Result<(), String> {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut f| f.read_exact(&mut magic)).map_err(|e| e.to_string())?;
    if &magic != b"PAR1" {
        return Err("it does not begin as a parquet file".into());
    }
    ShardReader::open(path).map(|_| ()).map_err(|e| e.to_string())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn read_note(path: &Path) -> Option<Part> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Forgets the partial file, so that the next try starts from nothing.
fn restart(partial: &Path, why: &str) -> Failure {
    match fs::remove_file(partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => local(partial, &e),
        _ => Failure::Passing(why.to_owned(), None),
    }
}

fn local(path: &Path, e: &io::Error) -> Failure {
    Failure::Local(format!("cannot write {}: {e}", path.display()))
}

fn network(e: &ureq::Error) -> String {
    match e {
        ureq::Error::Timeout(what) => format!("timed out ({what})"),
        other => other.to_string(),
    }
}

/// 429, 408 and server errors pass; any other refusal is final.
fn refusal(status: StatusCode, headers: &HeaderMap) -> Failure {
    let why = format!("HTTP {}", status.as_u16());
    let passing = status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT;
    if !passing {
        return Failure::Absent(why);
    }
    Failure::Passing(why, number(headers, header::RETRY_AFTER).map(Duration::from_secs))
}

fn number(headers: &HeaderMap, name: header::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Start and whole length in `Content-Range: bytes START-END/TOTAL`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (span, total) = range.split_once('/')?;
    Some((span.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

/// A weak ETag says only that two versions look alike: it cannot join parts.
fn validator(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    text(header::ETAG).filter(|etag| !etag.starts_with("W/")).or_else(|| text(header::LAST_MODIFIED))
}

/// Makes renames in `dir` survive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
