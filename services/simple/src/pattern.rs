//! The lines of the character generator: 72 of the 95 printing characters, each line one further (RFC 864).

/// Characters in a line, its end not counted.
const LINE_CHARS: usize = 72;
/// A line with its end.
const LINE_BYTES: usize = LINE_CHARS + 2;
/// Printing characters of ASCII, the blank included: after so many lines it begins again.
const PRINTING: usize = 95;

/// Every line once. Repeated, it is the endless text.
pub(crate) fn whole() -> Vec<u8> {
    (0..PRINTING * LINE_BYTES).map(byte_at).collect()
}

/// The byte at `position` of the text.
fn byte_at(position: usize) -> u8 {
    let (line, column) = (position / LINE_BYTES, position % LINE_BYTES);
    match column {
        LINE_CHARS => b'\r',
        column if column > LINE_CHARS => b'\n',
        // The remainder of 95 fits.
        column => b' ' + ((line + column) % PRINTING) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_turn_through_the_printing_characters() {
        let text = String::from_utf8(whole()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 95);
        assert_eq!(lines[0], r##" !"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefg"##);
        for pair in lines.windows(2) {
            assert_eq!(pair[0][1..], pair[1][..71]);
        }
        assert!(text.ends_with("\r\n") && text.is_ascii());
    }
}
