//! A model held to spending caps.

use crate::{Amount, Answer, AskError, Call, Caps, Model, Price, Purse, Spender};

/// Bytes of prompt a token: fewer than any text has, so that the guess is too high. It is corrected once the
/// answer is there, and so costs no more than a night that ends one call early.
const BYTES_PER_TOKEN: usize = 2;
/// Tokens that a protocol adds to a prompt: roles, separators.
const PROTOCOL_TOKENS: u64 = 64;

/// A model whose every call is reserved in the purse at its worst before it is made, and settled after it.
/// The caps can be passed by what one call's further attempts cost, and by no more.
#[derive(Debug)]
pub struct Metered<M> {
    model: M,
    purse: Purse,
    caps: Caps,
    spender: Spender,
    price: Option<Price>,
}

impl<M: Model> Metered<M> {
    /// Holds `model` to `caps`.
    ///
    /// # Errors
    /// [`AskError::Cap`] where money is capped and the model's price is not known.
    pub fn new(
        model: M,
        purse: Purse,
        caps: Caps,
        spender: Spender,
        price: Option<Price>,
    ) -> Result<Self, AskError> {
        if caps.limit_money() && price.is_none() {
            return Err(AskError::Cap(format!(
                "money is capped, but no price is known for the model {}; add it to a price file",
                model.name()
            )));
        }
        Ok(Self { model, purse, caps, spender, price })
    }
}

impl<M: Model> Model for Metered<M> {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        let (input, output) = (most_input(call), u64::from(call.max_output_tokens));
        let worst =
            Amount { tokens: input + output, usd: self.price.map(|price| price.worst(input, output)) };
        let ticket = self.purse.reserve(&self.caps, worst, &self.spender)?;
        let mut outcome = self.model.ask(call);
        let mut actual = Amount::default();
        if let Ok(answer) = &mut outcome {
            let usage = &mut answer.usage;
            usage.usd = usage.usd.or_else(|| self.price.map(|price| price.of(usage)));
            // Some servers do not say what a call used.
            let told = usage.tokens() > 0;
            actual = if told { Amount { tokens: usage.tokens(), usd: usage.usd } } else { worst };
        }
        // An attempt that broke off may be billed: nobody says how much, so it counts at its worst.
        let lost = self.model.lost();
        if lost > 0 {
            actual.tokens = actual.tokens.saturating_add(worst.tokens * u64::from(lost));
            actual.usd = actual.usd.zip(worst.usd).map(|(spent, worst)| spent + worst * f64::from(lost));
        }
        self.purse.settle(ticket, actual)?;
        outcome
    }

    fn name(&self) -> &str {
        self.model.name()
    }

    fn lost(&self) -> u32 {
        self.model.lost()
    }
}

/// More tokens than the prompt has, by its bytes.
fn most_input(call: &Call<'_>) -> u64 {
    let turns = call.turns.iter().map(|turn| turn.text().len());
    let schema = call.schema.map_or(0, |schema| schema.json.to_string().len());
    let bytes = call.system.len() + turns.sum::<usize>() + schema;
    bytes.div_ceil(BYTES_PER_TOKEN) as u64 + PROTOCOL_TOKENS
}
