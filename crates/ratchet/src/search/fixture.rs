//! A model whose answers are given, a night to ask about, and a folder.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use ::llm::{Answer, AskError, Call, Model};
use mechanism::{Change, Knob, Move, Trace, Trial};
use serde_json::{Value, json};

use super::{
    evidence::{Ground, Known},
    settings::Settings,
    voice::Voice,
};
use crate::config::{Goal, Metric};

/// One call as the model saw it.
pub(super) struct Heard {
    pub(super) purpose: String,
    pub(super) system: String,
    pub(super) turns: Vec<String>,
    pub(super) schema: Option<Value>,
}

/// Done at a call.
type Act = Box<dyn FnMut(&Call<'_>)>;

/// Answers in order, whatever is asked; each call is 100 tokens and half a dollar.
#[derive(Default)]
pub(super) struct Script {
    pub(super) answers: VecDeque<Result<String, AskError>>,
    pub(super) heard: Vec<Heard>,
    /// Done at each call, before it is answered.
    pub(super) meanwhile: Option<Act>,
}

impl Script {
    pub(super) fn says<T: ToString>(answers: impl IntoIterator<Item = T>) -> Self {
        Self {
            answers: answers.into_iter().map(|answer| Ok(answer.to_string())).collect(),
            ..Self::default()
        }
    }

    pub(super) fn purposes(&self) -> Vec<&str> {
        self.heard.iter().map(|heard| heard.purpose.as_str()).collect()
    }
}

impl Model for Script {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        if let Some(act) = &mut self.meanwhile {
            act(call);
        }
        self.heard.push(Heard {
            purpose: call.purpose.to_owned(),
            system: call.system.to_owned(),
            turns: call.turns.iter().map(|turn| turn.text().to_owned()).collect(),
            schema: call.schema.map(|schema| schema.json.clone()),
        });
        let text = self.answers.pop_front().unwrap_or_else(|| panic!("no answer for {}", call.purpose))?;
        let usage = ::llm::Usage { input: 90, output: 10, usd: Some(0.5), ..::llm::Usage::default() };
        Ok(Answer { text, usage, truncated: false })
    }

    fn name(&self) -> &str {
        "script"
    }
}

/// What a cycle or session is asked about.
pub(super) struct Scene {
    pub(super) dir: tempfile::TempDir,
    pub(super) trace: Trace,
    pub(super) settings: Settings,
    pub(super) known: Vec<Known>,
    pub(super) context_tokens: u32,
    metric: Metric,
}

impl Scene {
    /// A baseline, a keep, a discard and a crash over eight knobs, `K0` to `K7`.
    pub(super) fn new() -> Self {
        let knob = |n: usize| Knob {
            name: format!("K{n}"),
            kind: "log".into(),
            value: json!(0.1),
            ..Knob::default()
        };
        let trials = vec![
            trial(1, "keep", None, &[]),
            trial(2, "keep", Some(0.02), &[("K0", 0.25)]),
            trial(3, "discard", Some(-0.01), &[("K0", 0.25), ("K1", -0.5)]),
            trial(4, "crash", None, &[("K0", 0.5)]),
        ];
        Self {
            dir: tempfile::tempdir().unwrap(),
            trace: Trace {
                trials,
                champion: 2,
                sigma: Some(0.003),
                plateau: 2,
                knobs: (0..8).map(knob).collect(),
                seed: 0,
            },
            settings: Settings::default(),
            known: Vec::new(),
            context_tokens: 60_000,
            metric: Metric { name: "loss".into(), goal: Goal::Minimize },
        }
    }

    pub(super) fn ground(&self) -> Ground<'_> {
        Ground {
            program: "Lower the loss.",
            metric: &self.metric,
            trace: &self.trace,
            settings: &self.settings,
            mechanisms: &self.known,
        }
    }

    pub(super) fn voice<'m>(&self, model: &'m mut dyn Model) -> Voice<'m> {
        Voice { model, max_output_tokens: 1_000, context_tokens: self.context_tokens }
    }

    pub(super) fn path(&self, inner: &str) -> PathBuf {
        self.dir.path().join(inner)
    }

    pub(super) fn json(&self, inner: &str) -> Value {
        json_of(&self.path(inner))
    }
}

pub(super) fn json_of(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Names in a folder, sorted.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A trial that moved these knobs by these shares of their range.
pub(super) fn trial(number: u64, status: &str, gain: Option<f64>, moves: &[(&str, f64)]) -> Trial {
    let moved =
        |(name, by): &(&str, f64)| Move { name: (*name).into(), from: json!(1), to: json!(2), by: *by };
    Trial {
        trial: number,
        status: status.into(),
        outcome: status.into(),
        gain,
        seconds: 60.0,
        change: Change {
            description: format!("number {number}"),
            moves: moves.iter().map(moved).collect(),
            ..Change::default()
        },
        ..Trial::default()
    }
}
