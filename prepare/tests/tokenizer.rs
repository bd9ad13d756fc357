//! Ids held against the `tokenizers` crate, round trips of any text, and golden values.

use std::sync::OnceLock;

use prepare::profile::{BOS, SPECIALS, VOCAB};
use prepare::tokenizer::{Tokenizer, TokenizerError};
use proptest::prelude::*;
use tokenizers::Tokenizer as Standard;

use crate::prepared::{documents, smoke};

fn ours() -> &'static Tokenizer {
    static OURS: OnceLock<Tokenizer> = OnceLock::new();
    OURS.get_or_init(|| Tokenizer::read(&smoke().paths().tokenizer()).unwrap())
}

/// The same file read by the library that everybody else reads it with.
fn standard() -> &'static Standard {
    static STANDARD: OnceLock<Standard> = OnceLock::new();
    STANDARD.get_or_init(|| {
        let mut standard = Standard::from_file(smoke().paths().tokenizer()).unwrap();
        standard.set_encode_special_tokens(true); // a special's name in a text is text
        standard
    })
}

fn encode(text: &str) -> Vec<u16> {
    let mut ids = Vec::new();
    ours().encode(text, &mut ids);
    ids
}

fn standard_ids(text: &str) -> Vec<u16> {
    standard().encode(text, false).unwrap().get_ids().iter().map(|&id| id as u16).collect()
}

#[test]
fn ids_equal_the_standard_librarys_on_real_text() {
    for text in documents(2).iter().take(40) {
        assert_eq!(encode(text), standard_ids(text));
    }
}

/// Text made of what the split pattern decides about: blanks of all kinds, line ends, contractions in both
/// cases, digits of several scripts, combining marks, specials.
fn tricky() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        " ",
        "  ",
        "\t",
        "\n",
        "\r",
        "\r\n",
        "\u{a0}",
        "\u{3000}",
        "\u{2028}",
        "\u{85}",
        "\u{b}",
        "'",
        "'s",
        "'LL",
        "'ſ",
        "’s",
        "a",
        "Zebra",
        "ß",
        "ſ",
        "é",
        "e\u{301}",
        "Ω",
        "ж",
        "漢字",
        "ไทย",
        "7",
        "42",
        "1234",
        "٣",
        "Ⅷ",
        "½",
        ".",
        "...",
        "!?",
        "—",
        "_",
        "$",
        "👩‍👩‍👧",
        "🇫🇷",
        "\u{0}",
        "\u{feff}",
        "\u{200b}",
        "\u{fffd}",
        "<|reserved_0|>",
    ]);
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn ids_equal_the_standard_librarys_on_any_text(text in prop_oneof![any::<String>(), tricky()]) {
        prop_assert_eq!(encode(&text), standard_ids(&text), "{:?}", text);
    }

    #[test]
    fn any_text_survives_the_round_trip(text in prop_oneof![any::<String>(), tricky()]) {
        let ids = encode(&text);
        prop_assert_eq!(ours().decode(&ids), text.as_bytes());
        prop_assert!(ids.iter().all(|&id| id < BOS), "text never becomes a special");
        let lengths = ours().token_bytes();
        let bytes: usize = ids.iter().map(|&id| usize::from(lengths[usize::from(id)])).sum();
        prop_assert_eq!(bytes, text.len(), "byte lengths add up to the text");
    }
}

#[test]
fn a_lone_byte_counts_as_one_byte() {
    // decoded as a string, a byte at or above 0x80 would be U+FFFD, three bytes
    let lengths = ours().token_bytes();
    assert_eq!(lengths.len(), VOCAB);
    let single: Vec<usize> = (0..VOCAB).filter(|&id| ours().decode(&[id as u16]).len() == 1).collect();
    assert_eq!(single, (0..256).collect::<Vec<_>>());
    assert!(lengths[..256].iter().all(|&n| n == 1));
    assert!(lengths[256..usize::from(BOS)].iter().all(|&n| n >= 2));
    assert_eq!(lengths[usize::from(BOS)..], [0; SPECIALS.len()]);
}

#[test]
fn golden_merges_and_ids() {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(smoke().paths().tokenizer()).unwrap()).unwrap();
    let merges = json["model"]["merges"].as_array().unwrap();
    assert_eq!(merges.len(), VOCAB - SPECIALS.len() - 256);
    let spell = |m: &serde_json::Value| format!("{}+{}", m[0].as_str().unwrap(), m[1].as_str().unwrap());
    let first: Vec<String> = merges[..12].iter().map(spell).collect();
    assert_eq!(first.join(" "), "t+h Ġ+th Ġ+a Ġth+e n+d Ġ+s Ġ+h e+r i+n Ġ+w o+u .+Ċ");
    // the ids that tiktoken gives for the same merges
    let genesis = "In the beginning God created the heaven and the earth.";
    assert_eq!(encode(genesis), [807, 259, 3946, 477, 5788, 259, 801, 274, 259, 833, 13]);
    let hamlet = "To be, or not to be: that's the\n  question — 1616 🦀";
    let ids = [
        490, 301, 11, 511, 339, 290, 301, 25, 318, 362, 259, 198, 220, 3068, 220, 158, 222, 242, 220, 924,
        924, 220, 172, 253, 99, 222,
    ];
    assert_eq!(encode(hamlet), ids);
}

#[test]
fn training_does_not_depend_on_threads() {
    let texts: Vec<String> = documents(0).into_iter().take(400).collect();
    let train = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| Tokenizer::train(texts.iter().cloned()).unwrap().to_json().unwrap())
    };
    assert!(train(1) == train(3), "the same text must give the same tokenizer.json");
}

#[test]
fn documents_are_cut_at_ten_thousand_characters() {
    let texts: Vec<String> = documents(0).into_iter().take(300).collect();
    let head: String = "é".repeat(9_999) + "ö"; // characters, not bytes
    let train =
        |last: String| Tokenizer::train(texts.iter().cloned().chain([last])).unwrap().to_json().unwrap();
    assert!(train(head.clone()) == train(head + &"zyxwvu ".repeat(5_000)), "the tail must not count");
}

#[test]
fn too_little_text_is_an_error() {
    let error = Tokenizer::train(["a short text, ".repeat(9)].into_iter()).err().unwrap();
    assert!(matches!(error, TokenizerError::TooLittleText { needed: 8188, .. }), "{error}");
}

#[test]
fn a_foreign_tokenizer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, "{}").unwrap();
    assert!(matches!(Tokenizer::read(&path), Err(TokenizerError::Foreign { .. })));
}
