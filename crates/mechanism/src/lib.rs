//! Search mechanisms: small scripts that are called at the hooks of the search, in a process that can be killed.

mod view;

pub use view::{Change, Hook, Knob, Move, Place, Suggestion, Target, Trace, Trial};
