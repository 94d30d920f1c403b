//! A netstack's tunables: the protocol properties that are set. What is not set has the default of `property.rs`.
//!
//! In the file they are a table per protocol: `tunables = { tcp = { send_buf = 262144 }, ipv4 = { ttl = 32 } }`.

use core::fmt;
use std::collections::BTreeMap;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::FieldError;
use crate::port_set::PortSet;
use crate::property::{Prop, PropertyError, Protocol, Setting};
use crate::value::refusal;

/// The protocol properties of one netstack that are set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tunables(BTreeMap<Prop, Setting>);

impl Tunables {
    /// What `prop` is set to.
    pub fn get(&self, prop: Prop) -> Option<Setting> {
        self.0.get(&prop).copied()
    }

    /// What holds: what `prop` is set to, or its default, which for TCP's largest buffer is the profile's.
    pub fn effective(&self, prop: Prop) -> Setting {
        /// What FreeBSD's buffers grow to.
        const FREEBSD_MAX_BUF: u32 = 2 << 20;
        match self.get(prop) {
            Some(setting) => setting,
            None if prop == Prop::TcpMaxBuf && self.word(Prop::Profile) == "freebsd" => {
                let Setting::Number(most) = prop.line().default else { return prop.line().default };
                // A buffer that is set to more is one.
                let set = [Prop::TcpSendBuf, Prop::TcpRecvBuf].map(|it| self.number(it).min(most));
                Setting::Number(set.into_iter().fold(FREEBSD_MAX_BUF, u32::max))
            }
            None => prop.line().default,
        }
    }

    /// The number that holds; zero for a property that is none.
    pub fn number(&self, prop: Prop) -> u32 {
        match self.effective(prop) {
            Setting::Number(number) => number,
            Setting::Word(_) | Setting::Ports(_) => 0,
        }
    }

    /// The word that holds; empty for a property that is none.
    pub fn word(&self, prop: Prop) -> &'static str {
        match self.effective(prop) {
            Setting::Word(word) => word,
            Setting::Number(_) | Setting::Ports(_) => "",
        }
    }

    /// The ports that hold; none for a property that is no set of them.
    pub fn ports(&self, prop: Prop) -> PortSet {
        match self.effective(prop) {
            Setting::Ports(ports) => ports,
            Setting::Number(_) | Setting::Word(_) => PortSet::NONE,
        }
    }

    /// Sets a property.
    pub fn set(&mut self, prop: Prop, text: &str) -> Result<(), PropertyError> {
        self.0.insert(prop, prop.read(text)?);
        Ok(())
    }

    /// Adds to a property that has several values.
    pub fn add(&mut self, prop: Prop, text: &str) -> Result<(), PropertyError> {
        self.change(prop, text, PortSet::with)
    }

    /// Takes from a property that has several values.
    pub fn take(&mut self, prop: Prop, text: &str) -> Result<(), PropertyError> {
        self.change(prop, text, PortSet::without)
    }

    fn change(
        &mut self,
        prop: Prop,
        text: &str,
        made: impl FnOnce(PortSet, &str, &PortSet) -> Result<PortSet, PropertyError>,
    ) -> Result<(), PropertyError> {
        let name = prop.line().name;
        let (Setting::Ports(there), Setting::Ports(said)) = (self.effective(prop), prop.read(text)?) else {
            let error = FieldError::new(name, text, "it has one value, which = sets");
            return Err(PropertyError::Malformed(error));
        };
        match Setting::Ports(made(there, name, &said)?) {
            default if default == prop.line().default => self.reset(prop),
            other => drop(self.0.insert(prop, other)),
        }
        Ok(())
    }

    /// Gives a property its default again.
    pub fn reset(&mut self, prop: Prop) {
        self.0.remove(&prop);
    }

    /// What is set, by protocol.
    pub fn iter(&self) -> impl Iterator<Item = (Prop, Setting)> {
        self.0.iter().map(|(prop, setting)| (*prop, *setting))
    }

    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// Properties that contradict each other: the one that is set, with the other in the error.
    pub fn contradictions(&self) -> Vec<FieldError> {
        /// The first may be no more than the second.
        const ORDER: [(Prop, Prop); 8] = [
            (Prop::TcpSendBuf, Prop::TcpMaxBuf),
            (Prop::TcpRecvBuf, Prop::TcpMaxBuf),
            (Prop::UdpSendBuf, Prop::UdpMaxBuf),
            (Prop::UdpRecvBuf, Prop::UdpMaxBuf),
            (Prop::TcpSmallestPort, Prop::TcpLargestPort),
            (Prop::UdpSmallestPort, Prop::UdpLargestPort),
            (Prop::RexmitMin, Prop::RexmitMax),
            (Prop::RexmitInitial, Prop::RexmitMax),
        ];
        let wrong = ORDER.iter().filter(|(less, more)| self.number(*less) > self.number(*more));
        let wrong = wrong.map(|&(less, more)| self.contradiction(less, more));
        wrong.chain(self.privileged_and_chosen()).collect()
    }

    /// A port that is chosen for whoever asks for none cannot be kept for the privileged.
    fn privileged_and_chosen(&self) -> impl Iterator<Item = FieldError> {
        const CHOSEN: [(Prop, Prop, Prop); 2] = [
            (Prop::TcpPrivilegedPorts, Prop::TcpSmallestPort, Prop::TcpLargestPort),
            (Prop::UdpPrivilegedPorts, Prop::UdpSmallestPort, Prop::UdpLargestPort),
        ];
        CHOSEN.into_iter().filter_map(|(prop, smallest, largest)| {
            let (ports, range) = (self.ports(prop), self.number(smallest)..=self.number(largest));
            let port = ports.as_slice().iter().copied().find(|port| range.contains(&u32::from(*port)))?;
            let allowed =
                format!("none of {}-{}, of which local ports are chosen", range.start(), range.end());
            Some(FieldError::new(prop, port, allowed))
        })
    }

    fn contradiction(&self, less: Prop, more: Prop) -> FieldError {
        let (is, bound) = (self.number(less), self.number(more));
        if self.get(less).is_some() {
            return FieldError::new(less, is, format!("at most {bound}, the {}", more.line().name));
        }
        FieldError::new(more, bound, format!("at least {is}, the {}", less.line().name))
    }
}

impl Serialize for Tunables {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for protocol in Protocol::ALL {
            let of_it: BTreeMap<_, _> =
                self.iter().filter(|(prop, _)| prop.line().protocol == protocol).collect();
            if !of_it.is_empty() {
                map.serialize_entry(protocol.word(), &Settings(of_it))?;
            }
        }
        map.end()
    }
}

struct Settings(BTreeMap<Prop, Setting>);

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (prop, setting) in &self.0 {
            match setting {
                Setting::Number(number) => map.serialize_entry(prop.line().name, number)?,
                Setting::Word(word) => map.serialize_entry(prop.line().name, word)?,
                Setting::Ports(ports) => map.serialize_entry(prop.line().name, ports.as_slice())?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Tunables {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Protocols)
    }
}

struct Protocols;

impl<'de> Visitor<'de> for Protocols {
    type Value = Tunables;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of properties for each of ip, ipv4, ipv6, icmp, tcp and udp")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tunables, A::Error> {
        let mut tunables = Tunables::default();
        while let Some(word) = map.next_key::<String>()? {
            let Some(protocol) = Protocol::from_word(&word) else {
                return Err(A::Error::custom(refusal(
                    &word,
                    "a protocol is ip, ipv4, ipv6, icmp, tcp or udp",
                )));
            };
            map.next_value_seed(Properties { protocol, into: &mut tunables })?;
        }
        Ok(tunables)
    }
}

struct Properties<'a> {
    protocol: Protocol,
    into: &'a mut Tunables,
}

impl<'de> DeserializeSeed<'de> for Properties<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Properties<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table of properties of {}", self.protocol.word())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let said = |error: PropertyError| {
                let FieldError { field, allowed, .. } = error.into_field();
                A::Error::custom(refusal(&format!("{field:?}"), &allowed))
            };
            let prop = Prop::find(self.protocol, &name).map_err(said)?;
            let setting = map.next_value_seed(Value(prop))?;
            self.into.0.insert(prop, setting);
        }
        Ok(())
    }
}

/// One value, from a number or a text.
struct Value(Prop);

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Setting;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Setting, D::Error> {
        from.deserialize_any(self)
    }
}

impl Value {
    fn read<E: Error>(&self, text: &str) -> Result<Setting, E> {
        self.0
            .read(text)
            .map_err(|error| E::custom(refusal(&format!("{text:?}"), &error.into_field().allowed)))
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.line().allowed)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Setting, E> {
        self.read(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Setting, A::Error> {
        let mut words = Vec::new();
        while let Some(number) = seq.next_element::<i64>()? {
            words.push(number.to_string());
        }
        self.read(&words.join(","))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Setting, E> {
        self.read(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Setting, E> {
        self.read(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn every_property_can_be_set_written_read_and_reset() {
        let mut model = Model::from_toml("test", "[netstack.web]\n").unwrap();
        let tunables =
            |model: &mut Model| model.netstacks.values_mut().next().map(core::mem::take).unwrap().tunables;
        let mut all = Tunables::default();
        for prop in Prop::ALL {
            all.set(*prop, &prop.line().default.to_string()).unwrap();
        }
        assert_eq!(all.contradictions(), []);
        model.netstacks.values_mut().for_each(|netstack| netstack.tunables = all.clone());
        let mut again = Model::from_toml("test", &model.to_toml()).unwrap();
        assert_eq!(tunables(&mut again), all);
        for prop in Prop::ALL {
            all.reset(*prop);
        }
        assert!(all.is_default());
    }

    #[test]
    fn only_a_property_with_several_values_is_added_to() {
        let mut tunables = Tunables::default();
        let ports = Prop::TcpPrivilegedPorts;
        tunables.add(ports, "4045,2049").unwrap();
        tunables.add(ports, "99").unwrap();
        tunables.take(ports, "4045").unwrap();
        assert_eq!(tunables.ports(ports).as_slice(), [99, 2049]);
        tunables.take(ports, "99,2049").unwrap();
        assert!(tunables.is_default(), "without any it is as it began");
        let refused = tunables.add(Prop::TcpSendBuf, "262144").unwrap_err();
        assert!(matches!(refused, PropertyError::Malformed(_)), "{refused:?}");
        assert_eq!(refused.into_field().allowed, "it has one value, which = sets");
        let text = "[netstack.web.tunables.tcp]\nextra_priv_ports = [2049, 4045]\n";
        assert_eq!(Model::from_toml("f", text).unwrap().to_toml(), text);
    }

    #[test]
    fn a_fault_is_named_by_its_path() {
        for (text, wanted) in [
            ("tcp = { send_buf = 1 }", "netstack.web.tunables.tcp.send_buf: \"1\": 4096-1073741824"),
            ("tcp = { sack = \"yes\" }", "netstack.web.tunables.tcp.sack: \"yes\": never,passive,active"),
            (
                "tcp = { _ipv4_ttl = 9 }",
                "netstack.web.tunables.tcp: \"_ipv4_ttl\": it is the property ttl of ipv4",
            ),
            (
                "tcp = { extra_priv_ports = [2049, 0] }",
                "netstack.web.tunables.tcp.extra_priv_ports: \"2049,0\": 1-65535",
            ),
            (
                "udp = { extra_priv_ports = [2049, 40000] }",
                "netstack.web.tunables.udp.extra_priv_ports: \"40000\": none of 32768-65535, of which local ports are chosen",
            ),
            (
                "ipv4 = { tttl = 9 }",
                "netstack.web.tunables.ipv4: \"tttl\": ipv4 has forwarding, ttl, _send_redirects",
            ),
            ("sctp = {}", "netstack.web.tunables: sctp: a protocol is ip, ipv4, ipv6, icmp, tcp or udp"),
            (
                "tcp = { send_buf = 1000000000 }",
                "netstack.web.tunables.tcp.send_buf: \"1000000000\": at most 6291456, the max_buf",
            ),
            (
                "tcp = { profile = \"freebsd\", recv_buf = 8388608 }",
                "netstack.web.tunables.tcp.recv_buf: \"8388608\": at most 6291456, the max_buf",
            ),
            (
                "tcp = { max_buf = 131072 }",
                "netstack.web.tunables.tcp.max_buf: \"131072\": at least 262144, the send_buf",
            ),
        ] {
            let faults =
                Model::from_toml("f", &format!("[netstack.web]\ntunables = {{ {text} }}\n")).unwrap_err();
            let first = faults[0].to_string();
            assert!(first.ends_with(wanted), "{first}\nwanted {wanted}");
        }
    }
}
