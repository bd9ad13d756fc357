//! Text that comes in pieces: what of it is whole can be shown.

/// Takes from `bytes` all that is whole text, and leaves a character's beginning for the next piece. What can be no
/// part of any text becomes U+FFFD.
pub fn take_whole(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut open = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let bad = chunk.invalid();
        let last = bytes.as_ptr_range().end == bad.as_ptr_range().end;
        if last && std::str::from_utf8(bad).is_err_and(|e| e.error_len().is_none()) {
            open = bad.len();
        } else if !bad.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    bytes.drain(..bytes.len() - open);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle is `String::from_utf8_lossy` on all at once.
    #[test]
    fn pieces_of_any_size_give_the_text_that_the_whole_is() {
        let all = "aé€😀\u{0}".bytes().chain(*b"\xff\xf0\x9f\x98x\xe2\x82y\x80").collect::<Vec<u8>>();
        for size in 1..=all.len() {
            let (mut text, mut open) = (String::new(), Vec::new());
            for piece in all.chunks(size) {
                open.extend_from_slice(piece);
                text += &take_whole(&mut open);
                assert!(open.len() < 4, "no more than a character waits");
            }
            assert_eq!(text, String::from_utf8_lossy(&all), "pieces of {size}");
        }
    }

    #[test]
    fn a_character_that_is_not_whole_yet_waits() {
        let mut open = "a€".as_bytes()[..3].to_vec();
        assert_eq!(take_whole(&mut open), "a");
        open.push("€".as_bytes()[2]);
        assert_eq!(take_whole(&mut open), "€");
        assert!(open.is_empty());
    }
}
