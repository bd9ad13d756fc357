//! Hostile text made fit to be shown: nothing in it stays invisible, and nothing of it reaches past its place.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Combining marks that may follow one another; more of them only cover the neighbouring lines.
const MARKS: usize = 4;

/// `text` with line breaks and tabs kept, and whatever else has no shape of its own written as `\u{…}`.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\t')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut marks = None; // how many the character before has; `None` where there is none to sit on
    for c in text.chars() {
        if has_no_shape(c) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            marks = Some(0);
        } else if is_mark(c) {
            let before = marks.filter(|&n| n < MARKS).unwrap_or_else(|| {
                out.push('◌');
                0
            });
            out.push(c);
            marks = Some(before + 1);
        } else {
            out.push(c);
            marks = (!c.is_whitespace()).then_some(0);
        }
    }
    Cow::Owned(out)
}

/// `text` as one line of at most `max` characters, an ellipsis included.
pub(crate) fn line(text: &str, max: usize) -> String {
    // whoever cuts to `max` characters need not read ten thousand
    let head = match text.char_indices().nth(max.saturating_mul(4)) {
        Some((end, _)) => &text[..end],
        None => text,
    };
    let mut out = String::new();
    for word in visible(head).split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    if head.len() == text.len() && out.chars().count() <= max {
        return out;
    }
    let mut short: String = out.chars().take(max.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// What `text` will take of a page in bytes: escapes are longer than what they stand for.
pub(crate) fn weight(text: &str) -> usize {
    text.bytes().map(weight_of_byte).sum()
}

/// The beginning of `text` that weighs at most `room`, and how many characters are left out.
pub(crate) fn cut(text: &str, room: usize) -> (&str, usize) {
    let mut weight = 0;
    for (at, byte) in text.bytes().enumerate() {
        weight += weight_of_byte(byte);
        if weight > room {
            let end = (0..=at).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            return (&text[..end], text[end..].chars().count());
        }
    }
    (text, 0)
}

fn weight_of_byte(byte: u8) -> usize {
    match byte {
        b'\n' | b'\t' => 1,
        b'<' | b'>' | b'&' | b'"' => 6,
        b' '..=b'~' => 1,
        0..=0x1f | 0x7f => 6,
        _ => 4, // a character of three bytes may become `\u{e0001}`
    }
}

/// Controls, what turns the direction of writing, what has no width, and what is no character at all. XML allows
/// none of the controls and only some of the others.
fn has_no_shape(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' => {
            true
        }
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{fdd0}'..='\u{fdef}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        '\u{e0000}'..='\u{e0fff}' => true,
        _ => c.is_control() || u32::from(c) & 0xfffe == 0xfffe,
    }
}

/// Marks that sit on the character before them.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{e47}'..='\u{e4e}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}')
}
