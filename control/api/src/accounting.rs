//! Accounting to a file: what it is, how `acctadm` changes it, and a record.

use std::collections::BTreeMap;

use firelane_model::{Accounting, Tracked};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::dispatch::{Call, body};
use crate::error::Problem;
use crate::handlers::{Reply, change};
use crate::{Api, Change, Traffic, Usage, UsageOf, UsageRequest, UsageSample};

/// What of accounting changes; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountingChange {
    /// Of what records are written: `none`, `basic` (links), `extended` (links and flows), or items of records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<Tracked>,
    /// Items that are tracked as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<Tracked>,
    /// Items that are not tracked any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable: Option<Tracked>,
    /// The file to which they are added; an empty text is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Whether any are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
}

/// Body: changes accounting.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeAccounting {
    /// What changes.
    pub change: AccountingChange,
    /// Whether it is as before after the next start.
    #[serde(default)]
    pub temporary: bool,
}

impl AccountingChange {
    pub(crate) fn follow(&self, accounting: &mut Accounting) {
        let net = self.net.unwrap_or(accounting.net).with(self.enable.unwrap_or_default());
        accounting.net = self.disable.map_or(net, |items| net.without(items));
        accounting.active = self.active.unwrap_or(accounting.active);
        if let Some(file) = &self.file {
            accounting.file = Some(file.clone()).filter(|file| !file.is_empty());
        }
    }
}

/// Accounting as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AccountingInfo {
    /// What is wanted.
    #[serde(flatten)]
    pub accounting: Accounting,
    /// Why no records are written although they should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// How often records are written, in seconds, as in the original.
pub const RECORD_SECONDS: u64 = 20;

/// The beginning of the year 10000, which no calendar here knows.
const CALENDAR_ENDS: u64 = 253_402_300_800;

/// A record: a line of the file, in JSON. The names are those of the original's items where it has them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetRecord {
    /// `link` or `flow`.
    pub net: String,
    /// Whose.
    pub name: String,
    /// A flow's link.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub devname: String,
    /// The end of the time that it is of, in seconds since 1970.
    pub curtime: u64,
    /// How long that was.
    pub seconds: u64,
    /// Bytes in; as all counters, nothing if it is not tracked.
    #[serde(default)]
    pub ibytes: u64,
    /// Bytes out.
    #[serde(default)]
    pub obytes: u64,
    /// Packets in.
    #[serde(default)]
    pub ipkts: u64,
    /// Packets out.
    #[serde(default)]
    pub opkts: u64,
    /// Packets in that were dropped.
    #[serde(default)]
    pub ierrpkts: u64,
    /// Packets out that were dropped.
    #[serde(default)]
    pub oerrpkts: u64,
    /// Bytes that came in no packet.
    #[serde(default)]
    pub rfused: u64,
    /// Bytes that went in no packet.
    #[serde(default)]
    pub ofused: u64,
}

/// What a record calls that.
const fn net(of: UsageOf) -> &'static str {
    match of {
        UsageOf::Links => "link",
        UsageOf::Flows => "flow",
    }
}

impl NetRecord {
    /// What somebody carried in the `seconds` up to `curtime`.
    pub fn new(of: UsageOf, name: &str, devname: &str, curtime: u64, seconds: u64, it: Traffic) -> Self {
        Self {
            net: net(of).to_owned(),
            name: name.to_owned(),
            devname: devname.to_owned(),
            curtime,
            seconds,
            ibytes: it.rbytes,
            obytes: it.obytes,
            ipkts: it.ipackets,
            opkts: it.opackets,
            ierrpkts: it.ierrors,
            oerrpkts: it.oerrors,
            rfused: it.rfused,
            ofused: it.ofused,
        }
    }

    /// Its line with the items that are tracked.
    ///
    /// # Errors
    /// None that is known: a record is plain.
    pub fn line(&self, tracked: Tracked) -> serde_json::Result<String> {
        let serde_json::Value::Object(mut items) = serde_json::to_value(self)? else {
            return Ok(String::new());
        };
        items
            .retain(|name, _| Tracked::item(name).is_none_or(|item| tracked.with(Tracked::ALWAYS).has(item)));
        serde_json::to_string(&items)
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            ipackets: self.ipkts,
            rbytes: self.ibytes,
            ierrors: self.ierrpkts,
            opackets: self.opkts,
            obytes: self.obytes,
            oerrors: self.oerrpkts,
            rfused: self.rfused,
            ofused: self.ofused,
        }
    }
}

/// The records of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetRecords(Vec<NetRecord>);

impl NetRecords {
    /// Reads a file's text; the last line may be cut off. Errs with the number of the first line that is no record.
    pub fn read(text: &str) -> Result<Self, usize> {
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let record = |(line, text): (usize, &str)| {
            let read: Option<NetRecord> = serde_json::from_str(text).ok();
            read.filter(|it| it.curtime < CALENDAR_ENDS && it.seconds <= it.curtime).ok_or(line)
        };
        let records = (1..).zip(whole.lines()).map(record).collect::<Result<_, _>>()?;
        if whole.is_empty() && !text.is_empty() { Err(1) } else { Ok(Self(records)) }
    }

    /// What was asked for, in the order of the file.
    fn asked<'a>(&'a self, request: &'a UsageRequest) -> impl Iterator<Item = &'a NetRecord> {
        let net = net(request.of);
        let is_in_time = move |it: &&NetRecord| {
            it.curtime > request.from && request.until.is_none_or(|until| it.curtime <= until)
        };
        self.0.iter().filter(move |it| it.net == net).filter(is_in_time)
    }

    /// Who has records of such a kind, and from when to when.
    fn spans(&self, of: UsageOf) -> BTreeMap<(&str, &str), (u64, u64)> {
        let mut spans = BTreeMap::new();
        for it in self.0.iter().filter(|it| it.net == net(of)) {
            let begins = it.curtime.saturating_sub(it.seconds);
            let (first, last) = spans.entry((&*it.name, &*it.devname)).or_insert((begins, it.curtime));
            (*first, *last) = (begins.min(*first), it.curtime.max(*last));
        }
        spans
    }

    /// What everybody carried, sorted by names; in how many seconds of the time asked for, from his first record to his last one: a time
    /// without traffic has no record, and counts.
    pub fn usage(&self, request: &UsageRequest) -> Vec<Usage> {
        const DAY: u64 = 24 * 3600;
        let spans = self.spans(request.of);
        let mut usages: BTreeMap<(&str, &str), Usage> = BTreeMap::new();
        for it in self.asked(request) {
            let (first, last) = spans.get(&(&*it.name, &*it.devname)).copied().unwrap_or_default();
            // As long as what is summed, of which the first record may have begun before.
            let begin = request.from.max(first).min(it.curtime.saturating_sub(it.seconds));
            let end = request.until.unwrap_or(last).min(last);
            let usage = usages.entry((&it.name, &it.devname)).or_insert_with(|| Usage {
                name: it.name.clone(),
                link: it.devname.clone(),
                deleted: false,
                seconds: 0,
                traffic: Traffic::default(),
                days: Vec::new(),
            });
            usage.seconds = usage.seconds.max(end.saturating_sub(begin));
            usage.traffic = usage.traffic.and(it.traffic());
            let day = it.curtime.saturating_sub(1) / DAY;
            if request.days && !usage.days.contains(&day) {
                usage.days.push(day);
            }
        }
        usages.into_values().collect()
    }

    /// What one carried, record by record; nothing if there is none of that name.
    pub fn samples(&self, name: &str, request: &UsageRequest) -> Option<Vec<UsageSample>> {
        let everything = UsageRequest { from: 0, until: None, ..*request };
        self.asked(&everything).any(|it| it.name == name).then(|| {
            let its = self.asked(request).filter(|it| it.name == name);
            its.map(|it| UsageSample {
                start: it.curtime.saturating_sub(it.seconds),
                seconds: it.seconds,
                traffic: it.traffic(),
            })
            .collect()
        })
    }
}

/// Accounting of links and flows to a file.
#[utoipa::path(get, path = "/v1/accounting",
    responses((status = 200, body = AccountingInfo), (status = "4XX", body = Problem)))]
pub(crate) fn accounting(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    body(&api.accounting()?)
}

/// Changes it.
#[utoipa::path(patch, path = "/v1/accounting", request_body = ChangeAccounting,
    responses((status = 200), (status = "4XX", body = Problem)))]
pub(crate) fn change_accounting(api: &dyn Api, call: &Call<'_>) -> Reply {
    call.no_flags()?;
    let request: ChangeAccounting = call.json()?;
    change(api, request.temporary, Change::SetAccounting(request.change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(records: &[(UsageOf, &str, &str, u64)]) -> String {
        let carried = |rbytes| Traffic { rbytes, ipackets: 1, ..Traffic::default() };
        let line = |&(of, name, link, end): &(UsageOf, &str, &str, u64)| {
            let record = NetRecord::new(of, name, link, end, 20, carried(end));
            serde_json::to_string(&record).expect("a record is plain") + "\n"
        };
        records.iter().map(line).collect()
    }

    #[test]
    fn records_are_summed_and_shown_one_by_one() {
        use UsageOf::{Flows, Links};
        let lines = [
            (Links, "web0", "", 100),
            (Flows, "http", "web0", 100),
            (Links, "alice0", "", 120),
            (Links, "web0", "", 90_000),
        ];
        let records = NetRecords::read(&(text(&lines) + "{\"net\":\"li")).unwrap();
        let sums = |request: &UsageRequest| {
            let usages = records.usage(request);
            usages.into_iter().map(|it| (it.name, it.seconds, it.traffic.rbytes, it.days)).collect::<Vec<_>>()
        };
        let all = UsageRequest { days: true, ..UsageRequest::new(Links) };
        assert_eq!(
            sums(&all),
            [("alice0".into(), 20, 120, vec![0]), ("web0".into(), 89_920, 90_100, vec![0, 1])],
            "seconds without traffic have no record, and are some of its time"
        );
        let spans = |from, until| {
            let request = UsageRequest { from, until, ..UsageRequest::new(Links) };
            records.usage(&request).into_iter().map(|it| (it.name, it.seconds)).collect::<Vec<_>>()
        };
        assert_eq!(
            spans(90, Some(1_000)),
            [("alice0".into(), 20), ("web0".into(), 920)],
            "a record is summed as a whole"
        );
        let late = UsageRequest { from: 120, until: Some(90_000), ..UsageRequest::new(Links) };
        assert_eq!(sums(&late), [("web0".into(), 89_880, 90_000, vec![])]);
        assert_eq!(records.usage(&UsageRequest::new(Flows))[0].link, "web0");
        let samples = records.samples("web0", &late).unwrap();
        assert_eq!(samples.iter().map(|it| (it.start, it.seconds)).collect::<Vec<_>>(), [(89_980, 20)]);
        assert_eq!(records.samples("http", &late), None, "a flow is no link");
    }

    #[test]
    fn a_record_has_the_items_that_are_tracked() {
        let it = Traffic { rbytes: 7, obytes: 9, ..Traffic::default() };
        let record = NetRecord::new(UsageOf::Flows, "http", "web0", 100, 20, it);
        let only = Tracked::item("obytes").unwrap();
        let line = record.line(only).unwrap();
        for has in
            ["\"net\":\"flow\"", "\"name\":\"http\"", "\"curtime\":100", "\"seconds\":20", "\"obytes\":9"]
        {
            assert!(line.contains(has), "{line}");
        }
        assert!(!["ibytes", "ipkts", "rfused", "devname"].iter().any(|item| line.contains(item)), "{line}");
        let all = record.line(Tracked::EXTENDED).unwrap();
        assert_eq!(NetRecords::read(&(all + "\n")), Ok(NetRecords(vec![record])));
        let read = NetRecords::read(&(line + "\n")).unwrap();
        assert_eq!((read.0[0].traffic().obytes, read.0[0].traffic().rbytes), (9, 0));
    }

    #[test]
    fn what_is_enabled_and_disabled_is_counted_from_what_was_tracked() {
        let mut accounting = Accounting::default();
        let item = |word| Tracked::item(word);
        AccountingChange { enable: item("ibytes"), ..AccountingChange::default() }.follow(&mut accounting);
        AccountingChange { enable: item("obytes"), ..AccountingChange::default() }.follow(&mut accounting);
        assert_eq!(accounting.net.words(), "name,curtime,seconds,ibytes,obytes");
        let both = AccountingChange {
            net: Some(Tracked::BASIC),
            disable: item("ofused"),
            ..AccountingChange::default()
        };
        both.follow(&mut accounting);
        assert_eq!(accounting.net.rest().items(), "devname,ofused");
    }

    #[test]
    fn a_file_that_is_none_is_refused_with_its_line() {
        assert_eq!(NetRecords::read(""), Ok(NetRecords::default()));
        assert_eq!(NetRecords::read("root:x:0:0\n"), Err(1));
        assert_eq!(NetRecords::read("no line ends"), Err(1));
        let good = text(&[(UsageOf::Links, "web0", "", 100)]);
        assert_eq!(NetRecords::read(&(good.clone() + "{}\n" + &good)), Err(2));
        for end in [CALENDAR_ENDS, u64::MAX, 19] {
            let of_no_time = text(&[(UsageOf::Links, "web0", "", end)]);
            assert_eq!(NetRecords::read(&(good.clone() + &of_no_time)), Err(2), "{end}");
        }
    }
}
