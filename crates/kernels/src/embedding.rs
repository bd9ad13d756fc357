//! Embedding: rows of a table by token id, and the gradient added into a dense table, in a fixed order.

use crate::composed::dispatch;
use crate::cuda;
use crate::real::Real;
use crate::rows::{build, fill, vectorized};
use crate::storage::{apart, elements, modify, overwrite, tensor};
use candle_core::{D, DType, Result, Tensor, bail};
use rayon::prelude::*;

/// The op as a composition of differentiable candle ops; shapes as in [`forward`].
pub fn reference(w: &Tensor, ids: &Tensor) -> Result<Tensor> {
    w.contiguous()?.index_select(&ids.flatten_all()?, 0)?.reshape(with_width(ids, w.dim(1)?))
}

/// w: (V, C), ids: (…) u32 → (…, C).
///
/// Ids are below V. On a CPU another is an error; a GPU is not waited for to find out, and makes its row NaN, which the
/// loss then is too.
pub fn forward(w: &Tensor, ids: &Tensor) -> Result<Tensor> {
    check_ids(ids)?;
    dispatch!(w, cuda: cuda::embedding::forward(w, ids), cpu T: cpu_forward::<T>(w, ids), else: reference(w, ids))
}

/// `dw[ids] += dy` in place; dw: (V, C), f32 where dy is bf16 on a GPU, ids: (…) u32, dy: (…, C).
///
/// Each row of dw adds its tokens in an order that `ids` alone fixes, whatever the number of threads: on a CPU as they
/// stand, on a GPU by stretches of it. On a GPU ids that are not below V are left out.
pub fn add_backward(dw: &Tensor, ids: &Tensor, dy: &Tensor) -> Result<()> {
    check_ids(ids)?;
    if dy.dims() != with_width(ids, dw.dims2()?.1) {
        bail!("embedding: dy of shape {:?} does not fit ids {:?}", dy.shape(), ids.shape())
    }
    dispatch!(dy, cuda: cuda::embedding::add_backward(dw, ids, dy), cpu T: cpu_add_backward::<T>(dw, ids, dy), else: {
        let rows = dy.reshape(((), dw.dim(1)?))?.to_dtype(dw.dtype())?;
        overwrite(dw, &dw.index_add(&ids.flatten_all()?, &rows, 0)?)
    })
}

fn with_width(ids: &Tensor, width: usize) -> Vec<usize> {
    let mut shape = ids.dims().to_vec();
    shape.push(width);
    shape
}

fn check_ids(ids: &Tensor) -> Result<()> {
    if ids.dtype() != DType::U32 {
        bail!("embedding: ids must be u32, not {:?}", ids.dtype())
    }
    Ok(())
}

fn check_range(ids: &[u32], vocab: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => bail!("embedding: token id {id} is outside a table of {vocab} rows"),
        None => Ok(()),
    }
}

fn cpu_forward<T: Real>(w: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (vocab, width) = w.dims2()?;
    let (w, ids) = (w.contiguous()?, ids.contiguous()?);
    let (ws, id_list) = (elements::<T>("embedding", &w)?, elements::<u32>("embedding", &ids)?);
    check_range(&id_list, vocab)?;
    let (ws, id_list) = (&*ws, &*id_list);
    let y = build(
        id_list.len() * width,
        width,
        #[inline(always)]
        |i, out| fill(out, ws[id_list[i] as usize * width..][..width].iter().copied()),
    );
    tensor(y, &with_width(&ids, width))
}

fn cpu_add_backward<T: Real>(dw: &Tensor, ids: &Tensor, dy: &Tensor) -> Result<()> {
    let (vocab, width) = (dw.dim(0)?, dw.dim(D::Minus1)?);
    let (ids, dy) = (ids.contiguous()?, dy.contiguous()?);
    apart("embedding", &[dw], &[&dy])?;
    let (ids, dys) = (elements::<u32>("embedding", &ids)?, elements::<T>("embedding", &dy)?);
    check_range(&ids, vocab)?;
    let (starts, order) = by_id(&ids, vocab);
    let (starts, order, dys) = (&starts, &order, &*dys);
    modify::<T, _>("embedding", dw, |dw| {
        dw.par_chunks_mut(width.max(1)).with_min_len(64).enumerate().for_each(|(id, row)| {
            vectorized(
                #[inline(always)]
                || {
                    for &at in &order[starts[id] as usize..starts[id + 1] as usize] {
                        let dy = &dys[at as usize * width..][..width];
                        row.iter_mut().zip(dy).for_each(|(w, &d)| *w += d);
                    }
                },
            )
        });
        Ok(())
    })
}

/// Positions grouped by id, in their order: those of id v are `order[starts[v]..starts[v + 1]]`.
fn by_id(ids: &[u32], vocab: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; vocab + 1];
    for &id in ids {
        starts[id as usize + 1] += 1;
    }
    for v in 0..vocab {
        starts[v + 1] += starts[v];
    }
    let mut next = starts.clone();
    let mut order = vec![0u32; ids.len()];
    for (at, &id) in ids.iter().enumerate() {
        order[next[id as usize] as usize] = at as u32;
        next[id as usize] += 1;
    }
    (starts, order)
}
