//! The three profiles and every constant that decides what their data is.
//!
//! A result belongs to its profile: figures of two profiles are never compared.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Names the profile when no `--profile` is given.
pub const PROFILE_ENV: &str = "RATCHET_PROFILE";

/// Raised by hand when code changes what the prepared files hold; older caches are then prepared anew.
pub const DATA_VERSION: u32 = 1;

/// Ids in the vocabulary of every profile: trained tokens and the specials after them.
pub const VOCAB: usize = 8192;

/// Special tokens, the last ids of the vocabulary.
pub const SPECIALS: [&str; 4] = ["<|reserved_0|>", "<|reserved_1|>", "<|reserved_2|>", "<|reserved_3|>"];

/// Begins every document and every exam row: the first special.
pub const BOS: u16 = (VOCAB - SPECIALS.len()) as u16;

/// Words are merged only inside what one match of this pattern covers (fancy-regex syntax).
pub const SPLIT_PATTERN: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*",
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
);

/// Characters of one document that the tokenizer trains on: no single text outweighs the others.
pub const TOKENIZER_DOC_CHARS: usize = 10_000;

/// Characters in all that the tokenizer trains on.
pub const TOKENIZER_CHARS: u64 = 1_000_000_000;

/// SHA-256 of the bundled shards 0 to 3: another text is another experiment.
pub const BUNDLED_SHA256: [&str; 4] = [
    "9fd9698f427d308634e125460cdbc93400c9d79854964a650b474e6d4d5d5dbc",
    "93e2becdd0fc1ece1d549c7b295d3b1a3dbbb009327e154449da58dc5328ca96",
    "5e3e3547052e58641e00b16919c2d04edff31ca617c9efab55e096821e075ecb",
    "59b9b030f554d5a446b9ced528150431a53464ca42a7684349a97aee791745e6",
];

/// Which data, context and budget an experiment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// One NVIDIA GPU, ClimbMix text, five minutes.
    Full,
    /// Any CPU, bundled text, one minute.
    Laptop,
    /// Tests and CI: bundled text, three seconds.
    Smoke,
}

/// Where a profile's text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corpus {
    /// Parquet shards in `prepare/corpus` of the repository.
    Bundled,
    /// Parquet shards downloaded into the cache.
    ClimbMix,
}

/// The constants of one profile.
#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    /// The profile these belong to.
    pub profile: Profile,
    /// Where the text comes from.
    pub corpus: Corpus,
    /// Numbers of the training shards, in reading order (of [`Corpus::ClimbMix`]: unless told otherwise).
    pub train_shards: &'static [u32],
    /// Number of the shard that val rows are packed from.
    pub val_shard: u32,
    /// Number of the shard that audit rows are packed from.
    pub audit_shard: u32,
    /// Input tokens in a row; a row holds one more, the last target.
    pub context: usize,
    /// Wall-clock time a fit may train.
    pub budget: Duration,
    /// Ids in the vocabulary.
    pub vocab: usize,
    /// Target tokens in the val rows, where the shard holds as many.
    pub val_tokens: usize,
    /// Target tokens in the audit rows, where the shard holds as many.
    pub audit_tokens: usize,
    /// Documents are cut into pieces of at most one row before packing. The bundled documents are long:
    /// best fit with cropping alone would throw most of their text away.
    pub pieces: bool,
}

impl Spec {
    /// Tokens in a row: the context and one more target.
    pub fn row_len(&self) -> usize {
        self.context + 1
    }
}

const FULL: Spec = Spec {
    profile: Profile::Full,
    corpus: Corpus::ClimbMix,
    train_shards: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    val_shard: 6542,
    audit_shard: 6541,
    context: 2048,
    budget: Duration::from_secs(300),
    vocab: VOCAB,
    val_tokens: 40 * 524_288,
    audit_tokens: 40 * 524_288,
    pieces: false,
};

const LAPTOP: Spec = Spec {
    profile: Profile::Laptop,
    corpus: Corpus::Bundled,
    train_shards: &[0, 1],
    val_shard: 2,
    audit_shard: 3,
    context: 256,
    budget: Duration::from_secs(60),
    vocab: VOCAB,
    val_tokens: 131_072,
    audit_tokens: 131_072,
    pieces: true,
};

const SMOKE: Spec = Spec {
    profile: Profile::Smoke,
    context: 128,
    budget: Duration::from_secs(3),
    val_tokens: 8_192,
    audit_tokens: 8_192,
    ..LAPTOP
};

/// Whether this machine has an NVIDIA device at all: true is not yet usable, false certainly is not.
pub fn cuda_device_present() -> bool {
    let numbered = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    std::fs::read_dir("/dev")
        .is_ok_and(|dev| dev.flatten().any(|entry| entry.file_name().to_str().is_some_and(numbered)))
}

/// A profile and why it is that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The profile to use.
    pub profile: Profile,
    /// Half a sentence for the one line that is printed, e.g. `no CUDA device is usable`.
    pub why: &'static str,
}

impl Profile {
    /// Every profile, largest first.
    pub const ALL: [Profile; 3] = [Profile::Full, Profile::Laptop, Profile::Smoke];

    /// The constants of this profile.
    pub fn spec(self) -> &'static Spec {
        match self {
            Profile::Full => &FULL,
            Profile::Laptop => &LAPTOP,
            Profile::Smoke => &SMOKE,
        }
    }

    /// The name used in flags, files and directories.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Full => "full",
            Profile::Laptop => "laptop",
            Profile::Smoke => "smoke",
        }
    }

    /// What a person asked for: the flag, else the environment's `RATCHET_PROFILE`, else nothing.
    ///
    /// Errors: the variable names no profile.
    pub fn requested(flag: Option<Profile>) -> Result<Option<Profile>, UnknownProfile> {
        match (flag, std::env::var(PROFILE_ENV)) {
            (Some(profile), _) => Ok(Some(profile)),
            (None, Ok(name)) if !name.is_empty() => name.parse().map(Some),
            (None, _) => Ok(None),
        }
    }

    /// The profile to use: the requested one, else `full` where this machine is ready for it, else `laptop`.
    pub fn choose(requested: Option<Profile>, cuda_usable: bool, full_prepared: bool) -> Choice {
        match requested {
            Some(profile) => Choice { profile, why: "as requested" },
            None if cuda_usable && full_prepared => {
                Choice { profile: Profile::Full, why: "a CUDA device is usable and its data is prepared" }
            }
            None if cuda_usable => {
                Choice { profile: Profile::Laptop, why: "the data of `full` is not prepared" }
            }
            None => Choice { profile: Profile::Laptop, why: "no CUDA device is usable" },
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no profile; there are full, laptop and smoke")]
pub struct UnknownProfile(pub String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        Profile::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}
