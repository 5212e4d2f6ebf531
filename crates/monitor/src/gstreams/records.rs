//! The records of the streams, each a JSON object on one line.

use super::super::transfer_records::line;
use serde_json::Value;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// A third-party copy that has ended.
#[derive(Clone, Copy, Debug)]
pub struct CopyFigures<'a> {
    /// The protocol of the order: `xroot` or `http`.
    pub protocol: &'a str,
    /// The client that ordered it: name and number of its process.
    pub user: (&'a str, u32),
    /// Name or address of the host of the client.
    pub host: &'a str,
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// When the copy began.
    pub begun: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// 0, or the error.
    pub status: u32,
    /// Number of streams.
    pub streams: u32,
    /// The server is the source.
    pub is_push: bool,
    /// URL of the source, without its query.
    pub source: &'a str,
    /// URL of the destination, without its query.
    pub destination: &'a str,
    /// Bytes of the file.
    pub bytes: u64,
}

impl CopyFigures<'_> {
    /// Returns the record.
    #[must_use]
    pub fn record(&self) -> String {
        let Self { protocol, user: (name, process), status, streams, bytes, .. } = self;
        let host = host(self.host);
        // The number behind the colon is that of a descriptor on other servers, which means nothing elsewhere.
        let client = quoted(&format!("{name}.{process}:0@{host}"));
        let (begun, ended) = (time(self.begun), time(self.ended));
        let kind = if self.is_push { "push" } else { "pull" };
        let is_v6 = self.address.is_some_and(|address| address.to_canonical().is_ipv6());
        let family = if is_v6 { 6 } else { 4 };
        let (source, destination) = (quoted(self.source), quoted(self.destination));
        format!(
            "{{\"TPC\":\"{protocol}\",\"Client\":{client},\"Xeq\":{{\"Beg\":\"{begun}\",\"End\":\"{ended}\",\
             \"RC\":{status},\"Strm\":{streams},\"Type\":\"{kind}\",\"IPv\":{family}}},\
             \"Src\":{source},\"Dst\":{destination},\"Size\":{bytes}}}"
        )
    }
}

/// The period in which clients had a file of a cache open.
#[derive(Clone, Copy, Debug)]
pub struct CachedFileFigures<'a> {
    /// Logical path.
    pub path: &'a str,
    /// Size in bytes.
    pub size: u64,
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of blocks in the cache.
    pub blocks_stored: u64,
    /// Number of periods in which the file was open, with this one.
    pub accesses: u64,
    /// Begin and end of this period, in seconds since the epoch.
    pub period: (i64, i64),
    /// Origins as `host:port`.
    pub remotes: &'a [String],
    /// Bytes from the cache.
    pub hit: u64,
    /// Bytes that were fetched for the cache.
    pub missed: u64,
    /// Bytes that were fetched past the cache.
    pub bypassed: u64,
    /// Bytes that were written to the disk.
    pub stored: u64,
    /// Bytes that were fetched ahead of reads.
    pub prefetched: u64,
    /// Number of blocks whose checksums did not match.
    pub damaged: u64,
}

impl CachedFileFigures<'_> {
    /// Returns the record.
    #[must_use]
    pub fn record(&self) -> String {
        let Self { size, block_bytes, blocks, blocks_stored, accesses, period: (begin, end), .. } = self;
        let Self { hit, missed, bypassed, stored, prefetched, damaged, .. } = self;
        let remotes: Vec<_> = self.remotes.iter().map(|remote| quoted(remote)).collect();
        let (path, remotes) = (quoted(self.path), remotes.join(","));
        format!(
            "{{\"event\":\"file_close\",\"lfn\":{path},\"size\":{size},\"blk_size\":{block_bytes},\
             \"n_blks\":{blocks},\"n_blks_done\":{blocks_stored},\"access_cnt\":{accesses},\
             \"attach_t\":{begin},\"detach_t\":{end},\"remotes\":[{remotes}],\"b_hit\":{hit},\
             \"b_miss\":{missed},\"b_bypass\":{bypassed},\"b_todisk\":{stored},\"b_prefetch\":{prefetched},\
             \"n_cks_errs\":{damaged}}}"
        )
    }
}

/// Requests of HTTP of one method that have ended with one status.
#[derive(Clone, Debug)]
pub struct HttpStatusFigures {
    /// The method.
    pub method: &'static str,
    /// The status; `None` for all without a counter of their own.
    pub status: Option<u16>,
    /// Number of requests.
    pub requests: u64,
    /// Number of those whose reply was cut by the network.
    pub cut: u64,
    /// Number of those that the server has refused.
    pub refused: u64,
    /// Time from the heads of the requests to those of their replies.
    pub time: Duration,
}

/// Returns the record of all requests of HTTP since the start; `None` if there were none.
#[must_use]
pub fn http_record(figures: &[HttpStatusFigures]) -> Option<String> {
    let mut text = String::new();
    for HttpStatusFigures { method, status, requests, cut, refused, time } in figures {
        let status = status.map_or_else(|| "OTHERS".to_owned(), |status| status.to_string());
        let good = requests.saturating_sub(*cut).saturating_sub(*refused);
        let begin = if text.is_empty() { '{' } else { ',' };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{begin}\"HTTP_{method}_{status}\":{{\"count\":{requests},\"errors_network\":{cut},\
             \"errors_xrootd\":{refused},\"success\":{good},\"duration_seconds\":{:.6}}}",
            time.as_secs_f64()
        );
    }
    (!text.is_empty()).then(|| text + "}")
}

/// Returns a text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(line(text).as_ref()).to_string()
}

/// Returns a host as records about clients name it.
fn host(host: &str) -> String {
    match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => format!("[::ffff:{address}]"),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Err(_) => host.to_owned(),
    }
}

/// Returns a time as `2026-11-30T12:20:10.725388Z`.
pub(crate) fn time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Returns the date of a day since 1 January 1970. A year begins in March here, so that a leap day ends it.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
    }

    /// A record of XRootD 5.5.3, with 0 in place of the descriptor.
    #[test]
    fn a_copy_has_the_recorded_form() {
        let copy = CopyFigures {
            protocol: "xroot",
            user: ("root", 11_914),
            host: "127.0.0.1",
            address: Some([127, 0, 0, 1].into()),
            begun: at(1_796_041_153_271_638),
            ended: at(1_796_041_153_286_834),
            status: 0,
            streams: 1,
            is_push: false,
            source: "xroot://[::ffff:127.0.0.1]:15520//a",
            destination: "xroot://vm:15786//ax",
            bytes: 0,
        };
        let expected = r#"{"TPC":"xroot","Client":"root.11914:0@[::ffff:127.0.0.1]","Xeq":{"Beg":"2026-11-30T12:19:13.271638Z","End":"2026-11-30T12:19:13.286834Z","RC":0,"Strm":1,"Type":"pull","IPv":4},"Src":"xroot://[::ffff:127.0.0.1]:15520//a","Dst":"xroot://vm:15786//ax","Size":0}"#;
        assert_eq!(copy.record(), expected);
        let hostile = CopyFigures { source: "http://h/a\"\n\u{2028}", is_push: true, ..copy };
        let found: Value = serde_json::from_str(&hostile.record()).unwrap();
        assert_eq!(
            (found["Src"].as_str(), found["Xeq"]["Type"].as_str()),
            (Some("http://h/a\"??"), Some("push"))
        );
        assert!(!hostile.record().contains('\n'));
    }

    #[test]
    fn a_period_of_a_file_has_all_documented_fields() {
        let remotes = ["origin.example.org:1094".to_owned()];
        let file = CachedFileFigures {
            path: "/store/a \"b\"",
            size: 300,
            block_bytes: 128,
            blocks: 3,
            blocks_stored: 2,
            accesses: 4,
            period: (100, 160),
            remotes: &remotes,
            hit: 1,
            missed: 2,
            bypassed: 3,
            stored: 4,
            prefetched: 5,
            damaged: 6,
        };
        let expected = r#"{"event":"file_close","lfn":"/store/a \"b\"","size":300,"blk_size":128,"n_blks":3,"n_blks_done":2,"access_cnt":4,"attach_t":100,"detach_t":160,"remotes":["origin.example.org:1094"],"b_hit":1,"b_miss":2,"b_bypass":3,"b_todisk":4,"b_prefetch":5,"n_cks_errs":6}"#;
        assert_eq!(file.record(), expected);
    }

    #[test]
    fn requests_of_http_are_one_record() {
        assert_eq!(http_record(&[]), None);
        let one = HttpStatusFigures {
            method: "GET",
            status: Some(200),
            requests: 5,
            cut: 1,
            refused: 0,
            time: Duration::from_millis(1500),
        };
        let other =
            HttpStatusFigures { method: "PUT", status: None, requests: 2, cut: 0, refused: 2, ..one.clone() };
        let expected = r#"{"HTTP_GET_200":{"count":5,"errors_network":1,"errors_xrootd":0,"success":4,"duration_seconds":1.500000},"HTTP_PUT_OTHERS":{"count":2,"errors_network":0,"errors_xrootd":2,"success":0,"duration_seconds":1.500000}}"#;
        assert_eq!(http_record(&[one, other]).as_deref(), Some(expected));
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(time(at(seconds * 1_000_000)), text);
        }
    }
}
