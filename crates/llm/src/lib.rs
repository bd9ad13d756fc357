//! Asks a language model, whoever provides it, and keeps account of what that costs.
//!
//! [`Model`] is the one question-and-answer seam. Behind it stand [`Live`] (a provider) and [`Recorded`]
//! (answers of an earlier night) and, around any of them, [`Metered`] (spending caps) and [`Recording`] (a
//! line a call). The interface blocks. An answer is untrusted text: it is bounded in size and never
//! interpreted here.

mod attempt;
mod call;
mod error;
mod fault;
mod key;
mod live;
mod metered;
mod prices;
mod provider;
mod purse;
mod recorded;
mod structured;

pub use call::{Answer, Call, Model, Schema, Turn, Usage};
pub use error::AskError;
pub use key::KeySource;
pub use live::{Config, Live, Stop};
pub use metered::Metered;
pub use prices::{Price, Prices};
pub use provider::Provider;
pub use purse::{Amount, Cap, Caps, Purse, Spender, Spent, Ticket};
pub use recorded::{Recorded, Recording};
pub use structured::ask_as;
