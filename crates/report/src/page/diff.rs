//! A unified diff: added and removed lines marked here, code coloured by the script when it is opened.

use maud::{Markup, PreEscaped, html};
use std::fmt::Write as _;

use crate::figures::of;
use crate::text;

/// Bytes of a line that are shown.
const LINE: usize = 600;

/// As much of `diff` as there is room for, whole lines; of what is left out, `whole` says where it is.
pub(super) fn diff(diff: &str, room: usize, whole: &str) -> Markup {
    let mut out = String::new();
    let mut open = false;
    let mut lines = diff.lines();
    let mut used = 0;
    let mut left = 0;
    for line in lines.by_ref() {
        used += text::weight(line).min(LINE) + 12;
        if used > room {
            left = 1;
            break;
        }
        let file = line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- "));
        let head = file.is_some()
            || ["diff ", "index ", "@@", "new file", "deleted file", "rename ", "similarity "]
                .iter()
                .any(|h| line.starts_with(h));
        if head && open {
            out.push_str("</code>");
            open = false;
        }
        if let Some(file) = line.strip_prefix("+++ ") {
            let path = file.trim_start_matches("b/");
            let _ = write!(out, "<b data-l=\"{}\">", language(path));
            push(&mut out, path);
            out.push_str("</b>");
            continue;
        }
        match line.as_bytes().first() {
            _ if line.starts_with("@@") => tagged(&mut out, "i", line),
            _ if head => {} // the file's name says it all
            first => {
                if !open {
                    out.push_str("<code>");
                    open = true;
                }
                match first {
                    Some(b'+') => tagged(&mut out, "ins", line),
                    Some(b'-') => tagged(&mut out, "del", line),
                    _ => {
                        push(&mut out, line);
                        out.push('\n');
                    }
                }
            }
        }
    }
    if open {
        out.push_str("</code>");
    }
    left += lines.count();
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
