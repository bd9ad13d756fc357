//! Who answers as the model of `[proposer.llm]`: a provider, or a script that stands in for one.

use llm::Provider;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IntoDeserializer, value::StrDeserializer},
};

/// The name of the script in `provider`.
const SCRIPTED: &str = "scripted";

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// A script, offline and without a key; see [`crate::proposer::scripted`].
    Scripted,
    /// A language model.
    Provider(Provider),
}

impl Answerer {
    /// As it stands in `provider`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scripted => SCRIPTED,
            Self::Provider(provider) => provider.as_str(),
        }
    }
}

impl Serialize for Answerer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Answerer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == SCRIPTED {
            return Ok(Self::Scripted);
        }
        let name: StrDeserializer<'_, D::Error> = name.as_str().into_deserializer();
        Provider::deserialize(name).map(Self::Provider)
    }
}
