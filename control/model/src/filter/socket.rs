//! The filter of a program's sockets: rules of `ipf.conf` about who begins a connection with its listeners, and whose datagrams its
//! datagram sockets get.
//!
//! Read by `firelane run --filter`, whose refusals name the line, and by the daemon from what the program says at its first call.

use firelane_units::{FilterAddresses, FilterRule};

use super::set::{self, Part};
use super::{IpfFile, IpfRule};
use crate::FileError;
use crate::limits::SOCKET_FILTER_TEXT_MAX;

/// Rules that a single socket can have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SocketFilter(Vec<IpfRule>);

impl SocketFilter {
    /// Reads `text`, the file called `name`. Errs with the first hundred lines that are wrong.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<FileError>> {
        let file = IpfFile::read(name, text)?;
        let mut faults = Vec::new();
        let mut say = |line, message| faults.push(FileError { file: name.to_owned(), line, message });
        for it in &file.lines {
            let refused = match it.rule.place {
                Some(_) => Some("rules are in the order of the file"),
                None => unfit(&it.rule.rule),
            };
            if let Some(why) = refused {
                say(it.line, format!("{:?}: {why}", it.rule.to_string()));
            }
        }
        let rules: Vec<IpfRule> = file.lines.iter().map(|it| it.rule.rule.clone()).collect();
        for (part, (rule, why)) in set::faults(&rules, &Default::default(), &[], |_| true) {
            // Pools were spoken of above.
            if part == Part::Filter && !rules.iter().any(|it| it.to_string() == rule && unfit(it).is_some()) {
                say(file.line_of(&rule).unwrap_or(1), format!("{rule:?}: {why}"));
            }
        }
        let filter = Self(rules);
        let bytes = filter.text().len();
        if bytes > SOCKET_FILTER_TEXT_MAX {
            let allowed = format!("at most {SOCKET_FILTER_TEXT_MAX}: a netstack's filter has room for more");
            say(file.lines.last().map_or(1, |it| it.line), format!("{bytes} bytes of rules: {allowed}"));
        }
        faults.sort_by_key(|it| it.line);
        if faults.is_empty() { Ok(filter) } else { Err(faults) }
    }

    /// Its rules, one on each line, as they are read.
    pub fn text(&self) -> String {
        self.0.iter().map(|rule| format!("{rule}\n")).collect()
    }

    /// What they say. They name no link, whatever a link is called.
    pub fn rules<L>(&self) -> Vec<FilterRule<L>> {
        self.0.iter().filter_map(|rule| rule.rule().clone().try_map(|_| Err(())).ok()).collect()
    }
}

/// Why a program's sockets cannot have a rule.
fn unfit(rule: &IpfRule) -> Option<&'static str> {
    let it = rule.rule();
    let has_pool = |addresses| matches!(addresses, FilterAddresses::Pool(_));
    match it.unfit_for_socket() {
        Some(why) => Some(why),
        None if it.link.is_some() => {
            Some("a program's rules name no interface: they come and go while it runs")
        }
        None if [&it.matching.from, &it.matching.to].iter().any(|end| has_pool(end.addresses)) => {
            Some("a program's rules name no pool: pools are a netstack's")
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_written_as_in_a_netstacks_filter() {
        let text = "# who may come\nblock return-rst in proto tcp from any to any port = 80\n\n\
                    pass in quick from 10.0.0.0/24 to any\nblock in all head 1\npass in from 10.1.0.1/32 to any group 1\n";
        let filter = SocketFilter::read("web.conf", text).unwrap();
        assert_eq!(filter.rules::<u8>().len(), 4);
        assert_eq!(SocketFilter::read("again", &filter.text()).unwrap(), filter);
        assert_eq!(SocketFilter::read("none", "# nothing\n").unwrap(), SocketFilter::default());
    }

    #[test]
    fn what_a_socket_cannot_have_is_refused_with_its_line() {
        for (rule, why) in [
            ("block out all", "what comes in"),
            ("pass in all keep state", "keep no state"),
            ("pass in all keep frags", "keep no fragments"),
            ("block in log all", "do not log"),
            ("log in all", "do not log"),
            ("block in on web0 all", "name no interface"),
            ("block in from pool/7 to any", "name no pool"),
            ("block in from any to pool/7", "name no pool"),
            ("@1 block in all", "in the order of the file"),
            ("pass in all group 7", "no rule of its direction is the head of group 7"),
            ("block in sideways", "sideways"),
        ] {
            let faults = SocketFilter::read("f", &format!("pass in all\n{rule}\npass in all\n")).unwrap_err();
            assert_eq!(faults.len(), 1, "{rule}: {faults:?}");
            let told = faults[0].to_string();
            assert!(told.starts_with("f:2: ") && told.contains(why), "{told}");
        }
        let long = "pass in from 10.0.0.1/32 to any\n".repeat(200);
        let told = SocketFilter::read("f", &long).unwrap_err()[0].to_string();
        assert!(told.contains("bytes of rules: at most 4096"), "{told}");
    }
}
