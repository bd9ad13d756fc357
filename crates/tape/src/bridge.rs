//! The bridge: any candle expression as one operation, differentiated by candle's own autograd.

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::{CpuStorage, CudaStorage, CustomOp1, DType, Layout, Result, Shape, Tensor, Var};

use crate::tape::Grad;
use crate::{Error, Node, Tape};

impl Tape {
    /// Applies a candle expression to the values of `inputs`.
    ///
    /// `expression` gets one tensor per input and returns the result; what else it captures is constant.
    /// candle copies each input once and keeps every intermediate until backward, so an operation of this
    /// crate, where there is one, is cheaper.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use tape::{Param, Tape};
    /// let w = Param::new("w", Tensor::new(&[0.5f32, -1.0], &Device::Cpu)?)?;
    /// let tape = Tape::new();
    /// let x = tape.constant(Tensor::new(&[1f32, 2.0], &Device::Cpu)?);
    /// let y = tape.candle(&[&x, &tape.param(&w)], |t| (&t[0] * &t[1])?.gelu())?;
    /// y.sum_all()?.backward()?;
    /// assert!(w.grad().is_some());
    /// # candle_core::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// What the expression returns; at backward, [`Error::BridgeGradient`] when an input that needs a
    /// gradient gets none and, on a [`Tape::checked`] one, [`Error::BridgePartial`] when it gets a wrong one.
    pub fn candle(&self, inputs: &[&Node], expression: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Node> {
        let leaf = |n: &&Node| n.needs_grad().then(|| Var::from_tensor(n.value())).transpose();
        let vars: Vec<Option<Var>> = inputs.iter().map(leaf).collect::<Result<_>>()?;
        let given: Vec<Tensor> =
            inputs.iter().zip(&vars).map(|(n, v)| v.as_deref().unwrap_or(n.value()).clone()).collect();
        let result = expression(&given)?;
        let probes = match self.is_checked() && vars.iter().any(Option::is_some) {
            true => Probe::some(&vars, &given, &result, &expression)?,
            false => Vec::new(),
        };
        let graph = result.clone();
        self.push("candle", inputs, result, move |grad| {
            let upstream = (!probes.is_empty()).then(|| grad.tensor.clone());
            let seeded = graph.apply_op1(Seed(grad.tensor))?;
            drop(graph);
            let mut grads = Vec::with_capacity(vars.len());
            let mut store = match seeded.track_op() {
                true => Some(seeded.backward()?),
                false => None, // nothing in the expression is differentiable
            };
            for (input, var) in vars.iter().enumerate() {
                let grad = var.as_ref().map(|var| {
                    let grad = store.as_mut().and_then(|s| s.remove(var));
                    grad.ok_or(Error::BridgeGradient { op: "candle", input })
                });
                grads.push(grad.transpose()?);
            }
            if let Some(upstream) = upstream {
                Probe::check(&probes, &upstream, &grads)?;
            }
            Ok(grads.into_iter().map(|g| g.and_then(Grad::shared)).collect())
        })
    }
}

impl Node {
    /// Applies a candle expression to this node alone: `x.candle(|t| t.gelu_erf())?`. See
    /// [`Tape::candle`].
    pub fn candle(&self, expression: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Node> {
        self.tape().candle(&[self], |t| expression(&t[0]))
    }
}

/// Any tensor → a scalar 0 whose gradient by the tensor is the one given: candle starts backward from
/// ones only.
struct Seed(Tensor);

impl Seed {
    fn zero<S>(storage: &S) -> Result<(S, Shape)>
    where
        S: BackendStorage,
        S::Device: BackendDevice<Storage = S>,
    {
        let shape = Shape::from(());
        Ok((storage.device().zeros_impl(&shape, storage.dtype())?, shape))
    }
}

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Self::zero(storage)
    }

    fn cuda_fwd(&self, storage: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        Self::zero(storage)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}

/// The slope of an expression along one random direction, to hold candle's gradient against. An op
/// without backward in candle is a constant to it: where another path leads to the same input, a gradient
/// comes out all the same, and only its value is wrong.
struct Probe {
    directions: Vec<Option<Tensor>>,
    /// (f(x + h·d) − f(x − h·d)) / 2h, in f32 or wider.
    slope: Tensor,
}

impl Probe {
    const COUNT: usize = 4;

    /// Step, in units of the input's size, and tolerance, in units of what a random sum of the terms would
    /// be. Half precision needs a longer step to rise above its own rounding.
    fn step_and_tolerance(dtype: DType) -> (f64, f64) {
        if matches!(dtype, DType::BF16 | DType::F16) { (0.1, 0.3) } else { (1e-3, 0.05) }
    }

    /// None where the expression is random, which finite differences say nothing about.
    fn some(
        vars: &[Option<Var>],
        given: &[Tensor],
        result: &Tensor,
        expression: impl Fn(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Vec<Self>> {
        let plain = |i: usize| given[i].detach();
        let again = expression(&(0..given.len()).map(plain).collect::<Vec<_>>())?;
        let difference = wide(&(again - result.detach())?)?.abs()?.sum_all()?;
        if difference.to_dtype(DType::F64)?.to_scalar::<f64>()? != 0.0 {
            return Ok(Vec::new());
        }
        let (step, _) = Self::step_and_tolerance(result.dtype());
        let mut probes = Vec::with_capacity(Self::COUNT);
        for _ in 0..Self::COUNT {
            let direction = |var: &Option<Var>| {
                let draw = |v: &Var| -> Result<Tensor> {
                    let size = wide(v)?.sqr()?.mean_all()?.sqrt()?;
                    wide(&v.randn_like(0.0, 1.0)?)?.broadcast_mul(&size)?.to_dtype(v.dtype())
                };
                var.as_ref().map(draw).transpose()
            };
            let directions = vars.iter().map(direction).collect::<Result<Vec<_>>>()?;
            let moved = |h: f64| {
                let along = |(x, d): (&Tensor, &Option<Tensor>)| match d {
                    Some(d) => x.detach() + (d * h)?,
                    None => Ok(x.clone()),
                };
                let inputs = given.iter().zip(&directions).map(along).collect::<Result<Vec<_>>>()?;
                wide(&expression(&inputs)?)
            };
            let slope = ((moved(step)? - moved(-step)?)? / (2.0 * step))?;
            probes.push(Self { directions, slope });
        }
        Ok(probes)
    }

    /// Fails when two directions disagree: one may have crossed a kink.
    fn check(probes: &[Self], upstream: &Tensor, grads: &[Option<Tensor>]) -> Result<()> {
        let (_, tolerance) = Self::step_and_tolerance(upstream.dtype());
        let mut doubted = false;
        for probe in probes {
            let terms = (wide(upstream)? * &probe.slope)?;
            let (numeric, scale) = (sum(&terms)?, sum(&terms.sqr()?)?.sqrt());
            let mut analytic = 0.0;
            for (d, g) in probe.directions.iter().zip(grads) {
                if let (Some(d), Some(g)) = (d, g) {
                    analytic += sum(&(wide(d)? * wide(g)?)?)?;
                }
            }
            // NaN is not a disagreement: a loss that is not finite is reported as such
            if (numeric - analytic).abs() > tolerance * scale.max(numeric.abs()) {
                if doubted {
                    return Err(Error::BridgePartial { op: "candle", numeric, analytic }.into());
                }
                doubted = true;
            }
        }
        Ok(())
    }
}

fn wide(t: &Tensor) -> Result<Tensor> {
    if t.dtype() == DType::F64 { Ok(t.clone()) } else { t.to_dtype(DType::F32) }
}

fn sum(t: &Tensor) -> Result<f64> {
    t.sum_all()?.to_dtype(DType::F64)?.to_scalar()
}
