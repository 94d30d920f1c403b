//! The filter of a program's sockets: rules of `ipf.conf` about who begins a connection with its listeners, and whose datagrams its
//! datagram sockets get.
//!
//! Read by `firelane run --filter`, whose refusals name the line, and by the daemon from what the program says at its first call.

use firelane_units::FilterRule;

use super::set::{self, Part};
use super::{IpfFile, IpfRule, Pool, maps};
use crate::limits::SOCKET_FILTER_TEXT_MAX;
use crate::{FileError, LinkName, Model, NetstackName, Vnic};

/// Rules that a single socket can have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SocketFilter {
    rules: Vec<IpfRule>,
    /// The line that each is on.
    lines: Vec<usize>,
}

impl SocketFilter {
    /// Reads `text`, the file called `name`. Errs with the first hundred lines that are wrong. Whether there are the interfaces and
    /// pools that they name is known where the netstack is: [`faults_on`](Self::faults_on).
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<FileError>> {
        let file = IpfFile::read(name, text)?;
        let mut faults = Vec::new();
        let mut say = |line, message| faults.push(FileError { file: name.to_owned(), line, message });
        for it in &file.lines {
            let refused = match it.rule.place {
                Some(_) => Some("rules are in the order of the file"),
                None => it.rule.rule.rule().unfit_for_socket(),
            };
            if let Some(why) = refused {
                say(it.line, format!("{:?}: {why}", it.rule.to_string()));
            }
        }
        let rules: Vec<IpfRule> = file.lines.iter().map(|it| it.rule.rule.clone()).collect();
        let pools = rules.iter().flat_map(set::named_pools).map(|number| (number, Pool::default())).collect();
        for (part, (rule, why)) in set::faults(&rules, &pools, &[], |_| true) {
            if part == Part::Filter {
                say(file.line_of(&rule).unwrap_or(1), format!("{rule:?}: {why}"));
            }
        }
        let filter = Self { rules, lines: file.lines.iter().map(|it| it.line).collect() };
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
        self.rules.iter().map(|rule| format!("{rule}\n")).collect()
    }

    /// What sockets of this netstack cannot have of it, the file being called `name`: interfaces and pools that the netstack has not.
    pub fn faults_on(&self, name: &str, model: &Model, netstack: &NetstackName) -> Vec<FileError> {
        let is_its = |link: &LinkName| model.vnics.get(link).and_then(Vnic::netstack) == Some(netstack);
        let pools = model.netstacks.get(netstack).map(|it| &it.pools);
        let mut faults = Vec::new();
        for (rule, &line) in self.rules.iter().zip(&self.lines) {
            let mut say = |why: String| {
                faults.push(FileError {
                    file: name.to_owned(),
                    line,
                    message: format!("{:?}: {why}", rule.to_string()),
                });
            };
            if let Some(link) = rule.rule().link.as_ref().filter(|link| !is_its(link)) {
                say(format!("{link} is no VNIC of netstack {netstack}"));
            }
            for number in set::named_pools(rule) {
                match pools.and_then(|pools| pools.get(&number)) {
                    None => say(format!("netstack {netstack} has no pool {number}")),
                    Some(pool) => {
                        let of_call = maps::called(rule).filter(|it| *it == number);
                        of_call.and_then(|_| maps::fault(rule, number, pool)).into_iter().for_each(&mut say);
                    }
                }
            }
        }
        faults
    }

    /// What they say, where `link` knows interfaces; nothing if it does not know one.
    pub fn rules<L>(&self, link: impl Fn(&LinkName) -> Option<L>) -> Option<Vec<FilterRule<L>>> {
        let known = |name: LinkName| link(&name).ok_or(());
        self.rules.iter().map(|rule| rule.rule().clone().try_map(known).ok()).collect()
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
        assert_eq!(filter.rules(|_| None::<u8>).map(|rules| rules.len()), Some(4));
        assert_eq!(SocketFilter::read("again", &filter.text()).unwrap().text(), filter.text());
        assert_eq!(SocketFilter::read("none", "# nothing\n").unwrap(), SocketFilter::default());
    }

    #[test]
    fn interfaces_and_pools_are_those_of_the_netstack() {
        let model = "[etherstub.sw0]\n[vnic.web0]\nover = 'sw0'\nnetstack = 'web'\n[vnic.app0]\nover = 'sw0'\nnetstack = 'app'\n\
                     [netstack.web]\npools = { 7 = ['10.0.0.0/8'] }\n[netstack.app]\n";
        let model = Model::from_toml("test", model).unwrap();
        let text =
            "# whose\nblock in on web0 all\n\npass in from pool/7 to any\npass in from any to !pool/7\n";
        let filter = SocketFilter::read("f", text).unwrap();
        let told = |filter: &SocketFilter, netstack: &str| -> Vec<_> {
            let faults = filter.faults_on("f", &model, &netstack.parse().unwrap());
            faults.iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&filter, "web"), [""; 0]);
        assert_eq!(
            told(&filter, "app"),
            [
                "f:2: \"block in on web0 all\": web0 is no VNIC of netstack app",
                "f:4: \"pass in from pool/7 to any\": netstack app has no pool 7",
                "f:5: \"pass in from any to !pool/7\": netstack app has no pool 7",
            ]
        );
        let both = SocketFilter::read("f", "block in on lost0 from pool/8 to pool/9\n").unwrap();
        assert_eq!(told(&both, "web").len(), 3, "{:?}", told(&both, "web"));
        let links = |filter: &SocketFilter| {
            let rules = filter.rules(|name| (name.as_str() == "web0").then_some(5))?;
            Some(rules.into_iter().map(|rule| rule.link).collect::<Vec<_>>())
        };
        assert_eq!(links(&filter), Some(vec![Some(5), None, None]));
        assert_eq!(links(&both), None);
    }

    #[test]
    fn what_a_socket_cannot_have_is_refused_with_its_line() {
        for (rule, why) in [
            ("block out all", "what comes in"),
            ("pass in all keep state", "keep no state"),
            ("pass in all keep frags", "keep no fragments"),
            ("block in log all", "do not log"),
            ("log in all", "do not log"),
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
