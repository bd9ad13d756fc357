//! What can go wrong on a tape.

/// An error of the tape. Functions of this crate return candle's `Result`, in which these are wrapped, so
/// that one `?` serves both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node from one tape met an operation on another.
    #[error("`{op}`: the inputs are on different tapes; use one `Tape` for a forward pass")]
    OtherTape {
        /// The operation.
        op: &'static str,
    },
    /// A backward closure gave too many or too few gradients.
    #[error("backward of `{op}` returned {got} gradients for {want} inputs; one per input, `None` for none")]
    GradientCount {
        /// The operation.
        op: &'static str,
        /// Gradients returned.
        got: usize,
        /// Inputs of the operation.
        want: usize,
    },
    /// A backward closure gave a gradient of another shape or dtype than the input's.
    #[error("backward of `{op}` returned a gradient of {got} for an input of {want}")]
    GradientShape {
        /// The operation.
        op: &'static str,
        /// Shape and dtype returned.
        got: String,
        /// Shape and dtype of the input.
        want: String,
    },
    /// A tape was used again after `backward`.
    #[error("this tape is spent: backward has emptied it; make a new `Tape` for each forward pass")]
    Spent,
    /// `backward` on something that is not a scalar.
    #[error("backward needs one element, got shape {dims:?}; reduce it first, e.g. with `mean_all`")]
    NotScalar {
        /// The shape it had.
        dims: Vec<usize>,
    },
    /// `backward` on a constant.
    #[error("backward on a value that depends on no parameter: made on `Tape::no_grad()`, or detached")]
    NoGraph,
    /// A value or gradient of another shape than the parameter's.
    #[error("parameter `{name}` has shape {want:?}, got {got:?}")]
    ParamShape {
        /// The parameter.
        name: String,
        /// What came.
        got: Vec<usize>,
        /// What the parameter has.
        want: Vec<usize>,
    },
    /// A candle expression through which an input got no gradient.
    #[error(
        "`{op}`: candle gave input {input} no gradient. Either the expression does not use it, or an op in it \
         has no backward in candle (candle-nn's rms_norm, softmax_last_dim, layer_norm and rope have none: \
         use Node::rms_norm, candle_nn::ops::softmax, …). If that is meant, pass `x.detach()`"
    )]
    BridgeGradient {
        /// The operation.
        op: &'static str,
        /// Position among the inputs.
        input: usize,
    },
    /// A candle expression whose gradient is not the slope of its value.
    #[error(
        "`{op}`: the gradient candle gives for its inputs disagrees with finite differences (slope {numeric:.4e}, \
         by autograd {analytic:.4e}). An op in it has no backward in candle, so a part of the gradient is \
         missing; see the docs of `tape` for differentiable ones"
    )]
    BridgePartial {
        /// The operation.
        op: &'static str,
        /// By finite differences.
        numeric: f64,
        /// By candle's autograd.
        analytic: f64,
    },
    /// Parameters that backward never reached.
    #[error(
        "no gradient for {}: nothing the loss depends on uses {}. Use it in the forward pass, or \
         remove it from the parameters", names.join(", "), if names.len() == 1 { "it" } else { "them" }
    )]
    NoGradient {
        /// Their names.
        names: Vec<String>,
    },
    /// Analytic and numeric gradient differ.
    #[error(
        "gradient of `{name}` differs at element {index}: {analytic:.8e} by backward, {numeric:.8e} by finite \
         differences"
    )]
    Check {
        /// The parameter.
        name: String,
        /// Flat index of the worst element.
        index: usize,
        /// By backward.
        analytic: f64,
        /// By finite differences.
        numeric: f64,
    },
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        Self::wrap(error)
    }
}
