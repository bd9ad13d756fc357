//! What can be seen of a run from another terminal: `live.json`, and `ratchet watch` in a real one (tmux).

use std::{
    fs,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use ratchet::{live, progress::Phase, state::State};
use serde_json::{Value, json};

use crate::toy::{Toy, alive, until};

/// Longer than anything here takes, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Trains to the half of its budget, with a loss that falls; from trial 3 on it then waits for leave to go on.
const FIT: &str = r#"awk 'BEGIN { print "step,seconds,progress,tokens,loss"
  for (i = 1; i <= 50; i++) printf "%d,%.3f,%.6f,%d,%.6f\n", i, i / 10, i / 100, i * 512, 9 - i / 10 }' > "$1/steps.csv"
case "$1" in
  *000[12]*) ;;
  *) trial=$(basename "$(dirname "$1")")
     echo $$ > "$2/started"; while [ ! -e "$2/open-$trial" ]; do sleep 0.01; done ;;
esac
"#;

/// A toy that trains.
fn training() -> Toy {
    let toy = Toy::and("[fit]\ncommand = [\"sh\", \"fit.sh\", \"{trial}\", \"{root}\"]\ntimeout_s = 100\n");
    toy.write("fit.sh", FIT);
    toy.write(".gitignore", ".ratchet/\nstarted\nopen-*\n");
    toy.commit("it trains");
    toy
}

#[test]
fn live_json_says_what_the_driver_does_and_goes_with_it() {
    let toy = training();
    let state = State::new(toy.root());
    assert_eq!(live::now(&state), None);
    let running = toy.at_the_gate(&["run", "--trials", "4", "--tag", "bar"]);
    let now = live::now(&state).unwrap();
    assert_eq!((now.tag.as_str(), now.doing), ("bar", live::Doing::Phase(Phase::Fit)));
    assert_eq!(now.folder.as_deref(), Some("trials/0003".as_ref()));
    assert_eq!(now.trial.map(|open| (open.trial, open.proposer)), Some((3, "knobs".into())));
    // killed, it leaves the file, which then means nothing
    let text = toy.read(".ratchet/live.json");
    drop(running);
    assert_eq!(toy.read(".ratchet/live.json"), text);
    assert_eq!(live::now(&state), None);
    // nonsense means nothing either, and the next run does not mind it
    toy.write(".ratchet/live.json", "{\"pid\": [");
    for trial in [3, 4, 5] {
        toy.write(&format!("open-000{trial}"), "");
    }
    toy.exits(0, &["run", "--trials", "2"]);
    assert!(!toy.path(".ratchet/live.json").exists());
}

#[test]
fn without_a_terminal_watch_names_what_does_without() {
    training().exits(2, &["watch"]).says(&["terminal", "ratchet status"]);
}

/// A tmux server of its own; ended with the test.
struct Tmux<'a> {
    toy: &'a Toy,
    name: String,
}

impl<'a> Tmux<'a> {
    /// `ratchet watch` in a window of this size; what follows it shows how it has left the terminal.
    fn watch(toy: &'a Toy, width: u16, height: u16, setting: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let tmux = Self { toy, name: format!("ratchet-watch-{}-{n}", std::process::id()) };
        let (x, y) = (width.to_string(), height.to_string());
        let program = env!("CARGO_BIN_EXE_ratchet");
        let script = format!("{setting} '{program}' watch; echo \"left $?\"; stty -a; exec cat");
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-s", "watch", "-x", &x, "-y", &y, &script]);
        tmux
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-L").arg(&self.name).args(args).current_dir(self.toy.root());
        let ran = command.output().expect("tmux is installed");
        assert!(ran.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
        ran
    }

    fn picture(&self, how: &[&str]) -> String {
        let ran = self.run(&[&["capture-pane", "-p", "-t", "watch"], how].concat());
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    #[track_caller]
    fn shows(&self, words: &[&str]) {
        let mut picture = String::new();
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            picture = self.picture(&[]);
            if words.iter().all(|word| picture.contains(word)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("{words:?} is not all there:\n{picture}");
    }

    fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys", "-t", "watch"], keys].concat());
    }

    /// The process that watches.
    fn pid(&self) -> String {
        let ran = self.run(&["display-message", "-p", "-t", "watch", "#{pane_pid}"]);
        let shell = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        children.split_whitespace().next().expect("a child").to_owned()
    }

    /// Waits until it has left, and the terminal is as a terminal is.
    #[track_caller]
    fn has_left(&self, code: i32) {
        self.shows(&[&format!("left {code}"), " icanon", " echo "]);
        let ran = self.run(&["display-message", "-p", "-t", "watch", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "0 1");
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.name, "kill-server"]).output();
    }
}

#[test]
#[ignore = "needs tmux; .ci/watch runs it"]
fn a_window_that_is_closed_ends_the_view() {
    let toy = Toy::new();
    let view = Tmux::watch(&toy, 80, 24, "");
    view.shows(&["no tag yet"]);
    let watching = view.pid();
    drop(view);
    until("the view ends with its terminal", || !alive(&watching));
}

#[test]
#[ignore = "needs tmux; .ci/watch runs it"]
fn watch_shows_a_run_at_both_sizes_and_steers_it() {
    let toy = training();
    let small = Tmux::watch(&toy, 80, 24, "");
    small.shows(&["no tag yet"]);
    let running = toy.at_the_gate(&["run", "--trials", "9", "--tag", "bar"]);
    let large = Tmux::watch(&toy, 200, 60, "NO_COLOR=1");
    let essentials = [
        "toy  tag bar",
        "cpu",
        "running for",
        "best ",
        " keep ",
        "trial 3 by knobs",
        "▶ fit",
        "score",
        "x 10 ",
        "loss 4.200",
        "to champion",
        "tokens/s 5.1 k",
        "step 50",
        "memory",
        "loss over the budget",
        "• champion",
        "loss over trials",
        "baseline",
        " discard ",
        "2 of 9",
        "stops",
        "pause",
        "stop",
        "hint",
        "help",
        "quit",
    ];
    for view in [&small, &large] {
        view.shows(&essentials);
    }
    large.shows(&["verdict", "└──", "100 %"]);
    let coloured = |view: &Tmux<'_>| view.picture(&["-e"]).contains("38;5;");
    assert!(coloured(&small) && !coloured(&large), "NO_COLOR is set for the large one");
    // of another size it is drawn anew
    small.run(&["resize-window", "-t", "watch", "-x", "132", "-y", "40"]);
    small.shows(&["verdict", "└──"]);
    small.run(&["resize-window", "-t", "watch", "-x", "20", "-y", "5"]);
    small.shows(&["toy  tag bar"]);
    small.run(&["resize-window", "-t", "watch", "-x", "80", "-y", "24"]);
    small.shows(&essentials);

    small.press(&["?"]);
    small.shows(&["keys: any one closes this", "ratchet report"]);
    small.press(&["x"]);
    small.press(&["h"]);
    small.shows(&["hint:", "Enter queues it"]);
    small.press(&["-l", "try q, s and p; 'quoted'"]);
    small.press(&["Enter"]);
    small.shows(&["queued, 1 waiting"]);
    toy.exits(0, &["hint"]).says(&["try q, s and p; 'quoted'"]);
    small.press(&["p"]);
    small.shows(&["pauses after its trial"]);
    large.shows(&["pauses after this trial", "resume"]);
    toy.exits(0, &["status"]).says(&["it pauses after its trial"]);
    toy.write("open-0003", "");
    until("it pauses", || toy.status()["paused"] == true);
    large.shows(&["paused for", "3 of 9"]);

    fs::remove_file(toy.path("started")).unwrap();
    large.press(&["p"]);
    until("the fourth trial", || toy.path("started").exists());
    small.shows(&["running for", "trial 4 by knobs"]);
    small.press(&["s"]);
    small.shows(&["Stop after this trial?"]);
    small.press(&["n"]);
    assert_eq!(wish(&toy), json!("go"), "any other key leaves it");
    small.press(&["s"]);
    small.shows(&["Stop after this trial?"]);
    small.press(&["y"]);
    until("the stop is asked for", || wish(&toy) == json!("stop"));
    large.shows(&["ends after this trial"]);
    // who leaves does not touch the run: by a key, by a signal
    small.press(&["q"]);
    small.has_left(0);
    let status = Command::new("kill").args(["-TERM", &large.pid()]).status().unwrap();
    assert!(status.success());
    large.has_left(0);
    assert_eq!(toy.status()["running"], true);

    let after = Tmux::watch(&toy, 81, 24, "");
    after.shows(&["ends after this trial"]);
    toy.write("open-0004", "");
    let ran = running.ended("the stopped run");
    assert_eq!((ran.code, toy.rows().len()), (Some(0), 4), "{}", ran.stderr);
    after.shows(&["not running since", "stopped by `ratchet stop`", "nobody is at work"]);
    after.press(&["p"]);
    after.shows(&["no run is under way"]);
    after.press(&["C-c"]);
    after.has_left(0);
}

fn wish(toy: &Toy) -> Value {
    serde_json::from_str::<Value>(&toy.read(".ratchet/control.json")).unwrap()["wish"].clone()
}

/// Not a test of time: it prints what watching costs where there are 2,000 trials.
#[test]
#[ignore = "needs tmux; .ci/watch runs it"]
fn watching_two_thousand_trials_costs_little() {
    let toy = training();
    for trial in 1..=3 {
        toy.write(&format!("open-000{trial}"), "");
    }
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    let path = ".ratchet/tags/bar/journal.jsonl";
    let journal = toy.read(path);
    let last = journal.lines().rfind(|line| line.contains("\"event\":\"closed\"")).unwrap();
    let mut record: Value = serde_json::from_str(last).unwrap();
    let mut longer = journal.clone();
    for trial in 4..=2_000 {
        record["trial"] = json!(trial);
        record["status"] = json!("discard");
        longer += &format!("{record}\n");
    }
    toy.write(path, &longer);
    for (width, height) in [(80, 24), (200, 60)] {
        let view = Tmux::watch(&toy, width, height, "");
        view.shows(&["of 2000", " discard "]);
        let ticks = || -> f64 {
            let stat = fs::read_to_string(format!("/proc/{}/stat", view.pid())).unwrap();
            let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
            fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
        };
        let (before, begin) = (ticks(), Instant::now());
        while begin.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(100)); // what is measured is time
        }
        let percent = (ticks() - before)
            / rustix::param::clock_ticks_per_second() as f64
            / begin.elapsed().as_secs_f64()
            * 100.0;
        println!(
            "watch at {width}x{height}, {} kB of journal: {percent:.1} % of a core",
            longer.len() / 1000
        );
        assert!(percent < 50.0, "it reads the journal again and again");
    }
}
