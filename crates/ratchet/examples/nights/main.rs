//! Nights in a world whose truth is known: what each rule keeps, misses and reaches at equal GPU time.
//!
//! `cargo run --release -p ratchet --example nights [NIGHTS]`

mod night;

use std::thread;

use night::{Rule, SIGMA, Tally, World, play};
use ratchet::verdict::Policy;

/// Fixed thresholds tried, in stated σ; the best of them by true final quality is the one to beat.
const THRESHOLDS: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 3.0, 4.0];

fn main() {
    let nights = std::env::args().nth(1).map_or(Ok(2_000), |n| n.parse()).expect("a number of nights");
    let world = World::default();
    println!("{nights} nights a row; {world:?}, in units of σ = {SIGMA}\n");
    println!(
        "{:24} {:>6} {:>7} {:>7} {:>7} {:>7} {:>16} {:>9}",
        "rule", "keeps", "false", "idle", "missed", "trials", "true gain, σ", "bpb"
    );
    let row = |name: &str, rule: &Rule| println!("{name:24} {}", Sum::of(world, rule, nights).row());
    row("any lower value", &Rule::AnyLower);
    for sigmas in THRESHOLDS {
        row(&format!("lower by {sigmas} σ"), &Rule::Fixed(sigmas));
    }
    row("ratchet", &Rule::Ratchet(Policy::default()));
    row("ratchet, the night after", &Rule::NextNight(Policy::default()));
    row("ratchet, carry = false", &Rule::Ratchet(Policy { carry: false, ..Policy::default() }));

    println!("\nother worlds: false keeps in % of keeps; true gain in σ");
    println!("{:38} {:^23} {:^23} {:^23}", "", "any lower value", "lower by 1 σ", "ratchet");
    let null = World { useful: 0.0, ..world };
    for (name, world) in [
        ("as above", world),
        ("σ twice what is stated", World { noise: 2.0, ..world }),
        ("σ half of what is stated", World { noise: 0.5, ..world }),
        ("2 % of candidates are useful", World { useful: 0.02, ..world }),
        ("5 %", World { useful: 0.05, ..world }),
        ("10 %", World { useful: 0.1, ..world }),
        ("30 %", World { useful: 0.3, ..world }),
        ("50 runs", World { runs: 50, ..world }),
        ("200 runs", World { runs: 200, ..world }),
        ("500 runs", World { runs: 500, ..world }),
        ("2 %, and 500 runs", World { useful: 0.02, runs: 500, ..world }),
        ("2 %, and σ twice what is stated", World { useful: 0.02, noise: 2.0, ..world }),
        ("useless ones are never quite nothing", World { nothing: 0.0, harm: 1.0, ..world }),
        ("validation rows too few (0.5 σ)", World { sampling: 0.5, ..world }),
    ] {
        let cell = |rule| Sum::of(world, &rule, nights).cell();
        let cells = [Rule::AnyLower, Rule::Fixed(1.0), Rule::Ratchet(Policy::default())].map(cell);
        println!("{name:38} {}", cells.join(" "));
    }
    let nothing = Sum::of(null, &Rule::Ratchet(Policy::default()), nights);
    println!("\nnothing useful at all: {:.1} % of nights have a keep", 100.0 * nothing.nights_with_keep);
}

/// Means over nights.
struct Sum {
    keeps: f64,
    false_keeps: f64,
    edits: f64,
    idle: f64,
    useful: f64,
    trials: f64,
    nights_with_keep: f64,
    gain: f64,
    /// Standard error of `gain`.
    error: f64,
}

impl Sum {
    fn of(world: World, rule: &Rule, nights: u64) -> Self {
        let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let tallies: Vec<Tally> = thread::scope(|scope| {
            let night = |seed| play(world, rule, seed);
            let part =
                |first| scope.spawn(move || (first..nights).step_by(threads as usize).map(night).collect());
            let parts: Vec<_> = (0..threads).map(part).collect();
            parts
                .into_iter()
                .flat_map(|part| -> Vec<Tally> { part.join().expect("a night panicked") })
                .collect()
        });
        let n = tallies.len() as f64;
        let mean = |of: &dyn Fn(&Tally) -> f64| tallies.iter().map(of).sum::<f64>() / n;
        let gain = mean(&|night| night.gain);
        Self {
            keeps: mean(&|night| night.keeps.into()),
            false_keeps: mean(&|night| night.false_keeps.into()),
            edits: mean(&|night| night.edits.into()),
            idle: mean(&|night| night.idle.into()),
            useful: mean(&|night| night.useful.into()),
            trials: mean(&|night| night.trials.into()),
            nights_with_keep: mean(&|night| f64::from(u8::from(night.keeps > 0))),
            gain,
            error: (mean(&|night| (night.gain - gain).powi(2)) / n).sqrt(),
        }
    }

    fn row(&self) -> String {
        let missed = 1.0 - (self.edits - self.idle) / self.useful;
        format!(
            "{:6.2} {:5.1} % {:5.1} % {:5.1} % {:7.1} {:8.2} ± {:.2}  {:9.5}",
            self.keeps,
            100.0 * self.false_keeps / self.keeps,
            100.0 * self.idle / self.edits,
            100.0 * missed,
            self.trials,
            self.gain,
            self.error,
            self.gain * SIGMA
        )
    }

    fn cell(&self) -> String {
        format!("{:5.1} %  {:6.2} ± {:.2}  ", 100.0 * self.false_keeps / self.keeps, self.gain, self.error)
    }
}
