//! The shapes of the answers in a research session. Their descriptions are part of what the model is told.

use mechanism::Hook;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Ideas for mechanisms.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Exploration {
    /// Two to six, as unlike each other as can be.
    pub hypotheses: Vec<Hypothesis>,
}

/// One idea for a mechanism.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Hypothesis {
    /// The field that it is borrowed from.
    pub domain: String,
    /// What it does, in two or three sentences.
    pub mechanism: String,
    /// Which weakness of the search it is aimed at, with the trials that show it.
    pub target: String,
    /// What it takes to write it: hooks, state, tricky parts.
    pub complexity: String,
    /// How it could do harm.
    pub risk: String,
}

/// A sober judgment of every hypothesis.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Critique {
    /// One for each hypothesis.
    pub assessments: Vec<Assessment>,
}

/// The judgment of one hypothesis.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Assessment {
    /// Its number in the list; the first is 1.
    pub hypothesis: u64,
    /// The strongest objection to it, in a sentence or two.
    pub objection: String,
    /// How much it would help if it worked, from 1 to 10.
    pub impact: f64,
    /// How likely it is to work with these hooks and this evidence, from 1 to 10.
    pub feasibility: f64,
    /// How much code and state it needs, from 1 (a few lines) to 10.
    pub complexity: f64,
    /// False if it is not to be built, whatever its numbers. It may be false for all: then nothing is built.
    pub pursue: bool,
}

/// A mechanism, described so that somebody else could write it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Specification {
    /// Its name: a few lower-case words joined by hyphens.
    pub name: String,
    /// The hooks it implements, and no more than it needs.
    pub hooks: Vec<Part>,
    /// What its state holds between trials; empty where it needs none.
    pub state: String,
    /// How it works, as pseudocode.
    pub pseudocode: String,
    /// How its effect would show in the trials, and what would show that it does not help.
    pub evidence: String,
}

/// What one hook does.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Which.
    #[schemars(schema_with = "hooks")]
    pub hook: Hook,
    /// What it does there.
    pub does: String,
}

/// The hooks' names, in the one form that all providers take.
fn hooks(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Hook::ALL.map(Hook::name) })
}
