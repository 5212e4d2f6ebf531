//! Figures of the server as sections of a report, with the names of the format.
//!
//! Elements that count work of XRootD's threads which this server does not have are 0: reads that
//! waited for a thread (`tmo`, `rej`, and `max` of `aio`), partial calls of sendfile (`sfps`), background queues
//! (`bxq`).

use crate::report::{NamedFigures, ReportSection, ReportValue, number_group, numbers};
use std::time::{Duration, SystemTime};

/// Returns the section `info`: who the server is.
pub fn info(host: &str, port: u16, instance: &str) -> ReportSection {
    let figures = vec![
        ("host".into(), ReportValue::Text(host.to_owned())),
        ("port".into(), ReportValue::Number(port.into())),
        ("name".into(), ReportValue::Text(instance.to_owned())),
    ];
    ReportSection::new("info", figures)
}

/// Memory of requests in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferFigures {
    /// Buffers taken since the start.
    pub requests: u64,
    /// Bytes that requests hold now.
    pub bytes: u64,
    /// Sessions that hold memory now.
    pub holders: u64,
}

/// Returns the section `buff`.
pub fn buffers(found: &BufferFigures) -> ReportSection {
    let BufferFigures { requests, bytes, holders } = *found;
    let figures = numbers([
        ("reqs", requests),
        ("mem", bytes),
        ("buffs", holders),
        ("adj", 0),
        ("xlreqs", 0),
        ("xlmem", 0),
        ("xlbuffs", 0),
    ]);
    ReportSection::new("buff", figures)
}

/// Connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkFigures {
    /// Connections now.
    pub now: u64,
    /// Maximum number of connections at one time.
    pub most: u64,
    /// Connections since the start.
    pub total: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Seconds that all connections which have ended were open.
    pub seconds: u64,
}

/// Returns the section `link`.
pub fn links(found: &LinkFigures) -> ReportSection {
    let LinkFigures { now, most, total, bytes_in, bytes_out, seconds } = *found;
    let figures = numbers([
        ("num", now),
        ("maxn", most),
        ("tot", total),
        ("in", bytes_in),
        ("out", bytes_out),
        ("ctime", seconds),
        ("tmo", 0),
        ("stall", 0),
        ("sfps", 0),
    ]);
    ReportSection::new("link", figures)
}

/// Work of the event loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollFigures {
    /// Connections that are polled now.
    pub attached: u64,
    /// Times a connection was resumed.
    pub events: u64,
}

/// Returns the section `poll`.
pub fn polls(found: PollFigures) -> ReportSection {
    let PollFigures { attached, events } = found;
    ReportSection::new("poll", numbers([("att", attached), ("en", events), ("ev", events), ("int", 0)]))
}

/// Processor time of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessFigures {
    /// In its own code.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// Returns the section `proc`.
pub fn process(found: ProcessFigures) -> ReportSection {
    let part = |time: Duration| number_group([("s", time.as_secs()), ("u", time.subsec_micros().into())]);
    let ProcessFigures { user, system } = found;
    ReportSection::new("proc", vec![("usr".into(), part(user)), ("sys".into(), part(system))])
}

/// Requests of clients since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationFigures {
    /// Opens.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Ranges announced for later reads.
    pub pre_reads: u64,
    /// Vector reads.
    pub vector_reads: u64,
    /// Elements of vector reads.
    pub read_segments: u64,
    /// Vector writes.
    pub vector_writes: u64,
    /// Elements of vector writes.
    pub write_segments: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Other requests.
    pub others: u64,
}

/// Signatures of requests since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SignatureFigures {
    /// Correct ones.
    pub verified: u64,
    /// Wrong or missing ones.
    pub failed: u64,
    /// Those that were not needed.
    pub ignored: u64,
}

/// Logins since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoginFigures {
    /// Logins.
    pub logins: u64,
    /// Refused attempts to authenticate.
    pub refused: u64,
    /// Logins with authentication.
    pub authenticated: u64,
}

/// Figures of the xroot protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtocolFigures {
    /// Sessions since the start.
    pub sessions: u64,
    /// Requests.
    pub operations: OperationFigures,
    /// Signatures.
    pub signatures: SignatureFigures,
    /// Large and cold reads, which are not answered in place.
    pub transfers: u64,
    /// Replies with errors.
    pub errors: u64,
    /// Replies with redirects.
    pub redirects: u64,
    /// Replies that ask to wait.
    pub delays: u64,
    /// Logins.
    pub logins: LoginFigures,
}

/// Returns the section `xrootd`.
pub fn xroot(found: &ProtocolFigures) -> ReportSection {
    let ProtocolFigures { operations: ops, signatures, transfers, logins, .. } = found;
    let ops = number_group([
        ("open", ops.opens),
        ("rf", 0),
        ("rd", ops.reads),
        ("pr", ops.pre_reads),
        ("rv", ops.vector_reads),
        ("rs", ops.read_segments),
        ("wv", ops.vector_writes),
        ("ws", ops.write_segments),
        ("wr", ops.writes),
        ("sync", ops.syncs),
        ("getf", 0),
        ("putf", 0),
        ("misc", ops.others),
    ]);
    let logins = number_group([
        ("num", logins.logins),
        ("af", logins.refused),
        ("au", logins.authenticated),
        ("ua", logins.logins.saturating_sub(logins.authenticated)),
    ]);
    let SignatureFigures { verified, failed, ignored } = *signatures;
    let figures = vec![
        ("num".into(), found.sessions.into()),
        ("ops".into(), ops),
        ("sig".into(), number_group([("ok", verified), ("bad", failed), ("ign", ignored)])),
        ("aio".into(), number_group([("num", *transfers), ("max", 0), ("rej", 0)])),
        ("err".into(), found.errors.into()),
        ("rdr".into(), found.redirects.into()),
        ("dly".into(), found.delays.into()),
        ("lgn".into(), logins),
    ];
    ReportSection::new("xrootd", figures)
}

/// Third-party copies from and to this server since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThirdPartyFigures {
    /// Destinations that got a file by a grant.
    pub granted: u64,
    /// Refused copies.
    pub denied: u64,
    /// Failed copies.
    pub failed: u64,
    /// Grants that were not used in time, and destinations that waited in vain for one.
    pub expired: u64,
}

/// Figures of the logical file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VirtualFileFigures {
    /// The role in a cluster, in words.
    pub role: String,
    /// Files that are open for reading now.
    pub for_reading: u64,
    /// Files that are open for writing now.
    pub for_writing: u64,
    /// Files among them that persist only on a close.
    pub pending: u64,
    /// Files that did not persist since the start.
    pub undone: u64,
    /// Replies with redirects.
    pub redirects: u64,
    /// Notices that a reply comes late.
    pub late_replies: u64,
    /// Late replies that were a success.
    pub late_successes: u64,
    /// Late replies that were an error.
    pub late_errors: u64,
    /// Replies with errors.
    pub errors: u64,
    /// Replies that ask to wait.
    pub delays: u64,
    /// Third-party copies.
    pub third_party: ThirdPartyFigures,
}

/// Returns the section `ofs`.
pub fn virtual_files(found: &VirtualFileFigures) -> ReportSection {
    let ThirdPartyFigures { granted, denied, failed, expired } = found.third_party;
    let mut figures = vec![("role".into(), ReportValue::Text(found.role.clone()))];
    figures.extend(numbers([
        ("opr", found.for_reading),
        ("opw", found.for_writing),
        ("opp", found.pending),
        ("ups", found.undone),
        ("han", found.for_reading + found.for_writing),
        ("rdr", found.redirects),
        ("bxq", 0),
        ("rep", found.late_replies),
        ("err", found.errors),
        ("dly", found.delays),
        ("sok", found.late_successes),
        ("ser", found.late_errors),
    ]));
    let copies = number_group([("grnt", granted), ("deny", denied), ("err", failed), ("exp", expired)]);
    figures.push(("tpc".into(), copies));
    ReportSection::new("ofs", figures)
}

/// An exported path and the file system below it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathSizes {
    /// The path as clients name it.
    pub logical: String,
    /// The directory.
    pub physical: String,
    /// The sizes are known. Else they are 0.
    pub is_known: bool,
    /// Size of the file system, in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// A space of the storage.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpaceSizes {
    /// Its name.
    pub name: String,
    /// Size of its partitions, in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes of the partition that has most of them.
    pub largest_free: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Bytes used.
    pub used: u64,
    /// The quota in bytes, if there is one.
    pub quota: Option<u64>,
}

/// Figures of the storage.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageFigures {
    /// The exported paths.
    pub paths: Vec<PathSizes>,
    /// The spaces.
    pub spaces: Vec<SpaceSizes>,
    /// The end of the look at them.
    pub looked: Option<SystemTime>,
}

/// Bytes of the unit of sizes in the section `oss`.
const STORAGE_UNIT: u64 = 1024;

/// Returns the section `oss`.
pub fn storage(found: &StorageFigures) -> ReportSection {
    let path = |path: &PathSizes| -> NamedFigures {
        let mut figures = vec![
            ("lp".into(), ReportValue::Quoted(path.logical.clone())),
            ("rp".into(), ReportValue::Quoted(path.physical.clone())),
        ];
        figures.extend(numbers([
            ("tot", path.total / STORAGE_UNIT),
            ("free", path.free / STORAGE_UNIT),
            ("ino", path.inodes),
            ("ifr", path.inodes_free),
        ]));
        figures
    };
    let space = |space: &SpaceSizes| -> NamedFigures {
        let mut figures = vec![("name".into(), ReportValue::Text(space.name.clone()))];
        figures.extend(numbers([
            ("tot", space.total / STORAGE_UNIT),
            ("free", space.free / STORAGE_UNIT),
            ("maxf", space.largest_free / STORAGE_UNIT),
            ("fsn", space.partitions),
            ("usg", space.used / STORAGE_UNIT),
        ]));
        figures.extend(space.quota.map(|quota| ("qta".into(), ReportValue::Number(quota / STORAGE_UNIT))));
        figures
    };
    let figures = vec![
        ("paths".into(), ReportValue::List(found.paths.iter().map(path).collect())),
        ("space".into(), ReportValue::List(found.spaces.iter().map(space).collect())),
    ];
    ReportSection { attribute: Some(("v", "2")), ..ReportSection::new("oss", figures) }
}

/// Threads for work that can block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SchedulerFigures {
    /// Jobs since the start.
    pub jobs: u64,
    /// Jobs that wait now.
    pub waiting: u64,
    /// Maximum number of jobs that waited at one time.
    pub waiting_most: u64,
    /// Threads of the process.
    pub threads: u64,
    /// Threads that wait for jobs.
    pub idle: u64,
}

/// Returns the section `sched`.
pub fn scheduler(found: &SchedulerFigures) -> ReportSection {
    let SchedulerFigures { jobs, waiting, waiting_most, threads, idle } = *found;
    let figures = numbers([
        ("jobs", jobs),
        ("inq", waiting),
        ("maxinq", waiting_most),
        ("threads", threads),
        ("idle", idle),
        ("tcr", threads),
        ("tde", 0),
        ("tlimr", 0),
    ]);
    ReportSection::new("sched", figures)
}

/// Returns the section `sgen`: how the report was made. Counters of other threads are read without stopping them.
pub fn timing(elapsed: Duration, ended: u64) -> ReportSection {
    let elapsed = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    ReportSection::new("sgen", numbers([("as", 1), ("et", elapsed), ("toe", ended)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SummaryReport;

    /// Returns the names of elements in a report, in order, each with those around it.
    fn names(xml: &str) -> Vec<String> {
        let mut reader = quick_xml::Reader::from_str(xml);
        let (mut around, mut found) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().unwrap() {
                quick_xml::events::Event::Start(tag) => {
                    let id = tag.try_get_attribute("id").unwrap().map(|id| id.value.into_owned());
                    around.push(id.unwrap_or_else(|| tag.name().as_ref().to_owned()));
                    found.push(around.join("."));
                }
                quick_xml::events::Event::End(_) => drop(around.pop()),
                quick_xml::events::Event::Eof => return found,
                _ => {}
            }
        }
    }

    /// The report of XRootD 5.5.3 about a data server with one export and one space, with `info`.
    const RECORDED: &str = include_str!("recorded_summary.xml");

    #[test]
    fn all_elements_are_there_in_order() {
        let spaces = vec![SpaceSizes { name: "aux".to_owned(), ..SpaceSizes::default() }];
        let found = StorageFigures { paths: vec![PathSizes::default()], spaces, looked: None };
        let sections = vec![
            info("vm", 1094, "srv1"),
            buffers(&BufferFigures::default()),
            links(&LinkFigures::default()),
            polls(PollFigures::default()),
            process(ProcessFigures::default()),
            xroot(&ProtocolFigures::default()),
            virtual_files(&VirtualFileFigures::default()),
            storage(&found),
            scheduler(&SchedulerFigures::default()),
            timing(Duration::ZERO, 0),
        ];
        let report = SummaryReport { sections, ..SummaryReport::default() };
        assert_eq!(names(&report.xml()), names(RECORDED));
    }

    #[test]
    fn figures_have_the_units_of_the_format() {
        let time =
            ProcessFigures { user: Duration::from_micros(2_000_003), system: Duration::from_nanos(999) };
        let spaces = vec![SpaceSizes {
            name: "tape".to_owned(),
            total: 4096,
            free: 2047,
            quota: Some(10_240),
            ..SpaceSizes::default()
        }];
        let sections =
            vec![process(time), storage(&StorageFigures { paths: Vec::new(), spaces, looked: None })];
        let xml = SummaryReport { sections, ..SummaryReport::default() }.xml();
        assert!(xml.contains("<usr><s>2</s><u>3</u></usr><sys><s>0</s><u>0</u></sys>"), "{xml}");
        assert!(xml.contains("<name>tape</name><tot>4</tot><free>1</free>"), "{xml}");
        assert!(xml.contains("<usg>0</usg><qta>10</qta>"), "{xml}");
    }

    #[test]
    fn logins_are_counted_by_authentication() {
        let logins = LoginFigures { logins: 5, refused: 7, authenticated: 3 };
        let sections = vec![xroot(&ProtocolFigures { logins, ..ProtocolFigures::default() })];
        let xml = SummaryReport { sections, ..SummaryReport::default() }.xml();
        assert!(xml.contains("<lgn><num>5</num><af>7</af><au>3</au><ua>2</ua></lgn>"), "{xml}");
    }
}
