//! Parameters: a master value, a copy in the compute dtype, and a gradient that accumulates.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use candle_core::{DType, Result, Tensor};
use kernels::{accumulate::add_assign, cast};

use crate::Error;

/// A trainable tensor.
///
/// Cloning is cheap and gives another handle on the same parameter, so an optimizer may hold clones of
/// what the model holds.
#[derive(Clone)]
pub struct Param(Rc<Inner>);

struct Inner {
    name: String,
    /// What the optimizer updates; contiguous.
    master: RefCell<Tensor>,
    /// What the forward pass reads: the master itself where the dtypes agree.
    compute: RefCell<Tensor>,
    compute_dtype: DType,
    /// In the master's dtype, or f32 where that is narrower; kept from step to step.
    grad: RefCell<Option<Tensor>>,
    has_grad: Cell<bool>,
}

impl Param {
    /// A parameter that is stored and computed with in the dtype of `value`.
    pub fn new(name: impl Into<String>, value: Tensor) -> Result<Self> {
        let dtype = value.dtype();
        Self::with_compute(name, value, dtype)
    }

    /// A parameter stored as `value` and computed with as `compute`, e.g. f32 and bf16.
    pub fn with_compute(name: impl Into<String>, value: Tensor, compute: DType) -> Result<Self> {
        // copied: updates happen in place and must not reach another holder of the tensor
        let master = value.detach().copy()?.contiguous()?;
        Ok(Self(Rc::new(Inner {
            name: name.into(),
            compute: RefCell::new(in_dtype(&master, compute)?),
            master: RefCell::new(master),
            compute_dtype: compute,
            grad: RefCell::new(None),
            has_grad: Cell::new(false),
        })))
    }

    /// The name under which it is saved and reported.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The shape.
    pub fn dims(&self) -> Vec<usize> {
        self.0.master.borrow().dims().to_vec()
    }

    /// Number of elements.
    pub fn elem_count(&self) -> usize {
        self.0.master.borrow().elem_count()
    }

    /// The value in the compute dtype: what the forward pass reads.
    pub fn value(&self) -> Tensor {
        self.0.compute.borrow().clone()
    }

    /// The stored value: what an optimizer updates, by [`Param::set`] or in place. Then it brings the
    /// [`Param::compute_copy`] up to date too, or calls [`Param::refresh`].
    pub fn master(&self) -> Tensor {
        self.0.master.borrow().clone()
    }

    /// The value in the compute dtype, where that is a tensor beside the master: optimizers that write both in one
    /// pass need no [`Param::refresh`].
    pub fn compute_copy(&self) -> Option<Tensor> {
        let stored = self.0.master.borrow().dtype();
        (stored != self.0.compute_dtype).then(|| self.value())
    }

    /// The gradient accumulated since the last [`Param::zero_grad`]; `None` when none has come.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.has_grad.get().then(|| self.0.grad.borrow().clone()).flatten()
    }

    /// Forgets the gradient. The buffer stays and is overwritten by the next one.
    pub fn zero_grad(&self) {
        self.0.has_grad.set(false);
    }

    /// Replaces the value; same shape.
    ///
    /// # Errors
    /// When the shape differs.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        if value.dims() != self.dims() {
            let (name, got, want) = (self.name().to_string(), value.dims().to_vec(), self.dims());
            return Err(Error::ParamShape { name, got, want }.into());
        }
        let dtype = self.0.master.borrow().dtype();
        let master = value.detach().to_dtype(dtype)?.copy()?.contiguous()?;
        *self.0.compute.borrow_mut() = in_dtype(&master, self.0.compute_dtype)?;
        *self.0.master.borrow_mut() = master;
        Ok(())
    }

    /// Brings the compute copy up to date, in place, after the master was changed in place.
    pub fn refresh(&self) -> Result<()> {
        let (master, compute) = (self.0.master.borrow(), self.0.compute.borrow());
        if master.dtype() == compute.dtype() {
            return Ok(()); // one tensor
        }
        cast::assign(&compute, &master)
    }

    /// Adds to the gradient.
    pub(crate) fn accumulate(&self, grad: &Tensor) -> Result<()> {
        if grad.dims() != self.dims() {
            let (name, got, want) = (self.name().to_string(), grad.dims().to_vec(), self.dims());
            return Err(Error::ParamShape { name, got, want }.into());
        }
        let buffer = self.grad_buffer()?;
        add_assign(&buffer, &grad.to_dtype(buffer.dtype())?)
    }

    /// The buffer to add a gradient to: zeros when none has come yet.
    pub(crate) fn grad_buffer(&self) -> Result<Tensor> {
        let mut grad = self.0.grad.borrow_mut();
        let first = !self.0.has_grad.replace(true);
        match &*grad {
            Some(buffer) => {
                if first {
                    buffer.zero_set()?;
                }
                Ok(buffer.clone())
            }
            None => {
                let master = self.0.master.borrow();
                let dtype = if master.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
                Ok(grad.insert(Tensor::zeros(master.shape(), dtype, master.device())?).clone())
            }
        }
    }
}

/// `master` in `dtype`: itself where that is its own, else a copy. By the kernel that [`Param::refresh`] uses, as on a
/// GPU candle's would first have to be compiled.
fn in_dtype(master: &Tensor, dtype: DType) -> Result<Tensor> {
    if master.dtype() == dtype {
        return Ok(master.clone());
    }
    let copy = Tensor::zeros(master.shape(), dtype, master.device())?;
    cast::assign(&copy, master)?;
    Ok(copy)
}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Param({}, {:?})", self.name(), self.dims())
    }
}
