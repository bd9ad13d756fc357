//! The search against landscapes whose optimum is known, through the real verdict.

use std::path::Path;

use proptest::prelude::*;
use rand::RngExt;

use super::{
    scale::{Number, Scale},
    *,
};
use crate::{
    config::Metric,
    journal::{Status, TrialRecord},
    noise::{Noise, Runs, Value},
    proposer::Budget,
    verdict::{Crash, Decision, Outcome, Policy, Rule, Score, Scored, verdict},
};

static METRIC: Metric = Metric { name: String::new(), goal: Goal::Minimize };

/// A task made of one file of knobs; `loss` maps their values to the metric, `None` to a crash.
struct Landscape {
    text: &'static str,
    loss: fn(&[f64]) -> Option<f64>,
    sigma: f64,
}

/// A tag as it grows.
struct Night<'a> {
    landscape: &'a Landscape,
    rng: StdRng,
    champion: String,
    trials: Vec<TrialRecord>,
    standing: Option<(usize, Scored)>,
}

impl<'a> Night<'a> {
    fn new(landscape: &'a Landscape, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ 0x5eed);
        let mut night =
            Self { landscape, rng, champion: landscape.text.to_owned(), trials: Vec::new(), standing: None };
        night.play(Proposal::default());
        night
    }

    fn brief<'b>(&'b self, files: &'b [SourceFile], seed: u64) -> Brief<'b> {
        Brief {
            program: "",
            files,
            profile: None,
            metric: &METRIC,
            trials: &self.trials,
            best: self.standing.as_ref().map(|(index, _)| &self.trials[*index]),
            budget: Budget::default(),
            seed,
            repair: None,
            worktree: Path::new("."),
        }
    }

    fn files(&self) -> Vec<SourceFile> {
        vec![SourceFile { path: "x.py".to_owned(), text: self.champion.clone() }]
    }

    fn truth(&self, text: &str) -> Option<f64> {
        let knobs = marker::find("x.py", text, None).unwrap();
        let values: Vec<f64> = knobs.iter().map(|knob| knob.text.parse().unwrap_or(0.0)).collect();
        (self.landscape.loss)(&values)
    }

    fn run(&mut self, truth: f64) -> Value {
        let (u, v): (f64, f64) = (self.rng.random::<f64>().max(1e-300), self.rng.random());
        let gauss = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        Value::new(truth + self.landscape.sigma * gauss).unwrap()
    }

    /// Scores and judges one proposal as the driver does.
    fn play(&mut self, proposal: Proposal) {
        let text = proposal.edits.first().map_or(self.champion.clone(), |edit| edit.text.clone());
        let policy = Policy {
            rule: if self.landscape.sigma > 0.0 { Rule::Noise } else { Rule::Strict },
            max_replicates: 2,
            ..Policy::default()
        };
        let noise = Noise::stated(self.landscape.sigma);
        let source = TreeHash::of(&BTreeMap::from([("x.py", &text)]));
        let mut trial = match self.truth(&text) {
            Some(truth) => {
                Outcome::Scored(Score { runs: Runs::new(self.run(truth)), lines: 1, memory_gb: 0.0 })
            }
            None => Outcome::Crashed(Crash { outcome: "oom".to_owned(), reason: String::new() }),
        };
        let judged = loop {
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
            trial: number,
            status,
            value: score.map(|score| score.runs.mean()),
            values: score.map_or(vec![], |score| score.runs.values().collect()),
            delta: judged.delta,
            memory_gb: 0.0,
            seconds: 0.0,
            commit: None,
            parent: self.standing.as_ref().map(|(index, _)| self.trials[*index].trial),
            proposer: "knobs".to_owned(),
            proposal: Proposal { edits: vec![], ..proposal },
            source,
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
            self.standing = Some((self.trials.len() - 1, Scored { score, best }));
            self.champion = text;
        }
    }

    /// Plays the knobs proposer up to this many trials; the champion's true loss.
    fn searched(mut self, trials: usize, seed: u64) -> f64 {
        while self.trials.len() < trials {
            let files = self.files();
            let attempt = seed.wrapping_mul(1_000_003) + self.trials.len() as u64;
            let proposal = Knobs.propose(&self.brief(&files, attempt)).unwrap();
            self.play(proposal);
        }
        self.truth(&self.champion).unwrap()
    }

    /// Plays pure random search: every knob anywhere in its range, every time.
    fn random(mut self, trials: usize, seed: u64) -> f64 {
        let mut rng = StdRng::seed_from_u64(seed);
        while self.trials.len() < trials {
            let files = self.files();
            let knobs = super::knobs(&files, None).unwrap();
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

const ONE: &str = "x = 10.0  # knob: lin -20..20\n";
const LOG: &str = "lr = 0.01  # knob: log 0.0001..1\n";
const THREE: &str = "a = 0.5 # knob: log 0.001..1\nb = 12 # knob: int 1..32\nc = 64 # knob: pow2 1..1024\n";
const SIX: &str = "a = 8.0 # knob: lin -10..10\nb = -5.0 # knob: lin -10..10\nc = 1.0 # knob: log 0.01..100\n\
                   d = 9.0 # knob: lin -10..10\ne = 0.0 # knob: lin -10..10\nf = 50.0 # knob: log 0.01..100\n";

fn square(x: f64) -> f64 {
    x * x
}

/// Name, trials, the factor by which the search has to beat random, landscape. Each has its optimum, of loss 0, away from the start.
static LANDSCAPES: [(&str, usize, f64, Landscape); 10] = [
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_search_beats_random_by_a_wide_margin() {
    // Oracle: pure random search through the same verdict, equal trials, 21 seeds, medians of the true loss.
    for (name, trials, margin, landscape) in &LANDSCAPES {
        let seeds = 0..21;
        let search = seeds.clone().map(|seed| Night::new(landscape, seed).searched(*trials, seed)).collect();
        let random = seeds.map(|seed| Night::new(landscape, seed).random(*trials, seed)).collect();
        let (search, random) = (median(search), median(random));
        println!("{name}: search {search:.4}, random {random:.4}");
        assert!(
            search * margin <= random,
            "{name}: search {search}, random {random}, wanted {margin} times less"
        );
    }
}

#[test]
fn the_same_brief_gives_the_same_proposal() {
    for (_, _, _, landscape) in &LANDSCAPES {
        let mut night = Night::new(landscape, 3);
        for seed in 0..25 {
            let files = night.files();
            let first = Knobs.propose(&night.brief(&files, seed)).unwrap();
            assert_eq!(first, Knobs.propose(&night.brief(&files, seed)).unwrap());
            night.play(first);
        }
    }
}

#[test]
fn proposals_stay_in_range_are_new_and_say_what_they_do() {
    for (name, _, _, landscape) in &LANDSCAPES {
        let mut night = Night::new(landscape, 5);
        for seed in 0..80 {
            let files = night.files();
            let proposal = Knobs.propose(&night.brief(&files, seed)).unwrap();
            let text = &proposal.edits[0].text;
            let (before, after) =
                (super::knobs(&files, None).unwrap(), marker::find("x.py", text, None).unwrap());
            let source = TreeHash::of(&BTreeMap::from([("x.py", text)]));
            assert!(night.trials.iter().all(|trial| trial.source != source), "{name}: tried twice: {text}");
            for (old, new) in before.iter().zip(&after) {
                let (Scale::Log(lo, hi) | Scale::Lin(lo, hi) | Scale::Int(lo, hi)) = old.scale else {
                    continue;
                };
                let value: f64 = new.text.parse().unwrap();
                assert!((lo..=hi).contains(&value), "{name}: {} = {value}", new.name);
                let whole = |text: &str| !text.contains(['.', 'e']);
                assert_eq!(whole(&old.text), whole(&new.text), "{name}: {} became {}", old.text, new.text);
            }
            let change = &proposal.changes[0];
            let words = format!("{} {} → {}", change.name, change.from, change.to);
            assert!(proposal.description.starts_with(&words) && !proposal.hypothesis.is_empty());
            assert!(proposal.category.split('+').any(|name| name == change.name));
            // Everything but the values is as it was.
            let skeleton = |text: &str| text.split(|c: char| "0123456789.e-".contains(c)).collect::<String>();
            assert_eq!(skeleton(&files[0].text), skeleton(text));
            night.play(proposal);
        }
    }
}

#[test]
fn an_exhausted_space_says_so_after_every_place_was_tried() {
    let landscape = Landscape {
        text: "a = relu  # knob: choice relu|gelu|tanh\nb = 4 # knob: pow2 1..8\nc = 1 # knob: int 0..2\n",
        loss: |x| (x[1] < 8.0).then(|| square(x[1] - 2.0) + x[2]),
        sigma: 0.0,
    };
    let mut night = Night::new(&landscape, 1);
    for seed in 0..3 * 4 * 3 - 1 {
        let files = night.files();
        let proposal = Knobs.propose(&night.brief(&files, seed)).unwrap();
        night.play(proposal);
    }
    let files = night.files();
    let end = Knobs.propose(&night.brief(&files, 99)).unwrap_err();
    assert!(matches!(end, ProposeError::Exhausted(_)), "{end}");
    assert_eq!(night.truth(&night.champion), Some(0.0));
}

#[test]
fn crashed_regions_are_avoided() {
    let (_, trials, _, landscape) = &LANDSCAPES[7];
    // Oracle: half of the range of `b` crashes, so that random search crashes in about four of ten trials.
    let crashes: usize = (0..21)
        .map(|seed| {
            let mut night = Night::new(landscape, seed);
            while night.trials.len() < *trials {
                let files = night.files();
                let proposal =
                    Knobs.propose(&night.brief(&files, seed * 1_000 + night.trials.len() as u64)).unwrap();
                night.play(proposal);
            }
            night.trials.iter().filter(|trial| trial.status == Status::Crash).count()
        })
        .sum();
    assert!(crashes < 21 * trials / 8, "{crashes} crashes in {} trials", 21 * trials);
}

#[test]
fn a_keep_is_followed_the_same_way_and_a_first_expectation_is_none() {
    let landscape = Landscape { text: ONE, loss: |x| Some(square(x[0] + 15.0)), sigma: 0.0 };
    let mut night = Night::new(&landscape, 0);
    let mut last: Option<(f64, f64)> = None;
    for seed in 0..6 {
        let files = night.files();
        let proposal = Knobs.propose(&night.brief(&files, seed)).unwrap();
        if seed == 0 {
            assert_eq!(proposal.expected_delta, None);
        } else {
            assert!(proposal.expected_delta.unwrap() <= 0.0, "a proposal expects no loss when minimising");
        }
        let change = &proposal.changes[0];
        let (from, to): (f64, f64) = (change.from.parse().unwrap(), change.to.parse().unwrap());
        if let (Some((old, new)), Status::Keep) = (last, night.trials.last().unwrap().status)
            && new > -14.0
        {
            assert!(to < from && from == new && new < old, "{old} → {new} was kept, then {from} → {to}");
        }
        last = Some((from, to));
        night.play(proposal);
    }
}

#[test]
fn a_file_without_knobs_or_with_a_bad_one_is_no_loop() {
    let landscape = Landscape { text: "x = 1\n", loss: |_| Some(0.0), sigma: 0.0 };
    let night = Night::new(&landscape, 0);
    let propose = |text: &str| {
        let files = [SourceFile { path: "cand/x.py".to_owned(), text: text.to_owned() }];
        Knobs.propose(&night.brief(&files, 0)).unwrap_err().to_string()
    };
    assert!(propose("x = 1\n").contains("no editable file marks a knob; write"));
    assert!(propose("\nx = 1 # knob: lin\n").starts_with("cand/x.py:2: knob: "));
}

#[test]
fn knobs_of_one_name_are_told_apart() {
    let files = ["a/x.py", "b/x.py"].map(|path| SourceFile {
        path: path.to_owned(),
        text: "[one]\nlr = 1 # knob: int 1..4\n[two]\nlr = 2 # knob: int 1..4\n".to_owned(),
    });
    let found = super::knobs(&files, None).unwrap();
    let names: Vec<&str> = found.iter().map(|knob| knob.name.as_str()).collect();
    assert_eq!(names, ["lr", "lr#2", "lr#3", "lr#4"]);
    let new = edited(&files[1], &found, &[(1, "9".to_owned()), (2, "3".to_owned()), (3, "44".to_owned())]);
    assert_eq!(new, "[one]\nlr = 3 # knob: int 1..4\n[two]\nlr = 44 # knob: int 1..4\n");
}

#[test]
fn every_marker_of_the_shipped_contestant_can_be_followed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../train/src");
    let files: Vec<SourceFile> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| SourceFile {
            path: path.file_name().unwrap().to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        })
        .collect();
    let markers =
        files.iter().flat_map(|file| file.text.lines()).filter(|line| line.contains("; // knob:")).count();
    for profile in ["full", "laptop", "smoke"] {
        let knobs = super::knobs(&files, Some(profile)).unwrap();
        assert!(knobs.len() > 10 && knobs.len() + 1 >= markers, "{} knobs, {markers} markers", knobs.len());
        for knob in knobs {
            for by in [-0.15, 0.15] {
                if let Some(text) = knob.scale.moved(&knob.text, by) {
                    knob.scale.check(&text).unwrap_or_else(|why| panic!("{}: {why}", knob.name));
                    assert_ne!(text, knob.text);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_written_value_reads_back_and_writes_the_same(
        position in 0.0..=1.0f64, kind in 0usize..7, exponent in -12..12i32, span in 1.01..1e6f64,
    ) {
        let lo = 10f64.powi(exponent);
        let (scale, like) = match kind {
            0 => (Scale::Log(lo, lo * span), "0.5"),
            1 => (Scale::Lin(-lo, lo * span), "1e-3"),
            2 => (Scale::Lin(-20.0, 20.0), "1_000"),
            3 => (Scale::Int(-3.0, 1e6), "8_192usize"),
            4 => (Scale::Pow2(0, 40), "1 << 19"),
            5 => (Scale::Log(1.0, 1e6), "64"),
            _ => (Scale::Log(lo, lo * span), "2.0f32"),
        };
        let text = scale.text(position, like).unwrap();
        prop_assert!(scale.check(&text).is_ok(), "{}", text);
        let back = scale.position(&text).unwrap();
        prop_assert!((0.0..=1.0).contains(&back));
        prop_assert_eq!(scale.text(back, like).unwrap(), text.clone(), "from {}", back);
        prop_assert!((back - position).abs() < 0.51 || kind == 5, "{} far from {}", back, position);
        let number = |text: &str| Number::parse(text).unwrap();
        prop_assert_eq!(text.contains(['.', 'e']), like.contains(['.', 'e']), "{} like {}", text, like);
        prop_assert!(text.ends_with(like.trim_start_matches(|c: char| "0123456789.e-_< ".contains(c))));
        prop_assert!(text.len() <= 24, "{} has more digits than a person would type", number(&text).value);
    }
}
