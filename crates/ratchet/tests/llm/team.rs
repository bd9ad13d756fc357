//! The team: a reviewer who may say no before anything is built, and lessons that never reach it.

use standin::{Protocol, Reply, Server};

use super::{
    calls, in_vain,
    model::{LESSON, Role, proposing, review},
    toy,
};
use crate::toy::Toy;

const TEAM: &str = "roles = \"team\"\nretries = 0";

#[test]
fn a_veto_comes_before_any_build_and_is_counted_with_what_it_saved() {
    let (mut model, mut reviews) = (proposing([7, 5, 6]), 0);
    let server = Server::start(move |request| {
        reviews += u32::from(Role::of(request) == Role::Review);
        match Role::of(request) {
            Role::Review if reviews <= 2 => Reply::Text(review(true, "the brief\nforbids it")),
            _ => model(request),
        }
    });
    let server = server.unwrap();
    let toy = toy(&server, Protocol::Anthropic, "lookahead = false", TEAM);
    let task = toy.read("ratchet.toml");
    let build = "[build]\ncommand = [\"sh\", \"-c\", 'cat cand/x.txt >> \"$1/built\"', \"-\", \"{root}\"]\ntimeout_s = 20\n";
    toy.write("ratchet.toml", &format!("{task}{build}"));
    toy.write(".gitignore", &format!("{}built\n", toy.read(".gitignore")));
    toy.commit("a build that keeps a list");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);

    let vetoed = in_vain(&toy);
    assert_eq!(vetoed.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["vetoed"; 2]);
    for ((_, reason), x) in vetoed.iter().zip(["7", "5"]) {
        assert!(reason.contains("the brief forbids it") && reason.contains(&format!("x to {x}")), "{reason}");
    }
    assert_eq!(toy.column("description")[1..], ["x to 6"]);
    let built = toy.read("built");
    assert!(!built.contains("x = 7") && !built.contains("x = 5") && built.contains("x = 6"), "{built}");
    let status = toy.status();
    assert_eq!(status["vetoes"], 2);
    let seconds: f64 = toy.rows().iter().map(|row| row["seconds"].parse::<f64>().unwrap()).sum();
    let saved = status["vetoed_s"].as_f64().unwrap();
    assert!((saved - seconds).abs() < 0.11, "two trials of the mean of two trials: {saved}, {seconds}");
    toy.exits(0, &["status"]).says(&["vetoes", "2"]);
    // what was refused is told to those who propose next, and not to the reviewer
    let requests = server.requests();
    let last = |role| requests.iter().rev().find(|request| Role::of(request) == role).unwrap();
    assert!(last(Role::Plan).last_user().contains("the brief forbids it"));
    assert!(!format!("{:?}", last(Role::Review).messages).contains("the brief forbids it"));
    assert_eq!(calls(&toy, "attempts").len(), 6, "plan, edit and review of both are kept");
}

#[test]
fn lessons_are_written_by_the_retrospector_read_by_those_who_propose_and_never_by_the_reviewer() {
    const CANARY: &str = "canary-4711";
    for (protocol, lookahead) in [(Protocol::OpenaiChat, false), (Protocol::Anthropic, true)] {
        let server = Server::start(proposing([9, 8, 7, 6, 5, 4, 3, 2, 1])).unwrap();
        let toy = toy(&server, protocol, &format!("lookahead = {lookahead}"), TEAM).init();
        toy.write(".ratchet/tags/bar/lessons.md", &format!("- {CANARY}\n"));
        toy.exits(0, &["run", "--trials", "4"]);
        let lessons = toy.read(".ratchet/tags/bar/lessons.md");
        assert!(lessons.contains(LESSON), "{lessons}");
        let (mut reviews, mut told) = (0, 0);
        for request in server.requests() {
            let said = format!("{} {:?}", request.system, request.messages);
            match Role::of(&request) {
                Role::Review => {
                    reviews += 1;
                    for secret in [CANARY, LESSON, "x is too large", "nearer to the optimum"] {
                        assert!(!said.contains(secret), "{secret} reaches the reviewer: {said}");
                    }
                    assert!(
                        said.contains("Lower the loss.") && said.contains("+x = "),
                        "diff and brief: {said}"
                    );
                }
                Role::Plan => {
                    assert!(said.contains(CANARY), "what a person wrote there is read as well");
                    told += u32::from(said.contains(LESSON));
                }
                _ => {}
            }
        }
        assert!(reviews >= 3 && told >= 1, "{reviews} reviews, {told} plans with the lesson");
        the_judge_knows_nothing(&toy, &[CANARY, LESSON]);
    }
}

/// Nothing that decided bears a lesson.
fn the_judge_knows_nothing(toy: &Toy, secrets: &[&str]) {
    for trial in 1..=toy.rows().len() {
        let verdict = toy.read(&format!(".ratchet/tags/bar/trials/{trial:04}/verdict.json"));
        assert!(secrets.iter().all(|secret| !verdict.contains(secret)), "{verdict}");
    }
}

#[test]
fn a_reviewer_or_retrospector_who_answers_nonsense_stops_nobody() {
    let mut model = proposing([9, 8, 7, 6, 5]);
    let server = Server::start(move |request| match Role::of(request) {
        Role::Review | Role::Lessons => Reply::Text("no JSON today".to_owned()),
        _ => model(request),
    });
    let server = server.unwrap();
    let toy = toy(&server, Protocol::OpenaiResponses, "lookahead = false", TEAM);
    toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    assert_eq!(toy.column("proposer")[1..], ["llm"; 3]);
    assert_eq!((toy.status()["vetoes"].clone(), in_vain(&toy).len()), (0.into(), 0));
}
