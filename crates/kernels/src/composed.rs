//! Which implementation a call takes, and the way for tensors that have none here: the op's reference, through
//! candle's autograd.

use candle_core::{DType, Result, Tensor, Var};

/// Whether `t` lies on the CPU in an element type that the fast implementations take.
pub(crate) fn is_fast(t: &Tensor) -> bool {
    t.device().is_cpu() && matches!(t.dtype(), DType::F32 | DType::F64)
}

/// Chooses by the first tensor's device and dtype: the op's kernels in CUDA; loops on the CPU, in which `$T` is f32 or
/// f64; or a composition of candle ops.
macro_rules! dispatch {
    ($t:expr, cuda: $cuda:expr, cpu $T:ident: $cpu:expr, else: $composed:expr $(,)?) => {
        if $crate::cuda::takes($t) {
            $cuda
        } else {
            $crate::composed::dispatch!($t, cpu $T: $cpu, else: $composed)
        }
    };
    ($t:expr, cpu $T:ident: $cpu:expr, else: $composed:expr $(,)?) => {
        match $t.dtype() {
            _ if !$crate::composed::is_fast($t) => $composed,
            candle_core::DType::F64 => {
                type $T = f64;
                $cpu
            }
            _ => {
                type $T = f32;
                $cpu
            }
        }
    };
}
pub(crate) use dispatch;

/// `t` in f32 when it is half precision, else as it is: references compute in no less than f32.
pub(crate) fn widen(t: &Tensor) -> Result<Tensor> {
    match t.dtype() {
        DType::BF16 | DType::F16 => t.to_dtype(DType::F32),
        _ => Ok(t.clone()),
    }
}

/// Gradients of Σ dy·op(inputs) for each input, by candle's autograd.
///
/// A gradient is all zeros where candle finds no path from the input to the output.
pub(crate) fn gradients<const N: usize>(
    inputs: [&Tensor; N],
    dy: &Tensor,
    op: impl Fn(&[Tensor; N]) -> Result<Tensor>,
) -> Result<[Tensor; N]> {
    let vars = inputs.map(Var::from_tensor);
    let mut leaves = Vec::with_capacity(N);
    for v in vars {
        leaves.push(v?);
    }
    let tensors: [Tensor; N] = std::array::from_fn(|i| leaves[i].as_tensor().clone());
    let y = op(&tensors)?;
    let grads = (widen(&y)? * widen(&dy.detach())?)?.sum_all()?.backward()?;
    let mut out = Vec::with_capacity(N);
    for t in &tensors {
        out.push(match grads.get(t) {
            Some(g) => g.clone(),
            None => t.zeros_like()?,
        });
    }
    Ok(out.try_into().expect("N gradients for N inputs"))
}
