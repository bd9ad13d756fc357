//! A provider that is down, hangs, or answers with what nobody can use.

use std::{
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use standin::{Fault, Reply, Request, Server};

use super::{
    calls, chat, in_vain,
    model::{Role, edit, plan, proposing},
};
use crate::toy::{Ran, Running, SCORE};

/// A server that tells of each request before it answers.
fn told(mut script: impl FnMut(&Request) -> Reply + Send + 'static) -> (Server, Receiver<Role>) {
    let (tell, told) = mpsc::channel();
    let server = Server::start(move |request| {
        let _ = tell.send(Role::of(request)); // the test may be over
        script(request)
    });
    (server.unwrap(), told)
}

/// Sends TERM; how it ended, and how long that took.
fn terminated(running: Running) -> (Ran, Duration) {
    let begin = Instant::now();
    let pid = Pid::from_raw(i32::try_from(running.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    (running.ended("ratchet, told to end"), begin.elapsed())
}

#[test]
fn while_the_provider_is_down_knobs_go_on_and_it_is_asked_again_until_it_is_back() {
    let mut requests = 0;
    let mut model = proposing((0..=30).rev());
    let server = Server::start(move |request| {
        requests += 1;
        match requests {
            1 | 2 => Reply::Fault(Fault::Status(503)),
            _ => model(request),
        }
    });
    let server = server.unwrap();
    let toy = chat(&server, "", "retries = 0");
    toy.write("cand/x.txt", "x = 10.000 # knob: lin -20..20\n"); // places enough for the time it takes
    // the optimum lies where the built-in search may not go
    toy.write("score.sh", &SCORE.replace("(x - 3)", "(x - 30)"));
    toy.commit("far away");
    toy.exits(0, &["run", "--target", "1", "--tag", "bar"]).says(&["target"]);
    let rows = toy.rows();
    let by = |name: &str| rows.iter().filter(|row| row["proposer"] == name).count();
    assert!(by("knobs") > 0, "{rows:?}");
    assert_eq!(in_vain(&toy).iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["down"; 2]);
    assert_eq!(rows.last().unwrap()["proposer"], "llm", "it is asked again, and back");
}

#[test]
fn a_provider_that_is_down_for_the_whole_run_costs_no_trial() {
    let server = Server::start(|_| Reply::Fault(Fault::Close)).unwrap();
    let toy = chat(&server, "", "retries = 0");
    toy.exits(0, &["run", "--trials", "6", "--tag", "bar"]);
    assert_eq!(toy.column("proposer")[1..], ["knobs"; 5]);
    assert!(in_vain(&toy).iter().all(|(kind, _)| kind == "down"));
    assert!(!in_vain(&toy).is_empty());
}

#[test]
fn without_a_fallback_the_loop_waits_and_is_ended_at_once() {
    for by_signal in [true, false] {
        let (server, asked) = told(|_| Reply::Fault(Fault::Status(500)));
        let toy = chat(&server, "fallback = \"none\"", "retries = 0");
        let running = Running(toy.command(&["run", "--tag", "bar"]).spawn().unwrap());
        // three failures: the wait after them is four seconds
        for _ in 0..3 {
            asked.recv_timeout(Duration::from_secs(60)).expect("it is asked again");
        }
        let ran = match by_signal {
            true => terminated(running).0,
            false => {
                toy.exits(0, &["stop"]);
                running.ended("ratchet, told to stop")
            }
        };
        let word = if by_signal { "stopped by a signal" } else { "stopped by `ratchet stop`" };
        assert_eq!(ran.says(&[word]).code, Some(0), "{}", ran.stderr);
        assert!(asked.try_recv().is_err(), "{word}: it ended before the wait did");
        assert_eq!(toy.column("status"), ["keep"], "the baseline");
    }
}

#[test]
fn a_signal_ends_a_run_that_waits_for_an_answer_or_for_a_further_attempt() {
    for (fault, llm) in [
        (Fault::Hang, "timeout_s = 300"),
        (Fault::RetryAfter(429, 60), "timeout_s = 300\nretries = 9"),
        (Fault::Drip(Duration::from_secs(1)), "timeout_s = 300"),
        (Fault::Drip(Duration::from_secs(1)), "timeout_s = 300\nstream = true"),
    ] {
        for lookahead in [true, false] {
            let reply = Reply::Fault(fault.clone());
            let (server, asked) = told(move |_| reply.clone());
            let toy = chat(&server, &format!("lookahead = {lookahead}"), llm);
            let running = Running(toy.command(&["run", "--tag", "bar"]).spawn().unwrap());
            asked.recv_timeout(Duration::from_secs(60)).expect("it is asked");
            let (ran, took) = terminated(running);
            assert!(ran.code.is_some_and(|code| code < 2), "{fault:?}: {}", ran.stderr);
            assert!(took < Duration::from_secs(20), "{fault:?}, lookahead {lookahead}: {took:?}");
        }
    }
}

/// What a model says to a request that it ought to plan, edit or answer otherwise.
type Bad = fn(Role) -> Reply;

const UNUSABLE: [(&str, Bad, &[&str]); 8] = [
    ("no JSON", |_| Reply::Text("I would rather talk.".to_owned()), &["unusable answer"]),
    ("half JSON", |_| Reply::Fault(Fault::Length(plan("5"))), &["unusable answer", "cut off"]),
    ("other JSON", |_| Reply::Text("{\"description\": 5}".to_owned()), &["unusable answer"]),
    ("nothing", |_| Reply::Fault(Fault::Empty), &["unusable answer"]),
    ("no answer at all", |_| Reply::Fault(Fault::Malformed), &["unusable answer"]),
    ("2 MB", |_| Reply::Fault(Fault::Huge), &["larger than 1 MiB"]),
    ("no block", |role| planned_then(role, "Done, as planned.".to_owned()), &["does not fit", "no edit"]),
    (
        "a block that fits nowhere",
        |role| planned_then(role, edit("cand/x.txt", "y = 1", "y = 2")),
        &["does not fit", "cand/x.txt"],
    ),
];

fn planned_then(role: Role, edit: String) -> Reply {
    Reply::Text(if role == Role::Plan { plan("5") } else { edit })
}

#[test]
fn an_answer_that_nobody_can_use_is_recorded_with_its_reason_and_the_loop_goes_on() {
    for (case, bad, words) in UNUSABLE {
        let (mut model, mut proposals) = (proposing([5]), 0);
        let server = Server::start(move |request| {
            // a conversation begins
            proposals += u32::from(Role::of(request) == Role::Plan && request.messages.len() == 1);
            if proposals > 1 { model(request) } else { bad(Role::of(request)) }
        });
        let server = server.unwrap();
        let toy = chat(&server, "lookahead = false", "retries = 0");
        toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
        let found = in_vain(&toy);
        assert_eq!(found.len(), 1, "{case}: {found:?}");
        let (kind, reason) = &found[0];
        assert_eq!(kind, "empty", "{case}");
        for word in words {
            assert!(reason.contains(word), "{case}: {reason}");
        }
        assert!(reason.len() < 400 && !reason.contains('\n'), "{case}: one short line");
        assert_eq!(toy.column("description")[1], "x to 5", "{case}");
        assert!(!calls(&toy, "attempts/0001").is_empty(), "{case}: what was said is kept");
    }
}

#[test]
fn ten_unusable_proposals_in_a_row_switch_to_the_fallback() {
    let server = Server::start(|_| Reply::Fault(Fault::Huge)).unwrap();
    let toy = chat(&server, "", "retries = 0");
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]).says(&["10 proposals of llm", "knobs goes on"]);
    assert_eq!(toy.column("proposer")[1..], ["knobs"; 2]);
    assert_eq!(server.requests().len(), 10);

    let server = Server::start(|_| Reply::Fault(Fault::Huge)).unwrap();
    let toy = chat(&server, "fallback = \"none\"", "retries = 0");
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]).says(&["10 proposals of llm"]);
    assert_eq!(toy.rows().len(), 1, "nobody else is asked");
}
