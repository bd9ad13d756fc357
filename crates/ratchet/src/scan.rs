//! What a candidate's source may not hold where its referee shares the process.
//!
//! In a task with an exam, `prepare` and the candidate are one program: that the candidate sees neither the
//! rows to come nor the pipe to the driver rests on memory safety. Rust gives it as long as nobody says
//! `unsafe`, and candle as long as nobody builds a tensor that is larger than what it stands on. Source from
//! elsewhere is kept out as well, and data in the place of source: weights that were trained beforehand would
//! be time that no clock has seen.
//!
//! Tokens are looked at wherever they stand, bodies and arguments of macros included: a macro can put tokens
//! together, it cannot make a keyword out of something else. What the compiler really read is known after the
//! build, see [`Sources::of_build`].

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenTree};

use crate::{
    runlog::plain,
    source::{Step, forget_spans, lex, walk},
};

/// Bytes of all editable files together; the GPT is an eighth of it.
const MOST_BYTES: usize = 256 << 10;
/// Characters of a line: longer ones are data, or an evasion of the price of a line.
const LONGEST_LINE: usize = 400;

/// Words that no candidate holds, and why.
const WORDS: [(&[&str], &str); 3] = [
    (
        &["unsafe", "extern", "asm", "global_asm", "naked_asm", "no_mangle", "export_name", "link_section"],
        "it can reach the referee's memory",
    ),
    (&["include", "include_str", "include_bytes"], "a candidate is what its own files say"),
    (
        // safe to call, and unsound when told a wrong size
        &[
            "from_storage",
            "BackendStorage",
            "BackendDevice",
            "Storage",
            "CpuStorage",
            "CudaStorage",
            "CustomOp1",
            "CustomOp2",
            "CustomOp3",
            "InplaceOp1",
            "InplaceOp2",
            "InplaceOp3",
            "UgIOp1",
            "quantized",
            "backend",
            "cpu_backend",
            "cuda_backend",
            "cudarc",
        ],
        "it can make tensors that reach past their memory; operations of one's own belong into a crate that is reviewed",
    ),
];

/// Something that a candidate may not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    path: PathBuf,
    /// From 1; 0 for a whole file.
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", plain(&self.path.to_string_lossy(), 120))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, " {}", self.what)
    }
}

/// The first thing in a candidate's editable files that it may not hold. Files that are no Rust are only
/// measured; what is named `.rs` and cannot be read is for [`Sources`].
pub fn scan(files: &BTreeMap<PathBuf, Vec<u8>>) -> Option<Finding> {
    let total: usize = files.values().map(Vec::len).sum();
    if total > MOST_BYTES {
        let (path, _) = files.iter().max_by_key(|(_, bytes)| bytes.len())?;
        let what = format!(
            "is the largest of {total} bytes of source, {MOST_BYTES} are allowed: weights and tables are \
             trained, not written down"
        );
        return Some(Finding { path: path.clone(), line: 0, what });
    }
    files.iter().filter(|(path, _)| is_rust(path)).find_map(|(path, bytes)| {
        let (line, what) = long_line(bytes).or_else(|| forbidden(bytes))?;
        Some(Finding { path: path.clone(), line, what })
    })
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn long_line(bytes: &[u8]) -> Option<(usize, String)> {
    let line = bytes.split(|byte| *byte == b'\n').position(|line| line.len() > LONGEST_LINE)?;
    Some((line + 1, format!("is a line of more than {LONGEST_LINE} bytes; break it")))
}

/// Line and reason of the first forbidden token. `None` as well for what is no Rust.
fn forbidden(bytes: &[u8]) -> Option<(usize, String)> {
    let stream = lex(bytes)?;
    let mut found = None;
    let mut seen = Seen::default();
    walk(stream, |step| {
        if found.is_none() {
            found = seen.look(&step);
        }
    });
    forget_spans();
    found
}

/// The tokens just before the one that is looked at.
#[derive(Default)]
struct Seen {
    /// The last two leaves, the later one last; cleared by brackets.
    before: [String; 2],
    /// For each open bracket: whether it belongs to an attribute, itself or one around it.
    attributes: Vec<bool>,
    /// An `env!(` has just been opened.
    env: Option<usize>,
}

impl Seen {
    fn look(&mut self, step: &Step<'_>) -> Option<(usize, String)> {
        match step {
            Step::Open(group) => {
                let outer = self.attributes.last().copied().unwrap_or_default();
                let attribute = group.delimiter() == Delimiter::Bracket
                    && (self.before[1] == "#" || (self.before[0] == "#" && self.before[1] == "!"));
                self.attributes.push(outer || attribute);
                let env = ["env", "option_env"].contains(&self.before[0].as_str()) && self.before[1] == "!";
                self.env = env.then(|| group.span_open().start().line);
                self.before = Default::default();
                None
            }
            Step::Close(_) => {
                self.attributes.pop();
                self.before = Default::default();
                None
            }
            Step::Leaf(leaf) => {
                let line = leaf.span().start().line;
                let text = leaf.to_string();
                let found = self.word(leaf, &text, line);
                self.before = [std::mem::take(&mut self.before[1]), text];
                found
            }
        }
    }

    fn word(&mut self, leaf: &TokenTree, text: &str, line: usize) -> Option<(usize, String)> {
        if let Some(line) = self.env.take()
            && !text.starts_with("\"CARGO_PKG_")
        {
            return Some((
                line,
                "reads the environment of the build; only CARGO_PKG_… may be read".to_owned(),
            ));
        }
        let TokenTree::Ident(_) = leaf else { return None };
        let word = text.strip_prefix("r#").unwrap_or(text);
        if word == "path" && self.attributes.last() == Some(&true) {
            return Some((
                line,
                "names a file in an attribute; a module's file lies where Rust looks for it".to_owned(),
            ));
        }
        let (_, why) = WORDS.iter().find(|(words, _)| words.contains(&word))?;
        Some((line, format!("says `{word}`: {why}")))
    }
}

/// What a built candidate may have been made of.
pub struct Sources<'a> {
    /// The worktree's root, absolute.
    pub worktree: &'a Path,
    /// Where builds of reviewed crates leave what they generate, absolute.
    pub target: &'a Path,
    /// Whether a path below it belongs to the candidate's commit.
    pub tracked: &'a dyn Fn(&Path) -> bool,
}

impl Sources<'_> {
    /// Whether the compiler read something that is not in the candidate's commit, by the list that cargo
    /// leaves beside each program (`train.d` beside `train`). A program without a list is none of cargo's.
    pub fn of_build(&self, program: &Path) -> Option<String> {
        let list = fs::read_to_string(program.with_extension("d")).ok()?;
        let (_, read) = list.split_once(": ")?;
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let (worktree, target) = (real(self.worktree), real(self.target));
        let stranger = paths(read).into_iter().find(|path| {
            let path = real(path);
            let inside = path.strip_prefix(&worktree);
            !path.starts_with(&target) && !inside.is_ok_and(|inside| (self.tracked)(inside))
        })?;
        Some(format!(
            "the compiler read {}, which is no file of the candidate's commit",
            plain(&stranger.to_string_lossy(), 160)
        ))
    }

    /// A Rust file that the compiler may understand and this driver does not: it was not looked at.
    pub fn unread(files: &BTreeMap<PathBuf, Vec<u8>>) -> Option<String> {
        let unread = files.iter().find(|(path, bytes)| is_rust(path) && lex(bytes).is_none());
        forget_spans();
        let (path, _) = unread?;
        Some(format!("{} cannot be read as Rust", plain(&path.to_string_lossy(), 120)))
    }
}

/// The paths of a make rule: separated by spaces; a space within one is written `\ `.
fn paths(line: &str) -> Vec<PathBuf> {
    let line = line.lines().next().unwrap_or_default();
    let escaped = line.replace("\\ ", "\0");
    escaped.split_whitespace().map(|path| PathBuf::from(path.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<String> {
        scan(&BTreeMap::from([("src/m.rs".into(), text.into())])).map(|finding| finding.to_string())
    }

    #[test]
    fn what_reaches_past_the_candidate_is_found_with_its_line() {
        for (text, word) in [
            ("fn f() {\n    unsafe { }\n}", "src/m.rs:2 says `unsafe`"),
            ("\nunsafe fn f() {}", "src/m.rs:2 says `unsafe`"),
            ("#[unsafe(no_mangle)] fn f() {}", "unsafe"),
            ("extern \"C\" { fn getppid() -> i32; }", "extern"),
            ("const A: &[u8] = include_bytes!(\"/x\");", "include_bytes"),
            ("use std::include_str as text;", "include_str"),
            ("r#include!(\"/x.rs\");", "`include`"),
            (
                "macro_rules! m { () => { un safe } } macro_rules! n { ($($t:tt)*) => { $($t)* } } n!(unsafe {});",
                "unsafe",
            ),
            ("#[path = \"/x.rs\"] mod x;", "names a file"),
            ("#![cfg_attr(all(), path = \"/x.rs\")]", "names a file"),
            ("const H: &str = env!(\"HOME\");", "environment of the build"),
            ("const H: Option<&str> = option_env!(\"HOME\");", "environment of the build"),
            ("std::arch::asm!(\"nop\");", "asm"),
            ("let t = Tensor::from_storage(s, 9, op, false);", "from_storage"),
            ("use candle_core::{backend as b, Tensor};", "backend"),
        ] {
            assert!(found(text).is_some_and(|found| found.contains(word)), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        for text in [
            "/// unsafe, include!(\"x\"), #[path]\nfn f() { let text = \"unsafe { include!() }\"; } // extern",
            "fn f(path: &str) { let path = path.len(); g(path) }",
            "const V: &str = env!(\"CARGO_PKG_VERSION\");",
            "#[derive(Clone)] struct S<'a>(&'a str);",
            "fn unsafely() { included() }",
            "use std::env; fn f() { env::args(); }",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn data_in_the_place_of_source_is_found() {
        assert!(
            found(&format!("const W: &str = \"{}\";", "x".repeat(LONGEST_LINE)))
                .unwrap()
                .contains(":1 is a line")
        );
        let weights = "    0.1, 0.2, 0.3,\n".repeat(MOST_BYTES / 19 + 1);
        assert!(
            found(&format!("const W: &[f32] = &[\n{weights}];"))
                .unwrap()
                .contains("trained, not written down")
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let files = |text: &str| BTreeMap::from([("src/m.rs".into(), text.into())]);
        assert_eq!(Sources::unread(&files("fn f() {}")), None);
        assert_eq!(Sources::unread(&files("fn f( {")).unwrap(), "src/m.rs cannot be read as Rust");
        assert_eq!(scan(&files("fn f( {")), None);
    }

    #[test]
    fn what_the_compiler_read_must_be_the_candidates() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("train");
        let tracked = |path: &Path| path == Path::new("src/a.rs");
        let sources = Sources { worktree: Path::new("/w t"), target: Path::new("/t"), tracked: &tracked };
        let judge = |list: &str| {
            fs::write(program.with_extension("d"), list).unwrap();
            sources.of_build(&program)
        };
        assert_eq!(judge("/t/train: /w\\ t/src/a.rs\n"), None);
        assert!(judge("/t/train: /w\\ t/src/a.rs /w\\ t/src/b.rs\n").unwrap().contains("/w t/src/b.rs"));
        assert_eq!(judge("/t/train: /t/build/out/made.rs\n"), None);
        assert!(judge("/t/train: /etc/passwd\n").unwrap().contains("/etc/passwd"));
    }

    /// The contestant that ships is one that may be tried.
    #[test]
    fn the_contestant_of_this_repository_passes() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../train/src");
        let files = fs::read_dir(folder).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        });
        assert_eq!(scan(&files.collect()), None);
    }
}
