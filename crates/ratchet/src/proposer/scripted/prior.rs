//! What the script believes about training, and how it turns that into a plan and an edit.
//!
//! It believes in larger batches: three ideas in five raise one, whatever came of it before. The others nudge a few
//! favourite knobs. It looks at no trial's outcome. Refused for a duplicate, it varies its idea; advice, and a wish
//! for another category, it heeds half of the time, and always once it was refused twice.

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

use super::prompt::{Advice, Prompt};
use crate::proposer::knobs::Knob;

/// How often it does what it is told.
const OBEDIENCE: f64 = 0.5;
/// Refusals in a row after which it always does.
const PATIENCE: usize = 2;
/// How far a knob goes that advice names, as a share of its range.
const ADVISED_STEP: f64 = 0.1;

/// Steps of a knob that is none of its favourites: usually, and where it is asked to explore.
const NEAR: std::ops::Range<f64> = 0.03..0.12;
const FAR: std::ops::Range<f64> = 0.1..0.3;
/// What it never lowers of its own accord.
const BATCH: [&str; 2] = ["STEP_TOKENS", "MICRO_ROWS"];

/// Something that it likes to try.
struct Idea {
    /// How often, against the others.
    weight: u32,
    category: &'static str,
    /// Knobs with their displacement, as a share of the range.
    moves: &'static [(&'static str, f64)],
    why: &'static str,
}

const fn idea(
    weight: u32,
    category: &'static str,
    moves: &'static [(&'static str, f64)],
    why: &'static str,
) -> Idea {
    Idea { weight, category, moves, why }
}

/// On the usual ranges 0.1 doubles STEP_TOKENS, 0.125 doubles MICRO_ROWS and 0.094 is MATRIX_LR times √2.
const IDEAS: [Idea; 13] = [
    idea(30, "batch", &[("STEP_TOKENS", 0.1)], "A larger batch has less noisy gradients."),
    idea(
        12,
        "batch",
        &[("STEP_TOKENS", 0.1), ("MATRIX_LR", 0.094)],
        "A larger batch, with its learning rate scaled by the square root.",
    ),
    idea(
        8,
        "batch",
        &[("STEP_TOKENS", 0.1), ("MICRO_ROWS", 0.125)],
        "A larger batch in as few passes as before uses the GPU better.",
    ),
    idea(5, "batch", &[("MICRO_ROWS", 0.125)], "More rows at once use the GPU better."),
    idea(5, "batch", &[("STEP_TOKENS", 0.1), ("WARMUP", 0.25)], "A larger batch wants a warm-up."),
    idea(8, "optimizer", &[("MATRIX_LR", 0.06)], "A short run can take a larger learning rate."),
    idea(4, "optimizer", &[("MATRIX_LR", -0.06)], "A smaller learning rate is more stable."),
    idea(
        5,
        "optimizer",
        &[("EMBED_LR", 0.1)],
        "Embeddings see few gradients each and can take larger steps.",
    ),
    idea(3, "optimizer", &[("HEAD_LR", 0.1)], "The head can learn faster."),
    idea(4, "optimizer", &[("MATRIX_DECAY", -0.1)], "A short run does not overfit: less weight decay."),
    idea(6, "schedule", &[("WARMDOWN", 0.11)], "A longer decay ends lower."),
    idea(3, "schedule", &[("WARMUP", 0.1)], "A warm-up makes the first steps safer."),
    idea(7, "architecture", &[("DEPTH", 0.067)], "A deeper model can express more."),
];

/// A plan as the planner's schema wants it, and in it what the edit is to set.
pub(super) fn plan(prompt: &Prompt<'_>, dice: &mut StdRng) -> Result<String, String> {
    let knobs = prompt.knobs()?;
    let refusals = prompt.refusals();
    let obeys = refusals >= PATIENCE || dice.random_bool(OBEDIENCE);
    let advice = if obeys { prompt.advice(&knobs) } else { Advice::default() };
    let (category, why, mut moves) = wish(&knobs, &advice, dice);
    if refusals > 0 {
        vary(&mut moves, &knobs, &advice, dice);
    }
    let to: Vec<(&Knob, String)> = moves
        .iter()
        .filter_map(|(axis, by)| {
            let knob = &knobs[*axis];
            let text = knob.scale.text(knob.scale.position(&knob.text)? + by, &knob.text)?;
            (text != knob.text).then_some((knob, text))
        })
        .collect();
    let said: Vec<String> =
        to.iter().map(|(knob, to)| format!("{} {} → {to}", knob.name, knob.text)).collect();
    let set: Vec<String> = to.iter().map(|(knob, to)| format!("{} = {to}", knob.name)).collect();
    let answer = json!({
        "hypothesis": why,
        "plan": set.join("; "),
        "description": said.join(", "),
        "category": category,
        "expected_delta": if category == "batch" { -0.004 } else { -0.002 },
    });
    Ok(answer.to_string())
}

/// Knobs by their index, with their displacement.
type Moves = Vec<(usize, f64)>;

/// What it would like to try: category, reason, moves.
fn wish(knobs: &[Knob], advice: &Advice, dice: &mut StdRng) -> (&'static str, &'static str, Moves) {
    let axis = |name: &str| knobs.iter().position(|knob| knob.name == name);
    if let Some((name, up)) = advice.moves.choose(dice)
        && let Some(axis) = axis(name)
    {
        // where no direction is said, a batch goes the way that it believes in
        let up = up.unwrap_or_else(|| BATCH.contains(&name.as_str()) || dice.random());
        let by = if up { ADVISED_STEP } else { -ADVISED_STEP };
        return ("advised", "As advised.", vec![(axis, by)]);
    }
    if advice.explore && dice.random() {
        return ("other", "Something that was not tried yet.", aside(knobs, advice, dice));
    }
    let possible: Vec<(&Idea, Moves)> = IDEAS
        .iter()
        .filter(|idea| !advice.unlike.contains(idea.category))
        .filter(|idea| !idea.moves.iter().any(|(name, _)| advice.avoid.contains(*name)))
        .filter_map(|idea| {
            let moves: Option<Moves> = idea.moves.iter().map(|(name, by)| Some((axis(name)?, *by))).collect();
            let moves = moves?;
            // one that stands at its end cannot go on
            let open = |(axis, by): &(usize, f64)| {
                let at = knobs[*axis].scale.position(&knobs[*axis].text).unwrap_or(0.5);
                (0.0..=1.0).contains(&(at + by * 0.5))
            };
            moves.iter().all(open).then_some((idea, moves))
        })
        .collect();
    match possible.choose_weighted(dice, |(idea, _)| idea.weight) {
        Ok((idea, moves)) => (idea.category, idea.why, moves.clone()),
        Err(_) => ("other", "Something else.", aside(knobs, advice, dice)),
    }
}

/// The same idea a little otherwise, so that it is none that was tried: other steps, and a knob beside them.
fn vary(moves: &mut Moves, knobs: &[Knob], advice: &Advice, dice: &mut StdRng) {
    moves.iter_mut().for_each(|(_, by)| *by *= dice.random_range(0.5..1.5));
    for (axis, by) in aside(knobs, advice, dice) {
        if moves.iter().all(|(moved, _)| *moved != axis) {
            moves.push((axis, by));
        }
    }
}

/// A step of any knob but a batch size.
fn aside(knobs: &[Knob], advice: &Advice, dice: &mut StdRng) -> Moves {
    let free: Vec<usize> = (0..knobs.len())
        .filter(|axis| !advice.avoid.contains(&knobs[*axis].name))
        .filter(|axis| !BATCH.contains(&knobs[*axis].name.as_str()))
        .collect();
    let by = dice.random_range(if advice.explore { FAR } else { NEAR });
    free.choose(dice).map(|axis| (*axis, if dice.random() { by } else { -by })).into_iter().collect()
}

/// The edit that the plan of this conversation asks for, as search and replace blocks of one line each.
pub(super) fn edit(prompt: &Prompt<'_>) -> Result<String, String> {
    let plan: Value = serde_json::from_str(prompt.own_words()).map_err(|error| error.to_string())?;
    let set = plan["plan"].as_str().unwrap_or_default();
    let (knobs, files) = (prompt.knobs()?, prompt.files());
    let mut text = "As planned.\n".to_owned();
    for (name, value) in set.split("; ").filter_map(|part| part.split_once(" = ")) {
        let knob = knobs.iter().find(|knob| knob.name == name).ok_or(format!("there is no knob {name}"))?;
        let file =
            files.iter().find(|file| file.path == knob.path).ok_or(format!("no file {}", knob.path))?;
        let start = file.text[..knob.span.start].rfind('\n').map_or(0, |end| end + 1);
        let end = file.text[knob.span.end..].find('\n').map_or(file.text.len(), |end| knob.span.end + end);
        let line = &file.text[start..end];
        let mut new = line.to_owned();
        new.replace_range(knob.span.start - start..knob.span.end - start, value);
        text +=
            &format!("\n{}\n```\n<<<<<<< SEARCH\n{line}\n=======\n{new}\n>>>>>>> REPLACE\n```\n", knob.path);
    }
    Ok(text)
}
