//! The second sitting: models that gain from the rows they are scored on pass the first and fail the second.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use prepare::contest::Result;
use prepare::exam::{self, Answers, Exam, Reason, Scored, Verdict};
use prepare::profile::Profile;
use prepare::resit::{Agreement, Resit};
use prepare::score::score;
use prepare::{Checkpoint, Contestant, Trial};

use crate::fake;

const VOCAB: usize = 8192;
const CONTEXT: usize = 12;
const ROWS: usize = 200;

/// Ids that are made likelier, and by how much.
type Raised = Vec<(u32, f32)>;
/// Tokens → logits, with whatever it remembers.
type Logits = Box<dyn Fn(&[Vec<u32>]) -> Vec<f32>>;

/// A contestant that is nothing but its logits.
struct Model(Logits, DType);

impl Contestant for Model {
    fn fit(_: &mut Trial) -> Result<Model> {
        candle_core::bail!("never trained")
    }

    fn save(&self) -> Result<Checkpoint> {
        candle_core::bail!("never saved")
    }

    fn load(_: &Checkpoint, _: &Device) -> Result<Model> {
        candle_core::bail!("never loaded")
    }

    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t) = x.dims2()?;
        let values = self.0(&x.to_vec2::<u32>()?);
        Tensor::from_vec(values, (b, t, VOCAB), x.device())?.to_dtype(self.1)
    }
}

/// Logits that raise, after each token, the ids that `follow` names by so much.
fn raised(x: &[Vec<u32>], mut follow: impl FnMut(&[u32]) -> Raised) -> Vec<f32> {
    let mut logits = vec![0.0; x.iter().map(Vec::len).sum::<usize>() * VOCAB];
    let mut columns = logits.chunks_exact_mut(VOCAB);
    for row in x {
        for t in 0..row.len() {
            let column = columns.next().unwrap();
            follow(&row[..=t]).into_iter().for_each(|(id, by)| column[id as usize] += by);
        }
    }
    logits
}

/// Knows what the made-up text is made of.
fn honest(prefix: &[u32]) -> Raised {
    let last = prefix[prefix.len() - 1];
    (0..4).map(|noise| ((last * 5 + noise + 17) % 256, 3.0)).collect()
}

/// One process's sitting.
fn sit(exam: &Exam, model: &Model) -> Scored {
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    exam.write(&mut sent).unwrap();
    let (header, rows) = exam::take(&sent[..]).unwrap();
    let scored = score(model, &header, &rows, &Device::Cpu, |_| ()).expect("admissible by itself");
    Answers::new(header.nonce, &mut answered).finish(Verdict::Scored(scored)).unwrap();
    match exam.read(&answered[..], |_| ()).unwrap() {
        Verdict::Scored(scored) => scored,
        Verdict::Rejected(rejected) => panic!("{rejected}"),
    }
}

/// Both sittings, the second with a fresh model.
fn twice(fresh: impl Fn() -> Model) -> (Scored, Result<Agreement, Reason>) {
    let exam = Exam::new(Profile::Smoke, fake::rows(CONTEXT, ROWS, 5), fake::token_bytes()).unwrap();
    let first = sit(&exam, &fresh());
    let resit = Resit::of(&exam, &first).unwrap();
    let second = sit(resit.exam(), &fresh());
    let agreed = resit.agree(&first, &second).map_err(|rejected| rejected.reason);
    (first, agreed)
}

#[test]
fn an_honest_model_costs_the_same_in_both() {
    for dtype in [DType::F32, DType::BF16] {
        let (_, agreed) = twice(|| Model(Box::new(|x| raised(x, honest)), dtype));
        let agreement = agreed.unwrap();
        assert!(agreement.rows >= 25, "an eighth of 200 rows, and what the probe showed: {agreement:?}");
        assert_eq!((agreement.row_change, agreement.mean_change), (0.0, 0.0));
    }
}

/// Rounding that a batch or a place in it brings: signless, and larger than any seen.
#[test]
fn rounding_is_admitted() {
    let calls = Cell::new(0u32);
    let (_, agreed) = twice(|| {
        let salt = calls.replace(calls.get() + 1);
        let rounded = move |x: &[Vec<u32>]| {
            raised(x, |prefix| {
                let mut all = honest(prefix);
                let odd = prefix.iter().fold(salt, |h, id| h.wrapping_mul(31) ^ id) % 2 == 0;
                all.iter_mut().for_each(|(_, by)| *by += if odd { 2e-4 } else { -2e-4 });
                all
            })
        };
        Model(Box::new(rounded), DType::F32)
    });
    assert!(agreed.unwrap().row_change > 0.0);
}

/// Counts which token follows which in the rows it is asked about; equal prefixes get equal answers, so that
/// nothing looks different when rows come again.
fn trains_on_the_exam() -> Model {
    let counts: RefCell<HashMap<(u32, u32), f32>> = RefCell::default();
    let given: RefCell<HashMap<Vec<u32>, Raised>> = RefCell::default();
    Model(
        Box::new(move |x| {
            let logits = raised(x, |prefix| {
                let last = prefix[prefix.len() - 1];
                let learnt = |counts: &HashMap<(u32, u32), f32>| {
                    let known = counts.iter().filter(|((before, _), _)| *before == last);
                    known.map(|((_, id), n)| (*id, 4.0 + n.ln())).collect()
                };
                let mut given = given.borrow_mut();
                given.entry(prefix.to_vec()).or_insert_with(|| learnt(&counts.borrow())).clone()
            });
            for pair in x.iter().flat_map(|row| row.windows(2)) {
                *counts.borrow_mut().entry((pair[0], pair[1])).or_default() += 1.0;
            }
            logits
        }),
        DType::F32,
    )
}

#[test]
fn training_on_the_rows_of_the_exam_is_refused() {
    let (first, agreed) = twice(trains_on_the_exam);
    let uniform = (VOCAB as f64).ln() * CONTEXT as f64;
    let mean = first.nats.iter().sum::<f64>() / ROWS as f64;
    assert!(mean < 0.9 * uniform, "it does gain by it: {mean} of {uniform}");
    assert_eq!(agreed.unwrap_err(), Reason::StateKept);
}

/// Answers honestly when it sees a row for the first time, and by heart when the row is scored after that:
/// the rows that the probe showed whole.
#[test]
fn knowing_by_heart_what_the_probe_showed_is_refused() {
    let fresh = || {
        let calls = Cell::new(0);
        let seen: RefCell<Vec<Vec<u32>>> = RefCell::default();
        let by_heart = move |x: &[Vec<u32>]| {
            // the second sitting has no probe, and no more than two batches
            if calls.replace(calls.get() + 1) < 3 {
                seen.borrow_mut().extend(x.iter().cloned());
                return raised(x, honest);
            }
            raised(x, |prefix| {
                let seen = seen.borrow();
                let known = seen.iter().find(|row| row.len() > prefix.len() && row.starts_with(prefix));
                match known {
                    Some(row) if prefix.len() > 2 => vec![(row[prefix.len()], 30.0)],
                    _ => honest(prefix),
                }
            })
        };
        Model(Box::new(by_heart), DType::F32)
    };
    for _ in 0..5 {
        let (_, agreed) = twice(fresh);
        assert_eq!(agreed.unwrap_err(), Reason::StateKept, "whichever rows the probe showed");
    }
}

/// Sees the next token the first time that it meets a prefix, and afterwards answers that prefix as before:
/// no probe within one process can tell.
#[test]
fn looking_ahead_behind_a_memory_is_refused() {
    for share in [30.0, 0.02] {
        let fresh = || {
            let given: RefCell<HashMap<Vec<u32>, Option<u32>>> = RefCell::default();
            let ahead = move |x: &[Vec<u32>]| {
                let mut rows = x.iter().flat_map(|row| (0..row.len()).map(|t| row.get(t + 1).copied()));
                raised(x, |prefix| {
                    let next = rows.next().flatten();
                    let next = *given.borrow_mut().entry(prefix.to_vec()).or_insert(next);
                    honest(prefix).into_iter().chain(next.map(|id| (id, share))).collect()
                })
            };
            Model(Box::new(ahead), DType::F32)
        };
        let (first, agreed) = twice(fresh);
        assert!(first.probes.gain <= first.probes.gain_allowed, "the first sitting saw nothing");
        assert_eq!(agreed.unwrap_err(), Reason::NonCausal);
    }
}

#[test]
fn logits_of_another_type_in_the_second_process_are_refused() {
    let sittings = Cell::new(0);
    let (_, agreed) = twice(|| {
        let first = sittings.replace(sittings.get() + 1) == 0;
        Model(Box::new(|x| raised(x, honest)), if first { DType::BF16 } else { DType::F32 })
    });
    assert_eq!(agreed.unwrap_err(), Reason::Unrepeatable);
}
