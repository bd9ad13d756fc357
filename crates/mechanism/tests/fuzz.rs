//! Scripts that are nearly right: those that ship, with something changed.

use std::time::{Duration, Instant};

use mechanism::{BUILTIN, Hook, Host, Limits, Place, Suggestion};
use proptest::prelude::*;
use serde_json::json;

use crate::{ask, child, search};

/// What is put into a script in the place of something else.
const PIECES: [&str; 24] = [
    "",
    "()",
    "[]",
    "#{}",
    "0",
    "-1",
    "1e308",
    "0.0/0.0",
    "\"\"",
    "\"\\u202e\"",
    "this",
    "trace",
    "loop {",
    "}",
    "return",
    "throw",
    "!",
    "-",
    ".len()",
    ".trials",
    "[0]",
    "|x| x",
    "9223372036854775807",
    "this = this;",
];

/// Words, numbers and signs.
fn tokens(script: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for c in script.chars() {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        match tokens.last_mut() {
            Some(last) if word(c) && last.chars().all(word) => last.push(c),
            _ => tokens.push(c.into()),
        }
    }
    tokens
}

fn mutated() -> impl Strategy<Value = String> {
    let edits = proptest::collection::vec((any::<usize>(), 0..4, 0..PIECES.len(), any::<usize>()), 1..6);
    (0..BUILTIN.len(), edits).prop_map(|(which, edits)| {
        let mut tokens = tokens(BUILTIN[which].script);
        for (at, edit, piece, other) in edits {
            let (at, other) = (at % tokens.len(), other % tokens.len());
            match edit {
                0 => tokens[at] = PIECES[piece].to_owned(),
                1 => tokens.swap(at, other),
                2 => tokens[at] = tokens[other].clone(),
                _ => tokens.insert(at, PIECES[piece].to_owned()),
            }
        }
        tokens.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_script_ends_in_a_legal_answer_or_a_fault(script in mutated()) {
        let limits = Limits { operations: 200_000, ..Limits::default() };
        let knobs = search().knobs;
        if let Ok(mut host) = Host::start(&child(), &script, &limits) {
            for hook in host.hooks().clone() {
                let began = Instant::now();
                let answer = ask(&mut host, hook, &json!({}));
                prop_assert!(began.elapsed() < limits.wall + Duration::from_secs(2));
                let Ok(answer) = answer else { continue };
                if hook == Hook::Record {
                    prop_assert!(answer.is_object());
                }
                let Ok(Some(Suggestion { moves, .. })) = serde_json::from_value(answer) else { continue };
                prop_assert!((1..=3).contains(&moves.len()));
                for one in moves {
                    let knob = knobs.iter().find(|knob| knob.name == one.name).unwrap();
                    prop_assert!(!knob.frozen);
                    match one.to {
                        Place::At(at) => prop_assert!((0.0..=1.0).contains(&at) && knob.high.is_some()),
                        Place::Number(n) => prop_assert!(knob.low.unwrap() <= n && n <= knob.high.unwrap()),
                        Place::Choice(choice) => prop_assert!(knob.choices.contains(&choice)),
                    }
                }
            }
        }
    }
}
