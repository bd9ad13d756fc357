//! A source tree as tokens, so that comments and spacing do not count as a change.
//!
//! Two candidates are the same experiment when the compiler sees the same thing. `.rs` files are
//! therefore compared by tokens: comments, doc comments and spacing fall away, while every literal,
//! string contents included, counts. Any other file, and a `.rs` file that does not lex, is compared by
//! its bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, str,
};

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree, token_stream};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// SHA-256 over a tree's sorted (path, tokens) pairs; equal for trees that compile to the same program.
///
/// Shown and stored as 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TreeHash(String);

impl TreeHash {
    /// Hashes files given as path (with `/` between the parts) → bytes.
    pub fn of<P: AsRef<str>, B: AsRef<[u8]>>(files: &BTreeMap<P, B>) -> Self {
        let mut tree = Sha256::new();
        for (path, bytes) in files {
            let (path, bytes) = (path.as_ref(), bytes.as_ref());
            let lexed = if path.ends_with(".rs") { tokens(bytes) } else { None };
            // Each field is preceded by its length, so that no two trees share one encoding.
            field(&mut tree, path.as_bytes());
            match lexed {
                Some(tokens) => {
                    tree.update(b"tokens");
                    field(&mut tree, &tokens);
                }
                None => {
                    tree.update(b"bytes ");
                    field(&mut tree, bytes);
                }
            }
        }
        Self(tree.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TreeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TreeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeHash({})", &self.0[..12])
    }
}

fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Lines of a file that hold code: in a `.rs` file those that a token covers, so that comments and spacing
/// weigh nothing; in any other file those that are not blank.
pub fn lines(path: &str, bytes: &[u8]) -> u64 {
    let lexed = if path.ends_with(".rs") { lex(bytes) } else { None };
    let Some(stream) = lexed else {
        return bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count()
            as u64;
    };
    let mut held = BTreeSet::new();
    walk(stream, |step| {
        let span = match step {
            Step::Open(group) => group.span_open(),
            Step::Close(group) => group.span_close(),
            Step::Leaf(token) => token.span(),
        };
        held.extend(span.start().line..=span.end().line);
    });
    forget_spans();
    held.len() as u64
}

pub(crate) fn lex(bytes: &[u8]) -> Option<TokenStream> {
    str::from_utf8(bytes).ok()?.parse().ok()
}

/// With span locations the lexer keeps every text it has read; over a night that is a leak. To be called
/// when no span is held any more.
pub(crate) fn forget_spans() {
    proc_macro2::extra::invalidate_current_thread_spans();
}

/// The canonical token text of a Rust file, one token a line; `None` where it is not Rust.
fn tokens(bytes: &[u8]) -> Option<Vec<u8>> {
    let stream = lex(bytes)?;
    let mut out = Vec::with_capacity(bytes.len());
    let mut operator = Operator::default();
    walk(stream, |step| {
        if let Step::Leaf(TokenTree::Punct(punct)) = &step {
            operator.push(punct.as_char(), punct.spacing(), &mut out);
            return;
        }
        operator.end(&mut out);
        match step {
            Step::Open(group) => line(&mut out, delimiters(group).0),
            Step::Close(group) => line(&mut out, delimiters(group).1),
            Step::Leaf(token) => line(&mut out, &token.to_string()),
        }
    });
    operator.end(&mut out);
    forget_spans();
    Some(out)
}

fn delimiters(group: &Group) -> (&'static str, &'static str) {
    match group.delimiter() {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

/// One token of a walk.
pub(crate) enum Step<'a> {
    Open(&'a Group),
    Close(&'a Group),
    Leaf(&'a TokenTree),
}

/// Visits a stream depth first, doc comments left out, with a stack of its own: how deep the brackets nest
/// is the proposer's choice, how deep calls may nest is not.
pub(crate) fn walk(stream: TokenStream, mut visit: impl FnMut(Step<'_>)) {
    let mut open: Vec<(token_stream::IntoIter, Option<Group>)> = vec![(stream.into_iter(), None)];
    while let Some((tokens, _)) = open.last_mut() {
        match tokens.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '#' && skip_doc(tokens) => {}
            Some(TokenTree::Group(group)) => {
                visit(Step::Open(&group));
                open.push((group.stream().into_iter(), Some(group)));
            }
            Some(leaf) => visit(Step::Leaf(&leaf)),
            None => {
                if let Some((_, Some(group))) = open.pop() {
                    visit(Step::Close(&group));
                }
            }
        }
    }
}

fn line(out: &mut Vec<u8>, token: &str) {
    for byte in token.bytes() {
        match byte {
            b'\n' => out.extend(b"\\\n"), // inside a string; no token ends with a backslash, so a line's end stays clear
            other => out.push(other),
        }
    }
    out.push(b'\n');
}

/// After a `#`: consumes `[doc = "…"]` or `![doc = "…"]`, which is what the lexer makes of a doc comment.
fn skip_doc(tokens: &mut token_stream::IntoIter) -> bool {
    let mut ahead = tokens.clone();
    let group = match ahead.next() {
        Some(TokenTree::Punct(bang)) if bang.as_char() == '!' => ahead.next(),
        other => other,
    };
    let Some(TokenTree::Group(group)) = group else { return false };
    let mut inside = group.stream().into_iter();
    let is_doc = group.delimiter() == Delimiter::Bracket
        && matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc")
        && matches!(inside.next(), Some(TokenTree::Punct(equals)) if equals.as_char() == '=')
        && matches!(inside.next(), Some(TokenTree::Literal(_)))
        && inside.next().is_none();
    if is_doc {
        *tokens = ahead;
    }
    is_doc
}

/// Operators of several characters; whether two characters touch matters inside these only (`a=-1`).
const OPERATORS: [&str; 25] = [
    "<<=", ">>=", "...", "..=", "::", "->", "<-", "=>", "==", "!=", "<=", ">=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "^=", "&=", "|=", "<<", ">>", "..",
];

/// Joins touching punctuation into the compiler's operators, longest first.
#[derive(Default)]
struct Operator(String);

impl Operator {
    fn push(&mut self, character: char, spacing: Spacing, out: &mut Vec<u8>) {
        self.0.push(character);
        if spacing == Spacing::Alone {
            self.end(out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let mut rest = self.0.as_str();
        while let Some(first) = rest.chars().next() {
            let length =
                OPERATORS.iter().find(|op| rest.starts_with(**op)).map_or(first.len_utf8(), |op| op.len());
            let (token, after) = rest.split_at(length);
            line(out, token);
            rest = after;
        }
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> TreeHash {
        TreeHash::of(&BTreeMap::from([("src/model.rs", text)]))
    }

    #[test]
    fn comments_docs_and_spacing_do_not_count() {
        let plain = rust("pub const LR: f64 = -0.04;\nfn f(a: &str) -> bool { a == \"x y\" && true }\n");
        let dressed = rust(
            "//! Header.\n/// The rate.\npub const LR : f64=-0.04; // knob: log 0.005..0.2\n\n\n/* why */ fn f(\n    \
             a: &str\n) -> bool {\n    //! inner\n    a==\"x y\" && true\n}",
        );
        assert_eq!(plain, dressed);
    }

    #[test]
    fn each_token_counts() {
        let all: Vec<TreeHash> = [
            "const LR: f64 = 0.04;",
            "const LR: f64 = 0.05;",
            "const LR: f32 = 0.04;",
            "const lr: f64 = 0.04;",
            "const S: &str = \"a b\";",
            "const S: &str = \"a  b\";",
            "const S: &str = \"// a b\";",
            "const S: &str = \"a\nb\";",
            "const S: &str = \"a\\\nb\";",
            "const C: char = 'a';",
            "fn f() { a & & b }",
            "fn f() { a && b }",
            "fn f() { (a)(b) }",
            "fn f() { (a(b)) }",
            "fn f() { ((a) b) }",
            "#[doc(hidden)] fn f() {}",
            "fn f() {}",
        ]
        .iter()
        .map(|text| rust(text))
        .collect();
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(i == j, a == b, "cases {i} and {j}");
            }
        }
    }

    #[test]
    fn other_files_count_by_bytes() {
        let hash = |path: &str, bytes: &[u8]| TreeHash::of(&BTreeMap::from([(path.to_owned(), bytes)]));
        assert_ne!(hash("prompt.txt", b"a b"), hash("prompt.txt", b"a  b"));
        assert_ne!(hash("a.py", b"x = 1 # one"), hash("a.py", b"x = 1"));
        // Not Rust: an unbalanced brace, bytes that are no UTF-8.
        assert_ne!(hash("a.rs", b"fn f( {"), hash("a.rs", b"fn f(  {"));
        assert_ne!(hash("a.rs", b"\xff 1"), hash("a.rs", b"\xff  1"));
    }

    #[test]
    fn path_and_content_cannot_trade_places() {
        let two = TreeHash::of(&BTreeMap::from([("a", "1"), ("b", "2")]));
        let moved = TreeHash::of(&BTreeMap::from([("a", "2"), ("b", "1")]));
        let renamed = TreeHash::of(&BTreeMap::from([("a", "1"), ("c", "2")]));
        let joined = TreeHash::of(&BTreeMap::from([("a", "1b2")]));
        let all = [two, moved, renamed, joined];
        assert!(all.iter().enumerate().all(|(i, a)| all[..i].iter().all(|b| a != b)));
        // Oracle: the digest of no input at all, FIPS 180-4.
        let empty = TreeHash::of(&BTreeMap::<&str, &str>::new());
        assert_eq!(empty.as_str(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn only_lines_with_code_weigh() {
        let text =
            b"//! Header.\n\nfn f(\n    a: u8, // why\n) {\n    /* two\n    lines */\n    \"x\ny\";\n}\n";
        assert_eq!(lines("a.rs", text), 6); // by hand: fn, a, ), the string's two, }
        assert_eq!(lines("a.txt", b"one\n\n  \ntwo\n"), 2);
        assert_eq!(lines("a.rs", b"not ( rust\n\n"), 1);
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let depth = 200_000;
        let text = format!("fn f() {{ {}1{} }}", "(".repeat(depth), ")".repeat(depth));
        assert_ne!(rust(&text), rust("fn f() {}"));
    }
}
