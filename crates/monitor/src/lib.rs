//! Monitoring: summary reports, as XML, JSON and flat text, and where they are sent.
//!
//! The crate has no counters of its own. The server fills a [`SummaryReport`] with the figures of its parts
//! when somebody asks, so counting costs the data path nothing here.
//!
//! | file | contents |
//! |---|---|
//! | `report` | [`SummaryReport`]: a report as a tree of sections, as XML and as JSON |
//! | `sections` | figures of the server as sections, with the names of the format |
//! | `received` | [`ReceivedReport`]: a report of any server, as flat or CGI text |
//! | `metrics` | [`MetricsText`]: metrics in the formats of Prometheus and OpenMetrics |
//! | `transfer_records` | [`TransferRecords`]: records about transfers and purges with mass storage |
//! | `streams` | detailed monitoring: [`MonitorStreams`], [`LoopStreams`], [`SessionStreams`] |
//! | `fireflies` | reports about flows with their experiment: [`FlowMarker`] |
//! | `gstreams` | streams of JSON records: [`GStreams`] |
//! | `sender` | [`ReportSender`]: sends reports to one destination |

#![forbid(unsafe_code)]

mod fireflies;
mod gstreams;
mod metrics;
mod received;
mod report;
mod sections;
mod sender;
mod streams;
mod transfer_records;

pub use fireflies::{FireflySender, FlowClient, FlowMarker, FlowUsage, MarkRules, MarkedFlow, RegistryError};
pub use gstreams::{
    CachedFileFigures, CopyFigures, GStreamWriter, GStreams, HttpStatusFigures, http_records,
};
pub use metrics::{MetricFamily, MetricKind, MetricValue, MetricsFormat, MetricsText};
pub use received::{InvalidReport, ReceivedReport};
pub use report::{
    NamedFigures, ReportSection, ReportValue, SummaryHeader, SummaryReport, number_group, numbers,
};
pub use sections::{
    BufferFigures, LinkFigures, LoginFigures, OperationFigures, PathSizes, PollFigures, ProcessFigures,
    ProtocolFigures, SchedulerFigures, SignatureFigures, SpaceSizes, StorageFigures, ThirdPartyFigures,
    VirtualFileFigures, buffers, info, links, polls, process, scheduler, storage, timing, virtual_files,
    xroot,
};
pub use sender::{REPORT_BYTES_MAX, ReportSender};
pub use streams::{
    AuthenticatedUser, LoopStreams, MonitorStreams, MonitoredUser, SessionStreams, StreamSender,
};
pub use transfer_records::{PurgeFigures, RecordSender, TransferFigures, TransferKind, TransferRecords};
