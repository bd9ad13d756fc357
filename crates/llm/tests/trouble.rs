//! Everything that goes wrong at a provider, in every protocol, as a stream and whole.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use llm::{AskError, Config, Live, Model};
use standin::{Fault, Reply, Server};

use crate::setup::{KeyFile, PROVIDERS, SECRET, call, config, live, user};

/// Asks every provider once, as a stream and whole, where every request meets `fault`; gives for each its
/// description, the error, the requests made and the attempts that may be billed.
fn ask(fault: &Fault, change: fn(Config) -> Config) -> Vec<(String, AskError, usize, u32)> {
    let key = KeyFile::new();
    let one = &|at, stream| {
        let reply = Reply::Fault(fault.clone());
        let server = Server::start(move |_| reply.clone()).unwrap();
        let mut model = live(change(Config { stream, ..config(&server, at, &key) }));
        let error = model.ask(&call("system", &user("question"))).unwrap_err();
        let context = format!("{at:?} stream {stream}: {error:?}");
        assert!(!context.contains(SECRET) && error.to_string().chars().count() <= 300, "{context}");
        assert!(!error.to_string().contains(['\n', '\r', '\u{1b}']), "{context}");
        (context, error, server.requests().len(), model.lost())
    };
    thread::scope(|scope| {
        let ways = PROVIDERS.into_iter().flat_map(|at| [(at, true), (at, false)]);
        let asked: Vec<_> = ways.map(|(at, stream)| scope.spawn(move || one(at, stream))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn a_refused_key_is_named_and_not_shown_and_not_tried_again() {
    for status in [401, 403] {
        for (context, error, requests, lost) in ask(&Fault::Status(status), patient) {
            let AskError::Key { variable, .. } = error else { panic!("{context}") };
            assert!(variable.ends_with("/key"), "{context}");
            assert_eq!((requests, lost), (1, 0), "{context}");
        }
    }
}

#[test]
fn an_unknown_model_and_a_refused_request_are_told_apart_and_not_tried_again() {
    for (context, error, requests, lost) in ask(&Fault::Status(404), patient) {
        assert!(matches!(&error, AskError::Model(message) if message.contains("test-model")), "{context}");
        assert_eq!((requests, lost), (1, 0), "{context}");
    }
    for (context, error, requests, lost) in ask(&Fault::Status(400), patient) {
        assert!(matches!(error, AskError::Rejected(_)), "{context}");
        assert_eq!((requests, lost), (1, 0), "{context}");
    }
}

#[test]
fn an_overloaded_provider_is_asked_again_as_often_as_allowed_and_bills_nothing() {
    for status in [429, 500, 503, 529] {
        for (context, error, requests, lost) in
            ask(&Fault::Status(status), |config| Config { retries: 1, ..config })
        {
            assert!(matches!(error, AskError::Down(_)), "{context}");
            assert_eq!((requests, lost), (2, 0), "{context}");
        }
    }
}

#[test]
fn a_connection_that_breaks_is_down_and_billed_once_an_answer_had_begun() {
    let once = |config| Config { retries: 1, ..config };
    for (context, error, requests, lost) in ask(&Fault::Close, once) {
        assert!(matches!(error, AskError::Down(_)), "{context}");
        let whole = context.contains("stream false");
        assert_eq!((requests, lost), (2, if whole { 2 } else { 0 }), "{context}");
    }
    for fault in [Fault::CutOff, Fault::Unfinished] {
        for (context, error, requests, lost) in ask(&fault, once) {
            assert!(matches!(error, AskError::Down(_)), "{fault:?} {context}");
            assert_eq!((requests, lost), (2, 2), "{fault:?} {context}");
        }
    }
}

#[test]
fn an_error_in_place_of_a_stream_is_down_and_bills_nothing() {
    for (context, error, requests, lost) in ask(&Fault::Overloaded, |config| Config { retries: 1, ..config })
    {
        assert!(matches!(error, AskError::Down(_)), "{context}");
        assert_eq!((requests, lost), (2, 0), "{context}");
    }
}

#[test]
fn a_useless_answer_is_refused_without_asking_again() {
    for (context, error, requests, lost) in ask(&Fault::Empty, patient) {
        assert!(matches!(error, AskError::Malformed(_)), "{context}");
        assert_eq!((requests, lost), (1, 1), "{context}");
    }
    for (context, error, requests, lost) in ask(&Fault::Huge, patient) {
        assert!(matches!(error, AskError::TooLarge), "{context}");
        assert_eq!((requests, lost), (1, 1), "{context}");
    }
    for (context, error, _, lost) in ask(&Fault::Malformed, |config| config) {
        // A stream of OpenAI responses passes over what it cannot read, and then has no end.
        let passed_over = context.contains("OpenaiResponses") && context.contains("stream true");
        let right = if passed_over {
            matches!(error, AskError::Down(_))
        } else {
            matches!(error, AskError::Malformed(_))
        };
        assert!(right && lost == 1, "{context}");
    }
}

#[test]
fn the_time_limit_holds_from_connecting_to_the_last_byte() {
    const LIMIT: Duration = Duration::from_millis(150);
    let short = |config| Config { timeout: LIMIT, ..config };
    for fault in [Fault::Hang, Fault::Drip(Duration::from_millis(20))] {
        let began = Instant::now();
        let outcomes = ask(&fault, short);
        let took = began.elapsed(); // of all of them, side by side
        assert!(took >= LIMIT && took < 10 * LIMIT, "{fault:?}: {took:?}");
        for (context, error, requests, _) in outcomes {
            assert!(matches!(&error, AskError::Down(message) if message.contains("150ms")), "{context}");
            assert_eq!(requests, 1, "{context}");
        }
    }
}

#[test]
fn a_wait_the_provider_asks_for_is_kept_and_the_next_attempt_succeeds() {
    let key = KeyFile::new();
    for at in PROVIDERS.into_iter().take(2) {
        let mut first = true;
        let server = Server::start(move |_| {
            let reply =
                if first { Reply::Fault(Fault::RetryAfter(429, 1)) } else { Reply::Text("good".to_owned()) };
            first = false;
            reply
        })
        .unwrap();
        let mut model = live(Config { retries: 2, ..config(&server, at, &key) });
        let began = Instant::now();
        let answer = model.ask(&call("system", &user("question"))).unwrap();
        assert_eq!((answer.text.as_str(), server.requests().len()), ("good", 2), "{at:?}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{at:?}");
    }
}

#[test]
fn a_stop_ends_a_call_that_hangs_and_a_wait_between_attempts() {
    let key = KeyFile::new();
    for fault in [Fault::Hang, Fault::RetryAfter(429, 50)] {
        let (asked, waits) = mpsc::channel();
        let reply = Reply::Fault(fault.clone());
        let server = Server::start(move |_| {
            asked.send(()).unwrap();
            reply.clone()
        })
        .unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let (seen, set) = (Arc::clone(&flag), Arc::clone(&flag));
        let stop = Arc::new(move || seen.load(Ordering::SeqCst));
        let mut model =
            Live::new(Config { retries: 5, ..config(&server, PROVIDERS[0], &key) }, stop).unwrap();
        let stopper = thread::spawn(move || {
            waits.recv().unwrap();
            set.store(true, Ordering::SeqCst);
            Instant::now()
        });
        let error = model.ask(&call("system", &user("question"))).unwrap_err();
        let took = stopper.join().unwrap().elapsed();
        assert_eq!(error, AskError::Stopped, "{fault:?}");
        // 20 ms by design; the rest is for a machine that is busy with other tests.
        assert!(took < Duration::from_millis(500), "{fault:?}: {took:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn nobody_listening_is_down_and_costs_nothing() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("unused".to_owned())).unwrap();
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for stream in [true, false] {
        let base_url = Some(format!("http://{closed}/v1"));
        let mut model = live(Config { base_url, stream, ..config(&server, PROVIDERS[1], &key) });
        let error = model.ask(&call("system", &user("question"))).unwrap_err();
        assert!(
            matches!(&error, AskError::Down(message) if message.contains(&closed.to_string())),
            "{error:?}"
        );
        assert_eq!(model.lost(), 0);
    }
}

fn patient(config: Config) -> Config {
    Config { retries: 3, ..config }
}
