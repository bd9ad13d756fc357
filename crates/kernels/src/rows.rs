//! Row-wise loops: split over threads at fixed places, compiled for the widest SIMD the CPU has.
//!
//! Splits depend on sizes alone, never on the number of threads, and every row is one thread's work: the same
//! inputs give the same bits however the threads are scheduled.

use crate::real::Real;
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Elements a task takes at least: below this, handing work to another thread costs more than doing it.
const TASK: usize = 1 << 15;

/// Lanes of a reduction: partial sums that do not wait for each other. Four AVX-512 registers of f32; with fewer,
/// the compiler unrolls the loop over the lanes into scalar code.
const LANES: usize = 64;

/// Rows of `width` elements that one task works through.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// Runs `f` compiled for the best instruction set this CPU has.
///
/// Only code inlined into `f` benefits, hence the `#[inline(always)]` on closures and functions that run here.
#[inline(always)]
pub(crate) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Writes `values` over the whole of `out` and hands it back as initialised.
///
/// Panics when there are not exactly as many values as places.
#[inline(always)]
pub(crate) fn fill<T: Copy>(out: &mut [MaybeUninit<T>], values: impl Iterator<Item = T>) -> &mut [T] {
    let mut written = 0;
    for (place, value) in out.iter_mut().zip(values) {
        place.write(value);
        written += 1;
    }
    assert_eq!(written, out.len(), "a row was not written to its end");
    // SAFETY: the loop wrote the first `written` places, which are all of them.
    unsafe { &mut *(std::ptr::from_mut(out) as *mut [T]) }
}

/// Elements still to be written.
type Places<'a, T> = &'a mut [MaybeUninit<T>];

/// A vector of `total` elements, in rows of `width` of which the last may be shorter; row i is written by
/// `row(i, place)`, in parallel.
///
/// The closure proves that it wrote its row by returning it, see [`fill`].
#[inline(always)]
pub(crate) fn build<T: Real>(
    total: usize,
    width: usize,
    row: impl for<'a> Fn(usize, Places<'a, T>) -> &'a mut [T] + Sync,
) -> Vec<T> {
    let mut data = Vec::<T>::with_capacity(total);
    let per_task = rows_per_task(width);
    let task = |(t, part): (usize, Places<T>)| {
        vectorized(
            #[inline(always)]
            || {
                for (i, place) in part.chunks_mut(width).enumerate() {
                    let (start, len) = (place.as_ptr().cast::<T>(), place.len());
                    let done = row(t * per_task + i, place);
                    assert!(done.as_ptr() == start && done.len() == len, "a row came back as another");
                }
            },
        )
    };
    if total > 0 {
        data.spare_capacity_mut()[..total].par_chunks_mut(per_task * width).enumerate().for_each(task);
    }
    // SAFETY: the rows cover all places, and each came back as an initialised slice of all its places.
    unsafe { data.set_len(total) };
    data
}

/// As [`build`], and a value that each row's closure returns beside it. Rows are whole.
#[inline(always)]
pub(crate) fn build_noting<T: Real>(
    total: usize,
    width: usize,
    row: impl for<'a> Fn(usize, Places<'a, T>) -> (&'a mut [T], T) + Sync,
) -> (Vec<T>, Vec<T>) {
    let rows = total / width.max(1);
    let mut notes = vec![T::ZERO; rows];
    let mut data = Vec::<T>::with_capacity(total);
    let per_task = rows_per_task(width);
    let task = |(t, (part, notes)): (usize, (Places<T>, &mut [T]))| {
        vectorized(
            #[inline(always)]
            || {
                for (i, (place, note)) in part.chunks_exact_mut(width).zip(notes).enumerate() {
                    let (start, len) = (place.as_ptr().cast::<T>(), place.len());
                    let (done, noted) = row(t * per_task + i, place);
                    assert!(done.as_ptr() == start && done.len() == len, "a row came back as another");
                    *note = noted;
                }
            },
        )
    };
    if total > 0 {
        let parts = data.spare_capacity_mut()[..rows * width].par_chunks_mut(per_task * width);
        parts.zip(notes.par_chunks_mut(per_task)).enumerate().for_each(task);
    }
    // SAFETY: as in `build`; rows that are whole cover what is claimed here.
    unsafe { data.set_len(rows * width) };
    (data, notes)
}

/// As [`build`], for two vectors at once.
#[inline(always)]
pub(crate) fn build_pair<T: Real>(
    total: usize,
    width: usize,
    row: impl for<'a> Fn(usize, &'a mut [MaybeUninit<T>], &'a mut [MaybeUninit<T>]) -> (&'a mut [T], &'a mut [T])
    + Sync,
) -> (Vec<T>, Vec<T>) {
    let mut first = Vec::<T>::with_capacity(total);
    let mut second = Vec::<T>::with_capacity(total);
    let per_task = rows_per_task(width);
    let task = |(t, (a, b)): (usize, (Places<T>, Places<T>))| {
        vectorized(
            #[inline(always)]
            || {
                for (i, (a, b)) in a.chunks_mut(width).zip(b.chunks_mut(width)).enumerate() {
                    let (starts, len) = ((a.as_ptr().cast::<T>(), b.as_ptr().cast::<T>()), a.len());
                    let (x, y) = row(t * per_task + i, a, b);
                    assert!((x.as_ptr(), y.as_ptr()) == starts, "a row came back as another");
                    assert!(x.len() == len && y.len() == len, "a row came back cut short");
                }
            },
        )
    };
    if total > 0 {
        let a = first.spare_capacity_mut()[..total].par_chunks_mut(per_task * width);
        let b = second.spare_capacity_mut()[..total].par_chunks_mut(per_task * width);
        a.zip(b).enumerate().for_each(task);
    }
    // SAFETY: as in `build`, for each of the two.
    unsafe {
        first.set_len(total);
        second.set_len(total);
    }
    (first, second)
}

/// Runs `task(i)` for i < n in parallel and adds the results in the order of i.
pub(crate) fn sum_in_order<const N: usize>(
    n: usize,
    task: impl Fn(usize) -> [f64; N] + Sync + Send,
) -> [f64; N] {
    let parts: Vec<[f64; N]> = (0..n).into_par_iter().map(task).collect();
    let mut total = [0.0; N];
    for part in parts {
        for (t, p) in total.iter_mut().zip(part) {
            *t += p;
        }
    }
    total
}

/// Σ aᵢ·bᵢ over slices of one length, in a fixed order.
#[inline(always)]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let b = &b[..a.len()];
    let mut lanes = [T::ZERO; LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_blocks.remainder(), b_blocks.remainder());
    for (x, y) in a_blocks.zip(b_blocks) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    for i in 0..a_rest.len() {
        lanes[i] += a_rest[i] * b_rest[i];
    }
    fold(lanes, |x, y| x + y)
}

/// Replaces each x by the first of what `f` makes of it, and sums the second, in a fixed order.
#[inline(always)]
pub(crate) fn replace_and_sum<T: Real>(row: &mut [T], f: impl Fn(T) -> (T, T)) -> T {
    let mut lanes = [T::ZERO; LANES];
    let mut blocks = row.chunks_exact_mut(LANES);
    for block in &mut blocks {
        for i in 0..LANES {
            let (kept, summed) = f(block[i]);
            block[i] = kept;
            lanes[i] += summed;
        }
    }
    for (i, x) in blocks.into_remainder().iter_mut().enumerate() {
        let (kept, summed) = f(*x);
        *x = kept;
        lanes[i] += summed;
    }
    fold(lanes, |x, y| x + y)
}

/// The largest element of a row that is not empty. NaN is skipped: it comes back in the sum of exponentials.
#[inline(always)]
pub(crate) fn largest<T: Real>(row: &[T]) -> T {
    let mut lanes = [row[0]; LANES];
    let blocks = row.chunks_exact(LANES);
    for (i, &x) in blocks.remainder().iter().enumerate() {
        lanes[i] = lanes[i].larger(x);
    }
    for block in blocks {
        for i in 0..LANES {
            lanes[i] = lanes[i].larger(block[i]);
        }
    }
    fold(lanes, T::larger)
}

/// Combines the lanes of a reduction pairwise, in a fixed order.
#[inline(always)]
fn fold<T: Real>(mut lanes: [T; LANES], combine: impl Fn(T, T) -> T) -> T {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] = combine(lanes[i], lanes[i + n]);
        }
        n /= 2;
    }
    lanes[0]
}
