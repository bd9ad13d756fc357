//! The unit cases that a script declares: how one can tell that it works.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    fault::Fault,
    host::Host,
    view::{Change, Hook, Knob, Trace, Trial},
    wire::Question,
};

/// As a script writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    hook: Hook,
    #[serde(default = "empty")]
    state: Value,
    given: Vec<Value>,
    /// Missing is not the same as `()`.
    #[serde(default, deserialize_with = "present")]
    returns: Option<Value>,
    acts: Option<bool>,
}

fn empty() -> Value {
    json!({})
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// One case, ready to run.
pub(crate) struct Case {
    name: String,
    state: Value,
    given: Arguments,
    trace: Trace,
    expected: Expected,
}

enum Expected {
    Returns(Value),
    Acts(bool),
}

/// A hook's first argument.
enum Arguments {
    Guide,
    Veto(Change),
    Rank(Vec<Change>),
    Suggest(Vec<Knob>),
    Parent(Vec<u64>),
    Record(Trial),
}

impl Arguments {
    fn question(&self) -> Question<'_> {
        match self {
            Self::Guide => Question::Guide,
            Self::Veto(change) => Question::Veto(change),
            Self::Rank(candidates) => Question::Rank(candidates),
            Self::Suggest(knobs) => Question::Suggest(knobs),
            Self::Parent(allowed) => Question::Parent(allowed),
            Self::Record(trial) => Question::Record(trial),
        }
    }
}

/// Reads what `cases` answers. The error says which case and what is wrong with it.
pub(crate) fn read(cases: Value) -> Result<Vec<Case>, String> {
    let Value::Array(cases) = cases else {
        return Err("cases() answers an array of maps".into());
    };
    let read = cases.into_iter().enumerate().map(|(index, case)| {
        let name =
            case["name"].as_str().map_or_else(|| format!("case {index}"), |name| format!("case `{name}`"));
        one(case).map_err(|problem| format!("{name}: {problem}"))
    });
    read.collect()
}

fn one(case: Value) -> Result<Case, String> {
    let Written { name, hook, state, given, returns, acts } =
        serde_json::from_value(case).map_err(|error| error.to_string())?;
    if given.len() != hook.arity() {
        return Err(format!("`given` has {} values; {hook} takes {}", given.len(), hook.arity()));
    }
    let mut given = given.into_iter();
    let mut next = || given.next().unwrap_or_default();
    let arguments = match hook {
        Hook::Guide => Arguments::Guide,
        Hook::Veto => Arguments::Veto(filled(next(), "the change")?),
        Hook::Rank => Arguments::Rank(filled(next(), "the candidates")?),
        Hook::Suggest => Arguments::Suggest(filled(next(), "the knobs")?),
        Hook::Parent => Arguments::Parent(filled(next(), "the allowed trials")?),
        Hook::Record => Arguments::Record(filled(next(), "the trial")?),
    };
    let trace = if hook == Hook::Record { Trace::default() } else { filled(next(), "the trace")? };
    let expected = match (returns, acts) {
        (Some(value), None) => Expected::Returns(value),
        (None, Some(acts)) => Expected::Acts(acts),
        _ => return Err("a case has `returns` or `acts`, one of them".into()),
    };
    Ok(Case { name, state, given: arguments, trace, expected })
}

/// An argument with its missing fields filled in. A field that there is not is an error: it would be a case that
/// tests something else than it says.
fn filled<T: DeserializeOwned + Serialize>(given: Value, what: &str) -> Result<T, String> {
    let filled: T = serde_json::from_value(given.clone()).map_err(|error| format!("{what}: {error}"))?;
    let whole = serde_json::to_value(&filled).map_err(|error| error.to_string())?;
    match agrees(&given, &whole) {
        Ok(()) => Ok(filled),
        Err(place) => Err(format!("{what} has no field or other values at `{place}`")),
    }
}

impl Case {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn hook(&self) -> Hook {
        self.given.question().hook()
    }

    /// Runs it. The inner error says what came instead.
    pub(crate) fn run(&self, host: &mut Host) -> Result<Result<(), String>, Fault> {
        let answer = host.raw(self.given.question(), &self.state, Some(&self.trace))?;
        Ok(self.check(&answer))
    }

    fn check(&self, answer: &Value) -> Result<(), String> {
        match &self.expected {
            Expected::Returns(expected) => agrees(expected, answer)
                .map_err(|place| format!("answers {answer}, not {expected}{}", at(&place))),
            Expected::Acts(expected) => match (self.acts(answer), expected) {
                (true, false) => Err(format!("answers {answer}, and should do nothing")),
                (false, true) => Err("does nothing, and should".into()),
                _ => Ok(()),
            },
        }
    }

    /// Whether an answer changes anything.
    fn acts(&self, answer: &Value) -> bool {
        match &self.given {
            Arguments::Record(_) => *answer != self.state,
            Arguments::Rank(candidates) => {
                !answer.is_null() && *answer != json!((0..candidates.len()).collect::<Vec<_>>())
            }
            Arguments::Guide => answer.as_str().is_some_and(|text| !text.trim().is_empty()),
            _ => !answer.is_null(),
        }
    }
}

fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" (at `{place}`)") }
}

/// Whether a value is as expected: numbers to nine digits, of a map only the fields that are named. The error is
/// the place where it is not.
fn agrees(expected: &Value, found: &Value) -> Result<(), String> {
    let same = match (expected, found) {
        (Value::Object(fields), Value::Object(of)) => {
            for (name, value) in fields {
                let found = of.get(name).ok_or_else(|| name.clone())?;
                agrees(value, found).map_err(|place| join(name, &place))?;
            }
            true
        }
        (Value::Array(values), Value::Array(of)) if values.len() == of.len() => {
            for (index, (value, found)) in values.iter().zip(of).enumerate() {
                agrees(value, found).map_err(|place| join(&index.to_string(), &place))?;
            }
            true
        }
        (Value::Number(one), Value::Number(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(1.0),
            _ => one == other,
        },
        _ => expected == found,
    };
    if same { Ok(()) } else { Err(String::new()) }
}

fn join(name: &str, place: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{name}.{place}") }
}
