//! Systems that have neither Landlock nor seccomp.

use std::io;

use crate::{Available, SandboxError, policy::Policy};

const WHY: &str = "a sandbox needs Linux 5.13 or newer";

/// Never there.
#[derive(Debug)]
pub struct Confinement(std::convert::Infallible);

impl Policy {
    /// Always an error.
    pub fn confinement(&self) -> Result<Confinement, SandboxError> {
        Err(SandboxError::Nothing(WHY.into()))
    }
}

impl Confinement {
    /// Cannot be called.
    pub fn variable(&self) -> Option<(&'static str, String)> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn enter(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

/// Always an error.
pub fn seal() -> Result<(), SandboxError> {
    Err(SandboxError::Nothing(WHY.into()))
}

/// Nothing was granted.
pub fn forgo() -> io::Result<()> {
    Ok(())
}

/// Nothing.
pub fn available() -> Available {
    Available::Nothing(WHY.into())
}
