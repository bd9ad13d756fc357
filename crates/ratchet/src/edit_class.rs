//! How deep an edit goes: constants only, a few lines, or structure.
//!
//! | class | an edit is this when |
//! |---|---|
//! | constant | with every literal, sign and `true`/`false` put out of sight, the tokens are the same |
//! | structural | a file comes or goes; or items, their signatures or the fields of types change; or the branches and loops do; or more than [`LOCAL_LINES`] lines |
//! | local | it is neither |
//!
//! A `.rs` file is read by tokens, so that comments and spacing weigh nothing. Of any other file, and of a
//! `.rs` file that does not lex, only numbers can be constants, and only the number of lines makes structure.
//! Of several files the deepest counts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    path::PathBuf,
};

use proc_macro2::{Delimiter, Group, TokenTree};
use serde::{Deserialize, Serialize};

use crate::source::{Step, forget_spans, lex, walk};

/// Lines that a local edit adds or takes away at most.
pub const LOCAL_LINES: usize = 10;

/// Words that begin an item. `use` is none: an import changes nothing by itself.
const ITEMS: [&str; 11] =
    ["fn", "struct", "enum", "union", "trait", "impl", "mod", "type", "const", "static", "macro_rules"];
/// Items whose braces hold fields, which belong to what they promise.
const WITH_FIELDS: [&str; 3] = ["struct", "enum", "union"];
/// Words that branch or repeat.
const FLOW: [&str; 5] = ["if", "match", "for", "while", "loop"];

/// How deep an edit goes; the deepest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditClass {
    /// Only values changed.
    Constant,
    /// A few lines of what is there.
    Local,
    /// What there is, or how it is put together.
    Structural,
}

impl EditClass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Constant, Self::Local, Self::Structural];

    /// As it stands in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Local => "local",
            Self::Structural => "structural",
        }
    }

    /// The class of the edit that makes `after` of `before`; `None` where no token and no byte differs.
    pub fn of(before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>) -> Option<Self> {
        let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
        let class = |path: &PathBuf| match (before.get(path), after.get(path)) {
            (Some(old), Some(new)) => of_file(path.extension().is_some_and(|e| e == "rs"), old, new),
            _ => Some(Self::Structural),
        };
        paths.into_iter().filter_map(class).max()
    }
}

impl fmt::Display for EditClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn of_file(rust: bool, old: &[u8], new: &[u8]) -> Option<EditClass> {
    if old == new {
        return None;
    }
    if let Some((old, new)) = Some((old, new)).filter(|_| rust).and_then(|(a, b)| tokens(a).zip(tokens(b))) {
        return of_tokens(&old, &new);
    }
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    Some(if without_numbers(&old) == without_numbers(&new) {
        EditClass::Constant
    } else if lines_changed(old.lines(), new.lines()) > LOCAL_LINES {
        EditClass::Structural
    } else {
        EditClass::Local
    })
}

/// One token of a Rust file.
struct Token {
    text: String,
    line: usize,
    is_literal: bool,
}

fn tokens(bytes: &[u8]) -> Option<Vec<Token>> {
    let stream = lex(bytes)?;
    let mut all = Vec::new();
    walk(stream, |step| {
        let bracket = |group: &Group, open: bool| match (group.delimiter(), open) {
            (Delimiter::Parenthesis, true) => "(",
            (Delimiter::Parenthesis, false) => ")",
            (Delimiter::Brace, true) => "{",
            (Delimiter::Brace, false) => "}",
            (Delimiter::Bracket, true) => "[",
            (Delimiter::Bracket, false) => "]",
            (Delimiter::None, _) => "",
        };
        let (text, span, is_literal) = match step {
            Step::Open(group) => (bracket(group, true).to_owned(), group.span_open(), false),
            Step::Close(group) => (bracket(group, false).to_owned(), group.span_close(), false),
            Step::Leaf(token) => {
                let text = token.to_string();
                let literal =
                    matches!(token, TokenTree::Literal(_)) || matches!(text.as_str(), "true" | "false");
                (text, token.span(), literal)
            }
        };
        all.push(Token { text, line: span.start().line, is_literal });
    });
    forget_spans();
    Some(all)
}

fn of_tokens(old: &[Token], new: &[Token]) -> Option<EditClass> {
    let texts = |tokens: &[Token]| tokens.iter().map(|token| token.text.clone()).collect::<Vec<_>>();
    if texts(old) == texts(new) {
        return None;
    }
    let (masked_old, masked_new) = (masked(old), masked(new));
    Some(if masked_old == masked_new {
        EditClass::Constant
    } else if items(&masked_old) != items(&masked_new)
        || flow(old) != flow(new)
        || lines_changed(code_lines(old).iter(), code_lines(new).iter()) > LOCAL_LINES
    {
        EditClass::Structural
    } else {
        EditClass::Local
    })
}

/// The tokens with literals and their signs out of sight.
fn masked(tokens: &[Token]) -> Vec<&str> {
    let mut out: Vec<&str> = Vec::with_capacity(tokens.len());
    for (i, token) in tokens.iter().enumerate() {
        if token.is_literal {
            // a sign stands where no operand ends; after one, `-` takes away and is no part of the value
            let operand = i.checked_sub(2).is_some_and(|i| {
                let before = &tokens[i];
                before.is_literal
                    || matches!(before.text.as_str(), ")" | "]")
                    || before.text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                        && before.text != "return"
            });
            if out.last() == Some(&"-") && !operand {
                out.pop();
            }
            out.push("0");
        } else {
            out.push(&token.text);
        }
    }
    out
}

/// What each item promises: its tokens up to its body or value, and for a type its fields. Sorted, so that
/// moving an item is none.
fn items<'a>(tokens: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut all = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if !ITEMS.contains(&tokens[i]) {
            i += 1;
            continue;
        }
        let begin = i;
        let fields = WITH_FIELDS.contains(&tokens[i]);
        let (mut depth, mut braces) = (0_usize, false);
        while i < tokens.len() {
            match tokens[i] {
                "{" if depth == 0 && !fields => break,
                ";" | "=" if depth == 0 && tokens[begin] != "type" => break,
                ";" if depth == 0 => break,
                "(" | "[" | "{" => {
                    depth += 1;
                    braces |= tokens[i] == "{";
                }
                ")" | "]" | "}" => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => break, // the end of what the item stands in
                },
                _ => {}
            }
            i += 1;
            if fields && braces && depth == 0 {
                break;
            }
        }
        all.push(tokens[begin..i].to_vec());
    }
    all.sort();
    all
}

/// The branches and loops, by kind.
fn flow(tokens: &[Token]) -> HashMap<&str, usize> {
    let mut count = HashMap::new();
    for token in tokens.iter().filter(|token| FLOW.contains(&token.text.as_str())) {
        *count.entry(token.text.as_str()).or_default() += 1;
    }
    count
}

/// The lines that hold code, each as its tokens.
fn code_lines(tokens: &[Token]) -> Vec<String> {
    let mut lines: BTreeMap<usize, String> = BTreeMap::new();
    for token in tokens {
        let line = lines.entry(token.line).or_default();
        line.push_str(&token.text);
        line.push(' ');
    }
    lines.into_values().collect()
}

/// Lines added or taken away, whichever are more. As sets, not in order: what moves is the same, and two
/// files without a line in common cost no more than two alike.
fn lines_changed<L: std::hash::Hash + Eq>(
    old: impl Iterator<Item = L>,
    new: impl Iterator<Item = L>,
) -> usize {
    let mut balance: HashMap<L, i64> = HashMap::new();
    old.for_each(|line| *balance.entry(line).or_default() -= 1);
    new.for_each(|line| *balance.entry(line).or_default() += 1);
    let sum = |sign: i64| balance.values().map(|n| (n * sign).max(0) as usize).sum::<usize>();
    sum(1).max(sum(-1))
}

/// The text with every number, sign and exponent included, out of sight.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let in_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let signed = matches!(c, '-' | '+') && !in_word;
        let digits = &rest[usize::from(signed)..];
        if !in_word && digits.starts_with(|c: char| c.is_ascii_digit()) {
            let mut length = digits.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
            if let Some(at) = length.filter(|at| digits[*at..].starts_with(['e', 'E'])) {
                let exponent = digits[at + 1..].trim_start_matches(['-', '+']);
                if exponent.starts_with(|c: char| c.is_ascii_digit()) {
                    let sign = digits.len() - at - 1 - exponent.len();
                    let end = exponent.find(|c: char| !c.is_ascii_digit());
                    length = end.map(|end| at + 1 + sign + end);
                }
            }
            out.push('0');
            rest = length.map_or("", |length| &digits[length..]);
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{EditClass::*, *};

    fn class(path: &str, old: &str, new: &str) -> Option<EditClass> {
        let tree = |text: &str| BTreeMap::from([(PathBuf::from(path), text.as_bytes().to_vec())]);
        EditClass::of(&tree(old), &tree(new))
    }

    const MODEL: &str = "pub const LR: f64 = 0.04; // knob: log 0.005..0.2\nconst ON: bool = true;\n\
        struct Block { width: usize }\n\
        impl Block {\n    fn forward(&self, x: f64) -> f64 {\n        let y = x * 2.0;\n        if ON { y } else { -1.0 }\n    }\n}\n";

    #[test]
    fn values_signs_and_switches_are_constants() {
        for (from, to) in [("0.04", "0.05"), ("0.04", "-3e-4"), ("= true", "= false"), ("-1.0", "1.0")] {
            assert_eq!(class("a.rs", MODEL, &MODEL.replace(from, to)), Some(Constant), "{from} → {to}");
        }
        // taking away a number is an operation, not a sign
        assert_eq!(class("a.rs", "fn f() { a(x - 1) }", "fn f() { a(x, 1) }"), Some(Local));
        assert_eq!(class("a.rs", "fn f() { a + 1 }", "fn f() { a - 1 }"), Some(Local));
    }

    #[test]
    fn comments_and_spacing_are_no_edit() {
        assert_eq!(class("a.rs", MODEL, &MODEL.replace(" // knob: log 0.005..0.2\n", "\n\n")), None);
        assert_eq!(class("a.txt", "a\n", "a\n"), None);
    }

    #[test]
    fn a_few_lines_of_what_is_there_are_local() {
        for (from, to) in
            [("x * 2.0", "x.sin() * 2.0"), ("{ y }", "{ y + x }"), ("let y", "use a::b; let z = 1; let y")]
        {
            assert_eq!(class("a.rs", MODEL, &MODEL.replace(from, to)), Some(Local), "{from} → {to}");
        }
    }

    #[test]
    fn items_signatures_fields_and_branches_are_structure() {
        for (from, to) in [
            ("struct Block", "fn new() {}\nstruct Block"),
            ("x: f64)", "x: f64, y: f64)"),
            ("width: usize", "width: usize, depth: usize"),
            ("width: usize", "width: u32"),
            ("pub const LR: f64 = 0.04;", ""),
            ("LR: f64", "LR: f32"),
            ("let y = x * 2.0;", "let mut y = x; while y < 2.0 { y += x; }"),
            ("if ON { y } else { -1.0 }", "y"),
        ] {
            assert_eq!(class("a.rs", MODEL, &MODEL.replace(from, to)), Some(Structural), "{from} → {to}");
        }
    }

    #[test]
    fn an_item_that_moves_is_as_it_was() {
        let (a, b) = ("fn a() { 1 }\n", "fn b() { 2 }\n");
        assert_eq!(class("a.rs", &format!("{a}{b}"), &format!("{b}{a}")), Some(Local));
    }

    #[test]
    fn many_lines_are_structure_whatever_they_hold() {
        let body = |n: usize| {
            format!("fn f() {{\n{}}}\n", (0..n).map(|i| format!("    g({i});\n")).collect::<String>())
        };
        assert_eq!(class("a.rs", &body(1), &body(1 + LOCAL_LINES)), Some(Local));
        assert_eq!(class("a.rs", &body(1), &body(2 + LOCAL_LINES)), Some(Structural));
        assert_eq!(class("a.txt", "a\n", &"b\n".repeat(LOCAL_LINES + 1)), Some(Structural));
    }

    #[test]
    fn in_other_files_numbers_are_the_constants() {
        for (old, new) in [("x = 7 # knob", "x = -0.5e-3 # knob"), ("a: [1, 2]", "a: [1.5, +2]"), ("7", "12")]
        {
            assert_eq!(class("x.txt", old, new), Some(Constant), "{old} → {new}");
        }
        for (old, new) in [("x1 = 1", "x2 = 1"), ("be brief", "be terse"), ("7", "seven"), ("1e", "1ex")] {
            assert_eq!(class("x.txt", old, new), Some(Local), "{old} → {new}");
        }
        // a .rs file that is no Rust is one of these
        assert_eq!(class("a.rs", "fn f( { 1", "fn f( { 2"), Some(Constant));
    }

    #[test]
    fn the_deepest_of_several_files_counts_and_a_new_one_is_structure() {
        let tree = |files: &[(&str, &str)]| -> BTreeMap<PathBuf, Vec<u8>> {
            files.iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec())).collect()
        };
        let before = tree(&[("a", "1"), ("b", "one")]);
        assert_eq!(EditClass::of(&before, &tree(&[("a", "2"), ("b", "two")])), Some(Local));
        assert_eq!(EditClass::of(&before, &tree(&[("a", "2")])), Some(Structural));
        assert_eq!(EditClass::of(&before, &tree(&[("a", "1"), ("b", "one"), ("c", "")])), Some(Structural));
    }

    #[test]
    fn hostile_files_are_classed_in_no_time() {
        let noise = |word: &str| (0..200_000).map(|i| format!("{word}{i}\n")).collect::<String>();
        assert_eq!(class("a.txt", &noise("a"), &noise("b")), Some(Structural));
        let deep = |n: usize| format!("fn f() {{ {}1{} }}", "(".repeat(n), ")".repeat(n));
        assert_eq!(class("a.rs", &deep(100_000), &deep(99_999)), Some(Local));
    }
}
