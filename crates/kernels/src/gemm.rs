//! Matrix products over strided slices, through the `gemm` crate.

use crate::panel::Panel;
use crate::real::Real;
pub(crate) use gemm::Parallelism;
use std::mem::MaybeUninit;

/// All threads of rayon's pool. Products split rows and columns, never the inner sum: the same bits every time.
pub(crate) const ALL_THREADS: Parallelism = Parallelism::Rayon(0);

/// A matrix inside a slice: element (i, j) is `data[i·row_stride + j·col_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// Panics unless element (rows − 1, cols − 1) lies within `len`: the proof that every element does.
fn check_extent(rows: usize, cols: usize, row_stride: usize, col_stride: usize, len: usize) {
    if rows > 0 && cols > 0 {
        let last = (rows - 1) * row_stride + (cols - 1) * col_stride;
        assert!(last < len, "a {rows}×{cols} matrix does not fit {len} elements");
    }
}

impl<'a, T: Real> Matrix<'a, T> {
    /// Rows one after another, `row_stride` elements apart.
    pub(crate) fn strided(data: &'a [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        check_extent(rows, cols, row_stride, 1, data.len());
        Matrix { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// Rows one after another without gaps.
    pub(crate) fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// The transpose, without moving anything.
    pub(crate) fn t(self) -> Self {
        Matrix {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// A·B as a new vector, row-major.
pub(crate) fn product<T: Real>(a: Matrix<T>, b: Matrix<T>, threads: Parallelism) -> Vec<T> {
    let n = a.rows * b.cols;
    let mut out = Vec::<T>::with_capacity(n);
    set_product(Panel::new(&mut out.spare_capacity_mut()[..n], b.cols), T::ONE, a, b, threads);
    // SAFETY: the product wrote the whole panel, which is all n elements.
    unsafe { out.set_len(n) };
    out
}

/// out ← scale·A·B; initialises all of `out`.
pub(crate) fn set_product<T: Real>(
    mut out: Panel<MaybeUninit<T>>,
    scale: T,
    a: Matrix<T>,
    b: Matrix<T>,
    threads: Parallelism,
) {
    let (rows, cols, stride) = out.extent();
    assert!(
        (rows, cols) == (a.rows, b.cols) || rows * cols + a.rows * b.cols == 0,
        "a product into a panel of another shape"
    );
    // SAFETY: the panel has the shape of the product; gemm does not read it without `keep`.
    unsafe { raw(out.as_mut_ptr().cast(), stride, None, scale, a, b, threads) }
}

/// out ← keep·out + scale·A·B.
pub(crate) fn add_product<T: Real>(
    mut out: Panel<T>,
    keep: T,
    scale: T,
    a: Matrix<T>,
    b: Matrix<T>,
    threads: Parallelism,
) {
    let (rows, cols, stride) = out.extent();
    assert!(
        (rows, cols) == (a.rows, b.cols) || rows * cols + a.rows * b.cols == 0,
        "a product into a panel of another shape"
    );
    // SAFETY: the panel has the shape of the product, and its elements are initialised.
    unsafe { raw(out.as_mut_ptr(), stride, Some(keep), scale, a, b, threads) }
}

/// dst ← keep·dst + scale·A·B.
///
/// # Safety
/// dst must be valid for writing (a.rows, b.cols) elements at `row_stride` and column stride 1, not borrowed
/// by anyone else, and initialised when `keep` is given.
unsafe fn raw<T: Real>(
    dst: *mut T,
    row_stride: usize,
    keep: Option<T>,
    scale: T,
    a: Matrix<T>,
    b: Matrix<T>,
    threads: Parallelism,
) {
    assert_eq!(a.cols, b.rows, "inner dimensions of a product differ");
    // SAFETY: dst by the contract; a and b lie within their slices, checked when they were made, and cannot
    // overlap dst, which is borrowed mutably.
    unsafe {
        gemm::gemm(
            a.rows,
            b.cols,
            a.cols,
            dst,
            1,
            row_stride as isize,
            keep.is_some(),
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            keep.unwrap_or(T::ZERO),
            scale,
            false,
            false,
            false,
            threads,
        )
    }
}
