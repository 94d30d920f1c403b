//! The two configurations: what is in force, and what the next start begins with.
//!
//! A change is persistent and active unless asked otherwise; `-t` changes only what is in force. The pair is
//! a value: [`Store::changed`] gives the next one, and the caller keeps it once the engine has followed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::{fmt, io};

use firelane_model::{LinkClass, Model, Netstack, NetstackName, Vnic, VnicUser};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::edit::edit;
use crate::filter::{Left, RULE_WORDS, no_netstack};
use crate::pools::POOL_WORDS;
use crate::ways::ROUTE_WORDS;
use crate::{ApiError, Change, ChangeRequest, Status, Which, enabling};

/// The active and the persistent configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Store {
    /// What is in force.
    pub active: Model,
    /// What the next start begins with.
    pub persistent: Model,
}

/// What a pair of configurations is known by, in hexadecimal digits: nothing is remembered for it, and it outlives restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(into = "String", try_from = "String")]
#[schema(value_type = String)]
pub struct Mark(u64);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Mark {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digits = text.bytes().all(|it| it.is_ascii_hexdigit());
        let value = u64::from_str_radix(text, 16).ok().filter(|_| is_digits);
        value.map(Self).ok_or("up to 16 hexadecimal digits, as the status of a host has them")
    }
}

impl From<Mark> for String {
    fn from(mark: Mark) -> Self {
        mark.to_string()
    }
}

impl TryFrom<String> for Mark {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Hashes what is written to it.
struct Hashed(DefaultHasher);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a configuration is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replacing {
    /// Until the next start.
    pub temporary: bool,
    /// Also by one without any object, which deletes all that there is.
    pub empty: bool,
    /// Only as long as it is the one of this mark: a plan that somebody has read is that of what was there then.
    pub of: Option<Mark>,
}

/// The field that an error is about which says that nothing is to replace all that there is.
pub const EMPTY_FIELD: &str = "empty";

impl Store {
    /// A store in which both configurations are `model`.
    pub fn new(model: Model) -> Self {
        Self { active: model.clone(), persistent: model }
    }

    /// What the two are known by.
    pub fn mark(&self) -> Mark {
        let mut hashed = Hashed(DefaultHasher::new());
        // Neither a model nor this writer refuses anything; what is not written would be no difference.
        let _ = serde_json::to_writer(&mut hashed, &[&self.active, &self.persistent]);
        Mark(hashed.0.finish())
    }

    /// One of the two configurations.
    pub fn model(&self, which: Which) -> &Model {
        match which {
            Which::Active => &self.active,
            Which::Persistent => &self.persistent,
        }
    }

    /// The store after `request`, or why there is none.
    pub fn changed(&self, request: &ChangeRequest) -> Result<Self, ApiError> {
        let enabled = enabling::enabled(&self.active, &self.persistent, &request.change);
        if let Some(active) = enabled.filter(|_| request.temporary) {
            return Ok(Self { active: active?, persistent: self.persistent.clone() });
        }
        self.spare_disabled(&request.change)?;
        let active = edited(&self.active, &request.change);
        if let Some(error) = active.as_ref().err().and_then(|error| self.disabled(&request.change, error)) {
            return Err(error);
        }
        if request.temporary {
            if let Change::AddFlow(name, _) = &request.change
                && self.persistent.flows.contains_key(name)
                && !self.active.flows.contains_key(name)
            {
                return Err(Status::PersistentFlowExists.into());
            }
            self.spare_kept_name(&request.change)?;
            return Ok(Self { active: active?, persistent: self.persistent.clone() });
        }
        if let Change::ChangeRoutes(name, change) = &request.change {
            return self.rules_changed(name, ("routes", ROUTE_WORDS), |it| change.follow(it));
        }
        if let Change::ChangeFilter(name, change) = &request.change {
            return self.rules_changed(name, ("filter", RULE_WORDS), |it| change.follow(&mut it.filter));
        }
        if let Change::ChangeNat(name, change) = &request.change {
            return self.rules_changed(name, ("nat", RULE_WORDS), |it| change.follow(&mut it.nat));
        }
        if let Change::ChangePools(name, change) = &request.change {
            return self.rules_changed(name, ("pools", POOL_WORDS), |it| change.follow(&mut it.pools));
        }
        let persistent = edited(&self.persistent, &request.change);
        self.spare_others(&request.change, [active.is_ok(), persistent.is_ok()])?;
        let (active, persistent) = match (active, persistent) {
            (Ok(active), Ok(persistent)) => (active, persistent),
            // What is only active, or only persistent, is deleted or renamed where it is.
            (Ok(active), Err(error)) if is_deletion(&request.change) && is_absence(error.status) => {
                (active, self.persistent.clone())
            }
            (Err(error), Ok(persistent)) if is_deletion(&request.change) && is_absence(error.status) => {
                (self.active.clone(), persistent)
            }
            // What is kept alone is not deleted for a reason of its own.
            (Err(absent), Err(error))
                if is_deletion(&request.change) && is_absence(absent.status) && !is_absence(error.status) =>
            {
                return Err(error);
            }
            (Err(error), _) => return Err(error),
            (Ok(_), Err(error)) => return Err(only_persistent(&request.change, error)),
        };
        Ok(Self { active, persistent })
    }

    /// What is there in one of the two only is no way to change what another is or has in the other: its new name is free in both, and
    /// an address of what is in another netstack until the next start is not kept in this one.
    fn spare_others(&self, change: &Change, done: [bool; 2]) -> Result<(), ApiError> {
        let both = [&self.active, &self.persistent];
        match change {
            Change::RenameLink(_, to)
                if done[0] != done[1] && both.iter().any(|it| it.class_of(to.as_str()).is_some()) =>
            {
                Err(Status::Exists.into())
            }
            Change::CreateAddr(name, _) if done == [true; 2] => match self.users(name.interface()) {
                [Some(active @ VnicUser::Netstack(_)), Some(kept)] if kept != active => {
                    Err(Status::TemporaryObject.into())
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// An interface that is disabled gets no address and no other netstack: what is in force would make it anew in one, and the next start
    /// in its own.
    fn spare_disabled(&self, change: &Change) -> Result<(), ApiError> {
        let users = match change {
            Change::CreateAddr(name, _) => self.users(name.interface()),
            Change::CreateIf(name, _) => self.users(name.as_str()),
            _ => return Ok(()),
        };
        match users {
            [Some(VnicUser::Nobody), Some(VnicUser::Netstack(_))] => Err(Status::DisabledObject.into()),
            _ => Ok(()),
        }
    }

    /// What is said of a change of what is not in force and `error` says is not there, if it is kept.
    fn disabled(&self, change: &Change, error: &ApiError) -> Option<ApiError> {
        match (change, error.status) {
            (Change::MarkAddr(name, _) | Change::SetAddrProps(name, _), Status::NoAddrObj) => {
                Some(enabling::absence(name, &self.persistent))
            }
            (Change::SetIfProps(name, _), Status::NoIf) => {
                let kept = self.persistent.vnics.get(name).and_then(Vnic::netstack);
                kept.map(|_| Status::DisabledObject.into())
            }
            _ => None,
        }
    }

    /// Whose an interface is: in force, and as it is kept.
    fn users(&self, interface: &str) -> [Option<&VnicUser>; 2] {
        [&self.active, &self.persistent].map(|it| it.vnics.get(interface).map(|vnic| &vnic.user))
    }

    /// A link that is there until the next start may not have the name of one of another class that is kept: neither could be deleted by it.
    fn spare_kept_name(&self, change: &Change) -> Result<(), ApiError> {
        let (name, class) = match change {
            Change::CreateEtherstub(name, _) => (name, LinkClass::Etherstub),
            Change::CreateVnic(name, vnic) | Change::CreateIptun(name, vnic) => (name, vnic.class()),
            _ => return Ok(()),
        };
        match self.persistent.class_of(name.as_str()) {
            Some(kept) if kept != class => Err(Status::Exists.into()),
            _ => Ok(()),
        }
    }

    /// A rule, a route or what is in a pool may be in one of the two lists only, as `-t` leaves it: it goes from where it is, and comes to where it is
    /// not.
    fn rules_changed<R: Clone + Eq + Hash + fmt::Display>(
        &self,
        name: &NetstackName,
        (field, words): (&str, [&str; 2]),
        change: impl Fn(&mut Netstack) -> Left<R>,
    ) -> Result<Self, ApiError> {
        let mut next = self.clone();
        let follow = |model: &mut Model| {
            let netstack = model.netstacks.get_mut(name).ok_or_else(|| no_netstack(name))?;
            Ok(change(netstack))
        };
        let active = follow(&mut next.active)?;
        let persistent = follow(&mut next.persistent)
            .map_err(|error: ApiError| ApiError { status: Status::TemporaryOnly, ..error })?;
        active.and(&persistent).refusal(field, words)?;
        if let Some(fault) = next.active.validate().into_iter().next() {
            return Err(fault.into());
        }
        match next.persistent.validate().into_iter().next() {
            None => Ok(next),
            // What it names will be gone.
            Some(fault) => Err(below(fault.into())),
        }
    }

    /// The store after the whole configuration is replaced.
    pub fn replaced_as(&self, wanted: &Model, how: Replacing) -> Result<Self, ApiError> {
        let is = self.mark();
        if let Some(of) = how.of.filter(|of| *of != is) {
            return Err(ApiError::new(Status::Overtaken, "configuration", of, format!("it is {is} now")));
        }
        let is_lost = |it: &Model| !it.has_nothing();
        // A file that was cut off, or the output of a command that failed, is empty more often than a host shall be.
        if wanted.has_nothing()
            && !how.empty
            && (is_lost(&self.active) || !how.temporary && is_lost(&self.persistent))
        {
            let why = "true, if all that this host has shall be deleted: nothing is in what is to replace it";
            return Err(ApiError::new(Status::BadArg, EMPTY_FIELD, false, why));
        }
        self.replaced(wanted, how.temporary)
    }

    /// The same, for who says only what it would be.
    pub fn replaced(&self, wanted: &Model, temporary: bool) -> Result<Self, ApiError> {
        if let Some(fault) = wanted.validate().into_iter().next() {
            return Err(fault.into());
        }
        let persistent = if temporary { &self.persistent } else { wanted };
        Ok(Self { active: wanted.clone(), persistent: persistent.clone() })
    }
}

fn edited(model: &Model, change: &Change) -> Result<Model, ApiError> {
    let mut model = model.clone();
    edit(&mut model, change).map(|()| model)
}

fn is_deletion(change: &Change) -> bool {
    matches!(
        change,
        Change::DeletePhys(_)
            | Change::DeleteEtherstub(_)
            | Change::DeleteWire(_)
            | Change::DeleteVnic(_)
            | Change::DeleteIptun(_)
            | Change::RenameLink(..)
            | Change::RemoveFlow(_)
            | Change::RemoveFlowsOf(_)
            | Change::DeleteIf(_)
            | Change::DeleteAddr(_)
    )
}

fn is_absence(status: Status) -> bool {
    matches!(status, Status::NotFound | Status::NoIf | Status::NoAddrObj)
}

/// What `error` is about will be gone at the next start. It is there now, whatever a configuration without it says is wrong.
fn below(error: ApiError) -> ApiError {
    ApiError { status: Status::TemporaryBelow, allowed: String::new(), ..error }
}

/// The change is possible now but not at the next start: what it rests on is temporary.
fn only_persistent(change: &Change, error: ApiError) -> ApiError {
    match change {
        Change::AddFlow(name, _) if error.status == Status::Exists => {
            ApiError::new(Status::PersistentFlowExists, "flow", name, "")
        }
        Change::ModifyVnic(..)
        | Change::ModifyWire(..)
        | Change::ModifyIptun(..)
        | Change::SetLinkProps(..)
        | Change::SetFlowProps(..)
        | Change::SetNetstackProps(..)
        | Change::SetNatLimits(..)
            if error.status == Status::NotFound =>
        {
            Status::TemporaryOnly.into()
        }
        _ if matches!(error.status, Status::LinkInvalid | Status::NotFound) && !is_deletion(change) => {
            below(error)
        }
        Change::SetAddrProps(..) | Change::MarkAddr(..) if error.status == Status::NoAddrObj => {
            Status::TemporaryObject.into()
        }
        _ if matches!(error.status, Status::NoDatalink | Status::NoIf) => {
            ApiError { status: Status::TemporaryObject, ..error }
        }
        _ => error,
    }
}
