//! Probes of what logits depend on: rows whose tokens after a cut are replaced.
//!
//! What is allowed is absolute, in nats, not relative to the size of the logits: a nat is the scale the
//! score has, and a scale that the contestant chooses would be a tolerance that it chooses.

use std::collections::BTreeSet;

use candle_core::{D, DType, IndexOp, Tensor};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{SliceRandom, index};

use crate::contest::Contestant;
use crate::cross_entropy;
use crate::exam::{Precision, Probes, Reason};
use crate::rows::Rows;
use crate::score::{Asker, ScoreError};

/// What rounding explains, by the type of the logits.
struct Rounding {
    /// A logit's change that is none, whatever a repeat shows.
    floor: f64,
    /// A target's nats in other company: another place in the batch may be summed up in another order.
    company: f64,
    /// An identical repeat that differs by more is not repeatable: noise is not to hide a leak.
    repeat: f64,
}

const F32: Rounding = Rounding { floor: 1e-5, company: 1e-3, repeat: 0.02 };
const BF16: Rounding = Rounding { floor: 1e-2, company: 0.125, repeat: 0.125 }; // an ulp of a logit below 32

/// Tries to find a cut and a donor that differ right after the cut.
const TRIES: usize = 1000;

/// A row as it is shown to the model.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// Which row it is.
    pub(crate) row: usize,
    /// Its inputs, (T); those after the cut are another row's.
    pub(crate) x: Vec<u16>,
    /// Last position whose token is its own; `None`: all are.
    pub(crate) cut: Option<usize>,
    /// Whose tokens stand after the cut.
    pub(crate) donor: Option<usize>,
}

impl Shown {
    /// Row `row` as it is.
    pub(crate) fn whole(rows: &Rows, row: usize) -> Shown {
        Shown { row, x: rows.row(row)[..rows.context()].to_vec(), cut: None, donor: None }
    }

    /// Row `row` up to a random cut, then what another row has there; the first token after the cut differs.
    pub(crate) fn cut(rows: &Rows, row: usize, rng: &mut StdRng) -> Result<Shown, ScoreError> {
        let own = rows.row(row);
        let last = rows.context().saturating_sub(1);
        for _ in 0..TRIES {
            let (cut, donor) = (rng.random_range(0..last.max(1)), rng.random_range(0..rows.len()));
            let next = cut + 1;
            if donor != row && next < rows.context() && rows.row(donor)[next] != own[next] {
                return Ok(Shown::spliced(rows, row, cut, donor));
            }
        }
        Err(ScoreError::Failed("the rows are too few, too short or too alike for a causality probe".into()))
    }

    /// Row `row` up to `cut`, then what row `donor` has there.
    pub(crate) fn spliced(rows: &Rows, row: usize, cut: usize, donor: usize) -> Shown {
        let mut shown = Shown::whole(rows, row);
        shown.x[cut + 1..].copy_from_slice(&rows.row(donor)[cut + 1..rows.context()]);
        Shown { cut: Some(cut), donor: Some(donor), ..shown }
    }

    /// Positions whose logits must not have changed.
    pub(crate) fn kept(&self) -> usize {
        self.cut.map_or(self.x.len(), |cut| cut + 1)
    }
}

/// Up to `count` different rows out of the first `among`, in random order; all over again where there are
/// fewer. Every second one, starting with the first, is cut.
pub(crate) fn company(
    rows: &Rows,
    among: usize,
    count: usize,
    rng: &mut StdRng,
) -> Result<Vec<Shown>, ScoreError> {
    let picked = index::sample(rng, among, count.min(among)).into_vec();
    let mut batch = Vec::with_capacity(count);
    for (i, &row) in picked.iter().cycle().take(count).enumerate() {
        batch.push(if i % 2 == 0 { Shown::cut(rows, row, rng)? } else { Shown::whole(rows, row) });
    }
    batch.shuffle(rng);
    Ok(batch)
}

/// Rows that the causality probe cuts, in as many batches as that takes.
const PROBED_ROWS: usize = 8;

/// How the causality probe ended.
#[derive(Debug)]
pub(crate) struct Probed {
    /// What it measured.
    pub(crate) probes: Probes,
    /// Rows that it showed, whole or in part.
    pub(crate) shown: BTreeSet<usize>,
}

/// The causality probe: a batch, the same again, and the same with half of its rows cut; repeated with others
/// until [`PROBED_ROWS`] were cut.
///
/// Rejects logits that are not finite, not repeatable, that change up to a cut (`non_causal`), or that change
/// in rows which are the same in both batches (`company_dependent`).
pub(crate) fn causality<C: Contestant>(
    asker: &Asker<'_, C>,
    rows: &Rows,
    batch_rows: usize,
    rng: &mut StdRng,
) -> Result<Probed, ScoreError> {
    let mut all = Probed { probes: Probes::default(), shown: BTreeSet::new() };
    while all.probes.probed_rows < PROBED_ROWS {
        let probed = company(rows, rows.len(), batch_rows, rng)?;
        all.shown.extend(probed.iter().flat_map(|shown| [Some(shown.row), shown.donor]).flatten());
        let one = causality_of_a_batch(asker, rows, &probed)?;
        let most = &mut all.probes;
        most.probed_rows += one.probed_rows;
        most.repeat = most.repeat.max(one.repeat);
        most.repeat_nats = most.repeat_nats.max(one.repeat_nats);
        most.causal_change = most.causal_change.max(one.causal_change);
        most.causal_allowed = most.causal_allowed.max(one.causal_allowed);
        most.company_allowed = most.company_allowed.max(one.company_allowed);
    }
    Ok(all)
}

fn causality_of_a_batch<C: Contestant>(
    asker: &Asker<'_, C>,
    rows: &Rows,
    probed: &[Shown],
) -> Result<Probes, ScoreError> {
    let real: Vec<Shown> = probed.iter().map(|shown| Shown::whole(rows, shown.row)).collect();

    let before = asker.logits(&real)?;
    let again = asker.logits(&real)?;
    let nats = (asker.nats(&before, rows, &real)?, asker.nats(&again, rows, &real)?);
    let repeat_nats = largest(nats.0.iter().zip(&nats.1).map(|(a, b)| f64::from((a - b).abs())));
    let mut repeat: f64 = 0.0;
    for i in 0..real.len() {
        repeat = repeat.max(change(&before, &again, i, rows.context())?);
    }
    drop(again);
    let rounding = if precision(&before) == Precision::Single { F32 } else { BF16 };
    if repeat > rounding.repeat {
        let detail = format!(
            "the same batch gave logits that differ by {repeat:.3e}, {:.1e} is allowed: logits must not be \
             random or depend on earlier calls",
            rounding.repeat
        );
        return Err(ScoreError::reject(Reason::Unrepeatable, detail));
    }

    let after = asker.logits(probed)?;
    if !cross_entropy::all_finite(&after)? {
        return Err(ScoreError::non_finite());
    }
    let allowed = (4.0 * repeat).max(rounding.floor);
    let mut probes = Probes {
        repeat,
        repeat_nats,
        causal_allowed: allowed,
        company_allowed: (4.0 * repeat_nats).max(rounding.company),
        ..Probes::default()
    };
    let mut leak = None;
    for (i, shown) in probed.iter().enumerate() {
        let change = change(&before, &after, i, shown.kept())?;
        match shown.cut {
            Some(cut) => {
                probes.probed_rows += 1;
                probes.causal_change = probes.causal_change.max(change);
                if change > allowed {
                    leak = Some(format!(
                        "logits up to position {cut} changed by {change:.3e} when tokens after it did; \
                         {allowed:.1e} is allowed"
                    ));
                }
            }
            // this row is the same in both batches: what changed is its company
            None if change > allowed => {
                let detail = format!(
                    "logits of a row changed by {change:.3e} when other rows of the batch did; {allowed:.1e} \
                     is allowed"
                );
                return Err(ScoreError::reject(Reason::CompanyDependent, detail));
            }
            None => {}
        }
    }
    match leak {
        Some(detail) => Err(ScoreError::reject(Reason::NonCausal, detail)),
        None => Ok(probes),
    }
}

/// How finely these logits are rounded.
pub(crate) fn precision(logits: &Tensor) -> Precision {
    if logits.dtype() == DType::F32 { Precision::Single } else { Precision::Half }
}

/// The largest of differences that are numbers; 0 when there are none.
pub(crate) fn largest(differences: impl Iterator<Item = f64>) -> f64 {
    differences.fold(0.0, f64::max)
}

/// The largest change of a logit at the first `positions` of row `i`. a, b: (B, T, V).
pub(crate) fn change(a: &Tensor, b: &Tensor, i: usize, positions: usize) -> Result<f64, ScoreError> {
    let row = |t: &Tensor| t.i(i)?.narrow(0, 0, positions)?.to_dtype(DType::F32);
    // in two steps, as a GPU finds one maximum on one block
    let difference = (row(a)? - row(b)?)?.abs()?.max(D::Minus1)?.max(0)?;
    Ok(f64::from(difference.to_scalar::<f32>()?))
}
