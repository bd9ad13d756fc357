//! The layers of a GPT as operations on nodes, over the kernels.

use candle_core::{DType, Result, Tensor};

use crate::tape::Grad;
use crate::{Node, Operand, Param, Tape};

impl Tape {
    /// Rows of an embedding table. w: (V, C), ids: (B, T) u32 → (B, T, C).
    pub fn embedding(&self, w: &Param, ids: &Tensor) -> Result<Node> {
        let leaf = self.param(w);
        let (param, ids) = (w.clone(), ids.clone());
        let y = kernels::embedding::forward(leaf.value(), &ids)?;
        self.push("embedding", &[&leaf], y, move |g| {
            kernels::embedding::add_backward(&param.grad_buffer()?, &ids, &g.tensor)?;
            Ok(vec![None])
        })
    }
}

impl Node {
    /// y = x·Wᵀ, as `torch.nn.functional.linear`. x: (…, in), w: (out, in) → (…, out).
    pub fn linear(&self, w: &impl Operand) -> Result<Node> {
        let w = &w.on(self.tape());
        let y = kernels::linear::forward(self.value(), w.value())?;
        // each is kept only for the other's gradient
        let x = w.needs_grad().then(|| self.value().clone());
        let weight = self.needs_grad().then(|| w.value().clone());
        let leaf = w.leaf().cloned();
        self.tape().push_adding("linear", &[self, w], y, move |g, sums| {
            let dw = match (&x, leaf) {
                (Some(x), Some(param)) => {
                    kernels::linear::add_backward_weight(&param.grad_buffer()?, x, &g.tensor)?;
                    None
                }
                (Some(x), None) => Grad::fresh(kernels::linear::backward_weight(x, &g.tensor)?),
                (None, _) => None,
            };
            drop(x); // before the next allocation
            let sum = sums.take(0);
            let sum = sum.as_ref().map(Grad::as_sum);
            let dx = weight.map(|w| kernels::linear::backward_input(&g.tensor, &w, sum)).transpose()?;
            Ok(vec![dx.and_then(Grad::fresh), dw])
        })
    }

    /// x / rms(x) over the last axis, without a gain; as `torch.nn.functional.rms_norm`.
    pub fn rms_norm(&self) -> Result<Node> {
        let normed = kernels::rms_norm::forward(self.value())?;
        self.tape().push_adding("rms_norm", &[self], normed.y.clone(), move |g, sums| {
            let sum = sums.take(0);
            let dx = kernels::rms_norm::backward(&normed, &g.tensor, sum.as_ref().map(Grad::as_sum))?;
            Ok(vec![Grad::fresh(dx)])
        })
    }

    /// max(x, 0)².
    pub fn relu_squared(&self) -> Result<Node> {
        let y = kernels::relu_squared::forward(self.value())?;
        self.tape().push("relu_squared", &[self], y.clone(), move |g| {
            Ok(vec![Grad::fresh(kernels::relu_squared::backward(&y, &g.tensor)?)])
        })
    }

    /// r·x + z·x0. x0: like x; r, z: one element, e.g. `resid.narrow(0, layer, 1)`.
    pub fn mix(&self, x0: &Node, r: &impl Operand, z: &impl Operand) -> Result<Node> {
        let (r, z) = (&r.on(self.tape()), &z.on(self.tape()));
        let [xv, x0v, rv, zv] = [self, x0, r, z].map(|n| n.value().clone());
        let y = kernels::mix::forward(&xv, &x0v, &rv, &zv)?;
        self.tape().push_adding("mix", &[self, x0, r, z], y, move |g, sums| {
            let sums = [sums.take(0), sums.take(1)];
            let sums = sums.each_ref().map(|sum| sum.as_ref().map(Grad::as_sum));
            let d = kernels::mix::backward(&xv, &x0v, &rv, &zv, &g.tensor, sums)?;
            Ok([d.x, d.x0, d.r, d.z].into_iter().map(Grad::fresh).collect())
        })
    }

    /// Rotary position embedding, then the RMS norm of each head. x: (B, T, H, D); cos, sin: (T, D/2).
    pub fn rope_norm(&self, cos: &Tensor, sin: &Tensor) -> Result<Node> {
        let (cos, sin) = (cos.clone(), sin.clone());
        let normed = kernels::rope_norm::forward(self.value(), &cos, &sin)?;
        self.tape().push("rope_norm", &[self], normed.y.clone(), move |g| {
            Ok(vec![Grad::fresh(kernels::rope_norm::backward(&normed, &cos, &sin, &g.tensor)?)])
        })
    }

    /// v + 2·sigmoid(gate)·ve, the value residual. v, ve: (B, T, H, D); gate: (B, T, H).
    pub fn gated_value(&self, gate: &Node, ve: &Node) -> Result<Node> {
        let [v, gv, vev] = [self, gate, ve].map(|n| n.value().clone());
        let y = kernels::gated_value::forward(&v, &gv, &vev)?;
        self.tape().push("gated_value", &[self, gate, ve], y, move |g| {
            let d = kernels::gated_value::backward(&v, &gv, &vev, &g.tensor)?;
            Ok(vec![Grad::shared(d.v), Grad::fresh(d.gate), Grad::fresh(d.ve)])
        })
    }

    /// Causal attention: query i sees keys j with i − window ≤ j ≤ i, scaled by 1/√D; the softmax is inside.
    /// self: (B, T, H, D); k, v: (B, T, Hkv, D), Hkv a divisor of H → (B, T, H, D).
    pub fn attention(&self, k: &Node, v: &Node, window: usize) -> Result<Node> {
        let [q, kv, vv] = [self, k, v].map(|n| n.value().clone());
        let attended = kernels::attention::forward(&q, &kv, &vv, window)?;
        self.tape().push("attention", &[self, k, v], attended.out.clone(), move |g| {
            let d = kernels::attention::backward(&q, &kv, &vv, window, &attended, &g.tensor)?;
            Ok([d.q, d.k, d.v].into_iter().map(Grad::fresh).collect())
        })
    }

    /// Mean cross-entropy in nats of the logits x·Wᵀ, capped to cap·tanh(logits/cap) when there is a cap,
    /// without ever holding all logits. x: (B, T, C), w: (V, C), targets: (B, T) u32 → scalar.
    pub fn head_loss(&self, w: &impl Operand, targets: &Tensor, cap: Option<f64>) -> Result<Node> {
        let w = &w.on(self.tape());
        let (x, wv) = (self.value(), w.value());
        if !self.needs_grad() && !w.needs_grad() {
            return Ok(self.tape().constant(kernels::head::loss(x, wv, targets, cap)?));
        }
        // both gradients are made here, while the logits are at hand: cheaper than making those twice
        let wide = if wv.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let dw = Tensor::zeros(wv.shape(), wide, wv.device())?;
        let made = kernels::head::loss_and_gradients(x, wv, targets, cap, 1.0, &dw)?;
        let (narrow, leaf) = (wv.dtype(), w.leaf().cloned());
        self.tape().push("head_loss", &[self, w], made.mean, move |g| {
            kernels::scale::assign(&dw, &g.tensor)?;
            kernels::scale::assign(&made.dx, &g.tensor)?;
            let dw = match leaf {
                Some(param) => {
                    param.accumulate(&dw)?;
                    None
                }
                None => Grad::fresh(dw.to_dtype(narrow)?),
            };
            Ok(vec![Grad::fresh(made.dx), dw])
        })
    }
}
