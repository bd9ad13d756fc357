//! A scripted model: knows its role by the schema it is asked to keep to, and reads the file out of its prompt.

use serde_json::json;
use standin::{Reply, Request};

/// What a model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Lessons,
    Analysis,
    Plan,
    Edit,
    Review,
}

impl Role {
    /// An edit is the one answer that is no JSON.
    pub(super) fn of(request: &Request) -> Self {
        let Some(schema) = &request.schema else { return Self::Edit };
        let has = |name: &str| schema["properties"][name].is_object();
        match () {
            () if has("lessons") => Self::Lessons,
            () if has("limit") => Self::Analysis,
            () if has("hypothesis") => Self::Plan,
            () if has("veto") => Self::Review,
            () => panic!("an unknown role: {schema}"),
        }
    }
}

/// A lesson that the scripted model learns from every trial.
pub(super) const LESSON: &str = "a smaller x has paid so far";

/// Moves x to the next of `values` with each plan.
pub(super) fn proposing<T: ToString>(
    values: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
) -> impl FnMut(&Request) -> Reply + Send + 'static {
    let mut values = values.into_iter();
    move |request| {
        Reply::Text(match Role::of(request) {
            Role::Lessons => lessons(LESSON),
            Role::Analysis => {
                json!({"limit": "x is too large", "failures": "none", "open": "all"}).to_string()
            }
            Role::Plan => plan(&values.next().expect("a value").to_string()),
            Role::Edit => edit("cand/x.txt", line(request), &line_of(&planned(request))),
            Role::Review => review(false, "nothing speaks against it"),
        })
    }
}

/// The plan to set x.
pub(super) fn plan(x: &str) -> String {
    json!({
        "hypothesis": format!("{x} is nearer to the optimum"),
        "plan": format!("set x to {x}"),
        "description": format!("x to {x}"),
        "category": "constant",
        "expected_delta": -1.5,
    })
    .to_string()
}

/// One search and replace block between prose.
pub(super) fn edit(path: &str, old: &str, new: &str) -> String {
    format!(
        "One line changes.\n\n{path}\n```\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\nThat is all.\n"
    )
}

pub(super) fn lessons(lesson: &str) -> String {
    json!({"lessons": [{"lesson": lesson, "trials": [2], "confidence": 0.9, "replaces": []}]}).to_string()
}

pub(super) fn review(veto: bool, reason: &str) -> String {
    json!({"reason": reason, "veto": veto}).to_string()
}

/// The line of the editable file, as the prompt shows it.
pub(super) fn line(request: &Request) -> &str {
    let mut lines = request.system.lines();
    lines.find(|line| line.starts_with("x = ")).expect("the file in the prompt")
}

/// That line with another x.
pub(super) fn line_of(x: &str) -> String {
    format!("x = {x} # knob: lin -20..20")
}

/// What the plan of this conversation sets x to.
pub(super) fn planned(request: &Request) -> String {
    let plan = request.messages.iter().find(|message| message.role == "assistant").expect("a plan");
    let plan: serde_json::Value = serde_json::from_str(&plan.text).expect("a plan in JSON");
    plan["plan"].as_str().and_then(|plan| plan.strip_prefix("set x to ")).expect("a value").to_owned()
}

/// Tokens of a request and of an answer to it, as the stand-in counts them: four bytes each.
pub(super) fn tokens(request: &Request, answer: &str) -> u64 {
    let tokens = |text: &str| text.len().div_ceil(4) as u64;
    let turns: u64 = request.messages.iter().map(|message| tokens(&message.text)).sum();
    tokens(&request.system) + turns + tokens(answer)
}
