//! What a side answered, step by step and field by field, and what differs between two sides.
//!
//! Times are classes, because the kernel's side runs in real time: two answers of one class came for the same reason.

use std::fmt;
use std::time::Duration;

use crate::options::Opt;
use crate::segment::Segment;

/// Everything that one side answered in an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transcript(pub(super) Vec<Step>);

/// One line of the exchange, and what came until the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Step {
    pub(super) line: String,
    /// The word of a call.
    pub(super) result: Option<String>,
    pub(super) answers: Vec<Answer>,
}

/// A packet, as fields with a name each. The first is the time's class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer(Vec<(String, String)>);

/// The time classes: up to when, and the word. The bounds lie between what stacks' timers are set to.
const CLASSES: [(Duration, &str); 6] = [
    (Duration::from_millis(30), "at once"),
    (Duration::from_millis(120), "within 120 ms"),
    (Duration::from_millis(450), "within 450 ms"),
    (Duration::from_millis(850), "within 850 ms"),
    (Duration::from_millis(1300), "within 1.3 s"),
    (Duration::MAX, "later"),
];

impl Answer {
    fn timed(after: Duration) -> Vec<(String, String)> {
        let class = CLASSES.iter().find(|(bound, _)| after <= *bound).map_or("later", |(_, word)| word);
        vec![("time".into(), class.into())]
    }

    /// Something that is no segment, in words.
    pub(super) fn words(after: Duration, words: String) -> Self {
        let mut fields = Self::timed(after);
        fields.push(("packet".into(), words));
        Self(fields)
    }

    /// A packet that is no segment, in words.
    pub(super) fn packet(after: Duration, words: String, dscp: u8) -> Self {
        let mut answer = Self::words(after, words);
        answer.0.push(("dscp".into(), dscp.to_string()));
        answer
    }

    /// A segment. One whose number is zero on the wire (`is_zero`) has no place in the connection.
    pub(super) fn segment(after: Duration, segment: &Segment, is_zero: bool) -> Self {
        let mut fields = Self::timed(after);
        let mut add = |name: &str, value: String| fields.push((name.into(), value));
        let bare = Segment {
            port: None,
            ack: None,
            window: None,
            urgent: None,
            options: Some(Vec::new()),
            ecn: None,
            ..segment.clone()
        };
        let bare = bare.to_string();
        let (flags, numbers) = bare.split_once(' ').unwrap_or((&bare, ""));
        add("flags", flags.into());
        add("numbers", if is_zero { "zero".into() } else { numbers.into() });
        let number = |value: Option<i64>| value.map_or("none".into(), |value| value.to_string());
        add("ack", number(segment.ack));
        add("window", number(segment.window.map(i64::from)));
        add("urgent", number(segment.urgent.map(i64::from)));
        let options: Vec<_> = segment.options.iter().flatten().map(spelled).collect();
        add("options", if options.is_empty() { "none".into() } else { options.join(",") });
        add("ecn", segment.ecn.map_or("none".into(), |ecn| format!("{ecn:?}")));
        add("ttl", number(segment.ttl.map(i64::from)));
        add("port", number(segment.port.map(i64::from)));
        Self(fields)
    }
}

/// An option without what time alone decides.
fn spelled(option: &Opt) -> String {
    match option {
        Opt::Timestamps(_, echo) => format!("TS ecr {echo}"),
        other => other.to_string(),
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain =
            |name: &str, value: &str| !(value == "none" || matches!(name, "ttl" | "port" | "ecn" | "dscp"));
        let shown: Vec<String> = self
            .0
            .iter()
            .filter(|(name, value)| plain(name, value))
            .map(|(name, value)| match name.as_str() {
                "flags" | "numbers" | "packet" | "time" => value.clone(),
                "options" => format!("<{value}>"),
                _ => format!("{name} {value}"),
            })
            .collect();
        f.write_str(&shown.join(" "))
    }
}

/// Lines of fields between tabs, for another process to read.
impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            writeln!(f, "step\t{}", step.line)?;
            if let Some(result) = &step.result {
                writeln!(f, "result\t{result}")?;
            }
            for answer in &step.answers {
                let fields: Vec<_> = answer.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
                writeln!(f, "answer\t{}", fields.join("\t"))?;
            }
        }
        Ok(())
    }
}

impl Transcript {
    /// Reads what [`Display`](fmt::Display) wrote; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps: Vec<Step> = Vec::new();
        for line in text.lines() {
            match line.split_once('\t')? {
                ("step", line) => steps.push(Step { line: line.into(), ..Step::default() }),
                ("result", word) => steps.last_mut()?.result = Some(word.into()),
                ("answer", fields) => {
                    let fields = fields.split('\t').map(|field| {
                        field.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
                    });
                    steps.last_mut()?.answers.push(Answer(fields.collect::<Option<_>>()?));
                }
                _ => return None,
            }
        }
        Some(Self(steps))
    }

    /// How many packets it was answered with.
    pub fn answers(&self) -> usize {
        self.0.iter().map(|step| step.answers.len()).sum()
    }
}

/// What differs, one line for each field, below the line of the exchange.
pub fn differences(ours: &Transcript, kernels: &Transcript) -> Vec<String> {
    let mut all = Vec::new();
    for (nth, step) in ours.0.iter().enumerate() {
        let nothing = Step::default();
        let theirs = kernels.0.get(nth).unwrap_or(&nothing);
        let found = step.differences(theirs);
        if !found.is_empty() {
            all.push(step.line.clone());
            all.extend(found.into_iter().map(|line| format!("    {line}")));
        }
    }
    all
}

impl Step {
    fn differences(&self, theirs: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.result != theirs.result {
            let word = |step: &Self| step.result.clone().unwrap_or_default();
            found.push(format!("call: linux {}, ours {}", word(theirs), word(self)));
        }
        for nth in 0..self.answers.len().max(theirs.answers.len()) {
            let which = if nth == 0 { String::new() } else { format!("packet {}: ", nth + 1) };
            match (self.answers.get(nth), theirs.answers.get(nth)) {
                (Some(own), Some(other)) => {
                    found.extend(own.differences(other).into_iter().map(|line| format!("{which}{line}")));
                }
                (Some(own), None) => found.push(format!("{which}linux nothing, ours `{own}`")),
                (None, Some(other)) => found.push(format!("{which}linux `{other}`, ours nothing")),
                (None, None) => {}
            }
        }
        found
    }
}

impl Answer {
    fn differences(&self, theirs: &Self) -> Vec<String> {
        let names = |answer: &Self| answer.0.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if names(self) != names(theirs) {
            return vec![format!("linux `{theirs}`, ours `{self}`")];
        }
        let pairs = self.0.iter().zip(&theirs.0).filter(|(own, other)| own != other);
        pairs.map(|((name, own), (_, other))| format!("{name}: linux {other}, ours {own}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(window: &str, after: u64) -> Transcript {
        let segment =
            Segment::parse(&format!("S. 0:0(0) ack 1 win {window} <mss 1460,TS val 7 ecr 9>")).unwrap();
        let answers = vec![Answer::segment(Duration::from_millis(after), &segment, false)];
        Transcript(vec![Step { line: "+0 < S 0:0(0)".into(), result: Some("ok".into()), answers }])
    }

    #[test]
    fn what_is_written_is_read_again() {
        let one = transcript("5", 0);
        assert_eq!(Transcript::parse(&one.to_string()), Some(one));
        assert_eq!(Transcript::parse("answer\ta=b\n"), None);
        assert_eq!(Transcript::parse("nonsense\n"), None);
    }

    #[test]
    fn differences_name_step_and_field() {
        let (one, other) = (transcript("5", 3), transcript("6", 900));
        assert_eq!(differences(&one, &one), Vec::<String>::new());
        assert_eq!(
            differences(&one, &other),
            ["+0 < S 0:0(0)", "    time: linux within 1.3 s, ours at once", "    window: linux 6, ours 5"]
        );
        let mut silent = one.clone();
        silent.0[0].answers.clear();
        assert_eq!(
            differences(&silent, &one)[1],
            "    linux `at once S. 0:0(0) ack 1 window 5 <mss 1460,TS ecr 9>`, ours nothing"
        );
    }
}
