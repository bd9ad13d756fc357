//! Runs cases side by side and counts what was tried and what was survived.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// One line a kind of fault.
#[derive(Default)]
pub(super) struct Table {
    /// Kind, cases tried, cases survived.
    rows: Vec<(&'static str, usize, usize)>,
    lost: Vec<String>,
}

impl Table {
    /// Has each case strike; `survive` panics where something is lost. `name` gives a case's kind, and the case.
    pub(super) fn each<C: Sync>(
        &mut self,
        cases: &[C],
        name: impl Fn(&C) -> (&'static str, String),
        survive: impl Fn(&C) + Sync,
    ) {
        let (next, lost) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some((index, case)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, cases.get(index)?)))
            {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| survive(case))) {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let why = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned();
                    lost.lock().unwrap().push((index, why));
                }
            }
        };
        thread::scope(|scope| {
            // a case waits most of the time, for its referee and for the disk
            for _ in 0..4 * thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let lost = lost.into_inner().unwrap();
        for (index, case) in cases.iter().enumerate() {
            let (kind, case) = name(case);
            let why = lost.iter().find(|(of, _)| *of == index).map(|(_, why)| why);
            self.lost.extend(why.map(|why| format!("{kind}: {case}: {why}")));
            if !self.rows.iter().any(|row| row.0 == kind) {
                self.rows.push((kind, 0, 0));
            }
            for row in self.rows.iter_mut().filter(|row| row.0 == kind) {
                row.1 += 1;
                row.2 += usize::from(why.is_none());
            }
        }
    }

    /// Prints the table; panics when a case was not survived.
    pub(super) fn close(self) {
        println!("{:50} {:>6} {:>9}", "fault", "tried", "survived");
        for (kind, tried, survived) in &self.rows {
            println!("{kind:50} {tried:>6} {survived:>9}");
        }
        let total = |of: fn(&(&str, usize, usize)) -> usize| self.rows.iter().map(of).sum::<usize>();
        println!("{:50} {:>6} {:>9}", "all", total(|row| row.1), total(|row| row.2));
        assert!(self.lost.is_empty(), "{} lost:\n{}", self.lost.len(), self.lost.join("\n"));
    }
}
