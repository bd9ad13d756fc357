//! Fused ops of the GPT and its optimizers, over candle tensors, without autodiff.
//!
//! Each module is one op: a `reference` made of differentiable candle ops, which says what the op means and
//! is its oracle in tests, and functions for its forward and its backward. f32 and f64 tensors on the CPU take
//! the implementations here; tensors of another type or device go through the reference and candle's autograd.
//! Inputs may be any views (narrowed, transposed); tensors that are changed in place must be contiguous.
//! The same inputs give the same bits, however many threads run.
//!
//! | module | op |
//! |---|---|
//! | [`embedding`] | rows of a table by token id |
//! | [`rms_norm`] | x / rms(x) |
//! | [`mix`] | r·x + z·x0 |
//! | [`linear`] | x·Wᵀ |
//! | [`gated_value`] | v + 2·sigmoid(gate)·ve |
//! | [`rope_norm`] | rotary embedding, then RMS norm, of q or k |
//! | [`attention`] | causal, sliding window, grouped queries |
//! | [`relu_squared`] | max(x, 0)² |
//! | [`head`] | logits, soft cap, cross-entropy, in chunks |
//! | [`soft_cap`] | cap·tanh(z/cap), in place |
//! | [`accumulate`] | a + b; y += x |
//! | [`scale`] | y ← s·y, in place |
//! | [`cast`] | y ← x in y's type, in place |
//! | [`adamw`], [`muon`] | updates in place |

pub mod accumulate;
pub mod adamw;
pub mod attention;
pub mod cast;
pub mod cuda;
pub mod embedding;
pub mod gated_value;
pub mod head;
pub mod linear;
pub mod mix;
pub mod muon;
pub mod relu_squared;
pub mod rms_norm;
pub mod rope_norm;
pub mod scale;
pub mod soft_cap;

mod composed;
mod gemm;
mod panel;
mod real;
mod rows;
mod storage;

use candle_core::{Result, Tensor, bail};

/// Errors unless both tensors have one shape.
fn same_shape(op: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dims() != b.dims() {
        bail!("{op}: shapes {:?} and {:?} must be equal", a.shape(), b.shape())
    }
    Ok(())
}
