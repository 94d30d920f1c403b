//! `--so_flags`: which addresses, which device, and which tunables the netstack has.
//!
//! A comma-separated list of `name=value`. A mistake names the field, the value and what is allowed.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{FastOpenPolicy, Profile, TcpConfig, Willing};
use firelane_units::{IpPrefix, Mtu};

/// What the plug-in is made from.
#[derive(Clone, Debug)]
pub struct Options {
    /// The netstack's addresses; without any, it takes the ones that scripts bind or send to.
    pub(crate) local: Vec<IpPrefix>,
    /// The device's MTU.
    pub(crate) mtu: Mtu,
    /// TCP's tunables.
    pub(crate) tcp: TcpConfig,
    /// How long TIME-WAIT lasts.
    pub(crate) time_wait: Duration,
    /// What a new socket's buffers hold, unless it says otherwise.
    pub(crate) send_buf: usize,
    pub(crate) recv_buf: usize,
    /// How much virtual time may pass while packetdrill waits for a packet.
    pub(crate) patience: Duration,
    /// From what initial sequence numbers and ports follow.
    pub(crate) seed: u64,
}

/// Why the options cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    field: String,
    value: String,
    allowed: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.field, self.value, self.allowed)
    }
}

impl core::error::Error for ParseError {}

/// Every option's name.
const NAMES: &str = "an option is local, mtu, cc, ecn, timestamps, sack, wscale, iw, recv_buf, send_buf, max_buf, \
    delayed_ack, connect_timeout, abort_timeout, fin_wait_2, time_wait, challenge_interval, slow_start_after_idle, \
    fast_open, profile, patience or seed";

impl Default for Options {
    /// Linux' first receive window, and a send buffer that its tuning would have reached.
    fn default() -> Self {
        Self {
            local: Vec::new(),
            mtu: Mtu::ETHERNET,
            tcp: TcpConfig::default(),
            time_wait: Duration::from_secs(60),
            send_buf: 1 << 20,
            recv_buf: 65_535,
            patience: Duration::from_secs(10_000),
            seed: 1,
        }
    }
}

impl FromStr for Options {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut options = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| mistake(item, "", "name=value"))?;
            options.set(name.trim(), value.trim())?;
        }
        Ok(options)
    }
}

fn mistake(field: &str, value: &str, allowed: &str) -> ParseError {
    ParseError { field: field.to_owned(), value: value.to_owned(), allowed: allowed.to_owned() }
}

impl Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParseError> {
        let tcp = &mut self.tcp;
        match name {
            "local" => {
                let prefix = value.parse().map_err(|_| mistake(name, value, "an address/prefix length"))?;
                self.local.push(prefix);
            }
            "mtu" => {
                let mtu = number(name, value, "576 to 65535")?;
                self.mtu = Mtu::new(mtu).ok_or_else(|| mistake(name, value, "576 to 65535"))?;
            }
            "profile" => {
                let profile =
                    Profile::from_word(value).ok_or_else(|| mistake(name, value, "linux or freebsd"))?;
                *tcp = tcp.clone().with_profile(profile);
            }
            "cc" => {
                let known = || Algorithm::ALL.map(Algorithm::word).join(", ");
                // Linux calls it reno.
                let word = if value == "reno" { "newreno" } else { value };
                tcp.flight.algorithm =
                    Algorithm::from_word(word).ok_or_else(|| mistake(name, value, &known()))?;
            }
            "ecn" => {
                tcp.ecn = Willing::from_word(value)
                    .ok_or_else(|| mistake(name, value, "never, passive or active"))?;
            }
            "timestamps" => tcp.timestamps = switch(name, value)?,
            "sack" => tcp.sack = switch(name, value)?.into(),
            "wscale" => tcp.window_scaling = switch(name, value)?,
            "slow_start_after_idle" => tcp.flight.slow_start_after_idle = switch(name, value)?,
            "iw" => tcp.flight.initial_segments = number(name, value, "a number of segments")?,
            "fast_open" => {
                tcp.fast_open = FastOpenPolicy::new(number(name, value, "a number as of tcp_fastopen")?)
            }
            "recv_buf" => self.recv_buf = number(name, value, BYTES)?,
            "send_buf" => self.send_buf = number(name, value, BYTES)?,
            "max_buf" => tcp.max_buffer = number(name, value, BYTES)?,
            "delayed_ack" => tcp.delayed_ack = span(name, value)?,
            "connect_timeout" => tcp.connect_timeout = span(name, value)?,
            "abort_timeout" => tcp.abort_timeout = span(name, value)?,
            "fin_wait_2" => tcp.fin_wait_2_timeout = span(name, value)?,
            "challenge_interval" => tcp.challenge_interval = span(name, value)?,
            "time_wait" => self.time_wait = span(name, value)?,
            "patience" => self.patience = span(name, value)?,
            "seed" => self.seed = number(name, value, "a whole number")?,
            _ => return Err(mistake(name, value, NAMES)),
        }
        Ok(())
    }
}

const BYTES: &str = "a number of bytes";

fn number<T: FromStr>(name: &str, value: &str, allowed: &str) -> Result<T, ParseError> {
    value.parse().map_err(|_| mistake(name, value, allowed))
}

fn switch(name: &str, value: &str) -> Result<bool, ParseError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(mistake(name, value, "on or off")),
    }
}

/// A time in seconds, with or without a fraction.
fn span(name: &str, value: &str) -> Result<Duration, ParseError> {
    let seconds: Option<f64> = value.parse().ok();
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| mistake(name, value, "a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options: Options =
            "local=10.0.0.1/24, mtu=1400,cc=reno,ecn=active,timestamps=off,delayed_ack=.04,seed=7"
                .parse()
                .unwrap();
        assert_eq!(options.local, ["10.0.0.1/24".parse().unwrap()]);
        assert_eq!(options.mtu, Mtu::new(1400).unwrap());
        assert_eq!(options.tcp.flight.algorithm, Algorithm::NewReno);
        assert!(!options.tcp.timestamps && options.tcp.sack == Willing::Active);
        assert_eq!(options.tcp.ecn, Willing::Active);
        assert_eq!((options.tcp.delayed_ack, options.seed), (Duration::from_millis(40), 7));
        assert!("".parse::<Options>().is_ok());
    }

    #[test]
    fn a_mistake_names_field_value_and_what_is_allowed() {
        for (text, said) in [
            ("mtu=12", "mtu: \"12\": 576 to 65535"),
            ("cc=vegas", "cc: \"vegas\": cubic, newreno"),
            ("sack=maybe", "sack: \"maybe\": on or off"),
            ("colour=red", "colour: \"red\": an option is local"),
            ("sack", "sack: \"\": name=value"),
            ("time_wait=-1", "time_wait: \"-1\": a number of seconds"),
        ] {
            let error = text.parse::<Options>().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
