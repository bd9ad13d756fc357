//! What the child takes from itself: files, sockets, processes, and all memory and time but a little.

use std::{fs, io, time::Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use sandbox::{Calls, Policy, SandboxError};

use crate::limits::Limits;

/// The process as it was before any script.
pub(super) struct Before {
    since: Instant,
    /// Addresses that the program itself takes.
    program_bytes: u64,
}

/// Confines this process, and all threads that it starts from now on. Where the kernel has nothing to confine
/// with, the language still has no I/O, and the limits hold.
///
/// Errors: the kernel has what it takes, and refuses.
pub(super) fn confine() -> io::Result<Before> {
    let before = Before { since: Instant::now(), program_bytes: program_bytes() };
    match Policy::new(Calls::default()).confinement() {
        Ok(mut confinement) => confinement.enter()?,
        Err(SandboxError::Nothing(_)) => {}
        Err(error) => return Err(io::Error::other(error)),
    }
    limit(Resource::Core, 0);
    limit(Resource::Fsize, 0);
    Ok(before)
}

impl Before {
    /// Bounds the memory. For good: the limit cannot be raised again by who has no privileges.
    pub(super) fn limit_memory(&self, limits: &Limits) {
        limit(Resource::As, self.program_bytes + super::STACK_BYTES as u64 + limits.memory_bytes);
    }

    /// Bounds the processor time of the next call, so that a child whose parent is gone ends by itself. One busy
    /// thread takes no more processor time than time passes.
    pub(super) fn limit_time(&self, limits: &Limits) {
        let seconds = (self.since.elapsed() + limits.wall).as_secs() + 2;
        let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: None });
    }
}

fn limit(resource: Resource, most: u64) {
    // what the system does not know or grant, the parent's clock still bounds
    let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
}

/// Addresses in use now; 0 where the system does not say.
fn program_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages: Option<u64> = pages.and_then(|text| text.split(' ').next()?.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
