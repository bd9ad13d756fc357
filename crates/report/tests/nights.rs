//! Nights to look at and to test with: one as it comes, and one that means harm.

use report::Night;
use report::night::{Brief, Calibration, Gate, Headline, Kind, Lesson, Mechanism, Status, ToRead, Trial};

/// Texts that have broken pages elsewhere.
pub(crate) const HOSTILE: [&str; 14] = [
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=alert(1)>' onmouseover='x",
    "</title></style></details></table></pre><h1>owned</h1>",
    "<!-- <![CDATA[ ]]> --> &amp; &#x3c; &lt;",
    "right to left \u{202e}txet desrever\u{2066} never closed",
    "שלום עולם مرحبا بالعالم",
    "a\u{0}b\u{7}c\u{1b}[31mred\u{1b}[0m\rback\u{8}\u{85}\u{9b}",
    "\u{301}\u{301}lone marks, z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}algo",
    "zero\u{200b}width\u{feff} joined\u{200d} \u{e0041}\u{e0042} tags \u{ffff}",
    "javascript:alert(1) {{7*7}} ${7*7} %s %n `id` $(id)",
    "日本語の説明 🚀👩‍🚀 ﷽",
    "=HYPERLINK(\"http://127.0.0.1/\") | a\tb\nsecond line\u{2028}third",
    "x",
];

/// A small generator, so that a night is the same everywhere.
pub(crate) struct Chance(u64);

impl Chance {
    /// Starts at `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Uniform in 0..1.
    pub(crate) fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, mean 0 and deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[(self.part() * list.len() as f64) as usize]
    }
}

/// (description, hypothesis, category, class, file, before, after)
type Edit =
    (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const EDITS: [Edit; 14] = [
    (
        "raise the matrix learning rate to 0.05",
        "Muon's updates are orthogonal, so a larger step is safe at this depth.",
        "optimiser",
        "constant",
        "train/src/optim.rs",
        "    pub const MATRIX_LR: f64 = 0.04; // knob: log 0.005..0.2; Muon",
        "    pub const MATRIX_LR: f64 = 0.05; // knob: log 0.005..0.2; Muon",
    ),
    (
        "longer warmdown, 0.5 to 0.65 of the budget",
        "Loss falls fastest while the rate decays; more of the budget should be spent there.",
        "schedule",
        "constant",
        "train/src/optim.rs",
        "    pub const WARMDOWN: f64 = 0.5; // knob: lin 0.1..1.0",
        "    pub const WARMDOWN: f64 = 0.65; // knob: lin 0.1..1.0",
    ),
    (
        "squared ReLU in place of GELU",
        "Sparser activations, and cheaper to compute, so more tokens in the budget.",
        "activation",
        "local",
        "train/src/model.rs",
        "        let hidden = hidden.gelu()?;",
        "        let hidden = hidden.relu()?.sqr()?;",
    ),
    (
        "normalise queries and keys before attention",
        "Logits stay bounded, so the learning rate can be higher later.",
        "attention",
        "local",
        "train/src/model.rs",
        "        let (q, k) = (rope(&q, cos, sin)?, rope(&k, cos, sin)?);",
        "        let (q, k) = (norm(&rope(&q, cos, sin)?)?, norm(&rope(&k, cos, sin)?)?);",
    ),
    (
        "value embeddings on every other layer",
        "They carry token identity past attention at next to no cost.",
        "architecture",
        "structural",
        "train/src/model.rs",
        "            let v = self.value.forward(&x)?;",
        "            let v = (self.value.forward(&x)? + self.gate.mix(&embedded)?)?;",
    ),
    (
        "batch of 2^18 tokens instead of 2^19",
        "Twice the steps; at this scale noise of the gradient is not what limits.",
        "batch",
        "constant",
        "train/src/main.rs",
        "    pub const BATCH_TOKENS: usize = 1 << 19; // knob: pow2",
        "    pub const BATCH_TOKENS: usize = 1 << 18; // knob: pow2",
    ),
    (
        "depth 9 with the same width",
        "Deeper models of this size are still under-parameterised for the tokens seen.",
        "architecture",
        "structural",
        "train/src/model.rs",
        "    pub const DEPTH: usize = 8;",
        "    pub const DEPTH: usize = 9;",
    ),
    (
        "weight decay falls with the learning rate",
        "Late decay pulls weights away from where the schedule has settled.",
        "regularisation",
        "local",
        "train/src/optim.rs",
        "        let decay = MATRIX_DECAY;",
        "        let decay = MATRIX_DECAY * lr_scale(progress);",
    ),
    (
        "untie the output head",
        "Embedding and head want different scales under different rates.",
        "architecture",
        "structural",
        "train/src/model.rs",
        "        let logits = x.matmul(&self.embed.weight.t()?)?;",
        "        let logits = self.head.forward(&x)?;",
    ),
    (
        "soft cap of logits at 15 instead of 30",
        "Keeps the tail of confident errors short.",
        "loss",
        "constant",
        "train/src/model.rs",
        "    pub const SOFTCAP: f64 = 30.0;",
        "    pub const SOFTCAP: f64 = 15.0;",
    ),
    (
        "momentum ramp over 150 steps",
        "Half as many steps in the budget as the ramp was tuned for.",
        "optimiser",
        "constant",
        "train/src/optim.rs",
        "    pub const MOMENTUM_RAMP: usize = 300; // knob: int 1..1000; steps",
        "    pub const MOMENTUM_RAMP: usize = 150; // knob: int 1..1000; steps",
    ),
    (
        "remove the unused bias path",
        "Nothing reads it since the projections lost their biases.",
        "simplification",
        "local",
        "train/src/model.rs",
        "        let x = x.broadcast_add(&self.bias)?;",
        "        // projections have no bias",
    ),
    (
        "head dimension 64 instead of 128",
        "More heads attend to more places; the arithmetic stays the same.",
        "attention",
        "constant",
        "train/src/model.rs",
        "    pub const HEAD_DIM: usize = 128;",
        "    pub const HEAD_DIM: usize = 64;",
    ),
    (
        "short attention windows on the first four layers",
        "Early layers look near; the time saved buys tokens.",
        "attention",
        "structural",
        "train/src/model.rs",
        "            let window = self.context;",
        "            let window = if layer < 4 { self.context / 4 } else { self.context };",
    ),
];

/// A night of 94 trials, all of it invented: eight keeps, some crashes, one trial that diverged.
pub(crate) fn night() -> Night {
    let mut chance = Chance::new(7);
    let sigma = 0.0011;
    let mut champion = (1, 0.9979);
    let keeps = [4, 7, 12, 21, 27, 38, 55, 71];
    let mut best = 0.9979;
    let mut trials = vec![Trial {
        trial: 1,
        status: Status::Keep,
        outcome: "baseline".to_owned(),
        reason: "first run of the tag".to_owned(),
        value: Some(best),
        values: vec![best + 0.0006, best - 0.0006],
        description: "baseline".to_owned(),
        proposer: "baseline".to_owned(),
        commit: Some("3f9c2ab".to_owned()),
        seconds: 371.0,
        memory_gb: 61.2,
        tokens_m: Some(371.2),
        mfu_percent: Some(41.3),
        ended: "2026-11-29T23:06:40Z".to_owned(),
        curve: curve(&mut chance, 0.9979),
        ..Trial::default()
    }];
    for n in 2..=94u64 {
        let edit = match keeps.iter().position(|&k| k == n) {
            Some(kept) => EDITS[[1, 0, 4, 9, 2, 7, 5, 3][kept]],
            None => EDITS[((n * 5 + n / 14) % 14) as usize],
        };
        let proposer = *chance.of(&["claude", "claude", "codex", "knobs"]);
        let crash = n % 17 == 9 || n == 30;
        let keep = keeps.contains(&n);
        let (status, outcome) = match () {
            () if crash => {
                (Status::Crash, *chance.of(&["build_failed", "out_of_memory", "diverged", "timeout"]))
            }
            () if keep => (Status::Keep, "improved"),
            () => (Status::Discard, *chance.of(&["worse", "worse", "within_noise", "promising", "price"])),
        };
        let delta = match status {
            Status::Keep => -(0.0021 + 0.0034 * chance.part()),
            _ if n == 44 => 0.41,
            _ => 0.0005 + 0.006 * chance.part().powi(2),
        };
        let value = (!crash).then_some(champion.1 + delta);
        let expected = (proposer != "knobs").then(|| -0.0005 - 0.006 * chance.part());
        trials.push(Trial {
            trial: n,
            status,
            outcome: outcome.to_owned(),
            reason: match status {
                Status::Keep => format!("better by {:.4}, {:.1} standard errors", -delta, -delta / 0.0007),
                Status::Discard => "no better than the champion on the first run".to_owned(),
                Status::Crash => "the fit process ended with an error".to_owned(),
            },
            value,
            values: value
                .map_or(vec![], |v| if keep { vec![v - 0.0004, v + 0.0007, v - 0.0003] } else { vec![v] }),
            delta: (!crash).then_some(delta),
            expected_delta: expected,
            numbers: numbers(keep, crash, delta),
            description: edit.0.to_owned(),
            hypothesis: edit.1.to_owned(),
            category: edit.2.to_owned(),
            class: edit.3.to_owned(),
            proposer: proposer.to_owned(),
            parent: Some(champion.0),
            commit: Some(format!("{:07x}", n.wrapping_mul(0x1234_567b) & 0xfff_ffff)),
            seconds: if crash {
                40.0 + 200.0 * chance.part()
            } else {
                366.0 + 12.0 * chance.part() + if keep { 700.0 } else { 0.0 }
            },
            memory_gb: if crash { 0.0 } else { 58.0 + 6.0 * chance.part() },
            tokens_m: (!crash).then(|| 360.0 + 20.0 * chance.part()),
            mfu_percent: (!crash).then(|| 40.0 + 2.5 * chance.part()),
            lines_added: Some((chance.part() * 20.0) as i64 - 4),
            ended: format!("2026-11-30T{:02}:{:02}:12Z", (n / 12) % 8, n * 5 % 60),
            attribution: keep.then(|| {
                "fewer nats at the same number of tokens: it learns more from each, and runs no faster"
                    .to_owned()
            }),
            notes: if n % 6 == 0 {
                vec![("strategy".to_owned(), "explore: a category that was tried least".to_owned())]
            } else {
                vec![]
            },
            review: (keep && n < 20).then(|| "accepted".to_owned()),
            diff: diff(&edit),
            log: if crash { log() } else { vec![] },
            curve: if crash { vec![] } else { curve(&mut chance, value.unwrap_or(1.0)) },
        });
        if keep {
            best = champion.1 + delta;
            champion = (n, best);
        }
    }
    let crashes = trials.iter().filter(|t| t.status == Status::Crash).count();
    Night {
        task: "an invented night".to_owned(),
        tag: "sample".to_owned(),
        metric: "val_bpb".to_owned(),
        lower_is_better: true,
        profile: Some("full".to_owned()),
        device: Some("no device".to_owned()),
        made: "2026-11-30T07:02:41Z".to_owned(),
        running: false,
        ended: Some("the time of --until is reached".to_owned()),
        headline: Headline {
            champion: Some(champion.0),
            best: Some(best),
            baseline: Some(0.9979),
            gain: Some(0.9979 - best),
            gain_within: Some(0.0018),
            audited_gain: Some(0.9979 - best - 0.0013),
            sigma: Some(sigma),
            trials: trials.len(),
            keeps: keeps.len() + 1, // the baseline is one
            discards: trials.len() - crashes - keeps.len() - 1,
            crashes,
            unreviewed: keeps.len() - 3,
            duty_cycle: Some(0.83),
            seconds: 28_710.0,
            tokens: 4_182_300,
            usd: Some(18.4),
        },
        to_read: vec![
            ToRead { trial: 27, why: "the keep with the largest gain: is it what it says it is?".to_owned() },
            ToRead { trial: 35, why: "the nearest miss: would you have kept it?".to_owned() },
            ToRead { trial: 94, why: "the latest crash: the idea's fault, or its code's?".to_owned() },
        ],
        briefs: briefs(),
        lessons: vec![
            Lesson {
                text: "Steps count more than batch here: each halving of the batch down to 2^18 tokens paid."
                    .to_owned(),
                confidence: Some(0.85),
                trials: vec![5, 12, 26],
            },
            Lesson {
                text: "Depth above 9 costs more tokens than it gains in five minutes.".to_owned(),
                confidence: Some(0.7),
                trials: vec![6, 33],
            },
            Lesson {
                text: "Attention windows change memory, not val_bpb.".to_owned(),
                confidence: None,
                trials: vec![13],
            },
        ],
        mechanisms: vec![
            Mechanism {
                id: "bandit".to_owned(),
                what: "prefers categories that paid lately".to_owned(),
                standing: "adopted".to_owned(),
                reason: "0.0009 a minute more with it on, over 22 matched pairs".to_owned(),
                inactive: false,
                hooks: vec![("choose".to_owned(), 61, 58), ("observe".to_owned(), 93, 93)],
                trials: [44, 41],
                effect: Some(0.0009),
            },
            Mechanism {
                id: "tabu".to_owned(),
                what: "skips what was tried within twenty trials".to_owned(),
                standing: "trial".to_owned(),
                reason: "still too few trials to tell".to_owned(),
                inactive: true,
                hooks: vec![("filter".to_owned(), 12, 0)],
                trials: [6, 6],
                effect: None,
            },
        ],
        categories: kinds(&trials, |t| &t.category),
        classes: kinds(&trials, |t| &t.class),
        gates: gates(),
        calibration: vec![
            Calibration {
                proposer: "claude".to_owned(),
                predictions: 46,
                right: 19,
                error: 0.0041,
                too_hopeful: 0.0032,
            },
            Calibration {
                proposer: "codex".to_owned(),
                predictions: 21,
                right: 8,
                error: 0.0052,
                too_hopeful: 0.0047,
            },
        ],
        trials,
    }
}

fn numbers(keep: bool, crash: bool, delta: f64) -> Vec<(String, String)> {
    let pair = |a: &str, b: String| (a.to_owned(), b);
    match (crash, keep) {
        (true, _) => vec![],
        (_, true) => vec![
            pair("rule", "noise".to_owned()),
            pair("gain", format!("{:.4}", -delta)),
            pair("needed", "0.0016".to_owned()),
            pair("standard error", "0.0007".to_owned()),
            pair("z", "2.31".to_owned()),
            pair("σ", "0.0011".to_owned()),
            pair("runs", "3 against 3, in pairs".to_owned()),
        ],
        _ => vec![
            pair("rule", "noise".to_owned()),
            pair("σ", "0.0011".to_owned()),
            pair("runs", "1 against 2".to_owned()),
        ],
    }
}

fn diff(edit: &Edit) -> String {
    let file = edit.4;
    let place = if file.ends_with("optim.rs") {
        (
            "mod knobs {",
            "    pub const HEAD_LR: f64 = 0.004; // AdamW, times √(768/C)\n     pub const EMBED_LR: f64 = 0.6;",
            "    pub const BETA1: f64 = 0.8;\n     pub const BETA2: f64 = 0.95;",
        )
    } else {
        (
            "impl Block {",
            "    fn forward(&self, x: &Tensor, layer: usize) -> Result<Tensor> {\n         let x = norm(x)?; // before, not after",
            "        let x = self.project.forward(&x)?;\n         Ok(x)",
        )
    };
    format!(
        "diff --git a/{file} b/{file}\nindex 3f9c2ab..81d20fe 100644\n--- a/{file}\n+++ b/{file}\n@@ -41,7 +41,7 @@ {}\n {}\n-{}\n+{}\n {}\n",
        place.0, place.1, edit.5, edit.6, place.2
    )
}

fn log() -> Vec<String> {
    [
        "   Compiling train v0.1.0",
        "step 41 loss 6.113 tok/s 1182k",
        "Error: CUDA_ERROR_OUT_OF_MEMORY while allocating 4.3 GB",
        "  at train::model::Gpt::forward (train/src/model.rs:212)",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn curve(chance: &mut Chance, bpb: f64) -> Vec<(f64, f64)> {
    let floor = bpb * 2.9;
    (0..200)
        .map(|i| {
            let tokens = f64::from(i + 1) * 1.85e6;
            (
                tokens,
                floor + 0.28 + 5.9 * (1.0 + tokens / 6e6).powf(-0.9) - 0.28 * (f64::from(i) / 200.0).powi(3)
                    + 0.012 * chance.normal(),
            )
        })
        .collect()
}

fn briefs() -> Vec<Brief> {
    vec![
        Brief { from: 1, to: 40, keeps: 6, gain: Some(0.0191), diff: "--- /dev/null\n+++ b/program.md\n@@ -0,0 +1,4 @@\n+# Program\n+\n+Lower val_bpb in five minutes on one GPU.\n+Try one idea at a time.\n".to_owned() },
        Brief { from: 41, to: 94, keeps: 2, gain: Some(0.0067), diff: "--- a/program.md\n+++ b/program.md\n@@ -1,4 +1,5 @@\n # Program\n \n Lower val_bpb in five minutes on one GPU.\n-Try one idea at a time.\n+Optimiser constants are tuned enough: look at the architecture.\n+A simplification that costs nothing is welcome.\n".to_owned() },
    ]
}

fn kinds(trials: &[Trial], of: impl Fn(&Trial) -> &String) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for t in trials.iter().filter(|t| !of(t).is_empty()) {
        let at = kinds.iter().position(|k| k.name == *of(t)).unwrap_or_else(|| {
            kinds.push(Kind { name: of(t).clone(), ..Kind::default() });
            kinds.len() - 1
        });
        kinds[at].tried += 1;
        kinds[at].kept += u64::from(t.status == Status::Keep);
        kinds[at].crashed += u64::from(t.status == Status::Crash);
    }
    kinds.sort_by_key(|k| std::cmp::Reverse(k.tried));
    kinds
}

fn gates() -> Vec<Gate> {
    let gate = |name: &str, what: &str, asked, refused, latest: Option<&str>, never_said_no| Gate {
        name: name.to_owned(),
        what: what.to_owned(),
        asked,
        refused,
        latest: latest.map(str::to_owned),
        never_said_no,
    };
    vec![
        gate(
            "admission",
            "no edit, one tried before, outside what is editable",
            101,
            7,
            Some("the same edit as trial 17"),
            false,
        ),
        gate(
            "build",
            "does not compile, or not in time",
            93,
            2,
            Some("error[E0308]: mismatched types"),
            false,
        ),
        gate("preflight", "fails a step on real data, causality, or memory", 91, 0, None, true),
        gate("fit", "training fails, diverges, or runs past its limits", 91, 5, Some("out of memory"), false),
        gate(
            "verdict",
            "not better than noise and price explain",
            86,
            78,
            Some("no better than the champion"),
            false,
        ),
    ]
}

/// `count` trials of which every text means harm; `long` adds descriptions of 10 kB.
pub(crate) fn hostile(count: u64, long: bool) -> Night {
    let mut chance = Chance::new(count + 3);
    let text = |n: u64| HOSTILE[(n % HOSTILE.len() as u64) as usize].to_owned();
    let mut night = night();
    let mut best = 1.31;
    night.task = text(0);
    night.tag = text(5);
    night.metric = text(1);
    night.device = Some(text(3));
    night.profile = Some(text(9));
    night.ended = Some(text(2));
    night.trials = (1..=count)
        .map(|n| {
            let status = match n {
                1 => Status::Keep,
                _ if n % 11 == 0 => Status::Crash,
                _ if n % 71 == 7 => Status::Keep,
                _ => Status::Discard,
            };
            if status == Status::Keep {
                best -= 0.002;
            }
            let value = match (status, n % 97) {
                (Status::Crash, _) => None,
                (Status::Keep, _) => Some(best),
                (_, 5) => Some(1e30),
                (_, 6) => Some(9.5),
                _ => Some(best + 0.008 * chance.part()),
            };
            let description = if long { text(n).repeat(1 + 10_000 / text(n).len()) } else { text(n) };
            let edit = chance.of(&EDITS);
            let body: String =
                (0..9).map(|i| format!(" {}\n-{} {i}\n+{} {i}\n", text(n + i), edit.5, edit.6)).collect();
            Trial {
                trial: n,
                status,
                outcome: if n == 1 { "baseline".to_owned() } else { text(n + 1) },
                reason: text(n + 2),
                value,
                values: value.into_iter().collect(),
                delta: value.map(|v| v - best),
                expected_delta: Some(-0.003),
                numbers: vec![(text(n + 3), text(n + 4))],
                description,
                hypothesis: text(n + 5),
                category: text(n + 6),
                class: text(n + 7),
                proposer: text(n % 5),
                parent: Some(1),
                commit: Some(text(n + 8)),
                seconds: 300.0 * chance.part(),
                memory_gb: 60.0 * chance.part(),
                ended: text(n + 9),
                attribution: Some(text(n + 10)),
                notes: vec![(text(n + 11), text(n + 12))],
                review: (status == Status::Keep).then(|| text(n)),
                diff: format!(
                    "--- a/train/src/model.rs\n+++ b/train/src/model.rs\n@@ -1,18 +1,18 @@ {}\n{body}",
                    text(n)
                ),
                log: if status == Status::Crash { (0..20).map(|i| text(n + i)).collect() } else { vec![] },
                curve: curve(&mut chance, value.unwrap_or(1.0).min(3.0)),
                ..Trial::default()
            }
        })
        .collect();
    let crashes = night.trials.iter().filter(|t| t.status == Status::Crash).count();
    let keeps = night.trials.iter().filter(|t| t.status == Status::Keep).count();
    night.headline = Headline {
        champion: Some(night.trials.iter().rfind(|t| t.status == Status::Keep).map_or(1, |t| t.trial)),
        best: Some(best),
        baseline: Some(1.308),
        gain: Some(1.308 - best),
        trials: night.trials.len(),
        keeps,
        crashes,
        discards: night.trials.len() - keeps - crashes,
        unreviewed: 3,
        ..night.headline
    };
    night.to_read = (0..3).map(|i| ToRead { trial: 1 + i * 7 % count, why: text(i) }).collect();
    night.briefs = (0..12)
        .map(|i| Brief {
            from: 1 + i * count / 12,
            to: (i + 1) * count / 12,
            keeps: 1,
            gain: None,
            diff: format!("@@ {} @@\n+{}\n-{}\n", text(i), text(i + 1), text(i + 2)),
        })
        .collect();
    night.lessons = (0..30)
        .map(|i| Lesson { text: text(i), confidence: Some(f64::NAN), trials: vec![1, count, u64::MAX] })
        .collect();
    night.mechanisms = (0..5)
        .map(|i| Mechanism {
            id: text(i),
            what: text(i + 1),
            standing: text(i + 2),
            reason: text(i + 3),
            inactive: i % 2 == 0,
            hooks: vec![(text(i), 3, 0)],
            trials: [1, 2],
            effect: Some(f64::INFINITY),
        })
        .collect();
    night.categories = (0..40).map(|i| Kind { name: text(i), tried: 40 - i, kept: 1, crashed: 1 }).collect();
    night.classes.clone_from(&night.categories);
    night.gates = (0..6)
        .map(|i| Gate {
            name: text(i),
            what: text(i + 1),
            asked: 100,
            refused: i,
            latest: Some(text(i + 2)),
            never_said_no: i == 0,
        })
        .collect();
    night.calibration = (0..5)
        .map(|i| Calibration {
            proposer: text(i),
            predictions: 10,
            right: 3,
            error: 0.004,
            too_hopeful: f64::NAN,
        })
        .collect();
    night
}
