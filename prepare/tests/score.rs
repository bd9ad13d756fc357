//! Scoring: golden figures for models whose loss is known, and every kind of cheat refused by name.

use std::cell::Cell;

use candle_core::{D, DType, Device, Tensor};
use prepare::bpb::{Bpb, target_bytes};
use prepare::contest::Result;
use prepare::exam::{Header, Reason, Scored};
use prepare::profile::Profile;
use prepare::rows::Rows;
use prepare::score::{ScoreError, score};
use prepare::{Checkpoint, Contestant, Trial};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fake;

const VOCAB: usize = 8192;
const CONTEXT: usize = 12;
const RANK: usize = 4;

type Logits = dyn Fn(&Tensor) -> Result<Tensor>;

/// A contestant that is nothing but its logits.
struct Model(Box<Logits>);

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
        self.0(x)
    }
}

/// Random tables of a bigram model, logits = E[x] · H, in f64 for the oracle as well.
#[derive(Clone)]
struct Tables {
    embed: Tensor, // (V, R)
    head: Tensor,  // (R, V)
}

fn tables() -> Tables {
    let mut rng = StdRng::seed_from_u64(11);
    let mut random = |shape: (usize, usize)| {
        let values: Vec<f32> = (0..VOCAB * RANK).map(|_| rng.random_range(-1.0..1.0)).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    Tables { embed: random((VOCAB, RANK)), head: random((RANK, VOCAB)) }
}

impl Tables {
    /// (B, T) → (B, T, R)
    fn embed(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t) = x.dims2()?;
        self.embed.index_select(&x.flatten_all()?, 0)?.reshape((b, t, RANK))
    }

    /// (B, T, R) → (B, T, V)
    fn head(&self, h: &Tensor) -> Result<Tensor> {
        h.broadcast_matmul(&self.head)
    }

    /// A model whose logits are the head's of what `hidden` makes of the embedded tokens.
    fn model(&self, hidden: impl Fn(Tensor) -> Result<Tensor> + 'static) -> Model {
        let tables = self.clone();
        Model(Box::new(move |x| tables.head(&hidden(tables.embed(x)?)?)))
    }
}

/// h at t becomes h at t + 1: a mask that is off by one.
fn one_ahead(h: &Tensor) -> Result<Tensor> {
    let t = h.dim(1)?;
    Tensor::cat(&[h.narrow(1, 1, t - 1)?, h.narrow(1, t - 1, 1)?], 1)
}

fn header(rows: &Rows) -> Header {
    Header {
        nonce: String::new(),
        profile: Profile::Smoke,
        vocab: VOCAB,
        context: rows.context(),
        rows: rows.len(),
        cuts: vec![0; rows.len()],
        second: false,
        token_bytes: fake::token_bytes(),
    }
}

fn run(model: &Model, rows: &Rows) -> Result<Scored, ScoreError> {
    score(model, &header(rows), rows, &Device::Cpu, |_| ())
}

fn refusal(model: &Model) -> Reason {
    match run(model, &fake::rows(CONTEXT, 70, 5)) {
        Err(ScoreError::Rejected(rejected)) => {
            assert!(rejected.detail.len() > 20, "says what was seen: {rejected}");
            rejected.reason
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Oracle: 13 bits for each of 8,192 equally likely ids.
#[test]
fn uniform_logits_cost_log2_of_the_vocabulary() {
    let rows = fake::rows(CONTEXT, 37, 1);
    let uniform = Model(Box::new(|x| {
        let (b, t) = x.dims2()?;
        Tensor::full(2.5f32, (b, t, VOCAB), x.device())
    }));
    let scored = run(&uniform, &rows).unwrap();
    let bytes: u64 = target_bytes(&rows, &fake::token_bytes()).iter().sum();
    let targets = (37 * CONTEXT) as f64; // every one has bytes here
    let bpb = Bpb::from_nats(&scored.nats, bytes).unwrap().get();
    assert!((bpb / (13.0 * targets / bytes as f64) - 1.0).abs() < 1e-6, "{bpb}");
}

/// Oracle: the same tables multiplied out, exponentiated and summed in f64; targets without bytes left out.
#[test]
fn a_bigram_table_costs_what_f64_says() {
    let tables = tables();
    let mut ids = fake::rows(CONTEXT, 33, 2).ids().to_vec();
    ids[5] = prepare::profile::BOS; // a target that does not count
    ids[CONTEXT + 4] = 300; // one of three bytes
    let rows = Rows::new(CONTEXT, ids).unwrap();
    let scored = run(&tables.model(Ok), &rows).unwrap();

    let lengths = fake::token_bytes();
    let (embed, head) = (tables.embed.to_vec2::<f32>().unwrap(), tables.head.to_vec2::<f32>().unwrap());
    for (row, nats) in rows.iter().zip(&scored.nats) {
        let mut right = 0.0;
        for pair in row.windows(2).filter(|pair| lengths[usize::from(pair[1])] > 0) {
            let e = &embed[usize::from(pair[0])];
            let logit = |v: usize| (0..RANK).map(|r| f64::from(e[r]) * f64::from(head[r][v])).sum::<f64>();
            right += (0..VOCAB).map(|v| logit(v).exp()).sum::<f64>().ln() - logit(usize::from(pair[1]));
        }
        assert!((nats / right - 1.0).abs() < 1e-6, "{nats} is not {right}");
    }
}

#[test]
fn fixed_rows_are_all_scored_whatever_the_batch() {
    for count in [2, 31, 32, 33, 65] {
        let rows = fake::rows(CONTEXT, count, 3);
        let mut seen = Vec::new();
        let model = tables().model(Ok);
        let scored = score(&model, &header(&rows), &rows, &Device::Cpu, |done| seen.push(done)).unwrap();
        assert_eq!(scored.nats.len(), count);
        assert_eq!(seen.last(), Some(&(count as u64)));
        assert!(scored.probes.probed_rows > 0 && scored.probes.company_rows > 0);
    }
}

#[test]
fn every_call_has_the_same_shape() {
    let tables = tables();
    let model = Model(Box::new(move |x| {
        assert_eq!(x.dims(), [32, CONTEXT]);
        tables.head(&tables.embed(x)?)
    }));
    run(&model, &fake::rows(CONTEXT, 33, 4)).unwrap();
}

#[test]
fn a_causal_model_with_a_memory_of_its_row_is_admitted() {
    let mean_so_far = |h: Tensor| h.cumsum(1)? * 0.3;
    run(&tables().model(mean_so_far), &fake::rows(CONTEXT, 70, 5)).unwrap();
}

#[test]
fn honest_noise_is_admitted() {
    let noise = Cell::new(0u64);
    let noisy = move |h: Tensor| {
        noise.set(noise.get() + 1);
        let mut rng = StdRng::seed_from_u64(noise.get());
        let values: Vec<f32> = (0..h.elem_count()).map(|_| rng.random_range(-1e-3..1e-3)).collect();
        h.cumsum(1)? + Tensor::from_vec(values, h.dims(), h.device())?
    };
    let scored = run(&tables().model(noisy), &fake::rows(CONTEXT, 70, 5)).unwrap();
    assert!(scored.probes.repeat > 1e-4 && scored.probes.causal_change > 1e-4, "{:?}", scored.probes);
}

#[test]
fn bf16_logits_are_admitted() {
    let tables = tables();
    let model = Model(Box::new(move |x| tables.head(&tables.embed(x)?)?.to_dtype(DType::BF16)));
    run(&model, &fake::rows(CONTEXT, 70, 5)).unwrap();
}

#[test]
fn a_mask_off_by_one_is_refused() {
    assert_eq!(refusal(&tables().model(|h| one_ahead(&h))), Reason::NonCausal);
    // and so is a trace of it
    assert_eq!(refusal(&tables().model(|h| &h + (one_ahead(&h)? * 0.001)?)), Reason::NonCausal);
}

#[test]
fn a_mean_over_the_whole_row_is_refused() {
    let bidirectional = |h: Tensor| h.broadcast_add(&h.mean_keepdim(1)?);
    assert_eq!(refusal(&tables().model(bidirectional)), Reason::NonCausal);
}

#[test]
fn statistics_of_the_batch_are_refused() {
    let batch_norm = |h: Tensor| h.broadcast_sub(&h.mean_keepdim((0, 1))?);
    assert_eq!(refusal(&tables().model(batch_norm)), Reason::CompanyDependent);
    let same_position = |h: Tensor| h.broadcast_sub(&h.mean_keepdim(0)?);
    assert_eq!(refusal(&tables().model(same_position)), Reason::CompanyDependent);
}

#[test]
fn the_place_in_the_batch_is_not_to_matter() {
    let by_place = |h: Tensor| {
        let place = Tensor::arange(0f32, h.dim(0)? as f32, h.device())?.reshape(((), 1, 1))?;
        h.broadcast_add(&(place * 0.1)?)
    };
    assert_eq!(refusal(&tables().model(by_place)), Reason::CompanyDependent);
}

#[test]
fn logits_that_are_no_numbers_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let tables = tables();
        let model = Model(Box::new(move |x| {
            let logits = tables.head(&tables.embed(x)?)?;
            // only where a token above 200 is read, which not every batch has
            let rare = x.gt(250u32)?.unsqueeze(2)?.broadcast_as(logits.dims())?;
            rare.where_cond(&Tensor::full(bad, logits.dims(), logits.device())?, &logits)
        }));
        assert_eq!(refusal(&model), Reason::NonFinite, "{bad}");
    }
}

#[test]
fn logits_of_another_shape_are_refused() {
    let shapes: [fn(Tensor) -> Result<Tensor>; 5] = [
        |l| l.narrow(2, 0, VOCAB - 1),
        |l| l.narrow(1, 0, CONTEXT - 1),
        |l| l.narrow(0, 0, 1),
        |l| l.flatten(0, 1),
        |l| l.argmax(D::Minus1),
    ];
    for shape in shapes {
        let tables = tables();
        let model = Model(Box::new(move |x| shape(tables.head(&tables.embed(x)?)?)));
        assert_eq!(refusal(&model), Reason::WrongShape);
    }
    let tables = tables();
    let integers = Model(Box::new(move |x| tables.head(&tables.embed(x)?)?.to_dtype(DType::I64)));
    assert_eq!(refusal(&integers), Reason::WrongShape);
}

/// Honest while it believes to be probed: for the first calls, or whenever a batch comes twice.
#[test]
fn a_leak_that_waits_for_the_probe_to_pass_is_refused() {
    let calls = Cell::new(0);
    let waits = move |h: Tensor| {
        calls.set(calls.get() + 1);
        if calls.get() <= 3 { Ok(h) } else { one_ahead(&h) }
    };
    assert_eq!(refusal(&tables().model(waits)), Reason::NonCausal);
}

#[test]
fn state_between_calls_is_refused() {
    let before = Cell::new(0f64);
    let remembers = move |h: Tensor| {
        let now = before.replace(f64::from(h.mean_all()?.to_scalar::<f32>()?));
        h + 20.0 * now
    };
    let reason = refusal(&tables().model(remembers));
    assert!(matches!(reason, Reason::Unrepeatable | Reason::CompanyDependent), "{reason}");

    let calls = Cell::new(0u32);
    let drifts = move |h: Tensor| {
        calls.set(calls.get() + 1);
        h * (1.0 + 0.01 * f64::from(calls.get()))
    };
    let reason = refusal(&tables().model(drifts));
    assert!(matches!(reason, Reason::Unrepeatable | Reason::CompanyDependent), "{reason}");
}

#[test]
fn random_logits_are_refused() {
    let seed = Cell::new(0);
    let random = move |h: Tensor| {
        seed.set(seed.get() + 1);
        let mut rng = StdRng::seed_from_u64(seed.get());
        let values: Vec<f32> = (0..h.elem_count()).map(|_| rng.random_range(-1.0..1.0)).collect();
        Tensor::from_vec(values, h.dims(), h.device())
    };
    assert_eq!(refusal(&tables().model(random)), Reason::Unrepeatable);
}

/// Logits shaken by up to `noise`, all of them or only those of ids that no text has.
fn shaken(logits: Tensor, noise: f32, seed: u64, everywhere: bool) -> Result<Tensor> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (_, _, v) = logits.dims3()?;
    let quiet = if everywhere { 0 } else { v - 64 };
    let shake = (0..v).map(|id| if id < quiet { 0.0 } else { rng.random_range(-noise..noise) });
    logits.broadcast_add(&Tensor::from_iter(shake, logits.device())?)
}

/// Noise makes the repeat differ, and with it what the probe allows; the leak stays below that.
#[test]
fn a_leak_under_a_cover_of_noise_is_refused() {
    for everywhere in [false, true] {
        let tables = tables();
        let calls = Cell::new(0);
        let covered = Model(Box::new(move |x| {
            calls.set(calls.get() + 1);
            let own = tables.head(&tables.embed(x)?)?;
            // the next token's logit, raised by as much as 4 times the noise hides
            let (b, t) = x.dims2()?;
            let next = one_ahead(&x.unsqueeze(2)?)?;
            let raise = Tensor::full(0.03f32, (b, t, 1), x.device())?;
            let leak = own.scatter_add(&next, &raise, 2)?;
            shaken(leak, 0.009, calls.get(), everywhere)
        }));
        assert_eq!(refusal(&covered), Reason::NonCausal, "everywhere: {everywhere}");
    }
}

#[test]
fn what_contestant_code_says_is_passed_on() {
    let model = Model(Box::new(|_| candle_core::bail!("my rotary table is too short")));
    let e = run(&model, &fake::rows(CONTEXT, 70, 5)).unwrap_err().to_string();
    assert!(e.contains("my rotary table is too short"), "{e}");
}

#[test]
fn a_single_row_cannot_be_probed_and_says_so() {
    let e = run(&tables().model(Ok), &fake::rows(CONTEXT, 1, 5)).unwrap_err().to_string();
    assert!(e.contains("causality probe"), "{e}");
}
