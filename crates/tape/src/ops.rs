//! Arithmetic and shape operations on nodes, named as in candle.

use std::ops::{Add, Div, Mul, Neg, Sub};

use candle_core::shape::ShapeWithOneHole;
use candle_core::{D, DType, Result, Tensor};
use kernels::accumulate;

use crate::tape::Grad;
use crate::{Node, Operand};

/// Sums `grad` over the axes along which a value of shape `dims` was broadcast. A new buffer unless
/// there is nothing to sum.
fn sum_to(grad: Tensor, dims: &[usize]) -> Result<Tensor> {
    if grad.dims() == dims {
        return Ok(grad);
    }
    let mut sum = grad;
    while sum.rank() > dims.len() {
        sum = sum.sum(0)?;
    }
    for (axis, &size) in dims.iter().enumerate() {
        if size == 1 && sum.dim(axis)? != 1 {
            sum = sum.sum_keepdim(axis)?;
        }
    }
    Ok(sum)
}

/// A gradient that passes through unchanged, or summed where the input was broadcast.
fn passed(needed: bool, grad: &Tensor, dims: &[usize]) -> Result<Option<Grad>> {
    match needed {
        false => Ok(None),
        true if grad.dims() == dims => Ok(Grad::shared(grad.clone())),
        true => Ok(Grad::fresh(sum_to(grad.clone(), dims)?)),
    }
}

/// A gradient that an operation has just computed.
fn made(needed: bool, dims: &[usize], grad: impl FnOnce() -> Result<Tensor>) -> Result<Option<Grad>> {
    if needed { Ok(Grad::fresh(sum_to(grad()?, dims)?)) } else { Ok(None) }
}

fn binary(op: Binary, a: &Node, b: &impl Operand) -> Result<Node> {
    let b = &b.on(a.tape());
    let (need_a, need_b) = (a.needs_grad(), b.needs_grad());
    let (da, db) = (a.dims().to_vec(), b.dims().to_vec());
    let (x, y) = (a.value(), b.value());
    let inputs = [a, b];
    match op {
        Binary::Add => {
            let sum = if da == db { accumulate::add(x, y)? } else { x.broadcast_add(y)? };
            a.tape().push("add", &inputs, sum, move |g| {
                Ok(vec![passed(need_a, &g.tensor, &da)?, passed(need_b, &g.tensor, &db)?])
            })
        }
        Binary::Sub => a.tape().push("sub", &inputs, x.broadcast_sub(y)?, move |g| {
            Ok(vec![passed(need_a, &g.tensor, &da)?, made(need_b, &db, || g.tensor.neg())?])
        }),
        Binary::Mul => {
            let z = x.broadcast_mul(y)?;
            // each side is kept only for the other's gradient
            let (x, y) = (need_b.then(|| x.clone()), need_a.then(|| y.clone()));
            a.tape().push("mul", &inputs, z, move |g| {
                let ga = y.map(|y| made(true, &da, || g.tensor.broadcast_mul(&y))).transpose()?;
                let gb = x.map(|x| made(true, &db, || g.tensor.broadcast_mul(&x))).transpose()?;
                Ok(vec![ga.flatten(), gb.flatten()])
            })
        }
        Binary::Div => {
            let z = x.broadcast_div(y)?;
            let (y, kept) = (y.clone(), need_b.then(|| z.clone()));
            a.tape().push("div", &inputs, z, move |g| {
                let ga = g.tensor.broadcast_div(&y)?;
                let gb = kept.map(|z| made(true, &db, || (&ga * z)?.neg())).transpose()?;
                Ok(vec![made(need_a, &da, || Ok(ga))?, gb.flatten()])
            })
        }
    }
}

enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<O: Operand> $trait<&O> for &Node {
            type Output = Result<Node>;
            fn $method(self, other: &O) -> Result<Node> {
                binary(Binary::$trait, self, other)
            }
        }
        impl<O: Operand> $trait<&O> for Node {
            type Output = Result<Node>;
            fn $method(self, other: &O) -> Result<Node> {
                binary(Binary::$trait, &self, other)
            }
        }
        impl $trait<Node> for &Node {
            type Output = Result<Node>;
            fn $method(self, other: Node) -> Result<Node> {
                binary(Binary::$trait, self, &other)
            }
        }
        impl $trait<Node> for Node {
            type Output = Result<Node>;
            fn $method(self, other: Node) -> Result<Node> {
                binary(Binary::$trait, &self, &other)
            }
        }
    };
}
operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

macro_rules! scalar_operator {
    ($trait:ident, $method:ident, |$c:ident| $mul:expr, $add:expr) => {
        impl $trait<f64> for &Node {
            type Output = Result<Node>;
            fn $method(self, $c: f64) -> Result<Node> {
                self.affine($mul, $add)
            }
        }
        impl $trait<f64> for Node {
            type Output = Result<Node>;
            fn $method(self, $c: f64) -> Result<Node> {
                self.affine($mul, $add)
            }
        }
    };
}
scalar_operator!(Add, add, |c| 1.0, c);
scalar_operator!(Sub, sub, |c| 1.0, -c);
scalar_operator!(Mul, mul, |c| c, 0.0);
scalar_operator!(Div, div, |c| 1.0 / c, 0.0);

impl Neg for &Node {
    type Output = Result<Node>;
    fn neg(self) -> Result<Node> {
        self.affine(-1.0, 0.0)
    }
}

impl Node {
    /// self·mul + add.
    pub fn affine(&self, mul: f64, add: f64) -> Result<Node> {
        let y = self.value().affine(mul, add)?;
        self.tape().push("affine", &[self], y, move |g| match mul {
            1.0 => Ok(vec![Grad::shared(g.tensor)]),
            _ => Ok(vec![Grad::fresh(g.tensor.affine(mul, 0.0)?)]),
        })
    }

    /// Matrix product over the last two axes: (…, M, K) · (…, K, N) → (…, M, N); the leading axes must be
    /// equal.
    pub fn matmul(&self, other: &impl Operand) -> Result<Node> {
        let other = &other.on(self.tape());
        let (x, w) = (self.value().contiguous()?, other.value().clone());
        let (need_x, need_w) = (self.needs_grad(), other.needs_grad());
        self.tape().push("matmul", &[self, other], x.matmul(&w)?, move |g| {
            let g = g.tensor.contiguous()?;
            let gx = need_x.then(|| g.matmul(&w.t()?)).transpose()?;
            let gw = need_w.then(|| x.t()?.matmul(&g)).transpose()?;
            Ok(vec![gx.and_then(Grad::fresh), gw.and_then(Grad::fresh)])
        })
    }

    /// The same elements in another shape; one axis may be `()`, as in candle.
    pub fn reshape(&self, shape: impl ShapeWithOneHole) -> Result<Node> {
        let dims = self.dims().to_vec();
        let y = self.value().reshape(shape)?;
        self.tape().push("reshape", &[self], y, move |g| {
            // a contiguous buffer keeps its owner: only its shape changes
            let fresh = g.fresh && g.tensor.is_contiguous();
            Ok(vec![Some(Grad { tensor: g.tensor.reshape(dims)?, fresh })])
        })
    }

    /// `len` entries of `axis` from `start`; a view.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Result<Node> {
        let x = self.value();
        let (shape, device) = (x.shape().clone(), x.device().clone());
        self.tape().push("narrow", &[self], x.narrow(axis, start, len)?, move |g| {
            let whole = Tensor::zeros(shape, g.tensor.dtype(), &device)?;
            whole.slice_set(&g.tensor.contiguous()?, axis, start)?;
            Ok(vec![Grad::fresh(whole)])
        })
    }

    /// Swaps two axes; a view.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Node> {
        let y = self.value().transpose(a, b)?;
        self.tape().push("transpose", &[self], y, move |g| Ok(vec![Grad::shared(g.tensor.transpose(a, b)?)]))
    }

    /// The same values laid out row by row; free where they are already.
    pub fn contiguous(&self) -> Result<Node> {
        let y = self.value().contiguous()?;
        self.tape().push("contiguous", &[self], y, |g| Ok(vec![Some(g)]))
    }

    /// The same values in another dtype; the gradient comes back in the old one.
    pub fn to_dtype(&self, dtype: DType) -> Result<Node> {
        let old = self.dtype();
        if old == dtype {
            return Ok(self.clone());
        }
        let y = self.value().to_dtype(dtype)?;
        self.tape().push("to_dtype", &[self], y, move |g| Ok(vec![Grad::fresh(g.tensor.to_dtype(old)?)]))
    }

    /// Nodes side by side along `axis`.
    pub fn cat(nodes: &[&Node], axis: usize) -> Result<Node> {
        let Some(first) = nodes.first() else { candle_core::bail!("cat of no nodes") };
        let values: Vec<&Tensor> = nodes.iter().map(|n| n.value()).collect();
        let widths = values.iter().map(|v| v.dim(axis)).collect::<Result<Vec<_>>>()?;
        first.tape().push("cat", nodes, Tensor::cat(&values, axis)?, move |g| {
            let mut start = 0;
            let mut part = |&len: &usize| {
                start += len;
                Ok(Grad::shared(g.tensor.narrow(axis, start - len, len)?))
            };
            widths.iter().map(&mut part).collect()
        })
    }

    /// Sum of all elements; a scalar.
    pub fn sum_all(&self) -> Result<Node> {
        let shape = self.shape().clone();
        self.tape().push("sum_all", &[self], self.value().sum_all()?, move |g| {
            Ok(vec![Grad::shared(g.tensor.broadcast_as(shape)?)])
        })
    }

    /// Mean of all elements; a scalar.
    pub fn mean_all(&self) -> Result<Node> {
        self.sum_all()? / self.shape().elem_count() as f64
    }

    /// Sum over the last axis, which stays with size 1.
    pub fn sum_last(&self) -> Result<Node> {
        let shape = self.shape().clone();
        self.tape().push("sum_last", &[self], self.value().sum_keepdim(D::Minus1)?, move |g| {
            Ok(vec![Grad::shared(g.tensor.broadcast_as(shape)?)])
        })
    }

    /// self².
    pub fn sqr(&self) -> Result<Node> {
        let x = self.value().clone();
        self.tape().push("sqr", &[self], x.sqr()?, move |g| Ok(vec![Grad::fresh((x * 2.0)?.mul(&g.tensor)?)]))
    }

    /// 1 / (1 + e^−self).
    pub fn sigmoid(&self) -> Result<Node> {
        let y = self.value().neg()?.exp()?.affine(1.0, 1.0)?.recip()?;
        let kept = y.clone();
        self.tape().push("sigmoid", &[self], y, move |g| {
            let slope = (&kept - kept.sqr()?)?;
            Ok(vec![Grad::fresh((slope * g.tensor)?)])
        })
    }

    /// Hyperbolic tangent.
    pub fn tanh(&self) -> Result<Node> {
        let y = self.value().tanh()?;
        let kept = y.clone();
        self.tape().push("tanh", &[self], y, move |g| {
            let slope = kept.sqr()?.affine(-1.0, 1.0)?;
            Ok(vec![Grad::fresh((slope * g.tensor)?)])
        })
    }
}
