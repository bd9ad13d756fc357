//! A unified diff: added and removed lines marked here, code coloured by the script when it is opened.

use maud::{Markup, PreEscaped, html};
use std::fmt::Write as _;

use crate::figures::of;
use crate::text;

/// Bytes of a line that are shown.
const LINE: usize = 600;
/// Bytes of the tags around a line.
pub(crate) const TAGS: usize = 12;

/// What a line of a diff is.
enum Kind<'a> {
    /// The head of a file; its path.
    File(&'a str),
    Hunk,
    Added,
    Removed,
    Same,
    /// Told by the file's name.
    Told,
    /// Anything else: renames, modes, binary files, a missing end of line.
    Note,
}

/// Lines of the present hunk that are still to come, before and after. Only these numbers tell a removed line
/// `-- x` from the head of a file; an edit could hide behind it.
#[derive(Default)]
struct Hunk {
    old: u64,
    new: u64,
}

impl Hunk {
    fn kind<'a>(&mut self, line: &'a str) -> Kind<'a> {
        let first = line.as_bytes().first();
        if self.old > 0 || self.new > 0 {
            let (old, new, kind) = match first {
                Some(b'+') => (0, 1, Kind::Added),
                Some(b'-') => (1, 0, Kind::Removed),
                Some(b'\\') => (0, 0, Kind::Note),
                _ => (1, 1, Kind::Same),
            };
            (self.old, self.new) = (self.old.saturating_sub(old), self.new.saturating_sub(new));
            return kind;
        }
        if let Some(hunk) = Self::of(line) {
            *self = hunk;
            return Kind::Hunk;
        }
        match line.strip_prefix("+++ ").or(line.strip_prefix("--- ")) {
            Some("/dev/null") => return Kind::Told,
            Some(path) if line.starts_with('+') => {
                return Kind::File(path.strip_prefix("b/").unwrap_or(path));
            }
            Some(path) => return Kind::File(path.strip_prefix("a/").unwrap_or(path)),
            None => {}
        }
        match first {
            _ if line.starts_with("diff --git ") || line.starts_with("index ") => Kind::Told,
            Some(b'+') => Kind::Added,
            Some(b'-') => Kind::Removed,
            _ => Kind::Note,
        }
    }

    /// `@@ -41,7 +41,7 @@`; a count of 1 is left out.
    fn of(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("@@ -")?.split(' ');
        let count = |range: &str| range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok());
        Some(Self { old: count(parts.next()?)?, new: count(parts.next()?.strip_prefix('+')?)? })
    }
}

/// As much of `diff` as there is room for, whole lines; of what is left out, `whole` says where it is.
pub(super) fn diff(diff: &str, room: usize, whole: &str) -> Markup {
    let mut out = String::new();
    let (mut hunk, mut used, mut shown) = (Hunk::default(), 0, 0);
    let (mut in_code, mut file) = (false, "");
    for line in diff.lines() {
        used += text::weight(line).min(LINE) + TAGS;
        if used > room {
            break;
        }
        shown += 1;
        let kind = hunk.kind(line);
        let is_code = matches!(kind, Kind::Added | Kind::Removed | Kind::Same);
        if is_code != in_code {
            out.push_str(if is_code { "<code>" } else { "</code>" });
            in_code = is_code;
        }
        match kind {
            // the name before and after, once where they are the same
            Kind::File(path) if path == file => {}
            Kind::File(path) => {
                let _ = write!(out, "<b data-l=\"{}\">", language(path));
                push(&mut out, path);
                out.push_str("</b>");
                file = path;
            }
            Kind::Hunk | Kind::Note => tagged(&mut out, "i", line),
            Kind::Added => tagged(&mut out, "ins", line),
            Kind::Removed => tagged(&mut out, "del", line),
            Kind::Same => {
                push(&mut out, line);
                out.push('\n');
            }
            Kind::Told => {}
        }
    }
    if in_code {
        out.push_str("</code>");
    }
    let left = diff.lines().count() - shown;
    html! {
        pre.diff tabindex="0" { (PreEscaped(out)) }
        @if left > 0 { p.left { (of(left, "line")) " left out; the whole: " code { (whole) } } }
    }
}

fn tagged(out: &mut String, tag: &str, line: &str) {
    let _ = write!(out, "<{tag}>");
    push(out, line);
    let _ = write!(out, "</{tag}>");
}

/// One line, escaped.
fn push(out: &mut String, line: &str) {
    let (shown, left) = text::cut(line, LINE);
    let _ = maud::Escaper::new(out).write_str(&text::visible(shown));
    if left > 0 {
        out.push('…');
    }
}

/// What the script calls the language of a file.
fn language(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |p| p.1) {
        "rs" => "rust",
        "py" => "python",
        "c" | "cc" | "cpp" | "cu" | "cuh" | "h" | "hpp" => "cpp",
        "sh" | "bash" => "bash",
        "toml" | "ini" | "cfg" => "ini",
        "json" => "json",
        "yml" | "yaml" => "yaml",
        "md" => "markdown",
        _ => "",
    }
}
