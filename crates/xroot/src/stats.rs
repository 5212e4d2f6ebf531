//! Counters of the door, and the text of `query stats`.
//!
//! Each loop counts for itself; whoever wants totals adds them up.

use base::DescriptorBudget;
use session::Destination;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What one loop has counted since the start.
        #[derive(Default)]
        pub(crate) struct LoopStats {
            $(pub(crate) $name: Counter,)*
        }

        /// What all loops have counted since the start.
        #[derive(Clone, Copy, Default, Debug)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            pub(crate) fn of(loops: &[Arc<LoopStats>]) -> Self {
                let mut totals = Self::default();
                for one in loops {
                    $(totals.$name += one.$name.get();)*
                }
                totals
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections ended.
    disconnections,
    /// Logins.
    logins,
    /// Requests of any kind.
    requests,
    /// Times that a connection's task looked at what there is to do.
    turns,
    /// kXR_open.
    opens,
    /// kXR_read and kXR_pgread.
    reads,
    /// Reads to come that were announced.
    pre_reads,
    /// kXR_readv.
    vector_reads,
    /// Elements of all kXR_readv.
    read_segments,
    /// kXR_write and kXR_pgwrite, also under a checkpoint.
    writes,
    /// kXR_writev.
    vector_writes,
    /// Elements of all kXR_writev, but for empty ones.
    write_segments,
    /// kXR_sync.
    syncs,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Large or cold reads: those not answered on the spot.
    transfers,
    /// Answers that came later than on the spot.
    late_answers,
    /// Panics that ended a connection.
    panics,
}

/// Counts on one thread, read by any.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only the loop's own thread adds, so a load and a store suffice.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl LoopStats {
    /// Data are about to come.
    pub(crate) fn receive(&self, into: &Destination) {
        match into {
            Destination::File { .. } | Destination::Pages { .. } => self.writes.add(1),
            Destination::Vector(extents) => {
                self.vector_writes.add(1);
                self.write_segments.add(extents.len() as u64);
            }
            Destination::Discard => {}
        }
    }
}

/// How many connections there are, and were at most.
#[derive(Default)]
pub(crate) struct Attendance {
    now: AtomicU64,
    most: AtomicU64,
    descriptors: Arc<DescriptorBudget>,
}

impl Attendance {
    /// Nobody yet; connections take their descriptors from this budget.
    pub(crate) fn new(descriptors: Arc<DescriptorBudget>) -> Self {
        Self { descriptors, ..Self::default() }
    }

    /// A connection has come; `None` if there is no descriptor for it.
    pub(crate) fn arrived(self: &Arc<Self>) -> Option<Attendee> {
        if !self.descriptors.connect() {
            return None;
        }
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Some(Attendee(self.clone()))
    }
}

/// Counts a connection, and keeps its descriptor, until it is dropped.
#[must_use = "the connection counts as closed when it is dropped"]
pub(crate) struct Attendee(Arc<Attendance>);

impl Drop for Attendee {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.descriptors.disconnect();
    }
}

/// How the server names itself in statistics.
#[derive(Clone, Debug, Default)]
pub struct Identification {
    /// Host name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Version text.
    pub version: String,
    /// Instance name; `anon` without one.
    pub instance: String,
    /// Site name; may be empty.
    pub site: String,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `text` as it stands in XML. Names come from an operator and can hold anything.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c => out.push(c),
        }
    }
    out
}

/// The XML of `query stats`: the parts whose letters are in `selection`, or all with `a`.
pub(crate) fn xml(
    who: &Identification,
    started: SystemTime,
    totals: &Totals,
    attendance: &Attendance,
    selection: &str,
) -> String {
    let wants = |letter: char| selection.contains(letter) || selection.contains('a');
    let mut text = String::new();
    let now = seconds(SystemTime::now());
    let (host, instance) = (escaped(&who.host), escaped(&who.instance));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "<statistics tod=\"{now}\" ver=\"{}\" src=\"{}:{}\" tos=\"{}\" pgm=\"xrootd\" ins=\"{}\" pid=\"{}\" site=\"{}\">",
        escaped(&who.version),
        host,
        who.port,
        seconds(started),
        instance,
        std::process::id(),
        escaped(&who.site)
    );
    if wants('i') {
        let _ = write!(
            text,
            "<stats id=\"info\"><host>{host}</host><port>{}</port><name>{instance}</name></stats>",
            who.port
        );
    }
    if wants('l') {
        let _ = write!(
            text,
            "<stats id=\"link\"><num>{}</num><maxn>{}</maxn><tot>{}</tot><in>{}</in><out>{}</out><ctime>0</ctime>\
             <tmo>0</tmo><stall>0</stall><sfps>0</sfps></stats>",
            attendance.now.load(Ordering::Relaxed),
            attendance.most.load(Ordering::Relaxed),
            totals.connections,
            totals.bytes_in,
            totals.bytes_out
        );
    }
    if wants('p') {
        operations(&mut text, totals);
    }
    text.push_str("</statistics>");
    text
}

/// The part on the protocol.
fn operations(text: &mut String, totals: &Totals) {
    let counted = totals.opens
        + totals.reads
        + totals.vector_reads
        + totals.writes
        + totals.vector_writes
        + totals.syncs;
    let _ = write!(
        text,
        "<stats id=\"xrootd\"><num>{}</num><ops><open>{}</open><rf>0</rf><rd>{}</rd><pr>{}</pr><rv>{}</rv><rs>{}</rs>\
         <wv>{}</wv><ws>{}</ws><wr>{}</wr><sync>{}</sync><getf>0</getf><putf>0</putf><misc>{}</misc></ops>\
         <lgn><num>{}</num><af>0</af><au>0</au><ua>{}</ua></lgn></stats>",
        totals.connections,
        totals.opens,
        totals.reads,
        totals.pre_reads,
        totals.vector_reads,
        totals.read_segments,
        totals.vector_writes,
        totals.write_segments,
        totals.writes,
        totals.syncs,
        totals.requests.saturating_sub(counted),
        totals.logins,
        totals.logins
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_told() {
        let who = Identification { host: "h".into(), port: 1, ..Identification::default() };
        let text =
            |selection: &str| xml(&who, UNIX_EPOCH, &Totals::default(), &Attendance::default(), selection);
        assert!(text("i").contains("id=\"info\"") && !text("i").contains("id=\"link\""));
        assert!(text("a").contains("id=\"info\"") && text("a").contains("id=\"link\""));
        assert!(text("z").starts_with("<statistics ") && text("z").ends_with("</statistics>"));
    }

    #[test]
    fn names_cannot_break_the_text() {
        let who =
            Identification { instance: "a<b".into(), site: "\"&'>".into(), ..Identification::default() };
        let text = xml(&who, UNIX_EPOCH, &Totals::default(), &Attendance::default(), "i");
        assert!(text.contains("ins=\"a&lt;b\"") && text.contains("<name>a&lt;b</name>"), "{text}");
        assert!(text.contains("site=\"&quot;&amp;&apos;&gt;\">"), "{text}");
    }
}
