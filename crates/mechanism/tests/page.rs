//! The page says what is so.

use mechanism::{FaultKind, Hook, Limits, PAGE, validate};
use serde_json::json;

use crate::{ask, child, fault, hook, host};

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

#[test]
fn the_language_is_as_it_says() {
    for (expression, text) in [
        ("3 / 2", "1"),
        ("3 / 2.0", "1.5"),
        ("(3).to_float() / 2", "1.5"),
        ("(3.7).to_int()", "3"),
        ("abs(-2) + max(1, 2) + min(1, 2)", "5"),
        ("sqrt(4.0) + exp(0.0) + ln(1.0)", "3.0"),
        ("(2.4).round() + (2.4).floor() + floor(1.5)", "5.0"),
        ("2 ** 3", "8"),
        ("(-2.5).sign()", "-1"),
        ("if 1 < 2.5 { 1 } else { 2 }", "1"),
        ("[1, 2, 3][-1]", "3"),
        ("[1, 2].len()", "2"),
        ("[1] + [2]", "[1, 2]"),
        ("2 in [1, 2]", "true"),
        ("[1, 2, 3].filter(|x| x > 1).map(|x| x * 2)", "[4, 6]"),
        ("[1, 2, 3].reduce(|sum, x| sum + x, 0)", "6"),
        ("[1, 2].some(|x| x > 1) && ![1, 2].all(|x| x > 1)", "true"),
        ("let a = [3, 1, 2]; a.sort(|a, b| a - b); a", "[1, 2, 3]"),
        ("[1, 2, 3].extract(1)", "[2, 3]"),
        ("let a = [1, 2, 3]; a.truncate(2); a", "[1, 2]"),
        ("#{ a: 1 }.b ?? 7", "7"),
        ("\"a\" in #{ a: 1 }", "true"),
        ("#{ b: 1, a: 2 }.keys()", "[\"a\", \"b\"]"),
        ("#{ b: 1, a: 2 }.values()", "[2, 1]"),
        ("let m = #{ a: 1, b: 2 }; m.remove(\"a\"); m.len()", "1"),
        ("#{ a: 1, b: 2 }.filter(|key, value| value > 1).keys()", "[\"b\"]"),
        ("let n = 2; `${n} of \\n`", "2 of \\n"),
        ("\"Ab\".to_lower() + \"ab\".len() + \"ab\".contains(\"b\")", "ab2true"),
        ("\"größe\".sub_string(1, 3)", "röß"),
        ("\"a b\".split(\" \")", "[\"a\", \"b\"]"),
        ("type_of(\"x\") + type_of(1) + type_of(1.0)", "stringi64f64"),
        ("switch 3 { 1 => \"a\", _ => \"b\" }", "b"),
        ("let t = 0; try { throw \"x\"; } catch (e) { t = e; } t", "x"),
        ("let a = [1]; let b = a; b.push(2); a.len()", "1"),
        ("let a = [1]; change(a); a.len()", "1"),
        ("let a = #{ n: 5 }; a.own()", "5"),
        ("let n = 0; for i in 0..3 { if i == 1 { continue; } n += i; } while n > 1 { n -= 1; } n", "1"),
    ] {
        let script = format!(
            "fn guide(trace) {{ let answer = {{ {expression} }}; `${{answer}}` }}
             fn change(a) {{ a.push(1); }} fn own() {{ this.n }}"
        );
        let answer = ask(&mut host(&script), Hook::Guide, &json!({}));
        assert_eq!(answer, Ok(json!(text)), "{expression}");
    }
    let throws = ["[1][5]", "let x = [1]; y(x)", "let t = #{ a: [1], b: 1 }; t.a.filter(|x| x == t.b)"];
    for expression in throws {
        assert_eq!(
            fault(&hook(Hook::Guide, expression), Hook::Guide).kind,
            FaultKind::Thrown,
            "{expression}"
        );
    }
}
