//! The page says what is so.

use mechanism::{Hook, Limits, PAGE, validate};

use crate::child;

/// The text of the page's code blocks.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("rhai\n")).collect()
}

#[test]
fn the_example_is_valid() {
    let whole: Vec<&str> = blocks().into_iter().filter(|block| block.contains("fn cases()")).collect();
    assert!(!whole.is_empty());
    for example in whole {
        validate(&child(), example, &Limits::default(), &[]).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn every_hook_and_every_limit_stands_on_it_with_its_number() {
    for hook in Hook::ALL {
        assert!(PAGE.contains(&format!("`{hook}(")), "{hook}");
    }
    let Limits { operations, wall, memory_bytes, depth, text_bytes, answer_bytes, state_bytes, script_bytes } =
        Limits::default();
    for (name, row) in [
        ("operations", format!("| operations in one call | {} |", thousands(operations))),
        ("wall", format!("| time of one call | {} s |", wall.as_secs())),
        ("memory", format!("| memory | {} MiB |", memory_bytes >> 20)),
        ("depth", format!("| calls inside calls, values inside values | {depth} |")),
        ("text", format!("| one text in a script | {} KiB |", text_bytes >> 10)),
        ("answer", format!("| a text in an answer | {} bytes |", thousands(answer_bytes as u64))),
        ("state", format!("| the state, as JSON | {} KiB |", state_bytes >> 10)),
        ("script", format!("| a script | {} KiB |", script_bytes >> 10)),
    ] {
        assert!(PAGE.contains(&row), "{name}: {row}");
    }
}

/// `2 000 000`.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(" ")
}
