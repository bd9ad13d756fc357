//! What a process may reach: files by Landlock, system calls by seccomp.
//!
//! Both work without privileges and inside containers, and both are inherited by whatever the process starts.
//! A [`Policy`] names what is granted; [`Policy::confinement`] turns it into something that a child applies to
//! itself between `fork` and `exec`, where nothing may allocate or lock. [`seal`] takes from a running process
//! the right to start others, [`forgo`] what it was granted of itself.
//!
//! Landlock grants whole folders and cannot subtract, so a folder that has something hidden below it is granted
//! as its other children.
//!
//! On systems other than Linux everything compiles, and [`available`] says that there is nothing.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod nothing;
mod policy;
mod probe;

#[cfg(target_os = "linux")]
pub use linux::{Confinement, available, forgo, seal};
#[cfg(not(target_os = "linux"))]
pub use nothing::{Confinement, available, forgo, seal};
pub use policy::{Access, Calls, Policy};
pub use probe::{Act, Answer, NoAct, attempt};

/// What this system has to confine with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Available {
    /// Everything that this crate uses.
    Whole {
        /// Landlock's version, as the kernel numbers them.
        abi: u32,
    },
    /// Files and calls are confined, but an older kernel leaves something open.
    Part {
        /// Landlock's version, as the kernel numbers them.
        abi: u32,
        /// What stays open, for a person.
        open: String,
    },
    /// Nothing; why, for a person.
    Nothing(String),
}

/// Why a process cannot be confined as asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel refuses a rule set.
    #[error("the kernel refuses the file rules: {0}")]
    Files(String),
    /// The kernel refuses a filter.
    #[error("the kernel refuses the system call filter: {0}")]
    Calls(String),
    /// There is nothing to confine with.
    #[error("{0}")]
    Nothing(String),
}
