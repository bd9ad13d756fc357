//! The tape: what was computed, in order, and how to walk it backwards.

use std::cell::RefCell;
use std::rc::Rc;

use candle_core::{DType, Result, Shape, Tensor};
use kernels::accumulate::{self, Sum, add_assign};

use crate::{Error, Param};

/// A record of operations. `forward` code writes to it, [`Node::backward`] reads it from the end and
/// empties it as it goes, so that an activation is freed as soon as its last use has passed.
///
/// Cloning is cheap and gives another handle on the same record. One tape serves one forward pass.
#[derive(Clone)]
pub struct Tape {
    /// `None`: nothing is recorded.
    record: Option<Rc<RefCell<Record>>>,
    checked: bool,
}

/// A tensor on a tape.
///
/// Cloning is cheap. The tape keeps only what backward closures captured: dropping a node in the
/// forward code frees its value unless some closure needs it.
#[derive(Clone)]
pub struct Node {
    value: Tensor,
    /// Where its gradient is collected; `None` for a constant.
    slot: Option<usize>,
    /// The parameter this node is a leaf of.
    param: Option<Param>,
    tape: Tape,
}

/// A gradient on its way to an input of an operation.
pub(crate) struct Grad {
    pub(crate) tensor: Tensor,
    /// Nobody else holds this buffer, so the tape may add to it in place.
    pub(crate) fresh: bool,
}

impl Grad {
    /// A buffer that the backward closure has just allocated and keeps no other handle on.
    pub(crate) fn fresh(tensor: Tensor) -> Option<Self> {
        Some(Self { tensor, fresh: true })
    }

    /// As the kernels that add on the way take it.
    pub(crate) fn as_sum(&self) -> Sum<'_> {
        Sum { so_far: &self.tensor, owned: self.fresh }
    }

    /// A buffer that may have other readers: a view, or the incoming gradient passed through.
    pub(crate) fn shared(tensor: Tensor) -> Option<Self> {
        Some(Self { tensor, fresh: false })
    }
}

/// One gradient per input, in order; `None` where there is nothing to pass on.
pub(crate) type Grads = Vec<Option<Grad>>;

/// What other paths have given the inputs of an operation so far.
pub(crate) struct Sums<'a> {
    grads: &'a mut [Option<Grad>],
    inputs: &'a [Option<Input>],
}

impl Sums<'_> {
    /// Takes out the sum of an input, when there is one: the gradient returned for the input must hold it.
    pub(crate) fn take(&mut self, input: usize) -> Option<Grad> {
        self.grads[self.inputs[input].as_ref()?.slot].take()
    }
}

type Backward = Box<dyn FnOnce(Grad, &mut Sums) -> Result<Grads>>;

/// What made the node of one slot. A step's place on the tape is its node's slot.
enum Step {
    Leaf(Param),
    Op { name: &'static str, inputs: Vec<Option<Input>>, backward: Backward },
}

/// An input that needs a gradient, and what the gradient must look like.
struct Input {
    slot: usize,
    shape: Shape,
    dtype: DType,
}

#[derive(Default)]
struct Record {
    steps: Vec<Step>,
    /// Backward has emptied it: nodes made before would point at other steps.
    spent: bool,
}

impl Tape {
    /// A tape that records: for training.
    #[expect(clippy::new_without_default, reason = "which of the three a default would be is not plain")]
    pub fn new() -> Self {
        Self { record: Some(Rc::default()), checked: false }
    }

    /// A tape that records, and holds every gradient that comes from candle's autograd against finite
    /// differences: for the first step of a run.
    pub fn checked() -> Self {
        Self { checked: true, ..Self::new() }
    }

    /// A tape that records nothing: for scoring. Every node on it is a constant, so no activation
    /// outlives its last use in the forward code.
    pub fn no_grad() -> Self {
        Self { record: None, checked: false }
    }

    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// A tensor that needs no gradient: tokens, masks, tables.
    pub fn constant(&self, value: Tensor) -> Node {
        Node { value: value.detach(), slot: None, param: None, tape: self.clone() }
    }

    /// A parameter in its compute dtype; its gradient is added to [`Param::grad`] by `backward`.
    pub fn param(&self, param: &Param) -> Node {
        match &self.record {
            Some(record) => self.node(record, param.value(), Step::Leaf(param.clone()), Some(param.clone())),
            None => self.constant(param.value()),
        }
    }

    /// Puts an operation with its own backward on the tape.
    ///
    /// `value` is what the operation computed from the values of `inputs`. `backward` gets the gradient
    /// of the loss by `value`, in `value`'s shape and dtype, and returns one gradient per input, in the
    /// input's shape and dtype; `None` for an input that gets none.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use tape::{Node, Param, Tape};
    /// /// y = x³
    /// fn cube(x: &Node) -> candle_core::Result<Node> {
    ///     let v = x.value().clone();
    ///     let y = v.powf(3.0)?;
    ///     x.tape().record("cube", &[x], y, move |grad| Ok(vec![Some(((v.sqr()? * 3.0)? * grad)?)]))
    /// }
    /// let w = Param::new("w", Tensor::new(&[2f32], &Device::Cpu)?)?;
    /// let tape = Tape::new();
    /// cube(&tape.param(&w))?.sum_all()?.backward()?;
    /// assert_eq!(w.grad().unwrap().to_vec1::<f32>()?, [12.0]);
    /// # candle_core::Result::Ok(())
    /// ```
    pub fn record(
        &self,
        name: &'static str,
        inputs: &[&Node],
        value: Tensor,
        backward: impl FnOnce(&Tensor) -> Result<Vec<Option<Tensor>>> + 'static,
    ) -> Result<Node> {
        self.push(name, inputs, value, move |grad| {
            Ok(backward(&grad.tensor)?.into_iter().map(|g| g.and_then(Grad::shared)).collect())
        })
    }

    /// [`Tape::record`] for the crate's own operations, which say whether a gradient's buffer is fresh.
    pub(crate) fn push(
        &self,
        name: &'static str,
        inputs: &[&Node],
        value: Tensor,
        backward: impl FnOnce(Grad) -> Result<Grads> + 'static,
    ) -> Result<Node> {
        self.push_adding(name, inputs, value, |grad, _| backward(grad))
    }

    /// [`Tape::push`] for operations whose kernels add to what an input has got so far, at no cost of their own.
    pub(crate) fn push_adding(
        &self,
        name: &'static str,
        inputs: &[&Node],
        value: Tensor,
        backward: impl FnOnce(Grad, &mut Sums) -> Result<Grads> + 'static,
    ) -> Result<Node> {
        let tracked: Vec<&&Node> = inputs.iter().filter(|n| n.slot.is_some()).collect();
        if tracked.is_empty() {
            return Ok(self.constant(value));
        }
        let same = |a: &Rc<_>, b: &Rc<_>| Rc::ptr_eq(a, b);
        let here =
            |n: &&Node| self.record.as_ref().zip(n.tape.record.as_ref()).is_some_and(|(a, b)| same(a, b));
        let Some(record) = self.record.as_ref().filter(|_| tracked.into_iter().all(here)) else {
            return Err(Error::OtherTape { op: name }.into());
        };
        if record.borrow().spent {
            return Err(Error::Spent.into());
        }
        let input = |n: &&Node| Some(Input { slot: n.slot?, shape: n.shape().clone(), dtype: n.dtype() });
        let inputs = inputs.iter().map(input).collect();
        let step = Step::Op { name, inputs, backward: Box::new(backward) };
        Ok(self.node(record, value, step, None))
    }

    fn node(&self, record: &RefCell<Record>, value: Tensor, step: Step, param: Option<Param>) -> Node {
        let steps = &mut record.borrow_mut().steps;
        steps.push(step);
        // detached: candle's own graph, where an op left one, must not keep activations alive
        Node { value: value.detach(), slot: Some(steps.len() - 1), param, tape: self.clone() }
    }

    fn backward(&self, loss: usize, seed: Tensor) -> Result<()> {
        let Some(record) = &self.record else { return Ok(()) };
        // taken out, so that what runs in a closure never finds the tape borrowed
        let Record { mut steps, spent } = record.replace(Record { steps: Vec::new(), spent: true });
        if spent {
            return Err(Error::Spent.into());
        }
        let mut grads: Vec<Option<Grad>> = Vec::new();
        grads.resize_with(steps.len(), || None);
        grads[loss] = Grad::fresh(seed);
        // inputs come before outputs on the tape: from the end, every gradient is complete when met
        while let (Some(step), Some(grad)) = (steps.pop(), grads.pop()) {
            let Some(grad) = grad else { continue };
            match step {
                Step::Leaf(param) => param.accumulate(&grad.tensor)?,
                Step::Op { name, inputs, backward } => {
                    let results = backward(grad, &mut Sums { grads: &mut grads, inputs: &inputs })?;
                    if results.len() != inputs.len() {
                        let (got, want) = (results.len(), inputs.len());
                        return Err(Error::GradientCount { op: name, got, want }.into());
                    }
                    for (input, grad) in inputs.into_iter().zip(results) {
                        let (Some(input), Some(grad)) = (input, grad) else { continue };
                        let (got, want) = ((grad.tensor.dims(), grad.tensor.dtype()), input.dtype);
                        if got != (input.shape.dims(), want) {
                            let got = format!("{got:?}");
                            let want = format!("{:?}", (input.shape.dims(), want));
                            return Err(Error::GradientShape { op: name, got, want }.into());
                        }
                        add(&mut grads[input.slot], grad)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Moves the first gradient in; adds later ones to whichever buffer is free to be written.
fn add(sum: &mut Option<Grad>, grad: Grad) -> Result<()> {
    *sum = match sum.take() {
        None => Some(grad),
        Some(sum) if sum.fresh => {
            add_assign(&sum.tensor, &grad.tensor)?;
            Some(sum)
        }
        Some(sum) if grad.fresh => {
            add_assign(&grad.tensor, &sum.tensor)?;
            Some(grad)
        }
        Some(sum) => Grad::fresh(accumulate::add(&sum.tensor, &grad.tensor)?),
    };
    Ok(())
}

impl Node {
    /// The tensor itself; a candle tensor like any other, without gradient.
    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// The tape this node is on.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The shape of the value.
    pub fn shape(&self) -> &Shape {
        self.value.shape()
    }

    /// The shape of the value as a slice.
    pub fn dims(&self) -> &[usize] {
        self.value.dims()
    }

    /// The dtype of the value.
    pub fn dtype(&self) -> DType {
        self.value.dtype()
    }

    /// Whether a gradient flows through this node.
    pub fn needs_grad(&self) -> bool {
        self.slot.is_some()
    }

    /// The same value as a constant: gradients stop here.
    pub fn detach(&self) -> Self {
        self.tape.constant(self.value.clone())
    }

    /// The parameter this node is a leaf of, for operations that add to its gradient in place.
    pub(crate) fn leaf(&self) -> Option<&Param> {
        self.param.as_ref()
    }

    /// Adds d self / d p to the gradient of every parameter p that `self` depends on, and empties the
    /// tape. `self` must hold one element.
    ///
    /// # Errors
    /// When `self` has more than one element, or an operation's backward fails.
    pub fn backward(self) -> Result<()> {
        if self.value.elem_count() != 1 {
            return Err(Error::NotScalar { dims: self.dims().to_vec() }.into());
        }
        let Some(slot) = self.slot else { return Err(Error::NoGraph.into()) };
        let seed = self.value.ones_like()?;
        let tape = self.tape.clone();
        drop(self);
        tape.backward(slot, seed)
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({:?}, {:?}, gradient: {})", self.dims(), self.dtype(), self.needs_grad())
    }
}

/// What an operation accepts beside a node: a node, a parameter (put on the node's tape), or a plain
/// tensor (a constant).
pub trait Operand {
    /// This operand as a node on `tape`.
    fn on(&self, tape: &Tape) -> Node;
}

impl Operand for Node {
    fn on(&self, _: &Tape) -> Node {
        self.clone()
    }
}

impl Operand for Param {
    fn on(&self, tape: &Tape) -> Node {
        tape.param(self)
    }
}

impl Operand for Tensor {
    fn on(&self, tape: &Tape) -> Node {
        tape.constant(self.clone())
    }
}
