//! A night played in memory: landscapes whose optimum is known, judged by the real verdict.

use std::{collections::BTreeMap, path::Path};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::super::{Knobs, edited, knobs, marker};
use crate::{
    config::{Goal, Metric},
    journal::{Status, TrialRecord},
    noise::{Noise, Runs, Value},
    proposer::{Brief, Budget, Demand, Edit, Proposal, Proposer, SourceFile, Start},
    risk::Risk,
    source::TreeHash,
    verdict::{Crash, Decision, IMPROVED, Outcome, Policy, Rule, Score, Scored, verdict},
};

static DEMAND: Demand = Demand {
    hint: None,
    hint_id: None,
    unlike: Vec::new(),
    structural: false,
    strategy: None,
    frozen: Vec::new(),
    guidance: Vec::new(),
};
static METRIC: Metric = Metric { name: String::new(), goal: Goal::Minimize };

/// A task made of one file of knobs; `loss` maps their values to the metric, `None` to a crash.
pub(super) struct Landscape {
    pub(super) text: &'static str,
    pub(super) loss: fn(&[f64]) -> Option<f64>,
    pub(super) sigma: f64,
}

/// A tag as it grows.
pub(super) struct Night<'a> {
    pub(super) landscape: &'a Landscape,
    pub(super) rng: StdRng,
    pub(super) champion: String,
    pub(super) trials: Vec<TrialRecord>,
    standing: Option<(usize, Scored)>,
    risk: Risk,
}

impl<'a> Night<'a> {
    pub(super) fn new(landscape: &'a Landscape, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ 0x5eed);
        let mut night = Self {
            landscape,
            rng,
            champion: landscape.text.to_owned(),
            trials: Vec::new(),
            standing: None,
            risk: Risk::default(),
        };
        night.play(Proposal::default());
        night
    }

    pub(super) fn brief<'b>(&'b self, files: &'b [SourceFile], seed: u64) -> Brief<'b> {
        Brief {
            program: "",
            files,
            profile: None,
            metric: &METRIC,
            trials: &self.trials,
            before_restart: 0,
            start: Start::Champion,
            demand: &DEMAND,
            running: None,
            pages: &[],
            in_vain: &[],
            records: Path::new("/nowhere"),
            best: self.standing.as_ref().map(|(index, _)| &self.trials[*index]),
            budget: Budget::default(),
            seed,
            repair: None,
            worktree: Path::new("."),
        }
    }

    pub(super) fn files(&self) -> Vec<SourceFile> {
        vec![SourceFile { path: "x.py".to_owned(), text: self.champion.clone() }]
    }

    pub(super) fn truth(&self, text: &str) -> Option<f64> {
        let knobs = marker::find("x.py", text, None).unwrap();
        let values: Vec<f64> = knobs.iter().map(|knob| knob.text.parse().unwrap_or(0.0)).collect();
        (self.landscape.loss)(&values)
    }

    pub(super) fn run(&mut self, truth: f64) -> Value {
        let (u, v): (f64, f64) = (self.rng.random::<f64>().max(1e-300), self.rng.random());
        let gauss = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        Value::new(truth + self.landscape.sigma * gauss).unwrap()
    }

    /// Scores and judges one proposal as the driver does.
    pub(super) fn play(&mut self, proposal: Proposal) {
        let text = proposal.edits.first().map_or(self.champion.clone(), |edit| edit.text.clone());
        let policy = Policy {
            rule: if self.landscape.sigma > 0.0 { Rule::Noise } else { Rule::Strict },
            max_replicates: 2,
            carry: false,
            ..Policy::default()
        };
        let noise = Noise::stated(self.landscape.sigma);
        let source = TreeHash::of(&BTreeMap::from([("x.py", &text)]));
        let mut trial = match self.truth(&text) {
            Some(truth) => Outcome::Scored(Score {
                runs: Runs::new(self.run(truth)),
                lines: 1,
                memory_gb: 0.0,
                sampling: 0.0,
            }),
            None => Outcome::Crashed(Crash { outcome: "oom".to_owned(), reason: String::new() }),
        };
        let judged = loop {
            if let Some((_, standing)) = &mut self.standing {
                standing.risk = self.risk;
            }
            let judged = verdict(self.standing.as_ref().map(|(_, scored)| scored), &trial, &noise, &policy);
            let Decision::Replicate(runs) = judged.decision else { break judged };
            let (candidate, champion) = (self.truth(&text).unwrap(), self.truth(&self.champion).unwrap());
            let Outcome::Scored(score) = &mut trial else { unreachable!("a crash is not replicated") };
            while score.runs.count() < runs {
                let value = self.run(candidate);
                score.runs.push(value);
            }
            let (index, mut standing) = self.standing.take().expect("a champion to compare with");
            while standing.score.runs.count() < runs {
                standing.score.runs.push(self.run(champion));
            }
            self.trials[index].value = Some(standing.score.runs.mean());
            self.standing = Some((index, standing));
        };
        if judged.level > 0.0 {
            self.risk = self.risk.after(judged.level, judged.outcome == IMPROVED);
        }
        let risk = self.risk;
        let status = match judged.decision {
            Decision::Keep => Status::Keep,
            Decision::Crash => Status::Crash,
            _ => Status::Discard,
        };
        let number = self.trials.len() as u64 + 1;
        let score = match &trial {
            Outcome::Scored(score) => Some(score),
            Outcome::Crashed(_) => None,
        };
        self.trials.push(TrialRecord {
            phases: Vec::new(),
            excursion: None,
            ahead: false,
            program: None,
            class: None,
            demand: Demand::default(),
            uses: Vec::new(),
            trial: number,
            status,
            value: score.map(|score| score.runs.mean()),
            values: score.map_or(vec![], |score| score.runs.values().collect()),
            delta: judged.delta,
            memory_gb: 0.0,
            seconds: 0.0,
            commit: None,
            parent: self.standing.as_ref().map(|(index, _)| self.trials[*index].trial),
            carries: None,
            proposer: "knobs".to_owned(),
            proposal: Proposal { edits: vec![], ..proposal },
            source,
            files: Vec::new(),
            lines: 1,
            tokens_m: None,
            mfu_percent: None,
            verdict: judged,
            ended: String::new(),
        });
        if status == Status::Keep {
            let score = score.unwrap().clone();
            let best = self.standing.as_ref().map_or(f64::INFINITY, |(_, scored)| scored.best);
            let best = best.min(score.runs.mean());
            self.standing = Some((self.trials.len() - 1, Scored { score, best, risk, lead: None }));
            self.champion = text;
        }
    }

    /// Plays the knobs proposer up to this many trials; the champion's true loss.
    pub(super) fn searched(self, trials: usize, seed: u64) -> f64 {
        self.searched_by(&mut Knobs, trials, seed)
    }

    /// The same with another proposer.
    pub(super) fn searched_by(mut self, proposer: &mut dyn Proposer, trials: usize, seed: u64) -> f64 {
        while self.trials.len() < trials {
            let files = self.files();
            let attempt = seed.wrapping_mul(1_000_003) + self.trials.len() as u64;
            let proposal = proposer.propose(&self.brief(&files, attempt)).unwrap();
            self.play(proposal);
        }
        self.truth(&self.champion).unwrap()
    }

    /// Plays pure random search: every knob anywhere in its range, every time.
    pub(super) fn random(mut self, trials: usize, seed: u64) -> f64 {
        let mut rng = StdRng::seed_from_u64(seed);
        while self.trials.len() < trials {
            let files = self.files();
            let knobs = knobs(&files, None).unwrap();
            let to: Vec<(usize, String)> = (knobs.iter().enumerate())
                .map(|(axis, knob)| (axis, knob.scale.text(rng.random(), &knob.text).unwrap()))
                .collect();
            let text = edited(&files[0], &knobs, &to);
            self.play(Proposal {
                edits: vec![Edit { path: "x.py".to_owned(), text }],
                ..Proposal::default()
            });
        }
        self.truth(&self.champion).unwrap()
    }
}

pub(super) const ONE: &str = "x = 10.0  # knob: lin -20..20\n";
const LOG: &str = "lr = 0.01  # knob: log 0.0001..1\n";
const THREE: &str = "a = 0.5 # knob: log 0.001..1\nb = 12 # knob: int 1..32\nc = 64 # knob: pow2 1..1024\n";
const SIX: &str = "a = 8.0 # knob: lin -10..10\nb = -5.0 # knob: lin -10..10\nc = 1.0 # knob: log 0.01..100\n\
                   d = 9.0 # knob: lin -10..10\ne = 0.0 # knob: lin -10..10\nf = 50.0 # knob: log 0.01..100\n";

pub(super) fn square(x: f64) -> f64 {
    x * x
}

/// Name, trials, the factor by which the search has to beat random, landscape. Each has its optimum, of loss 0, away from the start.
pub(super) static LANDSCAPES: [(&str, usize, f64, Landscape); 10] = [
    ("one", 15, 100.0, Landscape { text: ONE, loss: |x| Some(square(x[0] - 3.0)), sigma: 0.0 }),
    ("one, noisy", 30, 1.0, Landscape { text: ONE, loss: |x| Some(square(x[0] - 3.0)), sigma: 2.0 }),
    ("log", 20, 20.0, Landscape { text: LOG, loss: |x| Some(square((x[0] / 0.13).ln())), sigma: 0.1 }),
    (
        "mixed scales",
        40,
        10.0,
        Landscape {
            text: THREE,
            loss: |x| {
                Some(square((x[0] / 0.02).ln()) + square((x[1] - 5.0) / 8.0) + square(x[2].log2() - 8.0))
            },
            sigma: 0.0,
        },
    ),
    (
        "ill-conditioned",
        60,
        100.0,
        Landscape {
            text: SIX,
            loss: |x| {
                Some(
                    100.0 * square(x[0] - 1.0)
                        + 30.0 * square(x[1] - 2.0)
                        + 10.0 * square((x[2] / 5.0).ln())
                        + 3.0 * square(x[3])
                        + square(x[4] + 4.0)
                        + 0.3 * square(x[5].ln()),
                )
            },
            sigma: 0.0,
        },
    ),
    (
        "ill-conditioned, noisy",
        80,
        5.0,
        Landscape {
            text: SIX,
            loss: |x| {
                Some(
                    10.0 * square(x[0] - 1.0)
                        + 3.0 * square(x[1] - 2.0)
                        + 3.0 * square((x[2] / 5.0).ln())
                        + square(x[3])
                        + square(x[4] + 4.0)
                        + 0.3 * square(x[5].ln()),
                )
            },
            sigma: 5.0,
        },
    ),
    (
        "a narrow diagonal valley",
        60,
        100.0,
        Landscape {
            text: "a = 8.0 # knob: lin -10..10\nb = 8.0 # knob: lin -10..10\n",
            loss: |x| Some(50.0 * square(x[0] - x[1]) + square(x[0] + x[1])),
            sigma: 0.0,
        },
    ),
    (
        "a crash ridge beside the optimum",
        40,
        50.0,
        Landscape {
            text: "a = 0.5 # knob: log 0.001..1\nb = 4 # knob: pow2 1..1024\n",
            loss: |x| {
                let (a, b) = (x[0].ln(), x[1].log2());
                // Out of memory from 2^7 on; the best is 2^6.
                (b < 7.0).then(|| square(a - 0.02f64.ln()) + square(b - 6.0))
            },
            sigma: 0.05,
        },
    ),
    (
        "kinks, no parabola anywhere",
        100,
        2.0,
        Landscape {
            text: "a = 8.0 # knob: lin -10..10\nb = -9.0 # knob: lin -10..10\nc = 0.5 # knob: log 0.001..1\nd = 30 # knob: int 0..40\n",
            loss: |x| {
                Some(
                    (x[0] + 2.0).abs()
                        + 2.0 * (x[1] - x[0]).abs()
                        + (x[2] / 0.02).ln().abs()
                        + 0.2 * (x[3] - 11.0).abs(),
                )
            },
            sigma: 0.0,
        },
    ),
    (
        "ripples with many bottoms",
        60,
        10.0,
        Landscape {
            text: "a = 8.0 # knob: lin -10..10\nb = -9.0 # knob: lin -10..10\n",
            loss: |x| {
                Some(x.iter().map(|x| square(x - 1.0) / 5.0 + 2.0 - 2.0 * (2.0 * (x - 1.0)).cos()).sum())
            },
            sigma: 0.0,
        },
    ),
];

/// A smooth landscape with a choice in it, which shifts the rest.
pub(super) static CHOICE: (&str, usize, f64, Landscape) = (
    "a choice",
    40,
    1.5,
    Landscape {
        text: "a = 8.0 # knob: lin -10..10\nb = 1 # knob: choice 1|2|3|4|5\nc = -9.0 # knob: lin -10..10\n",
        loss: |x| Some(square(x[0] + 2.0) + square(x[2] - 3.0) + 30.0 * (x[1] - 4.0).abs()),
        sigma: 0.0,
    },
);

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
