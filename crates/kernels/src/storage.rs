//! Tensors as slices: reading inputs, building outputs, changing a tensor in place.

use candle_core::{
    CpuStorage, DType, InplaceOp1, Layout, Result, Storage, StorageRef, Tensor, WithDType, bail,
};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

/// A contiguous CPU tensor held for reading; dereferences to its elements in row-major order.
pub(crate) struct Elements<'a, T> {
    storage: StorageRef<'a>,
    start: usize,
    len: usize,
    dtype: PhantomData<T>,
}

/// Opens `t` (contiguous, on the CPU, of element type `T`) for reading; `op` names the caller in errors.
pub(crate) fn elements<'a, T: WithDType>(op: &str, t: &'a Tensor) -> Result<Elements<'a, T>> {
    let (storage, layout) = t.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: an operand of shape {:?} is not contiguous; call .contiguous() on it", t.shape())
    };
    if t.dtype() != T::DTYPE || !t.device().is_cpu() {
        bail!("{op}: operand is {:?} on {:?}, but {:?} on the CPU is needed", t.dtype(), t.device(), T::DTYPE)
    }
    Ok(Elements { storage, start, len: end - start, dtype: PhantomData })
}

impl<T: WithDType> Deref for Elements<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Storage::Cpu(cpu) = &*self.storage else { unreachable!("checked in `elements`") };
        let all = T::cpu_storage_as_slice(cpu).expect("checked in `elements`");
        &all[self.start..self.start + self.len]
    }
}

/// Runs `change` once inside candle's write lock on a tensor's storage.
struct Change<F> {
    op: &'static str,
    change: Cell<Option<F>>,
}

impl<F: FnOnce(&mut CpuStorage, &Layout) -> Result<()>> InplaceOp1 for Change<F> {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let change = self.change.take().expect("candle runs an in-place op once");
        change(storage, layout)
    }
}

/// Gives `change` the elements of `t` (contiguous, on the CPU) to overwrite.
///
/// Every tensor that shares storage with `t` sees the change. Opening any of them inside `change` would wait
/// for ever on candle's lock, so callers hold their operands apart with [`apart`] first.
pub(crate) fn modify<T: Element, R>(
    op: &'static str,
    t: &Tensor,
    change: impl FnOnce(&mut [T]) -> Result<R>,
) -> Result<R> {
    let mut result = None;
    let slot = &mut result;
    let inner = move |storage: &mut CpuStorage, layout: &Layout| {
        let Some((start, end)) = layout.contiguous_offsets() else {
            bail!("{op}: the tensor to change, of shape {:?}, is not contiguous", layout.shape())
        };
        let found = storage_dtype(storage);
        let Some(all) = T::of(storage) else {
            bail!("{op}: the tensor to change is {found:?}, but {:?} is needed", T::DTYPE)
        };
        *slot = Some(change(&mut all[start..end])?);
        Ok(())
    };
    t.inplace_op1(&Change { op, change: Cell::new(Some(inner)) })?;
    Ok(result.expect("set by the closure above"))
}

fn storage_dtype(storage: &CpuStorage) -> DType {
    use candle_core::backend::BackendStorage;
    storage.dtype()
}

/// An element type whose CPU buffer can be borrowed mutably.
pub(crate) trait Element: WithDType {
    /// The whole buffer, or `None` when it holds another type.
    fn of(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

impl Element for f32 {
    fn of(storage: &mut CpuStorage) -> Option<&mut [f32]> {
        if let CpuStorage::F32(v) = storage { Some(v) } else { None }
    }
}

impl Element for f64 {
    fn of(storage: &mut CpuStorage) -> Option<&mut [f64]> {
        if let CpuStorage::F64(v) = storage { Some(v) } else { None }
    }
}

/// Errors when a tensor about to be changed shares its storage with another operand.
pub(crate) fn apart(op: &str, changed: &[&Tensor], read: &[&Tensor]) -> Result<()> {
    let key = |t: &Tensor| std::ptr::from_ref::<Storage>(&t.storage_and_layout().0).addr();
    for (i, c) in changed.iter().enumerate() {
        let mut others = changed[i + 1..].iter().chain(read);
        if others.any(|o| key(o) == key(c)) {
            bail!(
                "{op}: the tensor of shape {:?} that is changed in place shares its storage with another operand",
                c.shape()
            )
        }
    }
    Ok(())
}

/// A CPU tensor that takes over `data`, row-major.
pub(crate) fn tensor<T: WithDType>(data: Vec<T>, shape: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(data, shape, &candle_core::Device::Cpu)
}

/// Overwrites `t` with `value` on any device; both have the same shape and dtype.
pub(crate) fn overwrite(t: &Tensor, value: &Tensor) -> Result<()> {
    // slice_set wants a dimension: scalars are seen as (1)
    let flat = t.flatten_all()?;
    flat.slice_set(&value.flatten_all()?.contiguous()?, 0, 0)
}
