//! Text from outside, for a person to read.
//!
//! The promise: what came from a file, a peer or a guest moves no cursor,
//! changes no colour, makes no line of its own and shows no letter elsewhere
//! than it stands, wherever it is printed; and no message of ours grows with
//! what it complains about.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How much of something bad is quoted.
const QUOTED_CHARS_MAX: usize = 60;

/// Harmless as a part of a line: no colours, no moves, no lines of its own, no
/// letters that stand elsewhere than they are.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() || reorders(c))
}

/// The same for text that is laid out in lines already.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && c.is_control() || reorders(c))
}

/// What a bad word or line was: harmless, and cut short.
pub fn quoted(text: &str) -> String {
    cut(text, QUOTED_CHARS_MAX).into_owned()
}

/// At most so many letters of a text, harmless as a part of a line; an ellipsis
/// says that there were more.
pub fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => plain(text),
        Some((end, _)) => Cow::Owned(plain(&text[..end]).into_owned() + "…"),
    }
}

/// Does it control, or reorder what stands beside it?
pub fn is_harmful(c: char) -> bool {
    c.is_control() || reorders(c)
}

/// Marks of direction, line separators, and what takes no room.
fn reorders(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn escaped(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::new();
    for c in text.chars() {
        if is_harmful(c) {
            // As in JSON, which stays what it was.
            let _ = write!(harmless, "\\u{:04x}", u32::from(c));
        } else {
            harmless.push(c);
        }
    }
    Cow::Owned(harmless)
}

/// Bytes for a terminal: lines, tabs, text and colours, and all else spelt out.
/// Colours stay, so that a program's output looks as it does at home.
pub fn for_terminal(content: &[u8]) -> Vec<u8> {
    let (mut safe, is_coloured) = coloured(content, |c| matches!(c, '\n' | '\t'));
    if is_coloured {
        // What comes next is not the guest's.
        safe.extend_from_slice(b"\x1b[0m");
    }
    safe
}

/// One line for a terminal or a file, with the colours that are in it and the
/// end that it has.
pub fn line_with_colours(content: &[u8]) -> Vec<u8> {
    let (line, end) = match content.strip_suffix(b"\n") {
        Some(line) => (line, b"\n".as_slice()),
        None => (content, b"".as_slice()),
    };
    let (mut safe, _) = coloured(line, |_| false);
    safe.extend_from_slice(end);
    safe
}

/// Harmless but for colours and what is allowed; and whether there are colours.
fn coloured(content: &[u8], is_allowed: impl Fn(char) -> bool) -> (Vec<u8>, bool) {
    let mut safe = Vec::with_capacity(content.len());
    let (mut rest, mut is_coloured) = (content, false);
    while let Some(first) = rest.first() {
        let colour = colour(rest);
        let c = character(rest);
        let length = if colour > 0 { colour } else { c.map_or(1, char::len_utf8) };
        let (taken, next) = rest.split_at(length);
        rest = next;
        is_coloured |= colour > 0;
        match c {
            _ if colour > 0 => safe.extend_from_slice(taken),
            Some(c) if is_allowed(c) || !is_harmful(c) => safe.extend_from_slice(taken),
            Some(c) => safe.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes()),
            None => safe.extend_from_slice(format!("\\x{first:02x}").as_bytes()),
        }
    }
    (safe, is_coloured)
}

/// How long the colour is that this begins with: `ESC [`, digits and marks
/// between them, `m`.
fn colour(of: &[u8]) -> usize {
    let Some(inside) = of.strip_prefix(b"\x1b[") else { return 0 };
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b';' | b':');
    let end = inside.iter().take(COLOUR_BYTES_MAX).position(|byte| !is_number(byte));
    end.filter(|end| inside[*end] == b'm').map_or(0, |end| end + 3)
}

/// No colour takes more.
const COLOUR_BYTES_MAX: usize = 64;

/// The character that this begins with: none is longer than four bytes.
fn character(of: &[u8]) -> Option<char> {
    let head = &of[..of.len().min(4)];
    head.utf8_chunks().next()?.valid().chars().next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_guest_printed_moves_no_cursor_and_keeps_its_colours() {
        let shown = |bytes: &[u8]| String::from_utf8(for_terminal(bytes)).unwrap();
        assert_eq!(shown("été\tok\n".as_bytes()), "été\tok\n");
        assert_eq!(shown(b"a\r\x1b[2Kb\x07\x00"), "a\\u000d\\u001b[2Kb\\u0007\\u0000");
        assert_eq!(shown(b"\x1b[1;38;5;9mred"), "\x1b[1;38;5;9mred\x1b[0m");
        assert_eq!(shown(b"\x1b]0;title\x07"), "\\u001b]0;title\\u0007");
        assert_eq!(shown("\u{9b}31m\u{202e}".as_bytes()), "\\u009b31m\\u202e");
        assert_eq!(shown(b"\xff\x9b\xc3"), "\\xff\\x9b\\xc3", "no character at all");
        assert_eq!(shown(b"\x1b[31"), "\\u001b[31", "an end in the middle of it");
        let long = [b"\x1b[".as_slice(), &[b'1'; 100], b"m"].concat();
        assert!(shown(&long).starts_with("\\u001b[111"));
    }

    #[test]
    fn a_line_stays_one_line() {
        let shown = |text: &str| String::from_utf8(line_with_colours(text.as_bytes())).unwrap();
        let forged = "\x1b[32mINFO\x1b[0m job x\n12:00 WARN forged\r\u{202e}\u{9b}2J\n";
        let expected = "\x1b[32mINFO\x1b[0m job x\\u000a12:00 WARN forged\\u000d\\u202e\\u009b2J\n";
        assert_eq!(shown(forged), expected);
    }

    #[test]
    fn a_quotation_is_short() {
        assert_eq!(quoted("a\nb"), "a\\u000ab");
        assert_eq!(quoted(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(quoted(&"é".repeat(61)), "é".repeat(60) + "…");
        assert!(quoted(&"\0".repeat(100_000_000)).len() < 400);
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            prop_assert!(!plain(&text).contains(is_harmful));
            prop_assert!(!plain_lines(&text).contains(|c| c != '\n' && is_harmful(c)));
            prop_assert!(!quoted(&text).contains(is_harmful));
            let line = line_with_colours(&bytes);
            prop_assert!(std::str::from_utf8(&line).is_ok());
            let lines = line.split(|byte| *byte == b'\n').count();
            prop_assert!(lines == 1 + usize::from(bytes.ends_with(b"\n")));
        }
    }
}
