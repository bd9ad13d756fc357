//! Faults that strike at one call: the driver killed before it or in the middle of it, a disk that is full or
//! read-only from there on, a sync that fails.
//!
//! Killed after a call is killed before the next, so that every moment between two calls is tried.

use std::path::Path;

use nix::errno::Errno;

use super::{
    scenario::{Scenario, run},
    table::Table,
    tracer::{Call, Fate, Kind, Watch},
};

/// What strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Killed before the call.
    Killed,
    /// Killed when half of a write is made.
    Torn,
    /// No space from this call on.
    Full,
    /// No writing from this call on.
    ReadOnly,
    /// This sync fails.
    Unsynced,
}

impl Fault {
    const ALL: [Self; 5] = [Self::Killed, Self::Torn, Self::Full, Self::ReadOnly, Self::Unsynced];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "kill -9 before a call",
            Self::Torn => "kill -9 in the middle of a write",
            Self::Full => "disk full (ENOSPC) from a call on",
            Self::ReadOnly => "read-only (EROFS) from a call on",
            Self::Unsynced => "a sync that fails (EIO)",
        }
    }

    /// Whether it can strike at such a call.
    fn strikes(self, call: &Call) -> bool {
        match self {
            Self::Killed => true,
            Self::Torn => call.divisible,
            Self::Full => matches!(call.kind, Kind::Create | Kind::Write | Kind::Rename),
            Self::ReadOnly => matches!(call.kind, Kind::Create | Kind::Rename | Kind::Remove),
            Self::Unsynced => call.kind == Kind::Sync,
        }
    }

    /// What becomes of a call when the fault strikes at it, or, `later`, has struck before.
    fn fate(self, call: &Call, later: bool) -> Fate {
        match self {
            _ if !self.strikes(call) => Fate::Made,
            Self::Full => Fate::Fails(Errno::ENOSPC),
            Self::ReadOnly => Fate::Fails(Errno::EROFS),
            _ if later => Fate::Made,
            Self::Killed => Fate::Killed,
            Self::Torn => Fate::Torn,
            Self::Unsynced => Fate::Fails(Errno::EIO),
        }
    }
}

/// One fault at one call of a scenario.
struct Case<'a> {
    scenario: &'a Scenario,
    fault: Fault,
    at: usize,
    /// The call, for a person.
    call: String,
}

/// Lists the cases of a scenario while it runs unharmed.
struct Lister<'a, 'r> {
    scenario: &'a Scenario,
    root: &'r Path,
    at: usize,
    /// Whether a file has changed since the last case of a kill: before a sync and after it are the same.
    changed: bool,
    cases: Vec<Case<'a>>,
}

impl Watch for Lister<'_, '_> {
    fn before(&mut self, call: &Call) -> Fate {
        let path = call.path.strip_prefix(self.root).unwrap().display();
        for fault in Fault::ALL.into_iter().filter(|fault| fault.strikes(call)) {
            let worth = match fault {
                Fault::Killed => std::mem::take(&mut self.changed),
                Fault::Torn => true,
                _ => self.scenario.thorough,
            };
            if worth {
                let call = format!("{:?} {path}", call.kind);
                self.cases.push(Case { scenario: self.scenario, fault, at: self.at, call });
            }
        }
        self.at += 1;
        Fate::Made
    }

    fn after(&mut self, call: &Call) {
        self.changed |= call.kind != Kind::Sync;
    }
}

/// Has every fault strike at every call of every scenario.
pub(super) fn strike(scenarios: &[Scenario], table: &mut Table) {
    let mut cases = Vec::new();
    for scenario in scenarios {
        let toy = scenario.before.copy();
        let mut lister = Lister { scenario, root: toy.root(), at: 0, changed: true, cases: Vec::new() };
        let (code, said) = run(&toy, scenario, &mut lister);
        assert_eq!(code, Some(0), "{}: {said}", scenario.name);
        cases.append(&mut lister.cases);
        scenario.check(&toy);
    }
    let name = |case: &Case<'_>| {
        (case.fault.name(), format!("{}, call {} ({})", case.scenario.name, case.at, case.call))
    };
    table.each(&cases, name, survive);
}

fn survive(case: &Case<'_>) {
    let toy = case.scenario.before.copy();
    let mut at = 0;
    let (code, said) = run(&toy, case.scenario, &mut |call: &Call| {
        at += 1;
        if at > case.at { case.fault.fate(call, at - 1 > case.at) } else { Fate::Made }
    });
    match code {
        None => assert!(matches!(case.fault, Fault::Killed | Fault::Torn)),
        Some(0) => {}
        Some(code) => {
            assert!(matches!(code, 1 | 4), "exit code {code}: {said}");
            let errors = said.lines().filter(|line| line.starts_with("ratchet: ")).count();
            assert!(errors == 1 && !said.contains("panicked"), "one line says what is wrong: {said}");
        }
    }
    case.scenario.resume(&toy);
    case.scenario.check(&toy);
}
