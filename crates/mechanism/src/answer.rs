//! Checks what a script answers: its type, and whether it is allowed. Nothing that a script says is taken on trust.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    fault::{Fault, FaultKind, steers},
    limits::Limits,
    view::{Knob, Place, Suggestion, Target},
};

/// The most knobs that one suggestion may move.
const MOST_MOVES: usize = 3;

type Checked<T> = Result<T, Fault>;

fn wrong_type(what: &str, needed: &str, found: &Value) -> Fault {
    Fault::new(FaultKind::Type, format!("{what} is {needed}, not {}", describe(found)))
}

fn illegal(message: impl AsRef<str>) -> Fault {
    Fault::new(FaultKind::Illegal, message)
}

/// A value for a message: its type, and itself where it is short.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "()".into(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.len() <= 40 => format!("the text \"{text}\""),
        Value::String(_) => "a text".into(),
        Value::Array(values) => format!("an array of {}", values.len()),
        Value::Object(fields) => {
            format!("a map with {}", fields.keys().take(8).cloned().collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text of several lines, or nothing.
pub(crate) fn text(answer: Value, limits: &Limits) -> Checked<Option<String>> {
    match answer {
        Value::Null => Ok(None),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => bounded(text, limits, |c| c == '\n').map(Some),
        other => Err(wrong_type("the answer", "a text or ()", &other)),
    }
}

/// A text of one line, or nothing.
pub(crate) fn line(answer: Value, limits: &Limits) -> Checked<Option<String>> {
    match answer {
        Value::Null => Ok(None),
        Value::String(text) => one(text, "the reason", limits).map(Some),
        other => Err(wrong_type("the answer", "a text or ()", &other)),
    }
}

fn one(text: String, what: &str, limits: &Limits) -> Checked<String> {
    match text.trim().is_empty() {
        true => Err(illegal(format!("{what} is empty"))),
        false => bounded(text, limits, |_| false),
    }
}

fn bounded(text: String, limits: &Limits, allowed: fn(char) -> bool) -> Checked<String> {
    if text.len() > limits.answer_bytes {
        let message = format!("a text of {} bytes; {} are allowed", text.len(), limits.answer_bytes);
        return Err(Fault::new(FaultKind::Size, message));
    }
    match text.chars().find(|c| steers(*c) && !allowed(*c)) {
        Some(c) => Err(illegal(format!("a text has the character U+{:04X}", u32::from(c)))),
        None => Ok(text),
    }
}

/// An order of `n` candidates; nothing leaves them as they are.
pub(crate) fn order(answer: Value, n: usize) -> Checked<Vec<usize>> {
    let indices = match answer {
        Value::Null => return Ok((0..n).collect()),
        Value::Array(indices) => indices,
        other => return Err(wrong_type("the answer", "an array of indices or ()", &other)),
    };
    if indices.len() != n {
        return Err(illegal(format!("{} indices for {n} candidates", indices.len())));
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::with_capacity(n);
    for index in indices {
        let whole = index.as_u64().map(|index| index as usize);
        let place = whole.ok_or_else(|| wrong_type("an index", "a whole number from 0", &index))?;
        if place >= n || !seen.insert(place) {
            return Err(illegal(format!("{place} is no index of {n} candidates, or stands twice")));
        }
        order.push(place);
    }
    Ok(order)
}

/// One of the trials allowed, or nothing.
pub(crate) fn parent(answer: Value, allowed: &[u64]) -> Checked<Option<u64>> {
    if answer.is_null() {
        return Ok(None);
    }
    let trial = answer.as_u64().ok_or_else(|| wrong_type("the answer", "a trial's number or ()", &answer))?;
    match allowed.contains(&trial) {
        true => Ok(Some(trial)),
        false => Err(illegal(format!("trial {trial} is none of those allowed"))),
    }
}

/// A state: a map, neither too large nor too deep.
pub(crate) fn state(state: &Value, limits: &Limits) -> Checked<()> {
    if !state.is_object() {
        return Err(wrong_type("the state", "a map", state));
    }
    if !within(state, limits.depth) {
        return Err(Fault::new(FaultKind::Depth, "the state's values lie too deep inside each other"));
    }
    let bytes = state.to_string().len();
    match bytes <= limits.state_bytes {
        true => Ok(()),
        false => Err(Fault::new(
            FaultKind::Size,
            format!("a state of {bytes} bytes; {} are allowed", limits.state_bytes),
        )),
    }
}

/// Whether no more than so many values lie inside each other.
fn within(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match value {
        Value::Array(values) => values.iter().all(|value| within(value, depth)),
        Value::Object(fields) => fields.values().all(|value| within(value, depth)),
        _ => true,
    }
}

/// One to three moves and why, or nothing.
pub(crate) fn suggestion(answer: Value, knobs: &[Knob], limits: &Limits) -> Checked<Option<Suggestion>> {
    let mut fields = match answer {
        Value::Null => return Ok(None),
        Value::Object(fields) => fields,
        other => return Err(wrong_type("the answer", "a map or ()", &other)),
    };
    let why = match fields.remove("why") {
        Some(Value::String(why)) => one(why, "`why`", limits)?,
        Some(other) => return Err(wrong_type("`why`", "a text", &other)),
        None => return Err(Fault::new(FaultKind::Type, "`why` is missing")),
    };
    let moves = match fields.remove("moves") {
        None => vec![target(fields, knobs)?],
        Some(_) if !fields.is_empty() => return Err(unknown(&fields)),
        Some(Value::Array(moves)) => {
            let moves = moves.into_iter().map(|one| match one {
                Value::Object(fields) => target(fields, knobs),
                other => Err(wrong_type("a move", "a map", &other)),
            });
            moves.collect::<Checked<Vec<_>>>()?
        }
        Some(other) => return Err(wrong_type("`moves`", "an array", &other)),
    };
    if moves.is_empty() || moves.len() > MOST_MOVES {
        return Err(illegal(format!("{} moves; 1 to {MOST_MOVES} are allowed", moves.len())));
    }
    let names: BTreeSet<&str> = moves.iter().map(|target| target.name.as_str()).collect();
    match names.len() == moves.len() {
        true => Ok(Some(Suggestion { moves, why })),
        false => Err(illegal("one knob is moved twice")),
    }
}

fn unknown(fields: &Map<String, Value>) -> Fault {
    let names: Vec<&str> = fields.keys().take(8).map(String::as_str).collect();
    Fault::new(FaultKind::Type, format!("a suggestion has no field {}", names.join(", ")))
}

/// One move of one knob.
fn target(mut fields: Map<String, Value>, knobs: &[Knob]) -> Checked<Target> {
    let name = match fields.remove("name") {
        Some(Value::String(name)) => name,
        Some(other) => return Err(wrong_type("`name`", "a text", &other)),
        None => return Err(Fault::new(FaultKind::Type, "a move has no `name`")),
    };
    let shown: String = name.chars().take(60).collect();
    let knob = knobs.iter().find(|knob| knob.name == name);
    let knob = knob.ok_or_else(|| illegal(format!("there is no knob `{shown}`")))?;
    if knob.frozen {
        return Err(illegal(format!("knob `{shown}` is frozen")));
    }
    let (at, to) = (fields.remove("at"), fields.remove("to"));
    if !fields.is_empty() {
        return Err(unknown(&fields));
    }
    let to = match (at, to) {
        (Some(at), None) => place(at, knob)?,
        (None, Some(to)) => value(to, knob)?,
        _ => {
            return Err(Fault::new(
                FaultKind::Type,
                format!("the move of `{shown}` has `at` or `to`, one of them"),
            ));
        }
    };
    Ok(Target { name, to })
}

fn place(at: Value, knob: &Knob) -> Checked<Place> {
    let name = &knob.name;
    let place = at.as_f64().ok_or_else(|| wrong_type("`at`", "a number from 0 to 1", &at))?;
    if !knob.choices.is_empty() {
        return Err(illegal(format!("knob `{name}` has choices; answer `to`, not `at`")));
    }
    if !(0.0..=1.0).contains(&place) {
        return Err(illegal(format!("`at` of `{name}` is {place}, outside 0 to 1")));
    }
    match knob.moves(place) {
        true => Ok(Place::At(place)),
        false => Err(illegal(format!("`at` {place} leaves `{name}` at its present value"))),
    }
}

fn value(to: Value, knob: &Knob) -> Checked<Place> {
    let name = &knob.name;
    if knob.has(&to) {
        return Err(illegal(format!("`{name}` already has the value {}", describe(&to))));
    }
    match &to {
        Value::String(choice) if !knob.choices.is_empty() => match knob.choices.contains(choice) {
            true => Ok(Place::Choice(choice.clone())),
            false => Err(illegal(format!("{} is none of the choices of `{name}`", describe(&to)))),
        },
        // a choice among numbers may be answered as one
        Value::Number(number) if !knob.choices.is_empty() => {
            let same = |choice: &&String| choice.parse().ok() == number.as_f64();
            let choice = knob.choices.iter().find(same).cloned();
            choice
                .map(Place::Choice)
                .ok_or_else(|| illegal(format!("{number} is none of the choices of `{name}`")))
        }
        Value::Number(number) => match number.as_f64().filter(|number| knob.allows(*number)) {
            Some(number) => Ok(Place::Number(number)),
            None => Err(illegal(format!("{number} is no value in the range of `{name}` ({})", knob.kind))),
        },
        other => Err(wrong_type("`to`", "a number, or a text for a choice", other)),
    }
}
