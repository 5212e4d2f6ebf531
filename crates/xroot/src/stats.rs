//! Counters of the front end, and the text of `query stats`.
//!
//! Each loop has its own counters, because shared ones would contend. The totals are summed on
//! request.

use base::DescriptorBudget;
use session::Destination;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one loop since the start.
        #[derive(Default)]
        pub(crate) struct LoopStats {
            $(pub(crate) $name: Counter,)*
        }

        /// Counters of all loops since the start.
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
    /// Connections closed.
    disconnections,
    /// Logins.
    logins,
    /// Logins of clients that have authenticated.
    authenticated,
    /// Refused attempts to authenticate.
    refused_logins,
    /// TLS handshakes that failed.
    failed_handshakes,
    /// Requests of any kind.
    requests,
    /// Polls of connection tasks.
    turns,
    /// kXR_open.
    opens,
    /// kXR_read and kXR_pgread.
    reads,
    /// Ranges announced for later reads.
    pre_reads,
    /// kXR_readv.
    vector_reads,
    /// Elements of all kXR_readv.
    read_segments,
    /// kXR_write and kXR_pgwrite, also under a checkpoint.
    writes,
    /// kXR_writev.
    vector_writes,
    /// Elements of all kXR_writev, except empty ones.
    write_segments,
    /// kXR_sync.
    syncs,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Large or cold reads, which are not answered in place.
    transfers,
    /// Answers that arrived after their request returned as pending.
    late_answers,
    /// Panics that ended a connection.
    panics,
}

/// A counter that one thread increments and any thread reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the loop's own thread adds, so a load and a store suffice.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl LoopStats {
    /// Counts announced data.
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

/// Current and maximum number of connections.
#[derive(Default)]
pub(crate) struct ConnectionCounts {
    now: AtomicU64,
    most: AtomicU64,
    descriptors: Arc<DescriptorBudget>,
}

impl ConnectionCounts {
    /// Returns a count of zero. Connections take their descriptors from this budget.
    pub(crate) fn new(descriptors: Arc<DescriptorBudget>) -> Self {
        Self { descriptors, ..Self::default() }
    }

    /// Counts a new connection. Returns `None` if the descriptors are exhausted.
    pub(crate) fn arrived(self: &Arc<Self>) -> Option<CountedConnection> {
        if !self.descriptors.connect() {
            return None;
        }
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Some(CountedConnection(self.clone()))
    }
}

/// Counts a connection and holds its descriptor until it is dropped.
#[must_use = "the connection counts as closed when it is dropped"]
pub(crate) struct CountedConnection(Arc<ConnectionCounts>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.descriptors.disconnect();
    }
}

/// Identification of the server in statistics.
#[derive(Clone, Debug, Default)]
pub struct Identification {
    /// Host name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Version text.
    pub version: String,
    /// Instance name; `anon` if none is configured.
    pub instance: String,
    /// Site name; may be empty.
    pub site: String,
}

/// Files that are open, counting each handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFiles {
    /// For reading only.
    pub for_reading: usize,
    /// For writing.
    pub for_writing: usize,
    /// Files that persist only on a close that has not come yet.
    pub pending: usize,
}

/// Counts the files that are open now. A redirector has none.
#[derive(Clone)]
pub struct CountOpenFiles(pub Arc<dyn Fn() -> OpenFiles + Send + Sync>);

impl std::fmt::Debug for CountOpenFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CountOpenFiles")
    }
}

/// A certificate of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateExpiry {
    /// The protocol that uses it: `tls` or an authentication protocol.
    pub protocol: String,
    /// The end of its validity.
    pub expires: SystemTime,
}

/// Returns the certificates in force.
#[derive(Clone)]
pub struct ListCertificates(pub Arc<dyn Fn() -> Vec<CertificateExpiry> + Send + Sync>);

impl std::fmt::Debug for ListCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListCertificates")
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns `text` escaped for XML. Names come from the configuration and may contain any character.
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

/// Returns the XML of `query stats` with the sections whose letters are in `selection`, or all
/// sections for `a`.
pub(crate) fn xml(
    who: &Identification,
    started: SystemTime,
    totals: &Totals,
    attendance: &ConnectionCounts,
    open_files: Option<OpenFiles>,
    certificates: &[CertificateExpiry],
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
        if let Some(OpenFiles { for_reading, for_writing, pending }) = open_files {
            let _ = write!(
                text,
                "<stats id=\"ofs\"><role>server</role><opr>{for_reading}</opr><opw>{for_writing}</opw>\
                 <opp>{pending}</opp></stats>"
            );
        }
        lifetimes(&mut text, certificates, now);
    }
    text.push_str("</statistics>");
    text
}

/// Appends the section about certificates of the server: the seconds for which each is still valid. It
/// has no files, because every client may query statistics.
fn lifetimes(text: &mut String, certificates: &[CertificateExpiry], now: u64) {
    if certificates.is_empty() {
        return;
    }
    let _ = write!(text, "<stats id=\"certs\"><num>{}</num>", certificates.len());
    for CertificateExpiry { protocol, expires } in certificates {
        let left = seconds(*expires).saturating_sub(now);
        let _ = write!(text, "<{protocol}><left>{left}</left></{protocol}>");
    }
    text.push_str("</stats>");
}

/// Appends the section about the protocol.
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
         <lgn><num>{}</num><af>{}</af><au>{}</au><ua>{}</ua></lgn></stats>",
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
        totals.refused_logins,
        totals.authenticated,
        totals.logins.saturating_sub(totals.authenticated)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selected_sections_are_reported() {
        let who = Identification { host: "h".into(), port: 1, ..Identification::default() };
        let text = |selection: &str| {
            xml(&who, UNIX_EPOCH, &Totals::default(), &ConnectionCounts::default(), None, &[], selection)
        };
        assert!(text("i").contains("id=\"info\"") && !text("i").contains("id=\"link\""));
        assert!(text("a").contains("id=\"info\"") && text("a").contains("id=\"link\""));
        assert!(text("z").starts_with("<statistics ") && text("z").ends_with("</statistics>"));
    }

    #[test]
    fn open_files_are_in_the_section_of_the_protocol() {
        let who = Identification::default();
        let open = OpenFiles { for_reading: 3, for_writing: 2, pending: 1 };
        let text = |open_files, selection: &str| {
            xml(
                &who,
                UNIX_EPOCH,
                &Totals::default(),
                &ConnectionCounts::default(),
                open_files,
                &[],
                selection,
            )
        };
        let part = "<stats id=\"ofs\"><role>server</role><opr>3</opr><opw>2</opw><opp>1</opp></stats>";
        assert!(text(Some(open), "p").contains(part));
        assert!(!text(Some(open), "l").contains("ofs") && !text(None, "a").contains("ofs"));
    }

    #[test]
    fn logins_and_certificates_are_in_the_section_of_the_protocol() {
        let who = Identification::default();
        let totals = Totals { logins: 5, authenticated: 3, refused_logins: 7, ..Totals::default() };
        let left = |seconds: u64| SystemTime::now() + std::time::Duration::from_secs(seconds);
        let of = |protocol: &str, expires| CertificateExpiry { protocol: protocol.to_owned(), expires };
        let certificates = [of("tls", left(86_400)), of("gsi", UNIX_EPOCH)];
        let text = |certificates: &[CertificateExpiry], selection: &str| {
            xml(&who, UNIX_EPOCH, &totals, &ConnectionCounts::default(), None, certificates, selection)
        };
        let found = text(&certificates, "p");
        assert!(found.contains("<lgn><num>5</num><af>7</af><au>3</au><ua>2</ua></lgn>"), "{found}");
        let shown =
            |seconds: u64| format!("<stats id=\"certs\"><num>2</num><tls><left>{seconds}</left></tls>");
        assert!(found.contains(&shown(86_400)) || found.contains(&shown(86_399)), "{found}");
        assert!(found.contains("<gsi><left>0</left></gsi></stats>"), "{found}");
        assert!(!text(&[], "a").contains("certs") && !text(&certificates, "l").contains("certs"));
    }

    #[test]
    fn names_are_escaped() {
        let who =
            Identification { instance: "a<b".into(), site: "\"&'>".into(), ..Identification::default() };
        let text = xml(&who, UNIX_EPOCH, &Totals::default(), &ConnectionCounts::default(), None, &[], "i");
        assert!(text.contains("ins=\"a&lt;b\"") && text.contains("<name>a&lt;b</name>"), "{text}");
        assert!(text.contains("site=\"&quot;&amp;&apos;&gt;\">"), "{text}");
    }
}
