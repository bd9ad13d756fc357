//! Reverse-mode autodiff over candle tensors.
//!
//! A [`Param`] is a trainable tensor, a [`Node`] a tensor on a [`Tape`]. Write the forward pass on nodes as
//! you would in PyTorch or candle, call [`Node::backward`] on the loss, read [`Param::grad`].
//!
//! ```
//! use candle_core::{DType, Device, Result, Tensor};
//! use tape::{Node, Param, Tape, check};
//!
//! struct Mlp { up: Param, down: Param }
//!
//! impl Mlp {
//!     /// x: (B, T, C) → (B, T, C).
//!     fn forward(&self, x: &Node) -> Result<Node> {
//!         let h = x.rms_norm()?.linear(&self.up)?.relu_squared()?;
//!         x + &h.linear(&self.down)? // operators return a Result, as in candle
//!     }
//! }
//!
//! let cpu = Device::Cpu;
//! let mlp = Mlp {
//!     up: Param::new("up", Tensor::randn(0f32, 0.1, (32, 8), &cpu)?)?, // weights are (out, in)
//!     down: Param::new("down", Tensor::randn(0f32, 0.1, (8, 32), &cpu)?)?,
//! };
//! let x = Tensor::randn(0f32, 1.0, (2, 5, 8), &cpu)?;
//!
//! let tape = Tape::new(); // one tape a forward pass
//! let loss = mlp.forward(&tape.constant(x.clone()))?.sqr()?.mean_all()?;
//! println!("{}", loss.value().to_scalar::<f32>()?); // a node's value is a candle tensor
//! loss.backward()?; // adds to the gradients, and empties the tape
//! check::every_gradient([&mlp.up, &mlp.down])?; // names the parameters that got none
//!
//! for p in [&mlp.up, &mlp.down] {
//!     let grad = p.grad().expect("checked above"); // a candle tensor, f32
//!     p.set(&(p.master() - (grad * 0.1)?)?)?;
//!     p.zero_grad();
//! }
//!
//! let y = mlp.forward(&Tape::no_grad().constant(x))?; // for scoring: nothing is kept
//! assert_eq!(y.dims(), [2, 5, 8]);
//! # Result::Ok(())
//! ```
//!
//! # Operations
//!
//! Functions return candle's `Result`. Where a second operand is taken it may be a node, a [`Param`] (put on
//! the tape by itself) or a plain `Tensor` (a constant): `x.linear(&self.w)?`, `(&x * &self.gain)?`.
//!
//! | | |
//! |---|---|
//! | leaves | [`tape.constant(t)`](Tape::constant), [`tape.param(&p)`](Tape::param), [`tape.embedding(&p, &ids)`](Tape::embedding): (V, C), (B, T) → (B, T, C) |
//! | arithmetic, broadcast as in NumPy | `&a + &b`, `-`, `*`, `/`; with an `f64`: `(&a * 0.5)?`; [`affine`](Node::affine), [`sqr`](Node::sqr), [`tanh`](Node::tanh), [`sigmoid`](Node::sigmoid) |
//! | shape | [`reshape`](Node::reshape), [`narrow`](Node::narrow), [`transpose`](Node::transpose), [`contiguous`](Node::contiguous), [`Node::cat`], [`to_dtype`](Node::to_dtype), [`detach`](Node::detach) |
//! | sums | [`sum_all`](Node::sum_all), [`mean_all`](Node::mean_all), [`sum_last`](Node::sum_last) |
//! | products | [`linear`](Node::linear): (…, in), (out, in) → (…, out); [`matmul`](Node::matmul): (…, M, K), (…, K, N) → (…, M, N) |
//! | layers, fused | [`rms_norm`](Node::rms_norm), [`relu_squared`](Node::relu_squared), [`mix`](Node::mix), [`rope_norm`](Node::rope_norm), [`gated_value`](Node::gated_value), [`attention`](Node::attention), [`head_loss`](Node::head_loss) |
//! | any candle op | [`x.candle(\|t\| t.gelu())?`](Node::candle), [`tape.candle(&[&x, &y], \|t\| &t[0] * &t[1])?`](Tape::candle) |
//! | your own backward | [`tape.record(name, &[&x], value, \|grad\| …)`](Tape::record) |
//!
//! # The bridge
//!
//! [`Node::candle`] and [`Tape::candle`] apply any candle expression and differentiate it with candle's own
//! autograd. Its gradients reach parameters only through the inputs listed; tensors that the closure captures
//! are constants. Some ops of candle-nn have no backward and silently give no gradient: `rms_norm`,
//! `layer_norm`, `softmax_last_dim`, `rope`. Use [`Node::rms_norm`], `candle_nn::ops::softmax`,
//! [`Node::rope_norm`], or compose them from tensor ops. An input that gets no gradient is an error (pass
//! `x.detach()` where that is meant), and on [`Tape::checked`], which a first training step uses, so is one
//! that gets a part of it.
//!
//! ```
//! # use candle_core::{Device, Result, Tensor};
//! # use tape::{Param, Tape};
//! let w = Param::new("w", Tensor::randn(0f32, 1.0, (4, 3), &Device::Cpu)?)?;
//! let tape = Tape::checked();
//! let x = tape.constant(Tensor::randn(0f32, 1.0, (2, 3), &Device::Cpu)?);
//! let y = x.linear(&w)?.candle(|t| t.silu())?; // (2, 4)
//! y.candle(|t| candle_nn::ops::log_softmax(t, 1))?.mean_all()?.backward()?;
//! # Result::Ok(())
//! ```
//!
//! # Costs
//!
//! The first gradient of a value is moved, later ones are added in place; a weight's gradient is added to its
//! buffer by the product that makes it. A bridge costs one copy of each input and candle's zero-and-add for
//! each intermediate: fine for one activation, dear for a whole layer. Views (`narrow`, `transpose`) are free
//! forward. Nothing on a constant is recorded.
//!
//! # Checking an operation
//!
//! [`check::gradients`] holds gradients against finite differences in f64.

mod bridge;
pub mod check;
mod error;
mod nn;
mod ops;
mod param;
mod tape;

pub use error::Error;
pub use param::Param;
pub use tape::{Node, Operand, Tape};
