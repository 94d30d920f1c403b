//! The configuration file: a model in TOML, in and out, with every fault traced to its line.
//!
//! serde reads the nouns; this file only finds out where in the text a fault lies, so that each message is
//! one line `file:line: field: value: what is allowed`.

use core::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::limits::MODEL_TEXT_MAX;
use crate::value::refusal;
use crate::{FileError, Model};

/// The faults of one file that are shown: more than anybody mends at once, and few enough to find the lines of.
const FAULTS_SHOWN_MAX: usize = 100;

/// The wrong fields of one file that are shown: after each the whole file is read once more.
const WRONG_FIELDS_MAX: usize = 20;

impl Model {
    /// Reads the TOML `text` of the file called `file`, and validates it. Errs with every fault that could be
    /// found: one if the text is no TOML, the first twenty if fields are wrong, the first hundred if the model contradicts itself.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, Vec<FileError>> {
        let source = Source { file, text };
        if text.len() > MODEL_TEXT_MAX {
            return Err(vec![source.fault(0, format!("the file has more than {MODEL_TEXT_MAX} bytes"))]);
        }
        let document = DeTable::parse(text).map_err(|error| vec![source.syntax(&error)])?;
        let model = read(&document).map_err(|error| source.refusals(&document, error))?;
        let faults: Vec<_> = model
            .validate()
            .into_iter()
            .take(FAULTS_SHOWN_MAX)
            .map(|fault| source.fault(offset_of(&document, &fault.field), fault.to_string()))
            .collect();
        if faults.is_empty() { Ok(model) } else { Err(faults) }
    }

    /// The model as TOML text, which reads back as this model.
    pub fn to_toml(&self) -> String {
        // `toml::to_string` moves the rest of the text for each table; a buffer that is shown is written once.
        let mut buffer = toml::ser::Buffer::new();
        self.serialize(toml::Serializer::new(&mut buffer))
            .expect("every noun is a table, a text or a number");
        buffer.to_string()
    }
}

fn read(document: &Spanned<DeTable<'_>>) -> Result<Model, toml::de::Error> {
    Model::deserialize(toml::de::Deserializer::from(document.clone()))
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn fault(&self, offset: usize, message: String) -> FileError {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let message = message.replace('\n', " ");
        FileError { file: self.file.to_owned(), line, message }
    }

    fn syntax(&self, error: &toml::de::Error) -> FileError {
        self.fault(error.span().map_or(0, |span| span.start), format!("not TOML: {}", error.message()))
    }

    /// What serde refuses first, and then what it refuses without that. What is missing because it was taken out is no fault.
    fn refusals(&self, document: &Spanned<DeTable<'_>>, mut error: toml::de::Error) -> Vec<FileError> {
        let (mut faults, mut rest) = (Vec::new(), document.clone());
        let mut gone: Vec<Vec<String>> = Vec::new();
        for _ in 0..WRONG_FIELDS_MAX {
            let mut path = Vec::new();
            path_to(rest.get_ref(), &error.span().unwrap_or(0..0), &mut path);
            let is_around = |other: &Vec<String>| other.len() > path.len() && other.starts_with(&path);
            if !gone.iter().any(is_around) {
                faults.push(self.refusal(&rest, &error));
            }
            gone.push(path);
            if !error.span().is_some_and(|at| take_out(rest.get_mut(), &at)) {
                break;
            }
            match read(&rest) {
                Ok(_) => break,
                Err(next) => error = next,
            }
        }
        faults.sort_by_key(|fault| fault.line);
        faults
    }

    /// serde's message with the path of the field before it.
    fn refusal(&self, document: &Spanned<DeTable<'_>>, error: &toml::de::Error) -> FileError {
        let at = error.span().unwrap_or(0..0);
        let mut path = Vec::new();
        path_to(document.get_ref(), &at, &mut path);
        let message = error.message();
        let message = match message.strip_prefix("missing field ") {
            Some(field) => format!("{}: missing", field.trim_matches('`')),
            None => number_refused(message).unwrap_or_else(|| message.to_owned()),
        };
        if path.is_empty() {
            return self.fault(at.start, message);
        }
        // "link.net0" and "ifname: missing" read as one path.
        let joint = if error.message().starts_with("missing field ") { "." } else { ": " };
        self.fault(at.start, format!("{}{joint}{message}", path.join(".")))
    }
}

/// What serde says of something that is no number of its type, such as ``invalid value: integer `-1`, expected u32``, as value
/// and what is allowed.
fn number_refused(message: &str) -> Option<String> {
    let rest = message.strip_prefix("invalid value: ").or_else(|| message.strip_prefix("invalid type: "))?;
    let (what, wanted) = rest.rsplit_once(", expected ")?;
    let most = match wanted {
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX.into(),
        "u64" => u64::MAX,
        _ => return None,
    };
    // The value stands behind what kind of thing it is, in quotes if it is a text.
    let value = what.find(['`', '"']).map_or(what, |at| what[at..].trim_matches('`'));
    Some(refusal(value, &format!("a number from 0 to {most}")))
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Follows the tables down to the key whose text is `at`, or whose value holds it.
fn path_to(table: &DeTable<'_>, at: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (key, value) in table.iter() {
        path.push(key.get_ref().to_string());
        if holds(&key.span(), at) {
            return true;
        }
        let inside = match value.get_ref() {
            DeValue::Table(inner) => path_to(inner, at, path),
            DeValue::Array(items) => items.iter().any(|item| match item.get_ref() {
                DeValue::Table(inner) => path_to(inner, at, path),
                _ => false,
            }),
            _ => false,
        };
        if inside || holds(&value.span(), at) {
            return true;
        }
        path.pop();
    }
    false
}

/// Takes out the field whose key's text is `at`, or the innermost value around it; whether there was one.
fn take_out<'a>(table: &mut DeTable<'a>, at: &Range<usize>) -> bool {
    let found = table.iter().find(|(key, _)| holds(&key.span(), at));
    let found = found.map(|(key, _)| key.get_ref().to_string());
    if let Some(name) = found {
        return table.remove(name.as_str()).is_some();
    }
    let is_within = |value: &mut DeValue<'a>| match value {
        DeValue::Table(inner) => take_out(inner, at),
        DeValue::Array(items) => {
            let count = items.len();
            let others =
                core::mem::replace(items, DeArray::new()).into_iter().filter(|item| !holds(&item.span(), at));
            *items = others.collect();
            items.len() < count
        }
        _ => false,
    };
    if table.iter_mut().any(|(_, value)| is_within(value.get_mut())) {
        return true;
    }
    let found = table.iter().find(|(_, value)| holds(&value.span(), at));
    let found = found.map(|(key, _)| key.get_ref().to_string());
    found.is_some_and(|name| table.remove(name.as_str()).is_some())
}

/// Where the field with that path begins, or the nearest table around it.
fn offset_of(document: &Spanned<DeTable<'_>>, path: &str) -> usize {
    let mut table = document.get_ref();
    let mut rest = path;
    let mut offset = 0;
    while !rest.is_empty() {
        // Keys may hold dots themselves (`bob.0`), so the longest key that fits is meant.
        let fits = |key: &str| rest.strip_prefix(key).is_some_and(|r| r.is_empty() || r.starts_with('.'));
        let found =
            table.iter().filter(|(key, _)| fits(key.get_ref())).max_by_key(|(key, _)| key.get_ref().len());
        let Some((key, value)) = found else { break };
        rest = rest[key.get_ref().len()..].trim_start_matches('.');
        match value.get_ref() {
            DeValue::Table(inner) => {
                offset = value.span().start;
                table = inner;
            }
            _ => return key.span().start,
        }
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only fault of `text`.
    fn fault(text: &str) -> String {
        let faults = Model::from_toml("f.toml", text).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].to_string()
    }

    const BASE: &str = "[etherstub.sw0]\n[vnic.a0]\nover = \"sw0\"\n";

    #[test]
    fn a_field_is_named_with_its_line_value_and_what_is_allowed() {
        let table = [
            ("maxbw = \"5Q\"", "vnic.a0.maxbw: \"5Q\": a rate is a number"),
            (
                "protection = \"mac\"",
                "vnic.a0.protection: \"mac\": protection is words with commas in one string, of mac-nospoof",
            ),
            ("allowed_ips = [\"10.0.0\"]", "vnic.a0.allowed_ips: \"10.0.0\": an IP address"),
            ("maxbw = -5", "vnic.a0.maxbw: -5: a rate is a number"),
            ("maxbw = true", "vnic.a0.maxbw: true: a rate is a number"),
            ("mtu = 1500.5", "vnic.a0.mtu: 1500.5: an mtu is a number"),
            (
                "memif = { role = \"server\", socket = \"/s\", id = -1 }",
                "vnic.a0.memif.id: -1: a number from 0 to 4294967295",
            ),
            (
                "memif = { role = \"server\", socket = \"/s\", id = \"x\" }",
                "vnic.a0.memif.id: \"x\": a number from 0",
            ),
            ("vlan = 4095", "vnic.a0.vlan: 4095: a VLAN identifier is a number from 1 to 4094"),
            ("mtu = 575", "vnic.a0.mtu: 575: an mtu is a number"),
            ("mac = \"1:0:0:0:0:0\"", "vnic.a0.mac: \"1:0:0:0:0:0\": auto, random, factory, factory/slot"),
            ("mac = \"factory\"", "vnic.a0.mac: \"factory\": sw0 is no link of kind nic"),
            ("priority = \"urgent\"", "vnic.a0.priority: \"urgent\": a priority is low, medium or high"),
            ("colour = 1", "vnic.a0.colour: unknown field `colour`, expected one of `over`, `iptun`, `mac`"),
            ("tap = { ifname = \"../x\" }", "vnic.a0.tap.ifname: \"../x\": an interface name has"),
            ("tap = { addresses = [\"x\"] }", "vnic.a0.tap.addresses: \"x\": an address with its prefix"),
            ("tap = { addresses = [\"10.0.0.1\"] }", "vnic.a0.tap.addresses: \"10.0.0.1\": an address with"),
            ("tap = { addresses = [\"10.0.0.0/24\"] }", "vnic.a0.tap.addresses: \"10.0.0.0/24\": a unicast"),
            (
                "tap = { routes = [{ destination = \"default\", gateway = \"10.0.0.9\" }] }",
                "vnic.a0.tap.routes: \"0.0.0.0/0 via 10.0.0.9\": a gateway is another station on the network of one of",
            ),
            (
                "tap = { addresses = [\"10.0.0.9/24\"], routes = [{ destination = \"default\", gateway = \"10.0.0.9\" }] }",
                "vnic.a0.tap.routes: \"0.0.0.0/0 via 10.0.0.9\": a gateway is another station on the network of one of",
            ),
            (
                "tap = { routes = [{ destination = \"10.0.0.0/8\", kind = \"blackhole\" }] }",
                "vnic.a0.tap.routes: \"10.0.0.0/8 blackhole\": a route of a tap has a gateway",
            ),
            (
                "tap = { routes = [{ destination = \"::/0\", gateway = \"fe80::1\", congestion_control = \"bbr\" }] }",
                "vnic.a0.tap.routes: \"::/0 via fe80::1 congestion_control bbr\": a route of a tap is the kernel's",
            ),
            (
                "tap = { routes = [{ destination = \"::/0\", gateway = \"fe80::1\" }, { destination = \"::/0\", gateway = \"fe80::2\" }] }",
                "vnic.a0.tap.routes: \"::/0 via fe80::2\": ",
            ),
            ("tap = { routes = [\"default\"] }", "vnic.a0.tap.routes: "),
        ];
        for (line, want) in table {
            let got = fault(&format!("{BASE}{line}\n"));
            assert!(got.starts_with(&format!("f.toml:4: {want}")), "{line}: {got}");
            assert!(!got.contains('\n'));
        }
    }

    #[test]
    fn tables_names_and_syntax() {
        let table = [
            ("[vnic.a0]\nmac = \"auto\"\n", "f.toml:1: vnic.a0.over: missing"),
            (
                "[etherstub.s0]\n[vnic.a0]\nover = \"s0\"\nis_vlan = true\n",
                "f.toml:2: vnic.a0.vlan: missing; a VLAN link has",
            ),
            ("\n[vnic.web]\nover = \"sw0\"\n", "f.toml:2: vnic.web: \"web\": a link name has"),
            ("[switch.a0]\n", "f.toml:1: switch: unknown field `switch`, expected one of `daemon`, `link`"),
            ("[vnic.a0]\nover = \n", "f.toml:2: not TOML: "),
            ("[etherstub.a0]\n[etherstub.a0]\n", "f.toml:2: not TOML: duplicate key"),
            ("[link.n0]\nkind = \"tap\"\n", "f.toml:1: link.n0: ifname: missing; kind = \"tap\" needs"),
            ("[link.n0]\nkind = \"wifi\"\n", "f.toml:2: link.n0.kind: unknown variant `wifi`"),
            ("vnic = 5\n", "f.toml:1: vnic: invalid type: integer `5`, expected a map"),
        ];
        for (text, want) in table {
            let got = fault(text);
            assert!(got.starts_with(want), "{text:?}: {got}");
        }
    }

    #[test]
    fn contradictions_are_found_together_with_their_lines() {
        let text = "[etherstub.sw0]\nmtu = 9001\n[vnic.sw0]\nover = \"nosw0\"\n[vnic.b0]\nover = \"sw0\"\nnetstack = \"web\"\n\
                    [flow.f]\nlink = \"c0\"\nmatch = { local_port = 80 }\n";
        let faults: Vec<_> =
            Model::from_toml("f.toml", text).unwrap_err().iter().map(ToString::to_string).collect();
        let want = [
            "f.toml:3: vnic.sw0: etherstub.sw0 has it already",
            "f.toml:2: etherstub.sw0.mtu: \"9001\": an etherstub's mtu is from 576 to 9000",
            "f.toml:7: vnic.b0.netstack: \"web\": there is no netstack of that name",
            "f.toml:4: vnic.sw0.over: \"nosw0\": is unknown; a VNIC is over a link or an etherstub",
            "f.toml:9: flow.f.link: \"c0\": there is no link or VNIC of that name",
            "f.toml:10: flow.f.match.transport: a local or remote port requires transport tcp, udp or sctp",
        ];
        for want in want {
            assert!(faults.iter().any(|fault| fault == want), "{want}\n{faults:#?}");
        }
        assert_eq!(faults.len(), want.len(), "{faults:#?}");
    }

    #[test]
    fn wrong_fields_are_found_together_with_their_lines() {
        let text = "[etherstub.sw0]\nmtu = \"x\"\n[vnic.a0]\nover = 7\nvlan = 9999\nmaxbw = \"5Q\"\n[vnic.b0]\ncolour = 3\n\
                    [link.n0]\nkind = \"tap\"\n[netstack.web]\nfilter = [\"block in quic all\",\n\"pass in all\",\n\"pass by all\"]\n\
                    routes = [{ destination = \"nowhere\" }]\n";
        let faults = Model::from_toml("f.toml", text).unwrap_err();
        let found: Vec<_> =
            faults.iter().map(|it| (it.line, it.message.split(": ").next().unwrap_or(""))).collect();
        let want = [
            (2, "etherstub.sw0.mtu"),
            (4, "vnic.a0.over"),
            (5, "vnic.a0.vlan"),
            (6, "vnic.a0.maxbw"),
            // What it is over is missing, too; but that may be what the wrong one was to be.
            (8, "vnic.b0.colour"),
            (9, "link.n0"),
            (12, "netstack.web.filter"),
            (14, "netstack.web.filter"),
            (15, "netstack.web.routes.destination"),
        ];
        assert_eq!(found, want, "{faults:#?}");
        let many = (0..50).map(|n| format!("y{n} = 1\n")).collect::<String>();
        assert_eq!(Model::from_toml("f.toml", &many).unwrap_err().len(), WRONG_FIELDS_MAX);
    }

    #[test]
    fn a_factory_address_is_had_once() {
        let text = "[link.n0]\nkind = \"nic\"\nifname = \"eth7\"\n[vnic.a0]\nover = \"n0\"\nmac = \"factory/1\"\n\
                    [vnic.b0]\nover = \"n0\"\nvlan = 5\nmac = \"factory/1\"\n";
        assert_eq!(fault(text), "f.toml:10: vnic.b0.mac: \"factory/1\": vnic.a0.mac has it already");
        for other in ["factory/2", "factory", "auto"] {
            let text = text.replacen("factory/1", other, 1);
            assert_eq!(Model::from_toml("f.toml", &text).map(drop), Ok(()), "{other}");
        }
    }

    #[test]
    fn what_is_guaranteed_is_part_of_the_limits_above() {
        let host = |stub: &str, a0: &str, b0: &str, flow: &str| {
            format!(
                "[etherstub.sw0]\n{stub}\n[vnic.a0]\nover = \"sw0\"\n{a0}\n[vnic.b0]\nover = \"sw0\"\n{b0}\n\
                 [flow.f]\nlink = \"a0\"\nmatch = {{ transport = \"tcp\" }}\n{flow}\n"
            )
        };
        let (m, n) = (|it: &str| format!("maxbw = \"{it}\""), |it: &str| format!("minbw = \"{it}\""));
        let right = [
            host("", &n("60M"), &n("50M"), &n("5M")),
            host(&m("100M"), &n("60M"), &n("40M"), &n("60M")),
            host(&m("100M"), &format!("{}\n{}", m("70M"), n("70M")), &n("30M"), &n("20M")),
        ];
        for text in right {
            assert_eq!(Model::from_toml("f.toml", &text).map(drop), Ok(()), "{text}");
        }
        let table = [
            (
                host(&m("100M"), &n("60M"), &n("50M"), ""),
                "f.toml:2: etherstub.sw0.maxbw: \"100M\": what is over it is guaranteed 110M together (minbw)",
            ),
            // A flow's guarantee is a part of its VNIC's, and counts where that has less.
            (
                host(&m("100M"), "", &n("50M"), &n("51M")),
                "f.toml:2: etherstub.sw0.maxbw: \"100M\": what is over it is guaranteed 101M together (minbw)",
            ),
            (
                host("", &m("5M"), "", &n("6M")),
                "f.toml:5: vnic.a0.maxbw: \"5M\": its flows are guaranteed 6M together (minbw)",
            ),
            (
                host("", &format!("{}\n{}", m("0"), n("1K")), "", ""),
                "f.toml:6: vnic.a0.minbw: \"1K\": at most its maxbw, 0M",
            ),
            (
                "[link.n0]\nkind = \"tap\"\nifname = \"t0\"\n[flow.f]\nlink = \"n0\"\n\
                 match = { transport = \"tcp\" }\nminbw = \"1M\"\n"
                    .to_owned(),
                "f.toml:7: flow.f.minbw: \"1M\": the flow's link is a VNIC; no limit is above what passes the wire of n0",
            ),
        ];
        for (text, want) in table {
            assert_eq!(fault(&text), want, "{text}");
        }
    }

    #[test]
    fn names_with_dots_have_their_lines_too() {
        let text = "[etherstub.sw0]\n[vnic.\"a.0\"]\nover = \"sw0\"\nmtu = 9001\n";
        assert!(fault(text).starts_with("f.toml:4: vnic.a.0.mtu: \"9001\""), "{}", fault(text));
    }

    #[test]
    fn a_huge_or_deep_file_is_refused() {
        assert!(fault(&"#".repeat(MODEL_TEXT_MAX + 1)).contains("more than"));
        let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(fault(&deep).starts_with("f.toml:1: "));
    }
}
