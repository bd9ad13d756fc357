//! What proposers spend, and what they may: one account for all tags, in `.ratchet/spending.jsonl`.

use llm::{Amount, AskError, Cap, Caps, Purse, Spender, Spent};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    proposer::{Brief, Proposal, ProposeError, Proposer, Usage},
    proposing::Desk,
    state::State,
};

impl From<Spent> for Usage {
    fn from(spent: Spent) -> Self {
        // calls that failed cost nothing, whatever the price
        let known = spent.usd > 0.0 || spent.unpriced == 0 && spent.calls > 0;
        Self { tokens: spent.tokens, usd: known.then_some(spent.usd) }
    }
}

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
    /// What a proposal counts as that does not say what it cost; one that was ended could not.
    unsaid_usd: Option<f64>,
}

impl<P: Proposer> Paid<P> {
    pub(crate) fn new(proposer: P, unsaid_usd: Option<f64>, desk: &Desk<'_>) -> Result<Self> {
        let (purse, caps, spender) = (desk.state.purse()?, desk.caps(), desk.spender());
        Ok(Self { proposer, purse, caps, spender, largest: Amount::default(), unsaid_usd })
    }

    /// What was spent, as far as an agent's word goes: it may say anything.
    fn believed(&self, said: Usage) -> Amount {
        let said_usd = said.usd.filter(|usd| usd.is_finite() && *usd >= 0.0);
        let known = self.largest.usd.filter(|usd| *usd > 0.0);
        let tokens = said.tokens.min(u64::from(u32::MAX)); // more is no count, and sums must not wrap
        Amount { tokens, usd: said_usd.or(self.unsaid_usd).or(known) }
    }
}

impl<P: Proposer> Proposer for Paid<P> {
    fn name(&self) -> &str {
        self.proposer.name()
    }

    fn propose(&mut self, brief: &Brief<'_>) -> std::result::Result<Proposal, ProposeError> {
        let capped = |error: AskError| ProposeError::Capped(error.to_string());
        let unpriced = self.purse.spent(&self.spender.run).map_or(0, |spent| spent.unpriced);
        if self.caps.limit_money() && unpriced > 0 {
            return Err(ProposeError::Capped(
                "a proposal did not say what it cost, so that no cap on dollars can be kept".to_owned(),
            ));
        }
        let ticket = self.purse.reserve(&self.caps, self.largest, &self.spender).map_err(capped)?;
        let proposal = self.proposer.propose(brief);
        let said = self.proposer.take_spent();
        let spent = self.believed(said);
        if spent.tokens > self.largest.tokens {
            self.largest = spent;
        }
        self.purse.settle(ticket, spent).map_err(|error| ProposeError::Failed(error.to_string()))?;
        proposal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposer::context::tests::with_brief;

    /// An agent that says what it is told to say.
    struct Says(Vec<Usage>);

    impl Proposer for Says {
        fn name(&self) -> &str {
            "agent"
        }

        fn propose(&mut self, _: &Brief<'_>) -> std::result::Result<Proposal, ProposeError> {
            Err(ProposeError::Empty)
        }

        fn take_spent(&mut self) -> Usage {
            self.0.remove(0)
        }
    }

    #[test]
    fn whatever_an_agent_says_a_cap_on_dollars_holds() {
        let dir = tempfile::tempdir().unwrap();
        let usage = |usd| Usage { tokens: u64::MAX, usd };
        let paid = |said: Vec<Usage>, unsaid_usd| Paid {
            proposer: Says(said),
            purse: Purse::open(&dir.path().join("spending.jsonl")).unwrap(),
            caps: Caps { night: Cap { tokens: None, usd: Some(1.0) }, day: Cap::default() },
            spender: Spender { run: format!("{unsaid_usd:?}"), tag: "t".to_owned() },
            largest: Amount::default(),
            unsaid_usd,
        };
        let mut capped =
            paid(vec![usage(Some(0.4)), usage(Some(-35.0)), usage(None), usage(Some(f64::NAN))], Some(0.4));
        let mut ask = || with_brief(None, std::path::Path::new("/"), |brief| capped.propose(brief));
        assert_eq!([ask(), ask()], [Err(ProposeError::Empty), Err(ProposeError::Empty)]);
        assert!(matches!(ask(), Err(ProposeError::Capped(_))), "0.4, then 0.4 for what it will not say");
        let mut silent = paid(vec![usage(None)], None);
        let mut ask = || with_brief(None, std::path::Path::new("/"), |brief| silent.propose(brief));
        assert_eq!(ask(), Err(ProposeError::Empty));
        assert!(matches!(ask(), Err(ProposeError::Capped(_))), "one of unknown cost is one too many");
    }
}
