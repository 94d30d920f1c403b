//! The text of `ipf.conf` as rules, and each rule as tokens with their lines.
//!
//! A rule ends with its line, unless a backslash is the line's last character; `#` begins a comment. Operators and
//! parentheses are tokens of their own wherever they stand (`port>1023`).

/// A word or operator, and the line on which it stands, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// Every rule of a file, never empty.
pub(super) fn rules(text: &str) -> impl Iterator<Item = Vec<Token<'_>>> {
    let mut lines = (1..).zip(text.lines());
    core::iter::from_fn(move || {
        let mut tokens = Vec::new();
        for (line, text) in lines.by_ref() {
            let said = text.split_once('#').map_or(text, |(said, _)| said).trim_end();
            let (said, goes_on) = said.strip_suffix('\\').map_or((said, false), |said| (said, true));
            tokens.extend(words(said).map(|text| Token { text, line }));
            if !goes_on && !tokens.is_empty() {
                break;
            }
        }
        (!tokens.is_empty()).then_some(tokens)
    })
}

/// The words of one line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    core::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let end = match kind(first) {
            Kind::Alone => first.len_utf8(),
            kind_of_first => rest.find(|c| kind(c) != kind_of_first).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Alone,
    Operator,
    Word,
}

fn kind(c: char) -> Kind {
    match c {
        '(' | ')' | ',' => Kind::Alone,
        '=' | '!' | '<' | '>' => Kind::Operator,
        _ if c.is_whitespace() => Kind::Space,
        _ => Kind::Word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_end_with_their_lines_and_operators_stand_alone() {
        let text = "# nothing\n\npass in \\\n  all # why \\\nblock return-icmp(1)in\tproto tcp from !1.2.3.4 to any port>5\n \\\n\n";
        let said: Vec<Vec<_>> =
            rules(text).map(|it| it.iter().map(|token| (token.line, token.text)).collect()).collect();
        let want = [
            vec![(3, "pass"), (3, "in"), (4, "all")],
            "block return-icmp ( 1 ) in proto tcp from ! 1.2.3.4 to any port > 5"
                .split(' ')
                .map(|word| (5, word))
                .collect(),
        ];
        assert_eq!(said, want);
        assert_eq!(words("1><2!=3").collect::<Vec<_>>(), ["1", "><", "2", "!=", "3"]);
        assert_eq!(rules("\\").count() + rules("#").count() + rules("").count(), 0);
    }
}
