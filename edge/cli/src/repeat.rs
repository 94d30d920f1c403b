//! How often a command makes its report: `interval [count]` behind its other operands, or `-i` and `-c`. For `netstat`, `connstat`, `dlstat`
//! and `flowstat`.

use std::time::Duration;

use crate::common::Call;
use crate::session::{Failure, Session, die};

/// How often the report is made.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Repeat {
    interval: Option<Duration>,
    left: Option<u32>,
}

impl Repeat {
    /// Once, or at each interval; `count` times at most.
    pub(crate) fn new(interval: Option<Duration>, count: Option<u32>) -> Self {
        Self { interval, left: count.map(|count| count - 1) }
    }

    /// What the numbers at the end of the operands say, and the operands before them: no link and no flow has a number for a name.
    pub(crate) fn of<'c>(call: &'c Call<'_>) -> Result<(Self, &'c [String]), Failure> {
        let operands = call.args.operands.as_slice();
        let is_number = |it: &&String| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
        let numbers = operands.iter().rev().take_while(is_number).count();
        let (names, numbers) = operands.split_at(operands.len() - numbers);
        let number = |text: &String| {
            let number = text.parse::<u32>().ok().filter(|&number| number > 0);
            number.ok_or_else(|| invalid(text))
        };
        let numbers = numbers.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        let seconds = |interval: u32| Some(Duration::from_secs(interval.into()));
        match numbers[..] {
            [] => Ok((Self::default(), names)),
            [interval] => Ok((Self::new(seconds(interval), None), names)),
            [interval, count] => Ok((Self::new(seconds(interval), Some(count)), names)),
            _ => Err(call.misused()),
        }
    }

    /// Whether there is more than one report.
    pub(crate) const fn is_asked(&self) -> bool {
        self.interval.is_some()
    }

    /// Sleeps until the next report; false if there is none.
    pub(crate) fn again(&mut self, session: &mut Session<'_>) -> Result<bool, Failure> {
        session.out.flush()?;
        let Some(interval) = self.interval else { return Ok(false) };
        if self.left == Some(0) {
            return Ok(false);
        }
        self.left = self.left.map(|left| left - 1);
        Ok((session.sleep)(interval))
    }
}

/// What is said of an operand that is neither interval nor count.
pub(crate) fn invalid(text: &str) -> Failure {
    die(format!("invalid interval or count '{text}': a number above zero"))
}
