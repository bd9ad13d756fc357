//! A writable matrix inside a buffer: rows of one width, a stride apart, so that several can share the buffer.

use crate::real::Real;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// `rows` rows of `width` elements of type E, `stride` apart, borrowed for writing.
///
/// E is T, or `MaybeUninit<T>` in a buffer that is being filled. Panels cut from one buffer never overlap.
pub(crate) struct Panel<'a, E> {
    data: *mut E,
    rows: usize,
    width: usize,
    stride: usize,
    buffer: PhantomData<&'a mut E>,
}

// SAFETY: a panel is an exclusive borrow of its own elements, as `&mut [E]` is.
unsafe impl<E: Send> Send for Panel<'_, E> {}

impl<'a, E> Panel<'a, E> {
    /// The whole of `data`, as rows of `width`. Panics when the last row is not full.
    pub(crate) fn new(data: &'a mut [E], width: usize) -> Self {
        let rows = data.len().checked_div(width).unwrap_or(0);
        assert_eq!(rows * width, data.len(), "rows of {width} do not fill {} elements", data.len());
        Panel { data: data.as_mut_ptr(), rows, width, stride: width, buffer: PhantomData }
    }

    /// Cuts into blocks of `rows` (the last may have fewer) and, within them, columns of `width`; block by block.
    pub(crate) fn cut(self, rows: usize, width: usize) -> Vec<Panel<'a, E>> {
        assert!(
            rows > 0 && width > 0 && self.width.is_multiple_of(width),
            "{} columns by {width}",
            self.width
        );
        let corners = (0..self.rows)
            .step_by(rows)
            .flat_map(|row| (0..self.width).step_by(width).map(move |column| (row, column)));
        let panel = |(row, column)| Panel {
            // SAFETY: row < self.rows and column < self.width, so this points at an element of the panel.
            data: unsafe { self.data.add(row * self.stride + column) },
            rows: rows.min(self.rows - row),
            width,
            stride: self.stride,
            buffer: PhantomData,
        };
        // No two of them share an element: they differ in their rows or in their columns.
        corners.map(panel).collect()
    }

    /// The rows from..from + rows, borrowed from this panel.
    pub(crate) fn rows(&mut self, from: usize, rows: usize) -> Panel<'_, E> {
        assert!(from <= self.rows && rows <= self.rows - from, "rows outside the panel");
        let offset = if rows > 0 { from * self.stride } else { 0 };
        // SAFETY: with rows > 0, from < self.rows: this points at the first element of row `from`.
        let data = unsafe { self.data.add(offset) };
        Panel { data, rows, width: self.width, stride: self.stride, buffer: PhantomData }
    }

    /// Row i.
    pub(crate) fn row(&mut self, i: usize) -> &mut [E] {
        assert!(i < self.rows, "row outside the panel");
        // SAFETY: row i holds `width` elements of the buffer, which this panel borrows alone.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(i * self.stride), self.width) }
    }

    /// (rows, width, stride).
    pub(crate) fn extent(&self) -> (usize, usize, usize) {
        (self.rows, self.width, self.stride)
    }

    /// The first element, for a matrix product that writes here.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut E {
        self.data
    }
}

impl<'a, T: Real> Panel<'a, MaybeUninit<T>> {
    /// Writes zeros everywhere, after which the panel may be added to.
    pub(crate) fn zeroed(mut self) -> Panel<'a, T> {
        for i in 0..self.rows {
            for place in self.row(i) {
                place.write(T::ZERO);
            }
        }
        // The same extent: MaybeUninit<T> has the layout of T, and every element is initialised now.
        Panel {
            data: self.data.cast(),
            rows: self.rows,
            width: self.width,
            stride: self.stride,
            buffer: PhantomData,
        }
    }
}
