//! Lookahead: the next proposal is made while a trial runs, and used, carried over or dropped when that ends.
//!
//! A trial that waits at the toy's gate is the time in which the next proposal is made: the order of things is
//! held by the gate and by the server's requests, never by a clock.

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use standin::{Fault, Reply, Request, Server};

use super::{
    chat, events,
    model::{Role, edit, line, plan, proposing},
};
use crate::toy::{Running, Toy, alive};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that tells of each request when it has decided on the answer.
fn told(mut script: impl FnMut(&Request) -> Reply + Send + 'static) -> (Server, Receiver<Role>) {
    let (tell, told) = mpsc::channel();
    let server = Server::start(move |request| {
        let reply = script(request);
        let _ = tell.send(Role::of(request)); // the test may be over
        reply
    });
    (server.unwrap(), told)
}

/// Two proposals were asked for: trial 2's, and the one after it while trial 2 waits at the gate.
fn while_trial_2_waits(toy: &Toy, asked: &Receiver<Role>, trials: &str) -> Running {
    let running = toy.at_the_gate(&["run", "--trials", trials, "--tag", "bar"]);
    for role in [Role::Plan, Role::Edit, Role::Plan, Role::Edit] {
        assert_eq!(asked.recv_timeout(PATIENCE).expect("the next proposal is made meanwhile"), role);
    }
    assert_eq!(toy.rows().len(), 1, "trial 2 runs");
    running
}

fn done(toy: &Toy, running: Running) {
    toy.open_the_gate();
    let ran = running.ended("ratchet run");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn the_next_trial_begins_with_what_was_proposed_while_the_last_one_ran() {
    let (server, asked) = told(proposing(["gate", "4", "5"]));
    let toy = chat(&server, "", "retries = 0");
    toy.set("3"); // the optimum: nothing is kept
    toy.commit("start at the optimum");
    let running = while_trial_2_waits(&toy, &asked, "3");
    done(&toy, running);
    assert_eq!(toy.column("loss"), ["1.000000", "7.000000", "2.000000"]);
    assert_eq!(toy.column("description")[1..], ["x to gate", "x to 4"]);
    assert_eq!(server.requests().len(), 4, "nothing was asked for after trial 2 had ended");
    assert_eq!(toy.status()["wasted"]["proposals"], 0);
    assert_eq!(super::calls(&toy, "trials/0003").len(), 2);
    let plan = &server.requests()[2];
    assert!(plan.last_user().contains("x to gate"), "it knows what runs: {}", plan.last_user());
}

#[test]
fn what_was_proposed_ahead_is_carried_over_to_a_new_champion() {
    let mut model = proposing(["gate"]);
    let mut plans = 0;
    let (server, asked) = told(move |request| {
        plans += u32::from(Role::of(request) == Role::Plan);
        match (plans, Role::of(request)) {
            (1, _) => model(request),
            (_, Role::Plan) => Reply::Text(plan("better words")),
            _ => Reply::Text(edit("cand/x.txt", "last = 1", "last = 2")),
        }
    });
    let toy = chat(&server, "", "retries = 0");
    toy.write("cand/x.txt", "x = 10 # knob: lin -20..20\n\n\n\n\nlast = 1\n");
    toy.commit("two lines");
    let running = while_trial_2_waits(&toy, &asked, "3");
    done(&toy, running);
    assert_eq!(toy.column("loss"), ["50.000000", "7.000000", "7.000000"]);
    assert_eq!(toy.column("status"), ["keep", "keep", "discard"], "the same value is no gain");
    assert_eq!(toy.column("parent")[2], "2", "judged against the champion of today");
    let third = toy.git(&["show", "refs/ratchet/bar/trials/0003:cand/x.txt"]);
    assert_eq!(third.lines().next(), Some("x = gate # knob: lin -20..20"));
    assert!(third.ends_with("last = 2"), "{third}");
    assert_eq!((server.requests().len(), toy.status()["wasted"]["proposals"].clone()), (4, 0.into()));
}

#[test]
fn what_was_proposed_ahead_is_dropped_and_counted_where_the_champion_changed_the_same_line() {
    let (server, asked) = told(proposing(["gate", "8", "5"]));
    let toy = chat(&server, "", "retries = 0");
    let running = while_trial_2_waits(&toy, &asked, "3");
    done(&toy, running);
    assert_eq!(toy.column("description")[1..], ["x to gate", "x to 5"], "proposed anew");
    assert_eq!(toy.column("loss"), ["50.000000", "7.000000", "5.000000"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 6);
    assert_eq!(line(&requests[2]), "x = 10 # knob: lin -20..20");
    assert_eq!(line(&requests[4]), "x = gate # knob: lin -20..20", "anew, from the new champion");
    let status = toy.status();
    assert_eq!(status["wasted"]["proposals"], 1);
    let wasted = &events(&toy, "bar", "wasted")[0];
    assert_eq!(wasted["description"], "x to 8");
    assert!(wasted["reason"].as_str().unwrap().contains("changed since"), "{wasted}");
    let (wasted, spent) = (&status["wasted"]["usage"]["tokens"], &status["spent"]["tokens"]);
    assert!(wasted.as_u64().unwrap() > 0 && wasted.as_u64() < spent.as_u64(), "{status}");
    toy.exits(0, &["status"]).says(&["1 proposal"]);
}

#[test]
fn what_was_proposed_under_another_brief_is_dropped_and_proposed_anew() {
    let (server, asked) = told(proposing(["gate", "4", "5"]));
    let toy = chat(&server, "", "retries = 0");
    toy.set("3");
    toy.commit("start at the optimum");
    let running = while_trial_2_waits(&toy, &asked, "3");
    toy.write("program.md", "A new direction.\n");
    done(&toy, running);
    assert_eq!(toy.column("description")[1..], ["x to gate", "x to 5"]);
    assert_eq!(toy.status()["wasted"]["proposals"], 1);
    assert!(events(&toy, "bar", "wasted")[0]["reason"].as_str().unwrap().contains("program.md"));
    let requests = server.requests();
    assert_eq!(requests.len(), 6);
    let says = |n: usize| requests[n].system.contains("A new direction.");
    assert!(!says(3) && says(4) && says(5));
}

/// Processes that have the toy's folder among their arguments.
fn processes_of(toy: &Toy) -> Vec<String> {
    let root = toy.root().to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let named = |pid: &String| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pid.bytes().all(|byte| byte.is_ascii_digit()) && String::from_utf8_lossy(&arguments).contains(root)
    };
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(named)
        .filter(|pid| alive(pid))
        .collect()
}

#[test]
fn kill_9_while_a_proposal_is_made_ahead_leaves_no_process_and_counts_the_lost_call() {
    let mut model = proposing(["gate", "4", "5", "6"]);
    let mut requests = 0;
    let (server, asked) = told(move |request| {
        requests += 1;
        if requests == 3 { Reply::Fault(Fault::Hang) } else { model(request) }
    });
    let toy = chat(&server, "", "retries = 0");
    let mut running = toy.at_the_gate(&["run", "--trials", "3", "--tag", "bar"]);
    for role in [Role::Plan, Role::Edit, Role::Plan] {
        assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), role);
    }
    assert!(processes_of(&toy).len() >= 2, "referee and companion are at work");
    let referee = toy.read("started").trim().to_owned();
    let before = toy.status();
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    drop(running);
    let begin = Instant::now();
    while processes_of(&toy).iter().any(|pid| *pid != referee) {
        assert!(begin.elapsed() < PATIENCE, "the companion outlives its driver");
        thread::sleep(Duration::from_millis(5)); // the kernel tells nobody else
    }
    assert_eq!(toy.rows().len(), 1);
    let after = toy.status();
    assert_eq!(after["spent"], before["spent"], "a call without an answer counts at its worst for good");
    let answered: u64 = super::calls(&toy, "trials/0002")
        .iter()
        .map(|call| call["usage"]["input"].as_u64().unwrap() + call["usage"]["output"].as_u64().unwrap())
        .sum();
    assert!(after["spent"]["tokens"].as_u64().unwrap() >= answered + 1000, "the lost call: {after}");
    // the next start goes on
    toy.exits(0, &["run", "--trials", "2"]);
    assert!(!alive(&referee), "the dead driver's referee is gone");
    assert_eq!(processes_of(&toy), Vec::<String>::new());
    assert_eq!(toy.column("trial"), ["1", "2", "3"]);
    assert_eq!(toy.column("description")[1], "x to 4");
}
