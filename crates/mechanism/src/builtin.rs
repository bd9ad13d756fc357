//! The mechanisms that ship, as scripts that pass the same gates as any other.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// Its name, one word or more with `-` between.
    pub name: &'static str,
    /// Its script.
    pub script: &'static str,
}

/// All of them.
pub const BUILTIN: [Builtin; 6] = [
    Builtin { name: "tabu", script: include_str!("builtin/tabu.rhai") },
    Builtin { name: "bandit", script: include_str!("builtin/bandit.rhai") },
    Builtin { name: "orthogonal", script: include_str!("builtin/orthogonal.rhai") },
    Builtin { name: "step-size", script: include_str!("builtin/step_size.rhai") },
    Builtin { name: "crash-memory", script: include_str!("builtin/crash_memory.rhai") },
    Builtin { name: "plateau", script: include_str!("builtin/plateau.rhai") },
];
