//! What parent and child say to each other: one JSON line each way.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    fault::Fault,
    limits::Limits,
    view::{Change, Hook, Knob, Trace, Trial},
};

/// The longest line to a child; a trace of a thousand trials is about 600 KB.
pub(crate) const LINE_BYTES: u64 = 16 << 20;

/// The cases of a script, as JSON: the longest answer.
pub(crate) const CASES_BYTES: usize = 1 << 20;

/// What the parent writes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask<'a> {
    /// First of all: the script.
    Start { script: &'a str, limits: &'a Limits },
    /// A hook; `trace` only when it is not the one of the call before.
    Call { hook: Hook, state: &'a Value, given: Question<'a>, trace: Option<&'a Trace> },
    /// The unit cases that the script declares.
    Cases,
}

/// A hook and what it is given beside the trace.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Question<'a> {
    Guide,
    Veto(&'a Change),
    Rank(&'a [Change]),
    Suggest(&'a [Knob]),
    Parent(&'a [u64]),
    Record(&'a Trial),
}

impl Question<'_> {
    pub(crate) fn hook(self) -> Hook {
        match self {
            Self::Guide => Hook::Guide,
            Self::Veto(_) => Hook::Veto,
            Self::Rank(_) => Hook::Rank,
            Self::Suggest(_) => Hook::Suggest,
            Self::Parent(_) => Hook::Parent,
            Self::Record(_) => Hook::Record,
        }
    }
}

/// What the child reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    Start { script: String, limits: Limits },
    Call { hook: Hook, state: Value, given: Option<Value>, trace: Option<Value> },
    Cases,
}

/// What the child writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// It is ready; the hooks that the script has.
    Hooks(BTreeSet<Hook>),
    /// What the script answered, or the new state.
    Value(Value),
    /// The script failed; the child goes on.
    Fault(Fault),
}
