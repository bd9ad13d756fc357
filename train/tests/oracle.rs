//! The GPT and its update once more, in plain candle ops in f64, for comparison. Nothing of the code under
//! test is used but names and shapes.

use std::collections::BTreeMap;

use candle_core::{D, DType, Result, Tensor, Var};

use crate::CPU;
use crate::train::model::{Config, Gpt};

pub type Vars = BTreeMap<String, Var>;

/// The weights of a model in f64.
pub fn vars(model: &Gpt) -> Vars {
    let var = |t: Tensor| Var::from_tensor(&t.to_dtype(DType::F64).unwrap()).unwrap();
    model.params().map(|p| (p.name().to_string(), var(p.master()))).collect()
}

fn norm(x: &Tensor) -> Result<Tensor> {
    let rms = (x.sqr()?.mean_keepdim(D::Minus1)? + f32::EPSILON as f64)?.sqrt()?;
    x.broadcast_div(&rms)
}

fn lookup(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (b, t) = ids.dims2()?;
    table.index_select(&ids.flatten_all()?, 0)?.reshape((b, t, table.dim(1)?))
}

/// x: (B, T, in), w: (out, in).
fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (b, t, inner) = x.dims3()?;
    x.reshape((b * t, inner))?.matmul(&w.t()?)?.reshape((b, t, w.dim(0)?))
}

/// x: (B, T, H, D).
fn rotate(x: &Tensor) -> Result<Tensor> {
    let (_, t, _, d) = x.dims4()?;
    let half = d / 2;
    let angle = |n: usize| (n / half) as f64 * 10_000f64.powf(-2.0 * (n % half) as f64 / d as f64);
    let angles = Tensor::from_vec((0..t * half).map(angle).collect::<Vec<_>>(), (t, 1, half), &CPU)?;
    let (cos, sin) = (angles.cos()?, angles.sin()?);
    let (x1, x2) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
    let y1 = (x1.broadcast_mul(&cos)? + x2.broadcast_mul(&sin)?)?;
    let y2 = (x2.broadcast_mul(&cos)? - x1.broadcast_mul(&sin)?)?;
    Tensor::cat(&[y1, y2], 3)
}

/// (B, T, Hkv, D) → (B, H, T, D), each key/value head repeated for its query heads.
fn spread(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (b, t, kv, d) = x.dims4()?;
    let x = x.transpose(1, 2)?.reshape((b, kv, 1, t, d))?;
    x.broadcast_as((b, kv, heads / kv, t, d))?.reshape((b, heads, t, d))
}

/// Logits before the cap, (B, T, V).
pub fn logits(c: &Config, w: &Vars, ids: &Tensor) -> Result<Tensor> {
    let (b, t) = ids.dims2()?;
    let (h, d, kv, depth) = (c.width / c.head_dim, c.head_dim, c.kv_heads, c.windows.len());
    let mut x = norm(&lookup(&w["wte"], ids)?)?;
    let x0 = x.clone();
    for l in 0..depth {
        let block = |name: &str| -> &Tensor { &w[&format!("blocks.{l}.{name}")] };
        let r = w["residual"].narrow(0, l, 1)?;
        let z = w["shortcut"].narrow(0, l, 1)?;
        x = (x.broadcast_mul(&r)? + x0.broadcast_mul(&z)?)?;
        let n = norm(&x)?;
        let split = |y: Tensor, heads: usize| y.reshape((b, t, heads, d));
        let q = norm(&rotate(&split(linear(&n, block("q"))?, h)?)?)?;
        let k = norm(&rotate(&split(linear(&n, block("k"))?, kv)?)?)?;
        let mut v = split(linear(&n, block("v"))?, kv)?;
        if l % 2 == (depth - 1) % 2 {
            let gate = linear(&n.narrow(2, 0, 32)?.contiguous()?, block("gate"))?;
            let gate = ((gate.neg()?.exp()? + 1.0)?.recip()? * 2.0)?.unsqueeze(3)?;
            v = (v + split(lookup(block("value"), ids)?, kv)?.broadcast_mul(&gate)?)?;
        }
        let (q, k, v) = (q.transpose(1, 2)?.contiguous()?, spread(&k, h)?, spread(&v, h)?);
        let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? / (d as f64).sqrt())?;
        let seen = |n: usize| {
            let (i, j) = (n / t, n % t);
            if j <= i && i - j <= c.windows[l] { 0.0 } else { f64::NEG_INFINITY }
        };
        let mask = Tensor::from_vec((0..t * t).map(seen).collect::<Vec<_>>(), (t, t), &CPU)?;
        let y = candle_nn::ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?.matmul(&v)?;
        x = (x + linear(&y.transpose(1, 2)?.reshape((b, t, h * d))?, block("out"))?)?;
        let up = linear(&norm(&x)?, block("up"))?.relu()?.sqr()?;
        x = (x + linear(&up, block("down"))?)?;
    }
    linear(&norm(&x)?, &w["head"])
}

/// 15·tanh(z/15).
pub fn cap(logits: &Tensor) -> Result<Tensor> {
    (logits / 15.0)?.tanh()? * 15.0
}

/// Mean cross-entropy in nats.
pub fn loss(c: &Config, w: &Vars, ids: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let z = cap(&logits(c, w, ids)?)?;
    candle_nn::loss::cross_entropy(&z.flatten(0, 1)?, &targets.flatten_all()?)
}

/// The update; one first moment and one second moment per parameter.
pub struct Update {
    width: usize,
    depth: usize,
    state: BTreeMap<String, (Tensor, Tensor)>,
    steps: i32,
}

impl Update {
    pub fn new(c: &Config) -> Self {
        Self { width: c.width, depth: c.windows.len(), state: BTreeMap::new(), steps: 0 }
    }

    /// Updates `w` by the gradients, at progress p.
    pub fn step(&mut self, w: &Vars, grads: &BTreeMap<String, Tensor>, p: f64) -> Result<()> {
        self.steps += 1;
        let schedule = if p < 0.5 { 1.0 } else { (1.0 - p) / 0.5 };
        let k = (self.width as f64 / 768.0).powf(-0.5);
        for (name, var) in w {
            let g = &grads[name];
            let update = match name.as_str() {
                "wte" => self.adam(name, g, 0.6 * k * schedule, 0.8)?,
                "head" => self.adam(name, g, 0.004 * k * schedule, 0.8)?,
                "residual" => self.adam(name, g, 0.005 * schedule, 0.8)?,
                "shortcut" => self.adam(name, g, 0.5 * schedule, 0.96)?,
                _ if name.ends_with(".value") => self.adam(name, g, 0.6 * k * schedule, 0.8)?,
                _ => self.muon(name, g, var, 0.04 * schedule, 0.2 * (1.0 - p))?,
            };
            var.set(&(var.as_tensor() - update)?)?;
        }
        assert_eq!(w.keys().filter(|n| n.ends_with(".q")).count(), self.depth);
        Ok(())
    }

    fn state(&self, name: &str, first: Tensor, second: Tensor) -> (Tensor, Tensor) {
        self.state.get(name).cloned().unwrap_or((first, second))
    }

    fn adam(&mut self, name: &str, g: &Tensor, lr: f64, beta1: f64) -> Result<Tensor> {
        let (m, v) = self.state(name, g.zeros_like()?, g.zeros_like()?);
        let m = ((m * beta1)? + (g * (1.0 - beta1))?)?;
        let v = ((v * 0.95)? + (g.sqr()? * 0.05)?)?;
        let root = ((&v / (1.0 - 0.95f64.powi(self.steps)))?.sqrt()? + 1e-10)?;
        let update = ((&m / root)? * (lr / (1.0 - beta1.powi(self.steps))))?;
        self.state.insert(name.into(), (m, v));
        Ok(update)
    }

    fn muon(&mut self, name: &str, g: &Tensor, w: &Tensor, lr: f64, decay: f64) -> Result<Tensor> {
        let (rows, cols) = g.dims2()?;
        let tall = rows >= cols;
        let second = if tall { (rows, 1) } else { (1, cols) };
        let (m, v) = self.state(name, g.zeros_like()?, Tensor::zeros(second, DType::F64, &CPU)?);
        let mu = 0.85 + 0.1 * (f64::from(self.steps - 1) / 300.0).min(1.0);
        let m = ((m * mu)? + (g * (1.0 - mu))?)?;
        let x = ((g * (1.0 - mu))? + (&m * mu)?)?;
        let length = x.sqr()?.sum_all()?.sqrt()?.to_scalar::<f64>()?;
        let mut x = (x / (1.02 * length + 1e-6))?;
        for (a, b, c) in [
            (8.156554524902461, -22.48329292557795, 15.878769915207462),
            (4.042929935166739, -2.808917465908714, 0.5000178451051316),
            (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
            (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
            (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
        ] {
            // the wide form alone: the transposed problem is the same one
            let y = if rows > cols { x.t()?.contiguous()? } else { x.clone() };
            let s = y.matmul(&y.t()?)?;
            let poly = ((&s * b)? + (s.matmul(&s)? * c)?)?;
            let y = ((&y * a)? + poly.matmul(&y)?)?;
            x = if rows > cols { y.t()?.contiguous()? } else { y };
        }
        let mean = x.sqr()?.mean_keepdim(if tall { 1 } else { 0 })?;
        let v = ((v * 0.95)? + (&mean * 0.05)?)?;
        let scaled = x.broadcast_div(&v.maximum(1e-10)?.sqrt()?)?;
        let length = |t: &Tensor| -> Result<f64> { t.sqr()?.sum_all()?.sqrt()?.to_scalar() };
        let x = (&scaled * (length(&x)? / length(&scaled)?.max(1e-10)))?;
        let mask = (&x * w)?.ge(0.0)?.to_dtype(DType::F64)?;
        let stretch = (rows as f64 / cols as f64).max(1.0).sqrt();
        self.state.insert(name.into(), (m, v));
        (&x + ((w * mask)? * decay)?)? * (lr * stretch)
    }
}
