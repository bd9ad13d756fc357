//! Review: decisions from terminals and scripts, the counter of unreviewed keeps, and when a run waits.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::toy::{Running, Toy, until};

/// A toy with three keeps beyond its baseline: trials 2, 4 and 5.
pub(crate) fn kept(toy: Toy) -> Toy {
    let toy = toy.init();
    for (x, status) in [("6", "keep"), ("9", "discard"), ("5", "keep"), ("4", "keep")] {
        assert_eq!(toy.attempt(x)["status"], status);
    }
    toy
}

/// Adds `nights` finished runs with one keep each to the journal, on consecutive days.
fn nights(toy: &Toy, nights: usize) {
    let path = toy.path(".ratchet/tags/bar/journal.jsonl");
    let journal = fs::read_to_string(&path).unwrap();
    let mut lines = Vec::new();
    let mut night = 0;
    for line in journal.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let keep = event["event"] == "closed" && event["status"] == "keep" && event["trial"] != 1;
        let at = |hour: usize| format!("2026-01-{:02}T{hour:02}:00:00Z", night + 1);
        if keep && night < nights {
            lines.push(format!("{{\"v\":1,\"event\":\"run_started\",\"at\":\"{}\",\"rules\":\"\"}}", at(10)));
            lines.push(line.replace("\"proposer\":\"try\"", "\"proposer\":\"knobs\""));
            lines.push(format!("{{\"v\":1,\"event\":\"run_ended\",\"at\":\"{}\",\"reason\":\"\"}}", at(12)));
            night += 1;
        } else {
            lines.push(line.to_owned());
        }
    }
    assert_eq!(night, nights);
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn keeps_are_counted_until_somebody_decides_and_baselines_never() {
    let toy = Toy::new();
    assert_eq!(toy.status()["unreviewed"], 0);
    let toy = kept(toy);
    assert_eq!(toy.status()["unreviewed"], 3);
    toy.exits(0, &["status"]).says(&["3 keeps are unreviewed", "ratchet review"]);
    toy.exits(0, &["review", "2", "--accept"]);
    toy.exits(0, &["review", "4", "--defer"]);
    toy.exits(0, &["review", "5", "--reject"]);
    assert_eq!(toy.status()["unreviewed"], 0);
    fs::write(toy.path(".ratchet/tags/bar/reviews.jsonl"), "nonsense\n").unwrap();
    assert_eq!(toy.status()["unreviewed"], Value::Null);
    toy.exits(0, &["status"]).says(&["line 1 of the reviews is damaged"]);
}

#[test]
fn a_run_waits_at_the_limit_and_goes_on_when_keeps_are_reviewed() {
    let toy = kept(Toy::and("[review]\nwarn = 2\nlimit = 2\n"));
    let running = Running(toy.command(&["run", "--trials", "1"]).spawn().unwrap());
    until("it is paused", || toy.status()["paused"] == true);
    toy.exits(0, &["status"]).says(&["paused, pid", "3 keeps are unreviewed, and the limit is 2"]);
    toy.exits(0, &["review", "5", "--accept"]);
    assert_eq!(toy.status()["paused"], true, "two are two");
    toy.exits(0, &["review", "2", "--defer"]);
    let ran = running.ended("the run that waited");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("waits:").count(), 1, "{}", ran.stderr);
    ran.says(&["note: 3 keeps are unreviewed", "`ratchet review` walks them", "`ratchet resume`"]);
    let why: Vec<Value> = toy.events("paused").iter().map(|event| event["why"].clone()).collect();
    assert_eq!(why, ["3 keeps are unreviewed, and the limit is 2"]);
    assert_eq!(toy.events("resumed").len(), 1);
}

#[test]
fn resume_lets_one_run_go_on_unreviewed_and_the_next_one_waits_again() {
    let toy = kept(Toy::and("[review]\nlimit = 1\n"));
    for _ in 0..2 {
        let running = Running(toy.command(&["run", "--trials", "1"]).spawn().unwrap());
        until("it is paused", || toy.status()["paused"] == true);
        toy.exits(0, &["resume"]).says(&["still to be reviewed"]);
        let ran = running.ended("the run that waited");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.says(&["goes on", "the next run will wait"]);
    }
    let running = Running(toy.command(&["run", "--trials", "1"]).spawn().unwrap());
    until("it is paused", || toy.status()["paused"] == true);
    toy.exits(0, &["stop"]);
    assert_eq!(running.ended("the stopped run").code, Some(0));
}

#[test]
fn three_nights_without_a_review_hold_the_fourth_and_two_do_not() {
    let toy = kept(Toy::and("[review]\nwarn = 3\n"));
    nights(&toy, 2);
    let ran = toy.exits(0, &["run", "--trials", "1"]);
    assert!(!ran.stderr.contains("waits:"), "{}", ran.stderr);
    let toy = kept(Toy::and("[review]\nwarn = 3\n"));
    nights(&toy, 3);
    let running = Running(toy.command(&["run", "--trials", "1"]).spawn().unwrap());
    until("it is paused", || toy.status()["paused"] == true);
    toy.exits(0, &["status"]).says(&["3 keeps of 3 nights in a row are unreviewed"]);
    toy.exits(0, &["review", "4", "--reject"]);
    running.ended("the run that waited").says(&["goes on"]);
    // limits that say otherwise
    for never in ["[review]\nwarn = 4\n", "[review]\nwarn = 3\nlimit = 0\n", "[review]\nlimit = 4\n"] {
        let toy = kept(Toy::and(never));
        nights(&toy, 3);
        let ran = toy.exits(0, &["run", "--trials", "1"]);
        assert!(!ran.stderr.contains("waits:"), "{never}: {}", ran.stderr);
    }
}

#[test]
fn a_first_night_is_never_held_however_much_it_keeps() {
    let toy = Toy::and("[review]\nwarn = 1\n");
    toy.exits(0, &["run", "--trials", "6", "--tag", "bar"]);
    let ran = toy.exits(0, &["run", "--trials", "3"]);
    assert!(!ran.stderr.contains("waits:"), "{}", ran.stderr);
}

#[test]
fn damaged_reviews_lift_no_limit_that_a_person_set_and_stop_no_other_night() {
    let damage = |toy: &Toy| fs::write(toy.path(".ratchet/tags/bar/reviews.jsonl"), "nonsense\n").unwrap();
    let toy = kept(Toy::and("[review]\nlimit = 1\n"));
    damage(&toy);
    let running = Running(toy.command(&["run", "--trials", "1"]).spawn().unwrap());
    until("it is paused", || toy.status()["paused"] == true);
    toy.exits(0, &["stop"]);
    let ran = running.ended("the run that waited");
    assert!(ran.stderr.contains("line 1 of the reviews"), "{}", ran.stderr);

    let toy = kept(Toy::and("[review]\nwarn = 3\n"));
    nights(&toy, 3);
    damage(&toy);
    toy.exits(0, &["run", "--trials", "1"]).says(&["goes on without asking", "line 1 of the reviews"]);
}

/// The keeps as `ratchet review --json` has them.
fn board(toy: &Toy) -> Vec<Value> {
    toy.exits(0, &["review", "--json"]).json()["keeps"].as_array().unwrap().clone()
}

fn decisions(toy: &Toy) -> Vec<Value> {
    board(toy).iter().map(|keep| keep["decision"].clone()).collect()
}

#[test]
fn without_a_terminal_the_keeps_and_the_commands_are_listed() {
    let toy = Toy::new();
    toy.exits(2, &["review"]).says(&["no tag exists yet"]);
    let toy = kept(toy);
    let ran = toy.exits(0, &["review"]);
    ran.says(&["x is 6", "x is 5", "x is 4", "3 of 3 keeps are open", "ratchet review N --accept"]);
    assert!(!ran.stdout.contains("x is 9") && !ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
    let one = toy.exits(0, &["review", "4"]);
    one.says(&[
        "keep 2 of 3: unreviewed",
        "predicted",
        "rests on     trial 2 (unreviewed)",
        "-x = 6",
        "+x = 5",
    ]);
    assert!(!one.stdout.contains("+x = 4"), "its own change alone");
}

#[test]
fn tools_get_state_and_evidence_of_every_keep() {
    let toy = kept(Toy::new());
    toy.exits(0, &["review", "4", "--reject", "--note", "too  narrow"]);
    let keeps = board(&toy);
    assert_eq!(keeps.iter().map(|keep| keep["trial"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4, 5]);
    let keep = &keeps[1];
    let by = (&keep["decision"], &keep["note"], &keep["by"]);
    assert_eq!(by, (&"rejected".into(), &"too narrow".into(), &"toy <toy@example.invalid>".into()));
    assert_eq!(keep["rests_on"], serde_json::json!([2]));
    assert_eq!((&keep["delta"], &keep["values"][0]), (&(-5.0).into(), &5.0.into()));
    assert_eq!(keep["taken"], Value::Null);
    // what it changes, by git
    let change = [keep["parent_commit"].as_str().unwrap(), keep["commit"].as_str().unwrap()];
    assert_eq!(toy.git(&["diff", "--name-only", change[0], change[1]]), "cand/x.txt");
    assert_eq!(toy.exits(0, &["review", "4", "--json"]).json()["keeps"].as_array().unwrap().len(), 1);
}

#[test]
fn a_decision_can_be_changed_and_every_one_is_kept() {
    let toy = kept(Toy::new());
    toy.exits(0, &["review", "2", "4", "--accept", "--note", "both"])
        .says(&["trial 2 accepted", "trial 4 accepted"]);
    toy.exits(0, &["review", "2", "--reject"]);
    assert_eq!(decisions(&toy), ["rejected".into(), "accepted".into(), Value::Null]);
    assert_eq!(toy.read(".ratchet/tags/bar/reviews.jsonl").lines().count(), 3);
    let [before, journal] =
        ["reviews.jsonl", "journal.jsonl"].map(|name| toy.read(&format!(".ratchet/tags/bar/{name}")));
    for (args, said) in [
        (&["review", "3", "--accept"][..], "but discard"),
        (&["review", "1", "--accept"], "but a baseline"),
        (&["review", "99", "--accept"], "has no trial 99"),
        (&["review", "5", "99", "--accept"], "has no trial 99"),
        (&["review", "--accept"], "TRIAL"),
        (&["review", "5", "--accept", "--reject"], "--reject"),
        (&["review", "5", "--note", "x"], "--accept"),
        (&["review", "5", "--accept", "--note", " \n"], "note is empty"),
        (&["review", "5", "--accept", "--note", &"x".repeat(3000)], "2000 is the most"),
        (&["review", "5", "--accept", "--tag", "nope"], "there is no tag nope"),
    ] {
        toy.exits(2, args).says(&[said]);
    }
    let after = ["reviews.jsonl", "journal.jsonl"].map(|name| toy.read(&format!(".ratchet/tags/bar/{name}")));
    assert_eq!(after, [before, journal], "a refusal writes nothing, and a review no journal");
}

#[test]
fn two_at_once_lose_no_decision_and_no_run_is_waited_for() {
    let toy = Toy::new().init();
    let xs: Vec<i32> = (4..10).rev().collect();
    xs.iter().for_each(|x| assert_eq!(toy.attempt(&x.to_string())["status"], "keep"));
    toy.set("gate");
    let driver = toy.at_the_gate(&["try", "-m", "slow"]); // holds the run's lock
    let all: Vec<Running> = (2..8)
        .map(|trial| Running(toy.command(&["review", &trial.to_string(), "--accept"]).spawn().unwrap()))
        .collect();
    all.into_iter().for_each(|one| assert_eq!(one.ended("a review").code, Some(0)));
    assert_eq!(decisions(&toy), vec!["accepted"; 6]);
    toy.open_the_gate();
    assert_eq!(driver.ended("try").code, Some(0));
}

#[test]
fn a_torn_line_is_passed_over_and_damage_is_named_once() {
    let toy = kept(Toy::new());
    let path = ".ratchet/tags/bar/reviews.jsonl";
    toy.exits(0, &["review", "2", "--accept"]);
    let whole = toy.read(path);
    toy.write(path, &(whole.clone() + &whole[..30]));
    assert_eq!(decisions(&toy), ["accepted".into(), Value::Null, Value::Null]);
    toy.exits(0, &["review", "4", "--defer"]);
    assert_eq!(decisions(&toy), ["accepted".into(), "deferred".into(), Value::Null]);
    toy.write(path, &(whole.clone() + "{\"v\":1,\n" + whole.as_str()));
    for args in [&["review"][..], &["review", "4", "--reject"], &["accept"]] {
        let ran = toy.exits(1, args);
        ran.says(&["line 2 of the reviews is damaged", "remove that line"]);
        assert_eq!(
            ran.stderr.lines().filter(|line| line.starts_with("ratchet: ")).count(),
            1,
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn a_decision_about_an_earlier_tag_of_the_same_name_counts_for_nothing() {
    let toy = kept(Toy::new());
    toy.exits(0, &["review", "2", "--accept"]);
    for name in ["journal.jsonl", "checkout.json"] {
        fs::remove_file(toy.path(&format!(".ratchet/tags/bar/{name}"))).unwrap();
    }
    toy.git(&["branch", "-D", "ratchet/bar"]);
    toy.set("8");
    toy.exits(0, &["try", "-m", "x is 8", "--tag", "bar"]);
    assert_eq!((decisions(&toy), &toy.status()["unreviewed"]), (vec![Value::Null], &1.into()));
    toy.exits(2, &["accept"]).says(&["nothing of the tag bar is accepted"]);
}

#[test]
fn what_a_proposer_wrote_steers_no_terminal_and_hides_nothing() {
    let toy = Toy::new().init();
    toy.write("cand/x.txt", "x = 6 # knob: lin -20..20\n# \u{202e}evil\u{2066} \u{1b}[2J\u{200b}\n");
    toy.exits(0, &["try", "-m", &format!("\u{1b}[31mred\u{202e} {}", "long ".repeat(2_000))]);
    for args in [&["review"][..], &["review", "2"]] {
        let text = toy.exits(0, args).stdout;
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains(['\u{202e}', '\u{2066}', '\u{200b}']) && text.len() < 10_000, "{text:?}");
    }
    toy.exits(0, &["review", "2"]).says(&["+# \\u{202e}evil\\u{2066} \\u{1b}[2J\\u{200b}"]);
}

#[cfg(target_os = "linux")]
mod at_a_terminal {
    use std::{
        fs::File,
        io::{Read, Write},
        process::Stdio,
        sync::{Arc, Mutex},
    };

    use nix::{
        pty::{Winsize, openpty},
        sys::{
            signal::{Signal, kill},
            termios::{LocalFlags, tcgetattr},
        },
        unistd::Pid,
    };

    use super::*;

    /// `ratchet review` at a terminal of 80 columns and so many rows.
    struct Terminal {
        keys: File,
        shown: Arc<Mutex<String>>,
        child: Running,
    }

    impl Terminal {
        fn open(toy: &Toy, rows: u16, colour: bool) -> Self {
            let size = Winsize { ws_row: rows, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
            let pty = openpty(Some(&size), None).unwrap();
            let side = || Stdio::from(pty.slave.try_clone().unwrap());
            let mut command = toy.command(&["review"]);
            command.stdin(side()).stdout(side()).stderr(side()).env_remove("NO_COLOR");
            if !colour {
                command.env("NO_COLOR", "1");
            }
            let child = Running(command.spawn().unwrap());
            let shown = Arc::new(Mutex::new(String::new()));
            let (mut screen, into) = (File::from(pty.master.try_clone().unwrap()), shown.clone());
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = screen.read(&mut bytes) {
                    into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
                }
            });
            Self { keys: File::from(pty.master), shown, child }
        }

        /// Waits for words, and takes away what was shown up to them.
        #[track_caller]
        fn until(&mut self, words: &str) -> String {
            let begin = Instant::now();
            loop {
                let mut shown = self.shown.lock().unwrap();
                if let Some(at) = shown.find(words) {
                    let rest = shown.split_off(at + words.len());
                    return std::mem::replace(&mut shown, rest);
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "no {words:?} in {shown:?}");
                drop(shown);
                thread::sleep(Duration::from_millis(5));
            }
        }

        fn press(&mut self, keys: &str) {
            self.keys.write_all(keys.as_bytes()).unwrap();
        }

        /// Whether keys come line by line, as outside a program that takes each by itself.
        fn gives_lines(&self) -> bool {
            tcgetattr(&self.keys).unwrap().local_flags.contains(LocalFlags::ICANON)
        }

        #[track_caller]
        fn ends(&mut self, code: i32) {
            let begin = Instant::now();
            while self.child.0.try_wait().unwrap().is_none() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", self.shown.lock().unwrap());
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(self.child.0.try_wait().unwrap().unwrap().code(), Some(code));
        }
    }

    #[test]
    fn one_key_decides_and_the_walk_goes_on_back_and_out() {
        let toy = kept(Toy::new());
        let mut terminal = Terminal::open(&toy, 60, true);
        let first = terminal.until("trial 2, 1 of 3: ");
        assert!(first.contains("x is 6") && first.contains("\u{1b}[32m+x = 6"), "{first}");
        terminal.press("a");
        terminal.until("trial 2 accepted");
        terminal.until("trial 4, 2 of 3: ");
        terminal.press("b");
        terminal.until("accepted by toy");
        terminal.until("trial 2, 1 of 3: ");
        terminal.press("r");
        terminal.until("rests on     trial 2 (rejected)");
        terminal.until("trial 4, 2 of 3: ");
        terminal.press("x?");
        terminal.until("ask again next time");
        terminal.press("ntoo narrow, \u{7f}");
        terminal.until("note: too narrow");
        terminal.press("\r");
        terminal.until("trial 4, 2 of 3: ");
        terminal.press("d");
        terminal.until("trial 5, 3 of 3: ");
        terminal.press("q");
        terminal.until("3 decided, 2 open");
        terminal.ends(0);
        assert_eq!(decisions(&toy), ["rejected".into(), "deferred".into(), Value::Null]);
        assert_eq!(board(&toy)[1]["note"], "too narrow,");
        // what was put off is asked for again, and the end of the walk ends it
        let mut terminal = Terminal::open(&toy, 60, false);
        let shown = terminal.until("trial 4, 1 of 2: ");
        assert!(!shown.contains("\u{1b}[32m") && !shown.contains("\u{1b}[7m"), "{shown:?}");
        terminal.press("aa");
        terminal.until("2 decided, 0 open");
        terminal.ends(0);
        assert_eq!(decisions(&toy), ["rejected", "accepted", "accepted"]);
    }

    #[test]
    fn one_that_is_told_to_end_gives_the_terminal_back() {
        let toy = kept(Toy::new());
        let mut terminal = Terminal::open(&toy, 60, false);
        assert!(terminal.gives_lines());
        terminal.until("trial 2, 1 of 3: ");
        assert!(!terminal.gives_lines());
        kill(Pid::from_raw(terminal.child.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        terminal.ends(128 + 15);
        assert!(terminal.gives_lines());
        assert_eq!(decisions(&toy), [Value::Null, Value::Null, Value::Null]);
    }

    #[test]
    fn a_long_diff_comes_in_pages_and_ctrl_c_leaves_what_was_decided() {
        let toy = Toy::new().init();
        let lines: String = (0..100).map(|line| format!("# line {line}\n")).collect();
        toy.write("cand/long.txt", &lines);
        assert_eq!(toy.attempt("6")["status"], "keep");
        assert_eq!(toy.attempt("5")["status"], "keep");
        let mut terminal = Terminal::open(&toy, 20, false);
        let page = terminal.until("space more");
        assert!(!page.contains("line 99") && page.lines().count() <= 20, "{page}");
        terminal.until("? help");
        let mut pages = 1;
        loop {
            terminal.press(" ");
            pages += 1;
            if terminal.until("? help").contains("line 99") {
                break;
            }
        }
        terminal.press("a");
        terminal.until("trial 3, 2 of 2: ");
        terminal.press("\u{3}");
        terminal.until("1 decided, 1 open");
        terminal.ends(0);
        assert_eq!(decisions(&toy), ["accepted".into(), Value::Null]);
        assert!((6..12).contains(&pages), "{pages}");
    }
}
