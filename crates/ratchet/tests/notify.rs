//! `[notify]`: what reaches a webhook and a command, and what never does.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::toy::{Running, Toy, alive};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A webhook that answers as it is told, request by request; the last answer stands for all that follow.
struct Hook {
    address: String,
    posted: Receiver<Value>,
    requests: Arc<AtomicUsize>,
}

impl Hook {
    fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/services/T0/B0/very-secret-path", listener.local_addr().unwrap());
        let (tell, posted) = mpsc::channel();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let n = count.fetch_add(1, Ordering::SeqCst);
                let answer = answers[n.min(answers.len() - 1)];
                if let Some(body) = read(&stream) {
                    let _ = tell.send(body); // the test may be over
                }
                if answer == "hang" {
                    std::mem::forget(stream); // neither an answer nor an end
                } else {
                    let head = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    let _ = (&stream).write_all(head.as_bytes());
                }
            }
        });
        Self { address, posted, requests }
    }

    fn next(&self) -> Value {
        self.posted.recv_timeout(PATIENCE).expect("a message")
    }

    fn events(&self) -> Vec<String> {
        self.posted.try_iter().map(|message| message["event"].as_str().unwrap().to_owned()).collect()
    }
}

fn read(stream: &TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// The toy with a `[notify]` that only its working tree has.
fn toy(more: &str) -> Toy {
    let toy = Toy::new();
    told(&toy, more);
    toy
}

fn told(toy: &Toy, more: &str) {
    toy.write("ratchet.toml", &format!("{}\n[notify]\n{more}\n", toy.read("ratchet.toml")));
}

fn holds(folder: &Path, secret: &str) -> Option<String> {
    fs::read_dir(folder).unwrap().flatten().find_map(|entry| {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => holds(&path, secret),
            kind if kind.is_file() => {
                let bytes = fs::read(&path).unwrap();
                String::from_utf8_lossy(&bytes).contains(secret).then(|| path.display().to_string())
            }
            _ => None,
        }
    })
}

#[test]
fn a_night_tells_of_keeps_and_of_its_end_and_its_secret_is_in_no_record() {
    let hook = Hook::start(&["200 OK"]);
    // the referee prints the address, were it to know it
    let toy = toy(&format!("webhook = \"{}\"\non = [\"keep\", \"stop\"]", hook.address));
    toy.write(
        "score.sh",
        &toy.read("score.sh").replace("root=$1\n", "root=$1\nenv >&2; cat ratchet.toml >&2\n"),
    );
    toy.git(&["add", "score.sh"]);
    toy.git(&["commit", "-qm", "a referee that tells all"]);
    let ran = toy.exits(0, &["run", "--target", "49", "--tag", "bar"]);
    let keep = hook.next();
    assert_eq!((&keep["event"], &keep["task"], &keep["tag"]), (&json!("keep"), &json!("toy"), &json!("bar")));
    let row = toy.rows().into_iter().rfind(|row| row["status"] == "keep").unwrap();
    assert_eq!(keep["trial"].to_string(), row["trial"]);
    let best = keep["best"].as_f64().unwrap();
    assert_eq!((keep["value"].as_f64(), keep["gain"].as_f64()), (Some(best), Some(50.0 - best)));
    assert_eq!(keep["delta"].as_f64().unwrap(), best - 50.0);
    assert_eq!(keep["description"], row["description"]);
    let stop = hook.next();
    assert_eq!((&stop["event"], &stop["value"]), (&json!("stop"), &Value::Null));
    assert!(stop["reason"].as_str().unwrap().contains("target 49 reached"), "{stop}");
    assert_eq!(stop["counts"]["keeps"], 2);
    assert!(stop["text"].as_str().unwrap().starts_with("toy bar: the run has ended: target 49"), "{stop}");
    assert_eq!(hook.events(), [""; 0], "the baseline is no news");
    assert_eq!(holds(&toy.path(".ratchet"), "very-secret-path"), None);
    assert!(!ran.stderr.contains("very-secret-path") && !ran.stdout.contains("very-secret-path"));
}

#[test]
fn the_clock_tells_good_morning_and_what_cannot_go_on_is_an_error() {
    let hook = Hook::start(&["200 OK"]);
    let toy = toy(&format!("webhook = \"{}\"", hook.address));
    toy.exits(0, &["run", "--hours", "0.0001", "--tag", "bar"]);
    let morning = hook.next();
    assert_eq!(morning["event"], "morning");
    assert!(morning["reason"].as_str().unwrap().contains("time is up"), "{morning}");
    toy.write("score.sh", "exit 1\n");
    toy.git(&["commit", "-qm", "broken", "score.sh"]);
    toy.exits(1, &["run", "--tag", "broken"]);
    let error = hook.next();
    assert_eq!((&error["event"], &error["tag"]), (&json!("error"), &json!("broken")));
    assert!(hook.events().is_empty());
}

#[test]
fn silence_is_told_once_while_the_loop_waits() {
    let hook = Hook::start(&["200 OK"]);
    let toy = Toy::with(|task| task.replace("timeout_s = 20", "timeout_s = 1"));
    toy.write("score.sh", &toy.read("score.sh").replace("root=$1\n", "root=$1\nprintf x >>\"$root/runs\"\n"));
    toy.commit("counted");
    let silent = "[proposer]\nkind = \"agent\"\nfallback = \"none\"\n[proposer.agent]\ncommand = [\"sleep\", \"100\"]\ntimeout_s = 1\n";
    toy.write("ratchet.toml", &format!("{}\n{silent}", toy.read("ratchet.toml")));
    told(&toy, &format!("webhook = \"{}\"\non = [\"stuck\", \"error\"]", hook.address));
    // ten proposals of a second each come to nothing; after three times two seconds that is told
    let running = Running(toy.command(&["run", "--tag", "bar"]).spawn().unwrap());
    let stuck = hook.next();
    assert_eq!((&stuck["event"], &stuck["best"]), (&json!("stuck"), &json!(50.0)));
    assert!(stuck["reason"].as_str().unwrap().contains("no trial has finished for"), "{stuck}");
    running.ended("ratchet run");
    assert_eq!(hook.next()["event"], "error", "and then nobody is left who proposes");
    assert!(hook.events().is_empty(), "told once");
}

#[test]
fn a_dead_or_failing_webhook_is_one_note_and_ends_nothing() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toy = toy(&format!("webhook = \"http://{dead}/very-secret-path\"\non = [\"keep\", \"stop\"]"));
    let ran = toy.exits(0, &["run", "--target", "45", "--tag", "bar"]);
    ran.says(&["note: ", "could not be reached", &dead.to_string()]);
    assert_eq!(ran.stderr.matches("could not be delivered").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("very-secret-path"));

    let hook = Hook::start(&["500 Oops", "503 Later", "200 OK"]);
    let toy = self::toy(&format!("webhook = \"{}\"", hook.address));
    let ran = toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    assert_eq!(hook.requests.load(Ordering::SeqCst), 3, "tried again, twice");
    assert!(!ran.stderr.contains("delivered"), "{}", ran.stderr);
}

#[test]
fn a_redirect_is_not_followed() {
    let other = Hook::start(&["200 OK"]);
    let location = format!("302 Found\r\nlocation: {}", other.address);
    let hook = Hook::start(Box::leak(Box::new([&*location.leak()])));
    let toy = toy(&format!("webhook = \"{}\"", hook.address));
    let ran = toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    ran.says(&["redirects are not followed"]);
    assert_eq!((hook.requests.load(Ordering::SeqCst), other.requests.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn a_webhook_that_never_answers_holds_nothing_up() {
    let hook = Hook::start(&["hang"]);
    let toy = toy(&format!("webhook = \"{}\"\non = [\"keep\", \"stop\"]", hook.address));
    let begin = Instant::now();
    let ran = toy.exits(0, &["run", "--trials", "12", "--tag", "bar"]);
    assert_eq!(toy.rows().len(), 12);
    ran.says(&["could not be delivered"]);
    // the ten seconds that the last message gets, whatever waits before it, and what twelve trials take
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn a_command_reads_the_message_knows_no_key_and_is_ended_with_what_it_started() {
    let toy = Toy::new().env("SOME_API_KEY", "a-key-0123456789abcdef").env("MY_HOOK", "http://127.0.0.1:9/x");
    let script = "cat >\"$1/told.json\"; env >\"$1/told.env\"; sleep 300 & echo $! >\"$1/told.pid\"; exit 3";
    told(
        &toy,
        &format!("command = [\"sh\", \"-c\", '''{script}''', \"sh\", '''{}''']", toy.root().display()),
    );
    let ran = toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    ran.says(&["could not be delivered: sh: exit status: 3"]);
    let told: Value = serde_json::from_str(&toy.read("told.json")).unwrap();
    assert_eq!((&told["event"], &told["counts"]["trials"]), (&json!("stop"), &json!(1)));
    let env = toy.read("told.env");
    assert!(env.contains("RATCHET_EVENT=stop\n") && !env.contains("a-key-0123456789abcdef"), "{env}");
    let begin = Instant::now();
    while alive(&toy.read("told.pid")) {
        assert!(begin.elapsed() < PATIENCE, "what it started lives on");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_address_that_trials_could_read_or_that_is_not_there_is_refused_before_anything_runs() {
    let toy = toy("webhook = \"http://127.0.0.1:9/very-secret-path\"\non = [\"stop\"]");
    toy.git(&["commit", "-qam", "committed"]);
    let ran = toy.exits(2, &["run", "--trials", "1", "--tag", "bar"]);
    ran.says(&["committed", "webhook_file"]);
    assert!(!ran.stderr.contains("very-secret-path"));
    let toy = self::toy("webhook_variable = \"MY_HOOK\"");
    toy.exits(4, &["run", "--trials", "1", "--tag", "bar"]).says(&["MY_HOOK", "not set"]);
    assert!(toy.rows().is_empty());
}

#[test]
fn a_test_message_arrives_or_says_why_not() {
    let hook = Hook::start(&["200 OK", "404 Not Found"]);
    let toy = Toy::new();
    toy.exits(2, &["doctor", "--notify"]).says(&["names nobody"]);
    told(&toy, &format!("webhook = \"{}\"", hook.address));
    toy.exits(0, &["doctor", "--notify"]).says(&["arrived"]);
    assert_eq!(hook.next()["event"], "test");
    let ran = toy.exits(4, &["doctor", "--notify"]);
    ran.says(&["404 Not Found"]);
    assert!(!ran.stderr.contains("very-secret-path"), "{}", ran.stderr);
}
