//! [`SummaryReporter`]: the thread that sends reports to collectors.

use super::{ReportedServer, ServerSummary};
use base::Supervisor;
use config::{Effective, MonitoringConfig, SummaryReports};
use monitor::ReportSender;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vfs::FileSystem;
use xroot::{StatisticsText, XrootDoor};

/// Sends reports until it is dropped.
pub(crate) struct SummaryReporter {
    summary: Arc<ServerSummary>,
    orders: Sender<Option<SummaryReports>>,
}

impl SummaryReporter {
    /// Creates the front end of a server, with statistics about that server, and starts its reports.
    ///
    /// # Errors
    /// The error of the system, if there are no threads.
    pub(crate) fn open_door(
        (mut door, files): (xroot::Config, Arc<dyn FileSystem>),
        effective: &Effective,
        about: ReportedServer,
        supervisor: &Supervisor,
    ) -> io::Result<(Arc<XrootDoor>, Self)> {
        let summary = ServerSummary::start(effective, about, supervisor)?;
        let text = summary.clone();
        door.statistics = Some(StatisticsText(Arc::new(move |front, letters| text.text(front, letters))));
        let door = Arc::new(XrootDoor::new(door, files));
        let reporter = Self::start(&effective.monitoring, summary, &door, supervisor)?;
        Ok((door, reporter))
    }

    /// Starts the thread, which sends nothing unless the settings name a collector.
    ///
    /// # Errors
    /// The error of the system, if there are no threads.
    fn start(
        settings: &MonitoringConfig,
        summary: Arc<ServerSummary>,
        door: &Arc<XrootDoor>,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let (orders, received) = channel();
        let door = Arc::downgrade(door);
        let reports = settings.reports.value.clone();
        let of_thread = summary.clone();
        let run = move || ReporterThread { summary: of_thread, door, received }.run(reports);
        supervisor.spawn("reports", "the reports to collectors", run)?;
        Ok(Self { summary, orders })
    }

    /// Returns the sources of the reports.
    pub(crate) fn summary(&self) -> &Arc<ServerSummary> {
        &self.summary
    }

    /// Applies other settings.
    pub(crate) fn set(&self, settings: &MonitoringConfig) {
        // The thread ends only with this object.
        let _ = self.orders.send(settings.reports.value.clone());
    }
}

struct ReporterThread {
    summary: Arc<ServerSummary>,
    door: Weak<XrootDoor>,
    received: Receiver<Option<SummaryReports>>,
}

impl ReporterThread {
    fn run(&self, mut reports: Option<SummaryReports>) {
        loop {
            let next = match reports {
                Some(reports) => self.report(&reports),
                None => self.received.recv().ok(),
            };
            let Some(next) = next else { return };
            reports = next;
        }
    }

    /// Sends reports until there are other settings, which are returned. `None` if the server ends.
    fn report(&self, reports: &SummaryReports) -> Option<Option<SummaryReports>> {
        let mut senders: Vec<_> = reports.destinations.iter().cloned().map(ReportSender::new).collect();
        let mut due = Instant::now() + reports.interval;
        loop {
            match wait(&self.received, reports, due) {
                WaitEnd::Changed(next) => return Some(next),
                WaitEnd::Over => return None,
                WaitEnd::Due => self.send(reports, &mut senders),
            }
            due = next_time(due, reports.interval, Instant::now());
        }
    }

    fn send(&self, reports: &SummaryReports, senders: &mut [ReportSender]) {
        let Some(door) = self.door.upgrade() else { return };
        let figures = door.figures();
        let mut texts = Vec::new();
        if !reports.xml.is_empty() {
            texts.push(self.summary.report(&figures, reports.xml).xml());
        }
        if !reports.json.is_empty() {
            texts.push(self.summary.report(&figures, reports.json).json());
        }
        for sender in senders {
            texts.iter().for_each(|text| sender.send(text.as_bytes()));
        }
    }
}

/// The reason why a wait for the next report has ended.
#[derive(PartialEq, Eq, Debug)]
enum WaitEnd {
    /// It is time for the report.
    Due,
    /// There are other settings.
    Changed(Option<SummaryReports>),
    /// The server ends.
    Over,
}

/// Waits until a report is due. Each reload sends the settings. If it has not changed them, the time stays:
/// otherwise a server whose configuration is read again more often than reports are due would send none.
fn wait(received: &Receiver<Option<SummaryReports>>, reports: &SummaryReports, due: Instant) -> WaitEnd {
    loop {
        match received.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Some(same)) if same == *reports => {}
            Ok(next) => return WaitEnd::Changed(next),
            Err(RecvTimeoutError::Disconnected) => return WaitEnd::Over,
            Err(RecvTimeoutError::Timeout) => return WaitEnd::Due,
        }
    }
}

/// Returns the time of the next report. Reports that a slow name server has delayed are not made up for.
fn next_time(due: Instant, interval: Duration, now: Instant) -> Instant {
    let next = due + interval;
    if next > now { next } else { now + interval }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ReportDestination, ReportParts};

    fn settings(port: u16) -> SummaryReports {
        SummaryReports {
            destinations: vec![ReportDestination::Host { host: "h".to_owned(), port }],
            interval: Duration::from_secs(600),
            xml: ReportParts::all(),
            json: ReportParts::NONE,
        }
    }

    #[test]
    fn a_reload_without_a_change_does_not_put_off_the_next_report() {
        let (orders, received) = channel();
        let (now, reports) = (Instant::now(), settings(1));
        let reload = |settings| orders.send(settings).unwrap();
        reload(Some(settings(1)));
        reload(Some(settings(1)));
        assert_eq!(wait(&received, &reports, now), WaitEnd::Due);
        reload(Some(settings(1)));
        reload(Some(settings(2)));
        let later = now + reports.interval;
        assert_eq!(wait(&received, &reports, later), WaitEnd::Changed(Some(settings(2))));
        reload(None);
        assert_eq!(wait(&received, &reports, later), WaitEnd::Changed(None));
        drop(orders);
        assert_eq!(wait(&received, &reports, later), WaitEnd::Over);
    }

    #[test]
    fn reports_keep_their_interval_and_skip_late_ones() {
        let (start, interval) = (Instant::now(), Duration::from_secs(10));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(next_time(at(10), interval, at(11)), at(20));
        assert_eq!(next_time(at(10), interval, at(20)), at(30));
        assert_eq!(next_time(at(10), interval, at(95)), at(105));
    }
}
