//! Search mechanisms: small scripts that are called at the hooks of the search, in a process that can be killed.
//!
//! A [`Host`] holds one script in one child process. The child confines itself (no file, socket or process,
//! bounded memory), runs the script in an embedded language that has no I/O, and answers one JSON line for each
//! JSON line that it gets. The parent checks every answer and kills the child when its time is up, so a script
//! can end only in an answer that is legal or in a [`Fault`]. [`validate`] says whether a script is fit for use;
//! [`BUILTIN`] has those that ship, and [`PAGE`] is the page for whoever writes one.

mod answer;
mod builtin;
mod cases;
mod child;
mod fault;
mod host;
mod limits;
mod scale;
mod validate;
mod view;
mod wire;

pub use builtin::{BUILTIN, Builtin};
pub use child::serve;
pub use fault::{Fault, FaultKind};
pub use host::{Child, Host};
pub use limits::Limits;
pub use validate::{Rejection, Validated, validate};
pub use view::{Change, Hook, Knob, Move, Place, Suggestion, Target, Trace, Trial};

/// `docs/mechanisms.md`: the language, the hooks and the limits, for a person and for a generator.
pub const PAGE: &str = include_str!("../../../docs/mechanisms.md");
