//! What the script reads of a prompt: the files, the refusals, and what is asked of it.

use std::collections::BTreeSet;

use ::llm::{Call, Turn};

use crate::{
    proposer::{
        SourceFile,
        knobs::{Knob, knobs},
    },
    search::{Strategy, evidence::Evidence},
};

/// Words that tell to try something, to leave it alone, to lower it, or to raise it; the first that is found decides.
const TRY: [&str; 3] = ["never moved", "never tried", "untried"];
const AVOID: [&str; 12] = [
    "avoid", "not ", "n't ", "stop", "frozen", "freeze", "leave", "never", "refused", "failed", "crashed",
    "in vain",
];
const LOWER: [&str; 5] = ["lower", "smaller", "decrease", "reduce", "halve"];
const RAISE: [&str; 5] = ["raise", "larger", "increase", "higher", "double"];

/// One call, as the script reads it.
pub(super) struct Prompt<'a>(pub(super) &'a Call<'a>);

/// What the prompt asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Advice {
    /// Knobs to leave alone.
    pub(super) avoid: BTreeSet<String>,
    /// Knobs to move, and whether upwards, where that is said.
    pub(super) moves: Vec<(String, Option<bool>)>,
    /// Categories that were tried too much.
    pub(super) unlike: BTreeSet<String>,
    /// Whether to go far.
    pub(super) explore: bool,
}

impl Prompt<'_> {
    /// The first thing that it was told.
    fn situation(&self) -> &str {
        self.0.turns.first().map_or("", Turn::text)
    }

    /// The last thing that it said itself.
    pub(super) fn own_words(&self) -> &str {
        let own = self.0.turns.iter().rev().find(|turn| matches!(turn, Turn::Assistant(_)));
        own.map_or("", Turn::text)
    }

    /// The editable files: each stands under its path, in a fence.
    pub(super) fn files(&self) -> Vec<SourceFile> {
        let mut files = Vec::new();
        let (mut path, mut open) = ("", None::<(&str, String)>);
        for line in self.0.system.split_inclusive('\n') {
            match &mut open {
                Some((fence, text)) if line.trim_end() == *fence => {
                    files.push(SourceFile { path: path.to_owned(), text: std::mem::take(text) });
                    open = None;
                }
                Some((_, text)) => *text += line,
                None if line.starts_with("```") => open = Some((line.trim_end(), String::new())),
                None => path = line.trim_end(),
            }
        }
        files
    }

    /// The knobs that the files mark, as they stand.
    pub(super) fn knobs(&self) -> Result<Vec<Knob>, String> {
        let profile = self.0.system.split_once("The profile is ").and_then(|(_, rest)| rest.split_once('.'));
        knobs(&self.files(), profile.map(|(profile, _)| profile)).map_err(|error| error.to_string())
    }

    /// Proposals since the last trial that came to nothing.
    pub(super) fn refusals(&self) -> usize {
        let section = self.section("# Proposals since the last trial that came to nothing\n");
        section.lines().filter(|line| line.starts_with("- ")).count()
    }

    /// What is asked of this proposal, sentence by sentence. A knob that it is told not to move one way it leaves alone
    /// altogether, whatever else is said of it: it heeds words, and understands little.
    pub(super) fn advice(&self, knobs: &[Knob]) -> Advice {
        let mut advice = Advice::default();
        let asked = self.section("# What is asked of this proposal\n");
        for sentence in asked.split('\n').flat_map(|line| line.split(". ")) {
            let words = sentence.to_lowercase();
            if let Some((_, tried)) = sentence.split_once("other than those of late, which were ") {
                let tried = tried.trim_end_matches('.').split(", ");
                advice.unlike.extend(tried.map(str::to_owned));
            }
            advice.explore |=
                sentence.starts_with(Strategy::Explore.advice().split('.').next().unwrap_or_default());
            let any = |of: &[&str]| of.iter().any(|word| words.contains(word));
            let named = |name: &str| {
                sentence.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
            };
            for Knob { name, .. } in knobs.iter().filter(|knob| named(&knob.name)) {
                let up = match () {
                    () if any(&TRY) => None,
                    () if any(&AVOID) => {
                        advice.avoid.insert(name.clone());
                        continue;
                    }
                    () if any(&LOWER) => Some(false),
                    () if any(&RAISE) => Some(true),
                    () => continue,
                };
                advice.moves.push((name.clone(), up));
            }
        }
        let avoid = &advice.avoid;
        advice.moves.retain(|(name, _)| !avoid.contains(name));
        advice
    }

    /// What it is shown of the search.
    pub(super) fn evidence(&self) -> Result<Evidence, String> {
        Evidence::of_call(self.0).ok_or("there is no evidence in the prompt".to_owned())
    }

    /// What stands under a heading of the situation.
    fn section(&self, heading: &str) -> &str {
        let rest = self.situation().split_once(heading).map_or("", |(_, rest)| rest);
        rest.split_once("\n# ").map_or(rest, |(section, _)| section)
    }
}
