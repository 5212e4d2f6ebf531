//! [`ServerSummary`]: summary reports about this server, for `query stats` and for collectors.
//!
//! | file | content |
//! |---|---|
//! | `cache_section` | the cache of a proxy, on disk or in memory |
//! | `http_section` | requests over HTTP |
//! | `metrics` | the text of `/metrics` |
//! | `storage_survey` | the sizes of file systems and spaces, asked for by a thread of its own |
//! | `reporter` | the thread that sends reports to collectors |

mod cache_section;
mod http_section;
pub(crate) mod metrics;
mod reporter;
mod storage_survey;

pub(crate) use reporter::SummaryReporter;

use crate::VERSION;
use crate::expiry::ListCertificates;
use crate::http_service::HttpService;
use base::Supervisor;
use config::{Effective, NodeRole, ReportPart, ReportParts};
use http::{HttpCounters, HttpFigures};
use logical::{Logical, LogicalTotals, ThirdPartyCounts};
use monitor::{
    BufferFigures, LinkFigures, PollFigures, ProcessFigures, ReportSection, ReportValue, SchedulerFigures,
    SummaryHeader, SummaryReport, ThirdPartyFigures, VirtualFileFigures,
};
use proxy::ProxyFiles;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage_survey::StorageSurvey;
use xroot::FrontEndFigures;

/// The name of the program in reports, by which collectors know what the figures mean.
const PROGRAM: &str = "xrootd";

/// The parts of a server that a report is about.
pub(crate) struct ReportedServer {
    port: u16,
    role: Option<NodeRole>,
    logical: Option<Arc<Logical>>,
    proxy: Option<Arc<ProxyFiles>>,
    certificates: Option<ListCertificates>,
    http: Option<Arc<HttpCounters>>,
}

impl ReportedServer {
    /// Returns the parts of a server with this port and role in a cluster. `logical` are the files that are
    /// served, which a redirector and a proxy do not have; `proxy` are the files of origins; `http` is HTTP,
    /// if it is served.
    pub(crate) fn new(
        (port, role): (u16, Option<NodeRole>),
        logical: &Option<Arc<Logical>>,
        proxy: &Option<Arc<ProxyFiles>>,
        certificates: Option<ListCertificates>,
        http: &Option<HttpService>,
    ) -> Self {
        let http = http.as_ref().map(|http| http.counters().clone());
        Self { port, role, logical: logical.clone(), proxy: proxy.clone(), certificates, http }
    }
}

/// What reports are made from.
pub(crate) struct ServerSummary {
    host: String,
    port: u16,
    instance: String,
    site: String,
    role: NodeRole,
    started: SystemTime,
    /// The files that are served; `None` for a redirector and a proxy.
    logical: Option<Arc<Logical>>,
    proxy: Option<Arc<ProxyFiles>>,
    storage: Option<Arc<StorageSurvey>>,
    certificates: Option<ListCertificates>,
    http: Option<Arc<HttpCounters>>,
}

impl ServerSummary {
    /// Creates the summary of a server that starts now, and starts the look at its storage.
    ///
    /// # Errors
    /// The error of the system, if there are no threads.
    pub(crate) fn start(
        effective: &Effective,
        about: ReportedServer,
        supervisor: &Supervisor,
    ) -> io::Result<Arc<Self>> {
        let ReportedServer { port, role, logical, proxy, certificates, http } = about;
        let survey =
            |logical: &Arc<Logical>| StorageSurvey::start(effective, logical.backend().clone(), supervisor);
        let storage = logical.as_ref().map(survey).transpose()?;
        Ok(Arc::new(Self {
            host: effective.host.clone(),
            port,
            instance: effective.instance.as_deref().unwrap_or(config::ANONYMOUS).to_owned(),
            site: effective.process.site_name.value.clone().unwrap_or_default(),
            role: role.unwrap_or_default(),
            started: SystemTime::now(),
            logical,
            proxy,
            storage,
            certificates,
            http,
        }))
    }

    /// Returns the text of `query stats` for letters of parts; empty if they select none.
    fn text(&self, front: &FrontEndFigures, letters: &str) -> String {
        let parts = parts_of(letters);
        if parts.is_empty() { String::new() } else { self.report(front, parts).xml() }
    }

    /// Returns a report with these parts. It never waits for a disk.
    pub(crate) fn report(&self, front: &FrontEndFigures, parts: ReportParts) -> SummaryReport {
        let begun = Instant::now();
        let now = SystemTime::now();
        let mut sections = Vec::new();
        let mut add = |part, section: &dyn Fn() -> ReportSection| {
            if parts.has(part) {
                sections.push(section());
            }
        };
        add(ReportPart::Info, &|| monitor::info(&self.host, self.port, &self.instance));
        add(ReportPart::Buffers, &|| monitor::buffers(&buffers(front)));
        add(ReportPart::Links, &|| monitor::links(&self.links(front)));
        add(ReportPart::Polls, &|| {
            monitor::polls(PollFigures { attached: front.connections, events: front.totals.turns })
        });
        add(ReportPart::Process, &|| monitor::process(processor_time()));
        add(ReportPart::Protocols, &|| monitor::xroot(&front.protocol()));
        if parts.has(ReportPart::Protocols) {
            sections.extend(self.logical.as_deref().map(|logical| self.virtual_files(front, logical)));
            sections.extend(self.storage.as_ref().map(|storage| monitor::storage(&storage.found())));
            sections.extend(self.certificates.as_ref().and_then(|list| lifetimes(list, now)));
        }
        if parts.has(ReportPart::AddOns) {
            let cache = self.proxy.as_ref().and_then(|proxy| proxy.cache_orders());
            sections.extend(cache.map(|cache| cache_section::cache_section(&cache.status().1)));
            let memory = self.proxy.as_ref().and_then(|proxy| proxy.memory_cache_status());
            sections.extend(memory.map(|status| cache_section::memory_cache_section(&status)));
        }
        if parts.has(ReportPart::Scheduler) {
            sections.push(monitor::scheduler(&self.scheduler(front)));
        }
        if parts.has(ReportPart::Timing) {
            sections.push(monitor::timing(begun.elapsed(), seconds(now)));
        }
        if parts.has(ReportPart::Plugins) {
            sections.extend(self.http_figures().map(|http| http_section::http_section(&http)));
        }
        SummaryReport { header: self.header(now), sections }
    }

    /// Returns the figures of HTTP, if it is served.
    fn http_figures(&self) -> Option<HttpFigures> {
        self.http.as_ref().map(|http| http.figures())
    }

    /// Returns the figures of the connections of all protocols. The maximum is the sum of the maxima.
    fn links(&self, front: &FrontEndFigures) -> LinkFigures {
        let mut links = front.links();
        if let Some(http) = self.http_figures() {
            links.now += http.connections;
            links.most += http.connections_most;
            links.total += http.arrived;
            links.bytes_in += http.bytes_in;
            links.bytes_out += http.bytes_out;
            links.seconds += http.connected.as_secs();
        }
        links
    }

    fn header(&self, now: SystemTime) -> SummaryHeader {
        SummaryHeader {
            time: seconds(now),
            version: VERSION.to_owned(),
            source: format!("{}:{}", self.host, self.port),
            started: seconds(self.started),
            program: PROGRAM,
            instance: self.instance.clone(),
            process: std::process::id(),
            site: self.site.clone(),
        }
    }

    fn virtual_files(&self, front: &FrontEndFigures, logical: &Logical) -> ReportSection {
        let status = logical.status();
        let LogicalTotals { undone_files, third_party } = logical.totals();
        let ThirdPartyCounts { granted, denied, failed, expired } = third_party;
        let totals = &front.totals;
        monitor::virtual_files(&VirtualFileFigures {
            role: self.role.name().to_owned(),
            for_reading: status.open_files.saturating_sub(status.writers) as u64,
            for_writing: status.writers as u64,
            pending: status.pending_files as u64,
            undone: undone_files,
            redirects: totals.redirects,
            late_replies: totals.announced_answers,
            late_successes: totals.late_successes,
            late_errors: totals.late_errors,
            errors: totals.errors,
            delays: totals.waits,
            third_party: ThirdPartyFigures { granted, denied, failed, expired },
        })
    }

    /// Returns the figures of the pools of all file systems.
    fn scheduler(&self, front: &FrontEndFigures) -> SchedulerFigures {
        let mut found = SchedulerFigures { jobs: front.totals.turns, ..SchedulerFigures::default() };
        for pool in self.storage.iter().flat_map(|storage| storage.pools()) {
            let pool = pool.figures();
            found.jobs += pool.begun;
            found.waiting += pool.waiting as u64;
            found.waiting_most += pool.waiting_most as u64;
            found.threads += pool.threads as u64;
            found.idle += pool.idle as u64;
        }
        found
    }
}

/// Returns the parts that letters of `query stats` select. Unknown letters select nothing.
fn parts_of(letters: &str) -> ReportParts {
    letters.chars().fold(ReportParts::NONE, |parts, letter| match letter {
        'a' => ReportParts::all(),
        'b' => parts.with(ReportPart::Buffers),
        'd' => parts.with(ReportPart::Polls),
        'i' => parts.with(ReportPart::Info),
        'l' => parts.with(ReportPart::Links),
        'p' => parts.with(ReportPart::Protocols).with(ReportPart::AddOns).with(ReportPart::Plugins),
        's' => parts.with(ReportPart::Scheduler),
        'u' => parts.with(ReportPart::Process),
        _ => parts,
    })
}

fn buffers(front: &FrontEndFigures) -> BufferFigures {
    BufferFigures {
        requests: front.totals.requests,
        bytes: front.memory_claimed as u64,
        holders: front.sessions as u64,
    }
}

/// Returns the processor time of this process; none if the system does not report it.
fn processor_time() -> ProcessFigures {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeVal;
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return ProcessFigures::default() };
    let duration = |time: TimeVal| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or_default())
    };
    ProcessFigures { user: duration(usage.user_time()), system: duration(usage.system_time()) }
}

/// Returns the section about certificates of the server: the seconds for which each is still valid. It has no
/// files, because every client may query statistics. `None` if there are no certificates.
fn lifetimes(ListCertificates(list): &ListCertificates, now: SystemTime) -> Option<ReportSection> {
    let certificates = list();
    if certificates.is_empty() {
        return None;
    }
    let mut figures = vec![("num".into(), ReportValue::Number(certificates.len() as u64))];
    for certificate in certificates {
        let left = seconds(certificate.expires).saturating_sub(seconds(now));
        let left = ReportValue::Group(vec![("left".into(), ReportValue::Number(left))]);
        figures.push((certificate.protocol.into(), left));
    }
    Some(ReportSection::new("certs", figures))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::CertificateExpiry;

    #[test]
    fn letters_select_parts() {
        let of = |parts: &[ReportPart]| parts.iter().fold(ReportParts::NONE, |all, part| all.with(*part));
        assert_eq!(parts_of("bd"), of(&[ReportPart::Buffers, ReportPart::Polls]));
        assert_eq!(
            parts_of("ilsu"),
            of(&[ReportPart::Info, ReportPart::Links, ReportPart::Scheduler, ReportPart::Process])
        );
        assert!(parts_of("p").has(ReportPart::Protocols) && !parts_of("p").has(ReportPart::Timing));
        assert_eq!(parts_of("la"), ReportParts::all());
        assert!(parts_of("zxq").is_empty() && parts_of("").is_empty());
    }

    #[test]
    fn certificates_have_the_seconds_that_are_left() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let of = |protocol: &str, seconds| CertificateExpiry {
            protocol: protocol.to_owned(),
            expires: UNIX_EPOCH + Duration::from_secs(seconds),
        };
        let list = ListCertificates(Box::new(move || vec![of("tls", 1000 + 86_400), of("gsi", 10)]));
        let section = lifetimes(&list, now).unwrap();
        let xml = SummaryReport { sections: vec![section], ..SummaryReport::default() }.xml();
        let expected =
            "<stats id=\"certs\"><num>2</num><tls><left>86400</left></tls><gsi><left>0</left></gsi></stats>";
        assert!(xml.contains(expected), "{xml}");
        assert_eq!(lifetimes(&ListCertificates(Box::new(Vec::new)), now), None);
    }

    #[test]
    fn the_processor_time_grows() {
        let before = processor_time();
        let begun = Instant::now();
        while processor_time() == before && begun.elapsed() < Duration::from_secs(20) {
            std::hint::black_box((0..1_000_000).sum::<u64>());
        }
        let after = processor_time();
        assert!(after.user + after.system > before.user + before.system);
    }
}
