//! Options in the grammar of getopt: clustered letters, values attached or apart, long names that may be
//! shortened, letters that mean the same, operands anywhere, and `--` before operands that look like options.

use std::fmt;

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    letter: char,
    long: &'static str,
    takes: Takes,
    is_offered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    Value,
    Values,
}

impl Opt {
    /// The letter behind one dash.
    pub(crate) const fn letter(self) -> char {
        self.letter
    }

    /// The name behind two.
    pub(crate) const fn long(self) -> &'static str {
        self.long
    }

    /// Whether a shell completes it.
    pub(crate) const fn is_offered(self) -> bool {
        self.is_offered
    }

    pub(crate) fn takes_value(self) -> bool {
        self.takes != Takes::Nothing
    }
}

/// An option without a value.
pub(crate) const fn flag(letter: char, long: &'static str) -> Opt {
    Opt { letter, long, takes: Takes::Nothing, is_offered: true }
}

/// An option with a value, given at most once.
pub(crate) const fn value(letter: char, long: &'static str) -> Opt {
    Opt { letter, long, takes: Takes::Value, is_offered: true }
}

/// An option that the original has: it is known, to be refused in words of its own or to change nothing.
pub(crate) const fn foreign(opt: Opt) -> Opt {
    Opt { is_offered: false, ..opt }
}

/// An option with a value, given as often as one likes.
pub(crate) const fn values(letter: char, long: &'static str) -> Opt {
    Opt { letter, long, takes: Takes::Values, is_offered: true }
}

/// Arguments taken apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Args {
    options: Vec<(char, String)>,
    /// What is no option, in order.
    pub(crate) operands: Vec<String>,
}

impl Args {
    /// Whether the option was given.
    pub(crate) fn has(&self, letter: char) -> bool {
        self.options.iter().any(|(l, _)| *l == letter)
    }

    /// The option's value.
    pub(crate) fn value(&self, letter: char) -> Option<&str> {
        self.values(letter).last()
    }

    /// Every value of the option, in order.
    pub(crate) fn values(&self, letter: char) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(l, _)| *l == letter).map(|(_, value)| value.as_str())
    }
}

/// Why arguments cannot be taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OptError {
    /// The option, as it was given, needs a value.
    NeedsValue(String),
    /// There is no such option.
    Unknown(String),
    /// The option was given twice.
    Twice(char),
}

impl fmt::Display for OptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsValue(option) => write!(f, "option '{option}' requires a value"),
            Self::Unknown(option) => write!(f, "unrecognized option '{option}'"),
            Self::Twice(letter) => write!(f, "the option -{letter} cannot be specified more than once"),
        }
    }
}

/// Takes `words` apart by the options of `spec`.
pub(crate) fn parse(spec: &[Opt], words: &[String]) -> Result<Args, OptError> {
    let mut args = Args::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            args.operands.extend(words.by_ref().cloned());
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, attached) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            let unknown = || OptError::Unknown(format!("--{name}"));
            let opt = find_long(spec, name).ok_or_else(unknown)?;
            let value = match (opt.takes, attached) {
                (Takes::Nothing, None) => String::new(),
                (Takes::Nothing, Some(_)) => return Err(unknown()),
                (_, Some(value)) => value.to_owned(),
                (_, None) => {
                    words.next().cloned().ok_or_else(|| OptError::NeedsValue(format!("--{name}")))?
                }
            };
            push(&mut args, opt, value)?;
        } else if word.len() > 1 && word.starts_with('-') {
            cluster(spec, &word[1..], &mut words, &mut args)?;
        } else {
            args.operands.push(word.clone());
        }
    }
    Ok(args)
}

/// Letters after one dash: flags, and at most one option whose value is the rest or the next word. A letter whose option has the name of
/// one before it is another spelling of that.
fn cluster<'a>(
    spec: &[Opt],
    letters: &str,
    words: &mut impl Iterator<Item = &'a String>,
    args: &mut Args,
) -> Result<(), OptError> {
    for (at, letter) in letters.char_indices() {
        let opt = spec.iter().find(|opt| opt.letter == letter);
        let opt = opt.ok_or_else(|| OptError::Unknown(format!("-{letter}")))?;
        let opt = *spec.iter().find(|it| it.long == opt.long).unwrap_or(opt);
        if opt.takes == Takes::Nothing {
            push(args, opt, String::new())?;
            continue;
        }
        let rest = &letters[at + letter.len_utf8()..];
        let value = if rest.is_empty() { words.next().cloned() } else { Some(rest.to_owned()) };
        return push(args, opt, value.ok_or_else(|| OptError::NeedsValue(format!("-{letter}")))?);
    }
    Ok(())
}

fn push(args: &mut Args, opt: Opt, value: String) -> Result<(), OptError> {
    if opt.takes == Takes::Value && args.has(opt.letter) {
        return Err(OptError::Twice(opt.letter));
    }
    args.options.push((opt.letter, value));
    Ok(())
}

/// The option of that name, or the only one that begins with it.
fn find_long(spec: &[Opt], name: &str) -> Option<Opt> {
    if let Some(exact) = spec.iter().find(|opt| opt.long == name) {
        return Some(*exact);
    }
    let mut close = spec.iter().filter(|opt| !name.is_empty() && opt.long.starts_with(name));
    match (close.next(), close.next()) {
        (Some(only), None) => Some(*only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: [Opt; 5] = [
        flag('t', "temporary"),
        value('l', "link"),
        values('p', "prop"),
        flag('P', "persistent"),
        value('k', "link"),
    ];

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn parsed(line: &str) -> Result<Args, OptError> {
        parse(&SPEC, &words(line))
    }

    #[test]
    fn values_stand_apart_or_attached_and_operands_anywhere() {
        for line in [
            "-t -l vnic3 a -p x=1 b",
            "-tlvnic3 a b -p x=1",
            "--temp --link=vnic3 -px=1 a b",
            "a --link vnic3 -t b --prop x=1",
            "-tkvnic3 a -p x=1 b",
        ] {
            let args = parsed(line).unwrap();
            assert!(args.has('t') && !args.has('P'), "{line}");
            assert_eq!((args.value('l'), args.value('p')), (Some("vnic3"), Some("x=1")), "{line}");
            assert_eq!(args.operands, ["a", "b"], "{line}");
        }
        assert_eq!(parsed("-p a -p b").unwrap().values('p').collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(parsed("-l x -- -t - b").unwrap().operands, ["-t", "-", "b"]);
    }

    #[test]
    fn faults_name_the_option() {
        for (line, message) in [
            ("-l", "option '-l' requires a value"),
            ("-tl", "option '-l' requires a value"),
            ("--link", "option '--link' requires a value"),
            ("-x", "unrecognized option '-x'"),
            ("-tx", "unrecognized option '-x'"),
            ("--p", "unrecognized option '--p'"),
            ("--temporary=1", "unrecognized option '--temporary'"),
            ("-l a -k b", "the option -l cannot be specified more than once"),
            ("-l a -l b", "the option -l cannot be specified more than once"),
            ("-é", "unrecognized option '-é'"),
        ] {
            assert_eq!(parsed(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}
