//! What proposers spend, and what they may: one account for all tags, in `.ratchet/spending.jsonl`.

use llm::{Amount, AskError, Cap, Caps, Purse, Spender, Spent};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    proposer::{Brief, Proposal, ProposeError, Proposer, Usage},
    proposing::Desk,
    state::State,
};

/// One invocation as the account knows it, and what it may spend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Payer {
    pub(crate) run: String,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_usd: Option<f64>,
}

impl State {
    /// The account.
    pub(crate) fn purse(&self) -> Result<Purse> {
        self.create()?;
        Purse::open(&self.dir().join("spending.jsonl")).map_err(|wrong| {
            error(wrong).hint("restore it, or move it away: what it holds then counts no more")
        })
    }

    /// What proposers have spent for a tag.
    pub(crate) fn spent_by(&self, tag: &str) -> Result<Spent> {
        self.spent(|purse| purse.spent_by(tag))
    }

    /// What proposers have spent in one invocation.
    pub(crate) fn spent_in(&self, run: &str) -> Result<Spent> {
        self.spent(|purse| purse.spent(run))
    }

    fn spent(&self, ask: impl FnOnce(&mut Purse) -> std::result::Result<Spent, AskError>) -> Result<Spent> {
        match self.dir().join("spending.jsonl").exists() {
            true => ask(&mut self.purse()?).map_err(error),
            false => Ok(Spent::default()), // looking creates nothing
        }
    }
}

impl Desk<'_> {
    pub(crate) fn caps(&self) -> Caps {
        let section = &self.task.proposer;
        Caps {
            night: Cap { tokens: self.payer.max_tokens, usd: self.payer.max_usd },
            day: Cap { tokens: section.tokens_per_day, usd: section.usd_per_day },
        }
    }

    pub(crate) fn spender(&self) -> Spender {
        Spender { run: self.payer.run.clone(), tag: self.tag.to_string() }
    }
}

/// A failure of the account, or of what is asked through it, as the driver's own.
pub(crate) fn error(error: AskError) -> Error {
    let text = error.to_string();
    match error {
        AskError::Key { .. } | AskError::Model(_) => Error::environment(text),
        AskError::Cap(_) | AskError::Rejected(_) | AskError::Setup(_) => Error::usage(text),
        _ => Error::internal(text),
    }
}

/// A proposer whose spending is known only when it is done: nothing is begun once a cap is reached, and what is
/// spent past it is one proposal's at most.
pub(crate) struct Paid<P> {
    proposer: P,
    purse: Purse,
    caps: Caps,
    spender: Spender,
    /// What one proposal has cost at most so far, set aside for the next.
    largest: Amount,
}

impl<P: Proposer> Paid<P> {
    pub(crate) fn new(proposer: P, desk: &Desk<'_>) -> Result<Self> {
        let purse = desk.state.purse()?;
        Ok(Self { proposer, purse, caps: desk.caps(), spender: desk.spender(), largest: Amount::default() })
    }
}

impl<P: Proposer> Proposer for Paid<P> {
    fn name(&self) -> &str {
        self.proposer.name()
    }

    fn propose(&mut self, brief: &Brief<'_>) -> std::result::Result<Proposal, ProposeError> {
        let capped = |error: AskError| ProposeError::Capped(error.to_string());
        let ticket = self.purse.reserve(&self.caps, self.largest, &self.spender).map_err(capped)?;
        let proposal = self.proposer.propose(brief);
        let Usage { tokens, usd } = self.proposer.take_spent();
        let spent = Amount { tokens, usd };
        if spent.tokens > self.largest.tokens {
            self.largest = spent;
        }
        self.purse.settle(ticket, spent).map_err(|error| ProposeError::Failed(error.to_string()))?;
        proposal
    }
}
