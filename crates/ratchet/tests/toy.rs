//! A toy task: one number in a file, and a shell script that scores it or misbehaves on request.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// The referee. Scores `(x − 3)² + 1`; words in the place of the number make it misbehave. Its argument is
/// the user's root, where tests leave and find files.
pub(crate) const SCORE: &str = r#"x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
root=$1
case "$x" in
  nan) echo '{"loss": NaN}' ;;
  inf) echo '{"loss": Infinity}' ;;
  huge) echo '{"loss": 1e999}' ;;
  null) echo '{"loss": null}' ;;
  text) echo '{"loss": "low"}' ;;
  missing) echo '{"other": 1.0}' ;;
  list) echo '[1.0]' ;;
  prose) echo 'the loss is 1.0' ;;
  empty) ;;
  twice) echo '{"loss": 0.0}'; echo 'a last line' ;;
  crash) echo 'boom: no such tensor' >&2; exit 7 ;;
  fails) echo '{"loss": 0.5}'; exit 1 ;;
  hang) exec sleep 600 ;;
  flood) awk 'BEGIN { for (i = 0; i < 400000; i++) printf "step %d of 400000, loss 1.0\r", i; print ""
           for (i = 0; i < 400000; i++) print "line " i; print "{\"loss\": 9.0}" }' ;;
  orphan) setsid sh -c 'trap "" TERM HUP INT; echo $$ > "$1/orphan.pid"; while :; do sleep 0.05; done' - "$root" \
            </dev/null >/dev/null 2>&1 &
          while [ ! -s "$root/orphan.pid" ]; do sleep 0.01; done
          echo '{"loss": 8.0}' ;;
  stubborn) trap '' TERM HUP INT; echo $$ > "$root/stubborn.pid"; while :; do sleep 0.05; done ;;
  gate) echo $$ > "$root/started"; while [ ! -e "$root/open" ]; do sleep 0.01; done; echo '{"loss": 7.0}' ;;
  env) env | sort > "$root/seen.env"; echo '{"loss": 6.0}' ;;
  stdin) if read -r line; then exit 9; fi; echo '{"loss": 5.0}' ;;
  writes) echo stray > stray.txt; echo 99 > score.sh; echo '{"loss": 4.5}' ;;
  *) awk -v x="$x" 'BEGIN { printf "{\"loss\": %.17g}\n", (x - 3) * (x - 3) + 1 }' ;;
esac
"#;

const TASK: &str = r#"[task]
name = "toy"
editable = ["cand/**"]

[metric]
name = "loss"
goal = "minimize"

[score]
command = ["sh", "score.sh", "{root}"]
timeout_s = 20

[accept]
rule = "strict"

[sandbox]
mode = "off"
"#;

/// A repository with the toy task, and whatever a test wants different.
pub(crate) struct Toy {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Toy {
    /// The task as it is, starting at x = 10: a loss of 50.
    pub(crate) fn new() -> Self {
        Self::with(|task| task)
    }

    /// The task with its `ratchet.toml` changed before the first commit.
    pub(crate) fn with(change: impl FnOnce(String) -> String) -> Self {
        let toy = Self::bare();
        toy.write("ratchet.toml", &change(TASK.to_owned()));
        toy.write("score.sh", SCORE);
        toy.write("program.md", "Lower the loss. Edit cand/x.txt.\n");
        toy.write(".gitignore", ".ratchet/\n*.pid\nstarted\nopen\nseen.env\n");
        toy.set("10");
        toy.commit("start");
        toy
    }

    /// Like [`Toy::with`], with TOML appended.
    pub(crate) fn and(more: &str) -> Self {
        Self::with(|task| format!("{task}\n{more}"))
    }

    /// An empty repository.
    pub(crate) fn bare() -> Self {
        let toy = Self::no_repository();
        toy.git(&["init", "-q", "-b", "main", "--template="]);
        toy.git(&["config", "user.name", "toy"]);
        toy.git(&["config", "user.email", "toy@example.invalid"]);
        toy
    }

    /// An empty folder.
    pub(crate) fn no_repository() -> Self {
        Self {
            dir: tempfile::Builder::new().prefix("a toy, ü ").tempdir_in(memory()).unwrap(),
            env: Vec::new(),
        }
    }

    /// The same repository elsewhere, its worktrees with it.
    pub(crate) fn copy(&self) -> Self {
        let mut copy = Self::no_repository();
        copy.env = self.env.clone();
        copy_all(self.root(), copy.root());
        copy.moved_from(self.root());
        copy
    }

    /// Makes git's links between the repository and its worktrees, which are absolute, lead here and not to
    /// where they were copied from.
    pub(crate) fn moved_from(&self, old: &Path) {
        let below = |folder: &str| fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let record = |entry: fs::DirEntry| ["gitdir", "commondir"].map(|name| entry.path().join(name));
        let records = below(".git/worktrees").flat_map(record);
        let links = below(".ratchet/tags").map(|entry| entry.path().join("worktree/.git"));
        for link in records.chain(links) {
            if let Ok(text) = fs::read_to_string(&link) {
                let (old, new) = (old.to_str().unwrap(), self.root().to_str().unwrap());
                fs::write(link, text.replace(old, new)).unwrap();
            }
        }
    }

    /// A variable of the driver's own environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", message]);
    }

    /// Puts a number, or a word for the referee, into the editable file.
    pub(crate) fn set(&self, x: &str) {
        self.write("cand/x.txt", &format!("x = {x} # knob: lin -20..20\n"));
    }

    /// What stands in the editable file.
    pub(crate) fn x(&self) -> String {
        let text = self.read("cand/x.txt");
        text.strip_prefix("x = ").and_then(|rest| rest.split(' ').next()).unwrap_or_default().to_owned()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        let out = Command::new("git").args(args).current_dir(self.root()).output().unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }

    /// The command, ready to run in the repository.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.args(args).current_dir(self.root()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("RATCHET_PROFILE");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `ratchet` to its end; a hang fails the test.
    pub(crate) fn ratchet(&self, args: &[&str]) -> Ran {
        Running(self.command(args).spawn().unwrap()).ended(&format!("ratchet {}", args.join(" ")))
    }

    /// Runs `ratchet` and expects this exit code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32, args: &[&str]) -> Ran {
        let ran = self.ratchet(args);
        assert_eq!(ran.code, Some(code), "ratchet {args:?}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
        ran
    }

    /// `ratchet init --tag bar`.
    #[track_caller]
    pub(crate) fn init(self) -> Self {
        self.exits(0, &["init", "--tag", "bar"]);
        self
    }

    /// Sets x and tries it; the parsed JSON line of an exit 0.
    #[track_caller]
    pub(crate) fn attempt(&self, x: &str) -> Value {
        self.set(x);
        self.exits(0, &["try", "-m", &format!("x is {x}"), "--json"]).json()
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        self.exits(0, &["status", "--json"]).json()
    }

    /// The events of a kind in the journal of the current tag.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let journal =
            self.read(&format!(".ratchet/tags/{}/journal.jsonl", self.read(".ratchet/current").trim()));
        let all = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|event| event["event"] == kind).collect()
    }

    /// The rows of `results.tsv` by column name, checked to be of equal width.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<BTreeMap<String, String>> {
        let text = self.read("results.tsv");
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().expect("a header").split('\t').collect();
        lines
            .map(|line| {
                let cells: Vec<&str> = line.split('\t').collect();
                assert_eq!(cells.len(), head.len(), "{line}");
                head.iter().zip(cells).map(|(k, v)| ((*k).to_owned(), v.to_owned())).collect()
            })
            .collect()
    }

    /// One column of `results.tsv`.
    #[track_caller]
    pub(crate) fn column(&self, name: &str) -> Vec<String> {
        self.rows().into_iter().map(|row| row[name].clone()).collect()
    }

    /// The commits of `ratchet/TAG` since the user's branch, oldest first, as (hash, subject).
    pub(crate) fn lineage(&self, tag: &str) -> Vec<String> {
        let range = format!("main..ratchet/{tag}");
        self.git(&["log", "--reverse", "--format=%H", &range]).lines().map(str::to_owned).collect()
    }

    /// Starts `ratchet` and waits until the referee, told to wait at `gate`, is at work.
    pub(crate) fn at_the_gate(&self, args: &[&str]) -> Running {
        let mut running = Running(self.command(args).spawn().unwrap());
        let begin = Instant::now();
        while !fs::read_to_string(self.path("started")).is_ok_and(|pid| pid.ends_with('\n')) {
            if let Some(status) = running.0.try_wait().unwrap() {
                panic!("ended before its referee began: {status}, {}", running.ended("ratchet").stderr);
            }
            assert!(begin.elapsed() < PATIENCE, "the referee never began");
            thread::sleep(Duration::from_millis(5));
        }
        running
    }

    /// Lets a waiting referee go on.
    pub(crate) fn open_the_gate(&self) {
        self.write("open", "");
    }
}

/// A folder in memory where there is room, else the usual one: the driver syncs all it writes, and thousands
/// of trials are not to wait for a disk.
fn memory() -> PathBuf {
    const ROOM: u64 = 1 << 30;
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if free > ROOM { memory.to_path_buf() } else { std::env::temp_dir() }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target).unwrap();
            copy_all(&entry.path(), &target);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), target).unwrap();
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A `ratchet` at work; killed when the test ends before it.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits for the end.
    pub(crate) fn ended(mut self, what: &str) -> Ran {
        let (mut stdout, mut stderr) = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        let read = |pipe: &mut dyn Read| {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let out = thread::spawn(move || read(&mut stdout));
        let err = thread::spawn(move || read(&mut stderr));
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                self.0.kill().unwrap();
                panic!("{what} was still running after {PATIENCE:?}: {}", err.join().unwrap());
            }
            thread::sleep(Duration::from_millis(2));
        };
        Ran { code: status.code(), stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, or the test has failed: nothing to report either way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a finished `ratchet` left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Its one line of JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.trim().lines().count(), 1, "not one line: {}", self.stdout);
        serde_json::from_str(self.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// Whether what it told a person contains all of these words, and no panic.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) -> &Self {
        let missing: Vec<_> = words
            .iter()
            .filter(|word| !self.stderr.contains(**word) && !self.stdout.contains(**word))
            .collect();
        assert!(missing.is_empty(), "{missing:?} was not said: {}{}", self.stderr, self.stdout);
        assert!(!self.stderr.contains("panicked at"), "{}", self.stderr);
        self
    }
}

/// Waits until something holds; fails when it takes longer than anything here does.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there and no zombie.
pub(crate) fn alive(pid: &str) -> bool {
    let pid: u32 = pid.trim().parse().expect("a process id");
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The keys of a JSON object, sorted.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
