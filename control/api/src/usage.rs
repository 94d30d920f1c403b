//! What links and flows have carried over time: requests to the daemon's history, and its answers.

use firelane_model::{FlowName, LinkName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, Status, Traffic, paths};

/// Whose history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UsageOf {
    /// That of links, etherstubs and VNICs.
    Links,
    /// That of flows.
    Flows,
}

impl UsageOf {
    /// The path of its collection.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Links => paths::LINK_HISTORY,
            Self::Flows => paths::FLOW_HISTORY,
        }
    }

    /// The name in `text`, which must be one that such an object can have.
    pub(crate) fn name(self, text: &str) -> Result<&str, ApiError> {
        let is_name = match self {
            Self::Links => text.parse::<LinkName>().is_ok(),
            Self::Flows => text.parse::<FlowName>().is_ok(),
        };
        is_name.then_some(text).ok_or_else(|| ApiError::new(Status::NotFound, "name", text, ""))
    }
}

/// A part of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsageRequest {
    /// Whose.
    pub of: UsageOf,
    /// From when, in seconds since 1970; zero is from the beginning.
    pub from: u64,
    /// Until when, not included; `None` is until now.
    pub until: Option<u64>,
    /// Objects that have been deleted, too, and such as carried nothing.
    pub all: bool,
    /// On which days something was carried.
    pub days: bool,
}

impl UsageRequest {
    /// Everything that is known of objects that exist.
    pub const fn new(of: UsageOf) -> Self {
        Self { of, from: 0, until: None, all: false, days: false }
    }

    /// As the query of a request.
    pub fn query(&self) -> String {
        let until = self.until.map(|until| format!("&until={until}")).unwrap_or_default();
        let flag = |set: bool, name: &str| if set { format!("&{name}=true") } else { String::new() };
        format!("from={}{until}{}{}", self.from, flag(self.all, "all"), flag(self.days, "days"))
    }

    /// From the values of a query.
    pub(crate) fn from_values(of: UsageOf, values: [Option<&str>; 4]) -> Result<Self, ApiError> {
        let [from, until, all, days] = values;
        let wrong = |field: &str, value: &str, allowed: &str| {
            ApiError::new(Status::BadArg, field, value, allowed.to_owned())
        };
        let seconds = |field: &str, value: Option<&str>| {
            let read = |text: &str| text.parse().map_err(|_| wrong(field, text, "seconds since 1970"));
            value.map(read).transpose()
        };
        let flag = |field: &str, value: Option<&str>| match value {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => Err(wrong(field, text, "true or false")),
        };
        Ok(Self {
            of,
            from: seconds("from", from)?.unwrap_or(0),
            until: seconds("until", until)?,
            all: flag("all", all)?,
            days: flag("days", days)?,
        })
    }

    /// The values of its query.
    pub(crate) const VALUES: [&str; 4] = ["from", "until", "all", "days"];
}

/// What one link or flow carried in the time that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Its name.
    pub name: String,
    /// A flow's link.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// Whether it has been deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// How many seconds of that time it existed.
    pub seconds: u64,
    /// What it carried.
    pub traffic: Traffic,
    /// The days since 1970 on which it carried something, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<u64>,
}

/// What one link or flow carried in a second, a minute or an hour. Those without traffic are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageSample {
    /// When it began, in seconds since 1970.
    pub start: u64,
    /// How long it was.
    pub seconds: u64,
    /// What was carried.
    pub traffic: Traffic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let of = UsageOf::Flows;
        let plain = UsageRequest::new(of);
        for request in [plain, UsageRequest { from: 7, until: Some(9), all: true, days: true, of }] {
            let query = request.query();
            let values = UsageRequest::VALUES.map(|name| {
                query
                    .split('&')
                    .find_map(|part| part.split_once('=').filter(|it| it.0 == name))
                    .map(|it| it.1)
            });
            assert_eq!(UsageRequest::from_values(of, values), Ok(request));
        }
        let refused = UsageRequest::from_values(of, [Some("x"), None, None, None]).unwrap_err();
        assert_eq!((refused.field.as_str(), refused.value.as_str()), ("from", "x"));
        assert!(UsageRequest::from_values(of, [None, None, Some("1"), None]).is_err());
    }
}
