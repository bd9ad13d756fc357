//! Matrix products, as cuBLAS does them.

use super::runner::runner;
use super::{address, int};
use candle_core::{DType, Device, Result, Tensor, bail};

/// One operand of a [`Product`], or one of each batch, stored row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// Address of its first element.
    pub at: u64,
    /// bf16 or f32.
    pub dtype: DType,
    /// Elements from one stored row to the next.
    pub stride: usize,
    /// Whether it is read as the transpose of what is stored.
    pub transposed: bool,
    /// Elements from one matrix of the batch to the next; 0 where all share one.
    pub step: usize,
}

/// C ← alpha·A·B + beta·C for each of `batch`; A: (m, k), B: (k, n), both bf16, C: (m, n), bf16 or f32. Sums in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// The left factor.
    pub a: Matrix,
    /// The right factor.
    pub b: Matrix,
    /// The result; never transposed.
    pub c: Matrix,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Number of matrices.
    pub batch: usize,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of what C holds; 0: C is not read.
    pub beta: f32,
}

/// A matrix (rows, columns) or a batch (n, rows, columns) whose rows are each contiguous.
pub(crate) struct Operand {
    matrix: Matrix,
    batch: usize,
    rows: usize,
    cols: usize,
}

impl Operand {
    /// `t`: (rows, columns) or (n, rows, columns), the last axis contiguous.
    pub(crate) fn of(t: &Tensor) -> Result<Self> {
        let (strides, dims) = (t.stride(), t.dims());
        let (batch, step, dims, strides) = match dims {
            [n, ..] if dims.len() == 3 => (*n, strides[0], &dims[1..], &strides[1..]),
            _ if dims.len() == 2 => (1, 0, dims, strides),
            _ => bail!("a product takes matrices or a batch of them, not {dims:?}"),
        };
        if strides[1] != 1 && dims[1] != 1 {
            bail!("a product takes rows that are contiguous, not strides {:?}", t.stride())
        }
        let matrix = Matrix {
            at: address(t)?,
            dtype: t.dtype(),
            // a single row may claim any stride; cuBLAS wants one that is no less than the width
            stride: if dims[0] == 1 { dims[1] } else { strides[0] },
            transposed: false,
            step,
        };
        Ok(Self { matrix, batch, rows: dims[0], cols: dims[1] })
    }

    /// Its transpose, without moving anything.
    pub(crate) fn t(self) -> Self {
        let matrix = Matrix { transposed: !self.matrix.transposed, ..self.matrix };
        Self { matrix, batch: self.batch, rows: self.cols, cols: self.rows }
    }
}

/// C ← alpha·A·B + beta·C on `device`.
pub(crate) fn multiply(
    device: &Device,
    alpha: f32,
    a: Operand,
    b: Operand,
    beta: f32,
    c: Operand,
) -> Result<()> {
    let (m, n, k) = (c.rows, c.cols, a.cols);
    if (a.rows, b.rows, b.cols) != (m, k, n)
        || a.batch != c.batch
        || b.batch != c.batch
        || c.matrix.transposed
    {
        bail!("product: {}×{} by {}×{} into {m}×{n}", a.rows, a.cols, b.rows, b.cols)
    }
    if [a.matrix.dtype, b.matrix.dtype] != [DType::BF16; 2]
        || !matches!(c.matrix.dtype, DType::BF16 | DType::F32)
    {
        bail!("product: {:?} by {:?} into {:?}", a.matrix.dtype, b.matrix.dtype, c.matrix.dtype)
    }
    if m == 0 || n == 0 || c.batch == 0 {
        return Ok(());
    }
    for size in [m, n, k, c.batch] {
        int("product", size)?;
    }
    let product = Product { a: a.matrix, b: b.matrix, c: c.matrix, m, n, k, batch: c.batch, alpha, beta };
    let runner = runner(device)?;
    // SAFETY: `Operand` took addresses, sizes and strides from tensors that the caller holds.
    unsafe { runner.multiply(&product) }
}
