//! Muon over a group of matrices: `muon.cu` before and after the products.

use super::product::{Operand, multiply};
use super::{Launch, Params, address, blocks, empty, in_place, int, runs_on, together};
use crate::muon::{COEFFICIENTS, Muon, Update, rate};
use candle_core::{DType, Device, Result, Tensor};

/// Matrices of one launch: as in muon.cu, so that their addresses fit the 4 KiB that parameters may take.
const MOST: usize = 128;

/// Elements of a matrix that a block takes: as in muon.cu.
const PART: usize = 8192;

/// Threads of a block.
const THREADS: u32 = 256;

/// Shared memory of a reduction, bytes: a float for each thread.
const ROOM: usize = THREADS as usize * size_of::<f32>();

#[repr(C)]
#[derive(Clone, Copy)]
struct Begin {
    g: [u64; MOST],
    moment: u64,
    partial: u64,
    x: u64,
    size: i32,
    momentum: f32,
}

// SAFETY: as `Begin` in muon.cu.
unsafe impl Params for Begin {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Lines {
    x: u64,
    means: u64,
    second: u64,
    count: i64,
    rows: i32,
    cols: i32,
    to_mean: f32,
}

// SAFETY: as `Lines` in muon.cu.
unsafe impl Params for Lines {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Finish {
    w: [u64; MOST],
    copy: [u64; MOST],
    x: u64,
    means: u64,
    second: u64,
    rows: i32,
    cols: i32,
    by_row: i32,
    rate: f32,
    decay: f32,
}

// SAFETY: as `Finish` in muon.cu.
unsafe impl Params for Finish {}

/// Whether the kernels take this group: on their device, all of it f32, copies in bf16.
pub(crate) fn takes(updates: &[Update], moment: &Tensor, second: &Tensor) -> bool {
    let single = |t: &Tensor| t.dtype() == DType::F32;
    let each =
        |u: &Update| single(&u.w) && single(&u.g) && u.copy.as_ref().is_none_or(|t| t.dtype() == DType::BF16);
    runs_on(moment.device()) && single(moment) && single(second) && updates.iter().all(each)
}

pub(crate) fn step(updates: &[Update], moment: &Tensor, second: &Tensor, with: &Muon) -> Result<()> {
    together("muon", moment.device(), &[second])?;
    for u in updates {
        together("muon", moment.device(), &[&u.w, &u.g, u.copy.as_ref().unwrap_or(&u.w)])?;
    }
    for (part, updates) in updates.chunks(MOST).enumerate() {
        let of_part = |t: &Tensor| t.narrow(0, part * MOST, updates.len());
        Group::of(updates, &of_part(moment)?, &of_part(second)?)?.step(with)?;
    }
    Ok(())
}

/// At most [`MOST`] matrices.
struct Group<'a> {
    device: &'a Device,
    updates: &'a [Update],
    moment: &'a Tensor,
    second: &'a Tensor,
    n: usize,
    rows: usize,
    cols: usize,
}

impl<'a> Group<'a> {
    fn of(updates: &'a [Update], moment: &'a Tensor, second: &'a Tensor) -> Result<Self> {
        let (n, rows, cols) = moment.dims3()?;
        // an element's place in its matrix is an i32, and so is the one after the last
        int("muon", rows * cols + PART)?;
        Ok(Self { device: moment.device(), updates, moment, second, n, rows, cols })
    }

    fn step(&self, with: &Muon) -> Result<()> {
        let x = self.orthogonal(self.start(with)?)?;
        let means = self.lines(&x, with)?;
        self.finish(&x, &means, with)
    }

    /// A block for each part of each matrix.
    fn by_part(&self, kernel: &'static str) -> Result<Launch> {
        let parts = blocks("muon", self.rows * self.cols, PART)?;
        let launch = Launch::new(kernel, parts, THREADS);
        Ok(Launch { grid: [parts, self.n as u32, 1], shared: ROOM, ..launch })
    }

    /// Momentum, then what the iteration starts from: (n, R, K) bf16 of spectral norm below 1.
    fn start(&self, with: &Muon) -> Result<Tensor> {
        let grads = self.updates.iter().map(|u| u.g.contiguous()).collect::<Result<Vec<_>>>()?;
        let x = empty((self.n, self.rows, self.cols), DType::BF16, self.device)?;
        let momentum = self.by_part("muon_momentum")?;
        let partial = empty((self.n, momentum.grid[0] as usize), DType::F32, self.device)?;
        let mut params = Begin {
            g: [0; MOST],
            moment: in_place("muon", self.moment)?,
            partial: address(&partial)?,
            x: address(&x)?,
            size: int("muon", self.rows * self.cols)?,
            momentum: with.momentum as f32,
        };
        for (to, g) in params.g.iter_mut().zip(&grads) {
            *to = address(g)?;
        }
        momentum.run(self.device, &params)?;
        self.by_part("muon_start")?.run(self.device, &params)?;
        Ok(x)
    }

    /// Polar Express. What a product adds to is a copy, of X or of A: with a on the diagonal of bA + cA² instead, that
    /// diagonal would be rounded to the precision of a, up to 8.2.
    fn orthogonal(&self, mut x: Tensor) -> Result<Tensor> {
        let device = self.device;
        let tall = self.rows > self.cols;
        let side = self.rows.min(self.cols);
        for (a, b, c) in COEFFICIENTS.map(|(a, b, c)| (a as f32, b as f32, c as f32)) {
            let of = Operand::of;
            let gram = empty((self.n, side, side), DType::BF16, device)?;
            let (left, right) = if tall { (of(&x)?.t(), of(&x)?) } else { (of(&x)?, of(&x)?.t()) };
            multiply(device, 1.0, left, right, 0.0, of(&gram)?)?;
            let p = gram.copy()?;
            multiply(device, c, of(&gram)?, of(&gram)?, b, of(&p)?)?;
            let next = x.copy()?;
            let (left, right) = if tall { (of(&x)?, of(&p)?) } else { (of(&p)?, of(&x)?) };
            multiply(device, 1.0, left, right, a, of(&next)?)?;
            x = next;
        }
        Ok(x)
    }

    /// NorMuon's mean squares, (n, R) or (n, K), by which the second moment is moved too.
    fn lines(&self, x: &Tensor, with: &Muon) -> Result<Tensor> {
        let means = empty((self.n, self.rows.max(self.cols)), DType::F32, self.device)?;
        let params = Lines {
            x: address(x)?,
            means: address(&means)?,
            second: in_place("muon", self.second)?,
            count: (self.n * self.rows) as i64,
            rows: int("muon", self.rows)?,
            cols: int("muon", self.cols)?,
            to_mean: (1.0 - with.beta2) as f32,
        };
        let launch = if self.rows >= self.cols {
            Launch::new("muon_rows", blocks("muon", self.n * self.rows, THREADS as usize / 32)?, THREADS)
        } else {
            let across = blocks("muon", self.cols, 32)?;
            let launch = Launch::new("muon_columns", across, THREADS);
            Launch { grid: [across, self.n as u32, 1], shared: ROOM, ..launch }
        };
        launch.run(self.device, &params)?;
        Ok(means)
    }

    fn finish(&self, x: &Tensor, means: &Tensor, with: &Muon) -> Result<()> {
        let mut params = Finish {
            w: [0; MOST],
            copy: [0; MOST],
            x: address(x)?,
            means: address(means)?,
            second: address(self.second)?,
            rows: int("muon", self.rows)?,
            cols: int("muon", self.cols)?,
            by_row: (self.rows >= self.cols).into(),
            rate: rate(with, self.rows, self.cols) as f32,
            decay: with.weight_decay as f32,
        };
        for (i, u) in self.updates.iter().enumerate() {
            params.w[i] = in_place("muon", &u.w)?;
            params.copy[i] = u.copy.as_ref().map_or(Ok(0), |t| in_place("muon", t))?;
        }
        self.by_part("muon_finish")?.run(self.device, &params)
    }
}
