//! The handshakes that `established` and `opened` stand for, as lines of a script.

use std::time::Duration;

use crate::settings::number;
use crate::text::{Call, span};

/// `c = established(80, mss 1000, sack, ts, wscale 7, win 500, rtt .05)`: the peer has opened a connection.
pub(crate) fn established(call: &Call) -> Result<Vec<String>, String> {
    let Meeting { port, options, stamp, ecn, window, rtt } = Meeting::of(call)?;
    let name = call.name.as_deref().ok_or("established needs a name for its socket")?;
    let stamped =
        if stamp { format!(" <nop,nop,TS val {} ecr 0>", 1000 + rtt.as_millis()) } else { String::new() };
    let rtt = rtt.as_secs_f64();
    Ok(vec![
        format!("+0 listener-of-{name} = listen({port})"),
        format!("+0 < {} 0:0(0) win {window} <{options}>", if ecn { "SEW" } else { "S" }),
        format!("+0 > {} 0:0(0) ack 1 <...>", if ecn { "SE." } else { "S." }),
        format!("+{rtt} < . 1:1(0) ack 1 win {window}{stamped}"),
        format!("+0 {name} = accept(listener-of-{name})"),
    ])
}

/// `c = opened(8080, ...)`: the netstack has opened a connection, with the same words.
pub(crate) fn opened(call: &Call) -> Result<Vec<String>, String> {
    let Meeting { port, options, ecn, window, rtt, .. } = Meeting::of(call)?;
    let name = call.name.as_deref().ok_or("opened needs a name for its socket")?;
    let rtt = rtt.as_secs_f64();
    Ok(vec![
        format!("+0 {name} = connect({port})"),
        format!("+0 > {} 0:0(0) <...>", if ecn { "SEW" } else { "S" }),
        format!("+{rtt} < {} 0:0(0) ack 1 win {window} <{options}>", if ecn { "SE." } else { "S." }),
        "+0 > . 1:1(0) ack 1 <...>".into(),
    ])
}

/// What a peer says in its handshake.
struct Meeting {
    port: String,
    options: String,
    stamp: bool,
    /// Who opens asks for ECN, and the other one agrees.
    ecn: bool,
    window: u16,
    rtt: Duration,
}

impl Meeting {
    fn of(call: &Call) -> Result<Self, String> {
        let mut words = call.arguments.iter();
        let port = words.next().ok_or("a handshake needs a port")?.clone();
        let (mut mss, mut window, mut rtt) = ("mss 1000".to_owned(), u16::MAX, Duration::from_millis(50));
        let (mut sack, mut stamp, mut ecn, mut scale) = (false, false, false, None);
        for word in words {
            match word.split_whitespace().collect::<Vec<_>>()[..] {
                ["sack"] => sack = true,
                ["ts"] => stamp = true,
                ["ecn"] => ecn = true,
                ["mss", n] => mss = format!("mss {n}"),
                ["wscale", n] => scale = Some(format!("nop,wscale {n}")),
                ["win", n] => window = number(n)?,
                ["rtt", n] => rtt = span(n)?,
                _ => return Err(format!("`{word}` is no part of a handshake")),
            }
        }
        let permitted = if sack { "sackOK" } else { "nop,nop" };
        let middle = match (stamp, sack) {
            (true, _) => Some(format!("{permitted},TS val 1000 ecr 0")),
            (false, true) => Some("nop,nop,sackOK".into()),
            (false, false) => None,
        };
        let options = [Some(mss), middle, scale].into_iter().flatten().collect::<Vec<_>>().join(",");
        Ok(Self { port, options, stamp, ecn, window, rtt })
    }
}
