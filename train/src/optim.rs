//! The update: Muon on the matrices inside the blocks, AdamW on everything else, and their schedules.

use candle_core::{Result, Tensor};
use kernels::adamw::{self, AdamW};
use kernels::muon::{self, Muon};
use tape::Param;

use super::model::Gpt;

// Learning rates are those at the start; the schedule multiplies them all.
#[rustfmt::skip]
mod knobs {
    pub const HEAD_LR: f64 = 0.004; // knob: log 0.0005..0.03; AdamW, times √(768/C)
    pub const EMBED_LR: f64 = 0.6; // knob: log 0.05..3.0; AdamW, times √(768/C)
    pub const VALUE_LR: f64 = 0.6; // knob: log 0.05..3.0; AdamW on value embeddings, times √(768/C)
    pub const RESIDUAL_LR: f64 = 0.005; // knob: log 0.0005..0.1; AdamW
    pub const SHORTCUT_LR: f64 = 0.5; // knob: log 0.02..2.0; AdamW
    pub const MATRIX_LR: f64 = 0.04; // knob: log 0.005..0.2; Muon
    pub const BETA1: f64 = 0.8; // knob: lin 0.5..0.95; AdamW
    pub const SHORTCUT_BETA1: f64 = 0.96; // knob: lin 0.5..0.99; AdamW
    pub const BETA2: f64 = 0.95; // knob: lin 0.85..0.999; AdamW
    pub const MUON_BETA2: f64 = 0.95; // knob: lin 0.8..0.999; second moment of the orthogonalised update
    pub const MOMENTUM_START: f64 = 0.85; // knob: lin 0.6..0.95; Muon, on the first step
    pub const MOMENTUM: f64 = 0.95; // knob: lin 0.8..0.99; Muon, after the ramp
    pub const MOMENTUM_RAMP: usize = 300; // knob: int 1..1000; steps
    pub const MATRIX_DECAY: f64 = 0.2; // knob: log 0.001..1.0; Muon, cautious, linear to 0 over the budget
    pub const WARMUP: f64 = 0.0; // knob: lin 0.0..0.2; share of the budget over which learning rates rise
    pub const WARMDOWN: f64 = 0.5; // knob: lin 0.1..1.0; share of the budget at the end over which they fall
    pub const FINAL_LR: f64 = 0.0; // knob: lin 0.0..0.2; where they end, as a share
}
pub use knobs::*;

const ADAM_EPS: f64 = 1e-10;

/// What learning rates are multiplied by at `progress`, elapsed time over budget.
pub fn lr_scale(progress: f64) -> f64 {
    if progress < WARMUP {
        return progress / WARMUP;
    }
    let left = ((1.0 - progress) / WARMDOWN).clamp(0.0, 1.0);
    left + (1.0 - left) * FINAL_LR
}

/// Muon's momentum on `step`, from 0.
fn momentum(step: u32) -> f64 {
    let ramp = (f64::from(step) / MOMENTUM_RAMP as f64).min(1.0);
    MOMENTUM_START + (MOMENTUM - MOMENTUM_START) * ramp
}

/// One parameter under AdamW.
struct Single {
    param: Param,
    lr: f64,
    beta1: f64,
    m: Tensor,
    v: Tensor,
}

impl Single {
    fn new(param: &Param, lr: f64, beta1: f64) -> Result<Self> {
        let w = param.master();
        Ok(Self { param: param.clone(), lr, beta1, m: w.zeros_like()?, v: w.zeros_like()? })
    }
}

/// Matrices of one shape (R, K) under Muon.
struct Group {
    params: Vec<Param>,
    /// (n, R, K).
    moment: Tensor,
    /// (n, R, 1), or (n, 1, K) where R < K.
    second: Tensor,
}

impl Group {
    fn new(params: Vec<Param>, rows: usize, cols: usize) -> Result<Self> {
        let w = params[0].master();
        let (n, dtype, device) = (params.len(), w.dtype(), w.device());
        let second = muon::second_moment_shape(n, rows, cols);
        Ok(Self {
            params,
            moment: Tensor::zeros((n, rows, cols), dtype, device)?,
            second: Tensor::zeros(second, dtype, device)?,
        })
    }
}

/// Optimizer state for every parameter of a model.
pub struct Optimizer {
    singles: Vec<Single>,
    groups: Vec<Group>,
    step: u32,
}

impl Optimizer {
    pub fn new(model: &Gpt) -> Result<Self> {
        let wide = (model.config.width as f64 / 768.0).powf(-0.5);
        let mut singles = vec![
            Single::new(&model.wte, EMBED_LR * wide, BETA1)?,
            Single::new(&model.head, HEAD_LR * wide, BETA1)?,
            Single::new(&model.residual, RESIDUAL_LR, BETA1)?,
            Single::new(&model.shortcut, SHORTCUT_LR, SHORTCUT_BETA1)?,
        ];
        for table in model.tables() {
            singles.push(Single::new(table, VALUE_LR * wide, BETA1)?);
        }
        let mut shapes: Vec<(Vec<usize>, Vec<Param>)> = Vec::new();
        for param in model.matrices() {
            match shapes.iter_mut().find(|(dims, _)| *dims == param.dims()) {
                Some((_, group)) => group.push(param.clone()),
                None => shapes.push((param.dims(), vec![param.clone()])),
            }
        }
        let group = |(dims, params): (Vec<usize>, Vec<Param>)| Group::new(params, dims[0], dims[1]);
        let groups = shapes.into_iter().map(group).collect::<Result<_>>()?;
        Ok(Self { singles, groups, step: 0 })
    }

    /// Updates every parameter from its gradient, which is then zeroed. `progress`: elapsed over budget.
    pub fn step(&mut self, progress: f64) -> Result<()> {
        let scale = lr_scale(progress);
        let momentum = momentum(self.step);
        self.step += 1;
        let singles = self.singles.iter().map(|s| {
            Ok(adamw::Update {
                w: s.param.master(),
                g: gradient(&s.param)?,
                m: s.m.clone(),
                v: s.v.clone(),
                copy: s.param.compute_copy(),
                with: AdamW {
                    lr: s.lr * scale,
                    beta1: s.beta1,
                    beta2: BETA2,
                    eps: ADAM_EPS,
                    weight_decay: 0.0,
                    step: self.step,
                },
            })
        });
        adamw::step(&singles.collect::<Result<Vec<_>>>()?)?;
        let with = Muon {
            lr: MATRIX_LR * scale,
            momentum,
            beta2: MUON_BETA2,
            weight_decay: MATRIX_DECAY * (1.0 - progress),
        };
        for group in &self.groups {
            let weights = group
                .params
                .iter()
                .map(|p| Ok(muon::Update { w: p.master(), g: gradient(p)?, copy: p.compute_copy() }));
            muon::step(&weights.collect::<Result<Vec<_>>>()?, &group.moment, &group.second, &with)?;
        }
        for param in self.singles.iter().map(|s| &s.param).chain(self.groups.iter().flat_map(|g| &g.params)) {
            param.zero_grad();
        }
        Ok(())
    }
}

fn gradient(param: &Param) -> Result<Tensor> {
    match param.grad() {
        Some(grad) => Ok(grad),
        None => candle_core::bail!("{} has no gradient: call backward before the update", param.name()),
    }
}
