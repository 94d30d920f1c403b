//! Memifs of the model as queues of the engine, and why nobody is at their other ends.
//!
//! Called by `works.rs`, and by `host.rs` once a second, for status and doctor; `resources.rs` asks for its rings. A memif has one ring pair: its frames reach other lanes as any device's do.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use firelane::{
    MemifConfig, MemifError, MemifFailures, MemifRole, MemifSecret, MemifStatus, Queue, Standing,
    check_memif_path, open_memif,
};
use firelane_api::{ApiError, Finding, FindingState, Status};
use firelane_model::{LinkKind, LinkName, Memif, Model};
use firelane_units::Mtu;

use crate::folder;
use crate::text::plain;
use crate::works::Works;

/// How many rings one has.
pub(crate) const RINGS: u16 = 1;
/// How long a path may stay taken: an interface ends when the lanes have let its queues go.
const PATH_WAIT: Duration = Duration::from_secs(1);
/// Between two looks.
const PATH_POLL: Duration = Duration::from_millis(10);

/// Opens a memif for the link or VNIC `name`.
pub(crate) fn open(name: &LinkName, memif: &Memif, mtu: Mtu) -> Result<(Vec<Queue>, MemifStatus), ApiError> {
    let role = match memif.role {
        firelane_model::MemifRole::Server => MemifRole::Server,
        firelane_model::MemifRole::Client => MemifRole::Client,
    };
    let config = MemifConfig {
        id: memif.id,
        secret: memif.secret.as_deref().and_then(MemifSecret::new),
        ring_size: memif.ring_size,
        mtu,
        name: name.to_string(),
        ..MemifConfig::new(role, &memif.socket)
    };
    match patiently(PATH_WAIT, || open_memif(&config)) {
        Ok((queues, status)) => Ok((queues.into_iter().map(Queue::from).collect(), status)),
        Err(error) => Err(refused(memif, &error)),
    }
}

/// Whether a server's control socket can be made: there is a folder for it, and nobody has the path. That may be one that is just ending, for whom
/// so long is waited; without a time it is known to be one that ends before.
pub(crate) fn check(memif: &Memif, wait: Option<Duration>) -> Result<(), ApiError> {
    if memif.role == firelane_model::MemifRole::Client {
        return Ok(());
    }
    let path = Path::new(&memif.socket);
    let folder = path.parent().map_or(Ok(()), folder::may_have_more);
    folder.map_err(|error| {
        let status = match error.kind() {
            io::ErrorKind::PermissionDenied => Status::Denied,
            _ => Status::Io,
        };
        ApiError::new(status, "memif", &memif.socket, plain(&error))
    })?;
    let Some(wait) = wait else { return Ok(()) };
    patiently(wait, || check_memif_path(path)).map_err(|error| refused(memif, &error))
}

/// Tries again for so long while somebody has the path.
fn patiently<T>(wait: Duration, attempt: impl Fn() -> Result<T, MemifError>) -> Result<T, MemifError> {
    let deadline = Instant::now() + wait;
    loop {
        match attempt() {
            Err(MemifError::InUse(_)) if Instant::now() < deadline => std::thread::sleep(PATH_POLL),
            other => return other,
        }
    }
}

fn refused(memif: &Memif, error: &MemifError) -> ApiError {
    let status = match error {
        MemifError::InUse(_) | MemifError::NoSocket(_) => Status::Exists,
        MemifError::System(_, error) if error.kind() == io::ErrorKind::PermissionDenied => Status::Denied,
        MemifError::System(..) | MemifError::Config(_) => Status::Io,
    };
    ApiError::new(status, "memif", &memif.socket, plain(error))
}

/// What is known of a memif.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Which end of which socket it is.
    place: String,
    standing: Standing,
    failures: MemifFailures,
}

impl Seen {
    /// Why nobody is there, and whether that fails unless somebody sets it right.
    fn vacancy(&self) -> Option<(FindingState, String)> {
        let (state, why) = match &self.standing {
            Standing::Connected { .. } | Standing::Waiting(None) => return None,
            Standing::Waiting(Some(why)) => (FindingState::Note, why),
            Standing::Failed(why) => (FindingState::Fail, why),
        };
        let text = format!("nobody is at the other end of its memif ({}): {}", self.place, plain(why));
        Some((state, text))
    }
}

impl Works {
    /// The memifs of links and VNICs.
    pub(crate) fn memifs(&self, model: &Model) -> BTreeMap<LinkName, Seen> {
        let links = self.links.iter().filter_map(|(name, lower)| {
            let LinkKind::Memif(memif) = &model.links.get(name)?.kind else { return None };
            Some((name, memif, lower.memif.as_ref()?))
        });
        let vnics = self
            .vnics
            .iter()
            .filter_map(|(name, upper)| Some((name, model.vnics.get(name)?.memif()?, upper.memif.as_ref()?)));
        let seen = links.chain(vnics).map(|(name, memif, status)| {
            let place = format!("{} of {}", memif.role.word(), memif.socket);
            (name.clone(), Seen { place, standing: status.standing(), failures: status.failures() })
        });
        seen.collect()
    }

    /// Why nobody is at the other ends of memifs.
    pub(crate) fn vacancies(&self, model: &Model) -> Vec<Finding> {
        let memifs = self.memifs(model).into_iter();
        let vacancies = memifs.filter_map(|(name, seen)| {
            let (state, detail) = seen.vacancy()?;
            Some(Finding { check: format!("link {name}"), state, detail })
        });
        vacancies.collect()
    }
}

/// What was told of a memif.
#[derive(Debug, Default)]
struct Known {
    /// How many failures there were.
    failures: u64,
    /// The last thing that was told, unless somebody was there since.
    told: Option<String>,
}

/// What was told of memifs, so that each reason is logged once.
#[derive(Debug, Default)]
pub(crate) struct Told(BTreeMap<LinkName, Known>);

impl Told {
    /// Logs what is new.
    pub(crate) fn tell(&mut self, memifs: BTreeMap<LinkName, Seen>) {
        for (is_fault, line) in self.news(memifs) {
            if is_fault { tracing::warn!("{line}") } else { tracing::info!("{line}") }
        }
    }

    /// The lines that are due, and which of them tell of a fault.
    fn news(&mut self, memifs: BTreeMap<LinkName, Seen>) -> Vec<(bool, String)> {
        self.0.retain(|name, _| memifs.contains_key(name));
        let due = memifs.into_iter().filter_map(|(name, seen)| {
            let (is_fault, text) = self.0.entry(name.clone()).or_default().news(&seen)?;
            Some((is_fault, format!("link {name}: {text}")))
        });
        due.collect()
    }
}

impl Known {
    fn news(&mut self, seen: &Seen) -> Option<(bool, String)> {
        let MemifFailures { count, last } = &seen.failures;
        let has_failed = *count > self.failures;
        self.failures = *count;
        let is_there = matches!(seen.standing, Standing::Connected { .. });
        let (is_fault, text) = match seen.vacancy() {
            Some((state, text)) => (state == FindingState::Fail, text),
            // Who comes again at once after his session has failed is no news; why it failed is.
            None if has_failed && is_there => (
                true,
                format!("somebody is at the other end of its memif ({}), after: {}", seen.place, plain(last)),
            ),
            None if is_there && self.told.take().is_some() => {
                return Some((false, "somebody is at the other end of its memif".to_owned()));
            }
            None => return None,
        };
        if self.told.as_ref() == Some(&text) {
            return None;
        }
        self.told = Some(text.clone());
        Some((is_fault, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(count: u64, why: &str) -> Seen {
        let failures = MemifFailures { count, last: why.to_owned() };
        Seen { place: "server of /s".to_owned(), standing: Standing::Failed(why.to_owned()), failures }
    }

    fn there(count: u64, why: &str) -> Seen {
        let (program, interface) = Default::default();
        Seen { standing: Standing::Connected { program, interface }, ..failed(count, why) }
    }

    fn waiting(count: u64, why: Option<&str>) -> Seen {
        Seen { standing: Standing::Waiting(why.map(str::to_owned)), ..failed(count, "") }
    }

    #[test]
    fn each_reason_is_told_once_and_again_when_somebody_was_there() {
        let mut told = Told::default();
        let mut news = |seen: Seen| {
            let news = told.news(BTreeMap::from([("up0".parse().unwrap(), seen)]));
            news.into_iter()
                .map(|(is_fault, line)| {
                    let line = line.strip_prefix("link up0: ").unwrap().to_owned();
                    (
                        is_fault,
                        line.replace("nobody is at the other end of its memif (server of /s): ", "nobody: "),
                    )
                })
                .collect::<Vec<_>>()
        };
        let line = |is_fault, text: &str| vec![(is_fault, text.to_owned())];
        let back = || line(false, "somebody is at the other end of its memif");
        assert_eq!(news(waiting(0, None)), []);
        assert_eq!(news(there(0, "")), [], "as it should be");
        assert_eq!(news(failed(1, "the secret is wrong")), line(true, "nobody: the secret is wrong"));
        assert_eq!(news(failed(5, "the secret is wrong")), []);
        assert_eq!(news(failed(6, "Is in use (os error 7)")), line(true, "nobody: Is in use"));
        assert_eq!(news(there(6, "")), back());
        assert_eq!(news(there(6, "")), []);
        assert_eq!(news(waiting(6, Some("he has gone"))), line(false, "nobody: he has gone"));
        assert_eq!(news(there(6, "")), back());
        // Between two looks.
        let lie = line(true, "somebody is at the other end of its memif (server of /s), after: a lie");
        assert_eq!(news(there(7, "a lie")), lie);
        assert_eq!(news(there(9, "a lie")), []);
        assert_eq!(news(there(9, "a lie")), back());
        assert_eq!(news(there(10, "a lie")), lie);
        // Made anew, and removed.
        assert_eq!(news(failed(1, "a lie")), line(true, "nobody: a lie"));
        assert_eq!(told.news(BTreeMap::new()), []);
        assert!(told.0.is_empty());
    }
}
