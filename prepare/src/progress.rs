//! How the library tells of long work without knowing about terminals.

/// What is being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a download.
    Bytes,
    /// Documents.
    Documents,
}

/// Hears what a preparation is doing.
pub trait Progress: Sync {
    /// A piece of work starts; it ends when the returned task is dropped. total: in `unit`, where known.
    fn start(&self, what: &str, total: Option<u64>, unit: Unit) -> Box<dyn Task>;
    /// One line worth reading.
    fn say(&self, line: &str);
}

/// A piece of work going on.
pub trait Task: Send + Sync {
    /// How much is done of how much, in the task's unit.
    fn at(&self, done: u64, total: Option<u64>);
    /// As much more is done.
    fn advance(&self, more: u64);
}

/// Hears nothing, for tests and for callers with their own words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: Option<u64>, _: Unit) -> Box<dyn Task> {
        Box::new(Silent)
    }
    fn say(&self, _: &str) {}
}

impl Task for Silent {
    fn at(&self, _: u64, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
}
