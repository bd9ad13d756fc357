//! A night of more than a hundred trials with a provider that fails in every way there is, and played back.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use standin::{Fault, Protocol, Reply, Request, Server, faults::Plan};

use super::{
    calls, events, files, in_vain,
    model::{Role, edit, plan, proposing},
    toy,
};
use crate::toy::Toy;

/// Trials of the first run, the baseline included.
const TRIALS: usize = 110;

/// What the server did.
#[derive(Default)]
struct Served {
    requests: u32,
    faults: BTreeMap<String, u32>,
    /// Good answers.
    texts: Vec<String>,
}

/// Values that come nearer to the optimum, not all of them; one in twelve crashes.
fn values() -> impl Iterator<Item = String> + Send {
    let mut rng = StdRng::seed_from_u64(11);
    (0..).map(move |n| {
        let away = 7.0 * (-f64::from(n) / 60.0).exp() * rng.random_range(0.2..1.4);
        match n % 12 {
            7 => format!("crash # {n}"),
            _ => format!("{:.5}", 3.0 + if n % 2 == 0 { away } else { -away }),
        }
    })
}

/// Proposes, every fifth time in another file; fails by plan, and in each way at least once.
fn failing(served: Arc<Mutex<Served>>) -> impl FnMut(&Request) -> Reply + Send + 'static {
    let mut kinds = vec![
        Fault::Status(500),
        Fault::Status(429),
        Fault::RetryAfter(429, 1),
        Fault::Overloaded,
        Fault::Close,
        Fault::CutOff,
        Fault::Unfinished,
        Fault::Malformed,
        Fault::Drip(Duration::from_millis(1)),
        Fault::Huge,
        Fault::Empty,
        Fault::Length(plan("5")),
    ];
    let mut faults = Plan::new(4, 0.05, &kinds);
    kinds.push(Fault::Hang); // costs its time limit
    let (mut model, mut plans) = (proposing(values()), 0);
    move |request| {
        let mut served = served.lock().unwrap();
        served.requests += 1;
        let each = served.requests.is_multiple_of(20).then(|| kinds.pop()).flatten();
        if let Some(fault) = each.or_else(|| faults.draw()) {
            let name = format!("{fault:?}").split('(').next().unwrap_or_default().to_owned();
            *served.faults.entry(name).or_default() += 1;
            return Reply::Fault(fault);
        }
        plans += u32::from(Role::of(request) == Role::Plan);
        let reply = match (plans % 5, Role::of(request)) {
            (4, Role::Edit) => {
                let note = request.system.lines().find(|line| line.starts_with("note ")).expect("a note");
                Reply::Text(edit("cand/note.txt", note, &format!("note {plans}")))
            }
            _ => model(request),
        };
        if let Reply::Text(text) = &reply {
            served.texts.push(text.clone());
        }
        reply
    }
}

/// Every reservation of every run left its cap whole: what was spent by then, and the call's worst, fit.
fn caps_were_held(toy: &Toy, cap: u64) {
    let (mut entries, mut largest) = (BTreeMap::<u64, (String, u64)>::new(), 0);
    for line in toy.read(".ratchet/spending.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |value: &Value| value.as_u64().unwrap();
        if line["reserve"].is_object() {
            let (reserve, run) = (&line["reserve"], line["reserve"]["run"].as_str().unwrap().to_owned());
            let spent: u64 = entries.values().filter(|(of, _)| *of == run).map(|(_, tokens)| tokens).sum();
            let wanted = number(&reserve["tokens"]);
            assert!(run == first_run(toy) || spent + wanted <= cap, "{spent} and {wanted} of {cap}");
            largest = largest.max(wanted);
            entries.insert(number(&reserve["ticket"]), (run, wanted));
        } else {
            let settle = &line["settle"];
            entries.get_mut(&number(&settle["ticket"])).unwrap().1 = number(&settle["tokens"]);
        }
    }
    assert!(largest > 1000);
}

fn first_run(toy: &Toy) -> String {
    let first = toy.read(".ratchet/spending.jsonl").lines().next().unwrap().to_owned();
    let first: Value = serde_json::from_str(&first).unwrap();
    first["reserve"]["run"].as_str().unwrap().to_owned()
}

/// The journal is whole, a row is a trial, and the branch holds what was kept.
fn nothing_is_lost(toy: &Toy) {
    let rows = toy.rows();
    let numbers: Vec<String> = (1..=rows.len()).map(|n| n.to_string()).collect();
    assert_eq!(toy.column("trial"), numbers);
    assert_eq!(events(toy, "bar", "closed").len(), rows.len());
    assert_eq!(events(toy, "bar", "opened").len(), rows.len(), "no trial was begun in vain");
    let kept: Vec<_> = rows.iter().filter(|row| row["status"] == "keep").collect();
    let lineage = toy.lineage("bar");
    assert_eq!(lineage.len(), kept.len() - 1);
    for (commit, row) in lineage.iter().zip(&kept[1..]) {
        assert!(commit.starts_with(&row["commit"]), "{commit} {row:?}");
    }
    assert_eq!(toy.status()["trials"], rows.len());
    assert_eq!(toy.x(), "10", "the user's file");
}

#[test]
fn a_night_of_faults_loses_nothing_holds_its_caps_and_plays_back_to_the_same_verdicts() {
    let served = Arc::new(Mutex::new(Served::default()));
    let server = Server::start(failing(Arc::clone(&served))).unwrap();
    let toy = toy(
        &server,
        Protocol::OpenaiChat,
        "fallback = \"none\"",
        "stream = true\nretries = 3\ntimeout_s = 5",
    );
    toy.write("cand/note.txt", "note 0\n");
    toy.commit("a note");
    toy.exits(0, &["run", "--trials", &TRIALS.to_string(), "--tag", "bar"]);
    nothing_is_lost(&toy);
    assert_eq!(toy.rows().len(), TRIALS);
    assert!(toy.column("proposer")[1..].iter().all(|proposer| proposer == "llm"));
    // a cap ends what goes on, with the faults still coming
    let cap = 60_000;
    toy.exits(0, &["run", "--max-tokens", &cap.to_string()]).says(&["token"]);
    nothing_is_lost(&toy);
    caps_were_held(&toy, cap);

    let served = served.lock().unwrap();
    let recorded = calls(&toy, "");
    let mut answers: HashMap<&str, u32> = HashMap::new();
    for call in &recorded {
        *answers.entry(call["answer"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let lost: Vec<&String> =
        served.texts.iter().filter(|text| !answers.contains_key(text.as_str())).collect();
    assert!(lost.is_empty(), "{} answers are not recorded: {:?}", lost.len(), lost.first());
    let status = toy.status();
    let mut nothing = BTreeMap::new();
    in_vain(&toy).into_iter().for_each(|(kind, _)| *nothing.entry(kind).or_insert(0) += 1);
    eprintln!(
        "{} trials ({} kept, {} crashed), {} requests, {} calls recorded, {} repeated\nfaults {:?}\nno proposal {nothing:?}\nwasted {}\nspent {}",
        toy.rows().len(),
        status["keeps"],
        status["crashes"],
        served.requests,
        recorded.len(),
        served.requests as usize - recorded.len(),
        served.faults,
        status["wasted"],
        status["spent"],
    );
    assert_eq!(status["spent"]["usd"], Value::Null, "nobody knows the price");
    assert_eq!(served.faults.len(), 12, "all there are: {:?}", served.faults);
    played_back(&toy);
}

/// The night again in a clone, without provider, key or referee.
fn played_back(toy: &Toy) {
    let trials = toy.rows().len();
    toy.exits(0, &["record", "night.jsonl"]).says(&[&format!("{trials} trials")]);
    let again = Toy::no_repository();
    let mut clone = std::process::Command::new("git");
    clone.args(["clone", "-q", toy.root().to_str().unwrap(), "."]).current_dir(again.root());
    assert!(clone.status().unwrap().success());
    again.write("night.jsonl", &toy.read("night.jsonl"));
    let played = again.exits(0, &["run", "--proposer", "replay", "--night", "night.jsonl", "--tag", "again"]);
    played.says(&[&format!("{trials} recorded trials, every verdict the same")]);
    let verdicts = |toy: &Toy, tag: &str| -> Vec<Vec<u8>> {
        let all = files(&toy.path(&format!(".ratchet/tags/{tag}/trials")));
        all.iter()
            .filter(|path| path.ends_with("verdict.json"))
            .map(|path| std::fs::read(path).unwrap())
            .collect()
    };
    assert_eq!(verdicts(&again, "again"), verdicts(toy, "bar"));
    for column in ["loss", "status", "outcome", "delta", "description", "proposer", "parent"] {
        assert_eq!(again.column(column), toy.column(column), "{column}");
    }
}
