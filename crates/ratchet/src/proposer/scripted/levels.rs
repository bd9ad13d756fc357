//! What the script answers when it is asked about the search itself: rules on the evidence, and no insight.
//!
//! Its settings look at knobs and not at directions, as a proposer that believes in one direction does: a knob that
//! failed when raised is frozen, and nobody lowers it. Its mechanisms are those that ship, which stand in for ones that
//! a model would write; it picks by what the evidence shows, and selects none once all of them are known.

use ::llm::Turn;
use mechanism::{BUILTIN, Hook};
use serde::Serialize;

use super::prompt::Prompt;
use crate::search::{
    Strategy,
    evidence::{Evidence, KnobEvidence},
    research::answers::{Assessment, Critique, Exploration, Hypothesis, Part, Specification},
    settings::Answer,
};

/// Failures without a keep after which a knob is frozen.
const FAILURES: u64 = 3;
/// Trials without a keep after which all is free again.
const PLATEAU: u64 = 6;
/// Knobs that a guidance names.
const NAMED: usize = 5;
/// The impact from which on a mechanism is worth its trials.
const WORTHWHILE: f64 = 3.0;

/// Settings: freezes what failed, follows what was kept, and on a plateau frees and explores.
pub(super) fn settings(prompt: &Prompt<'_>) -> Result<String, String> {
    let evidence = prompt.evidence()?;
    let tried = |knob: &KnobEvidence| knob.up.tried + knob.down.tried;
    let kept = |knob: &KnobEvidence| knob.up.kept + knob.down.kept;
    let names = |wanted: &dyn Fn(&KnobEvidence) -> bool| -> Vec<String> {
        evidence.knobs.iter().filter(|knob| wanted(knob)).map(|knob| knob.name.clone()).collect()
    };
    let stuck = evidence.plateau >= PLATEAU;
    let failed = names(&|knob| tried(knob) >= FAILURES && kept(knob) == 0 && !knob.frozen);
    let mut good = names(&|knob| kept(knob) > 0);
    let mut never = names(&|knob| tried(knob) == 0);
    let diagnosis = match stuck {
        true => format!("No keep for {} trials.", evidence.plateau),
        false if failed.is_empty() => "Too early to say.".to_owned(),
        false => format!("Moved again and again and never kept: {}.", failed.join(", ")),
    };
    good.truncate(NAMED);
    never.truncate(NAMED);
    let mut guidance = Vec::new();
    if !good.is_empty() {
        guidance.push(format!("What was kept moved {}: go on there.", good.join(", ")));
    }
    if !never.is_empty() {
        guidance.push(format!("Never moved: {}.", never.join(", ")));
    }
    let strategy = match (stuck, good.is_empty()) {
        (true, _) => Strategy::Explore,
        (false, false) => Strategy::Exploit,
        (false, true) => Strategy::Focused,
    };
    json(&Answer {
        diagnosis,
        strategy,
        freeze: if stuck { Vec::new() } else { failed },
        unfreeze: if stuck { evidence.settings.frozen.iter().cloned().collect() } else { Vec::new() },
        guidance: (!guidance.is_empty()).then(|| guidance.join("\n")),
    })
}

/// Hypotheses: the mechanisms that are not known yet; all of them, where there is no other.
pub(super) fn explore(prompt: &Prompt<'_>) -> Result<String, String> {
    let evidence = prompt.evidence()?;
    let hypothesis = |idea: &Idea| Hypothesis {
        domain: idea.domain.to_owned(),
        mechanism: idea.claim(),
        target: idea.target.to_owned(),
        complexity: format!("{} of 10; the hooks {}", idea.complexity, words(idea.hooks)),
        risk: idea.risk.to_owned(),
    };
    json(&Exploration { hypotheses: ideas(&evidence).map(hypothesis).collect() })
}

/// A judgment of each: how much of the evidence speaks for it.
pub(super) fn critique(prompt: &Prompt<'_>) -> Result<String, String> {
    let evidence = prompt.evidence()?;
    let assessment = |(number, idea): (u64, &Idea)| {
        let impact = (idea.impact)(&evidence).clamp(1.0, 10.0);
        Assessment {
            hypothesis: number,
            objection: idea.risk.to_owned(),
            impact,
            feasibility: idea.feasibility,
            complexity: idea.complexity,
            pursue: !is_known(&evidence, idea) && impact >= WORTHWHILE,
        }
    };
    json(&Critique { assessments: (1..).zip(ideas(&evidence)).map(assessment).collect() })
}

/// The one that was chosen, in the words of its table.
pub(super) fn specify(prompt: &Prompt<'_>) -> Result<String, String> {
    let asked = prompt.0.turns.last().map_or("", Turn::text);
    let idea =
        IDEAS.iter().find(|idea| asked.contains(&idea.claim())).ok_or("the mechanism is none of its own")?;
    json(&Specification {
        name: idea.name.to_owned(),
        hooks: idea.hooks.iter().map(|hook| Part { hook: *hook, does: idea.does.to_owned() }).collect(),
        state: "What `record` returns, if anything.".to_owned(),
        pseudocode: idea.does.to_owned(),
        evidence: "More gain a minute in the trials with it on than in those with it off.".to_owned(),
    })
}

/// The script that ships under the specification's name.
pub(super) fn generate(prompt: &Prompt<'_>) -> Result<String, String> {
    let asked = prompt.0.turns.last().map_or("", Turn::text);
    let named = |name: &str| asked.contains(&format!("The specification of {name}:"));
    let builtin =
        BUILTIN.iter().find(|builtin| named(builtin.name)).ok_or("the mechanism is none that ships")?;
    Ok(format!("```rhai\n{}\n```\n", builtin.script.trim_end()))
}

/// A mechanism that ships, as somebody would argue for it.
struct Idea {
    name: &'static str,
    domain: &'static str,
    does: &'static str,
    target: &'static str,
    risk: &'static str,
    hooks: &'static [Hook],
    feasibility: f64,
    complexity: f64,
    /// How much there is of what it is aimed at, about 1 to 10.
    impact: fn(&Evidence) -> f64,
}

impl Idea {
    fn claim(&self) -> String {
        format!("{}: {}", self.name, self.does)
    }
}

const IDEAS: [Idea; 6] = [
    Idea {
        name: "tabu",
        domain: "tabu search",
        does: "A direction of a knob that failed twice of late is refused for a while.",
        target: "The same move made again and again.",
        risk: "A direction may have failed by chance.",
        hooks: &[Hook::Veto],
        feasibility: 9.0,
        complexity: 3.0,
        impact: |evidence| {
            directions(evidence).filter(|d| d.kept == 0).map(|d| d.tried).max().unwrap_or(0) as f64
        },
    },
    Idea {
        name: "orthogonal",
        domain: "design of experiments",
        does: "On a plateau one knob goes where it was tried least, each down and up.",
        target: "Directions that nobody has tried.",
        risk: "Most directions lead nowhere, and each costs a trial.",
        hooks: &[Hook::Suggest],
        feasibility: 9.0,
        complexity: 4.0,
        impact: |evidence| {
            let untried = directions(evidence).filter(|direction| direction.tried == 0).count() as f64;
            10.0 * untried / (2 * evidence.knobs.len()).max(1) as f64
        },
    },
    Idea {
        name: "crash-memory",
        domain: "animals that avoid what made them ill",
        does: "Beyond a place that crashed nothing is tried again.",
        target: "Crashes with one cause.",
        risk: "What crashed once may run after another change.",
        hooks: &[Hook::Veto],
        feasibility: 9.0,
        complexity: 3.0,
        impact: |evidence| 1.5 * evidence.trials.crashed as f64,
    },
    Idea {
        name: "step-size",
        domain: "evolution strategies",
        does: "Each knob's step grows by success and shrinks by failure; a keep is followed once.",
        target: "Keeps that nobody has followed up.",
        risk: "With few keeps there is nothing to follow.",
        hooks: &[Hook::Suggest],
        feasibility: 6.0,
        complexity: 4.0,
        impact: |evidence| 1.5 * evidence.trials.kept as f64,
    },
    Idea {
        name: "bandit",
        domain: "multi-armed bandits",
        does: "An arm is a knob, a direction and a step; each trial's gain is booked on its arm, the best draw is pulled.",
        target: "Trials spent on what has never paid.",
        risk: "There are more arms than trials.",
        hooks: &[Hook::Suggest],
        feasibility: 7.0,
        complexity: 7.0,
        impact: |evidence| 4.0 + evidence.plateau as f64 / 4.0,
    },
    Idea {
        name: "plateau",
        domain: "foraging",
        does: "On a plateau the proposer is told what was never moved, and an excursion starts far away.",
        target: "A plateau.",
        risk: "It only talks.",
        hooks: &[Hook::Guide],
        feasibility: 5.0,
        complexity: 4.0,
        impact: |evidence| evidence.plateau as f64 / 3.0,
    },
];

/// Those that are not known yet; all of them, where every one is.
fn ideas(evidence: &Evidence) -> impl Iterator<Item = &'static Idea> {
    let all_known = IDEAS.iter().all(|idea| is_known(evidence, idea));
    let new: Vec<&Idea> = IDEAS.iter().filter(|idea| all_known || !is_known(evidence, idea)).collect();
    new.into_iter()
}

fn is_known(evidence: &Evidence, idea: &Idea) -> bool {
    evidence.mechanisms.iter().any(|known| known.name == idea.name)
}

/// Every knob upwards and downwards.
fn directions(evidence: &Evidence) -> impl Iterator<Item = crate::search::evidence::Tally> {
    evidence.knobs.iter().flat_map(|knob| [knob.up, knob.down])
}

fn words(hooks: &[Hook]) -> String {
    hooks.iter().map(|hook| hook.name()).collect::<Vec<_>>().join(", ")
}

fn json(answer: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(answer).map_err(|error| error.to_string())
}
