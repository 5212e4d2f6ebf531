//! The records of the streams, each a JSON object on one line.

use super::super::transfer_records::line;
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// Room for a record that each packet has. Records that are longer have shorter names in it.
pub(super) const RECORD_ROOM: usize = 768;
/// Replaces the rest of a name.
const REST: &str = "...";
/// Bytes of a record for each server that it names.
const REMOTE_BYTES: usize = 64;

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
    /// Returns the record, with names that are cut if it has more than this number of bytes otherwise.
    #[must_use]
    pub fn record(&self, bytes_max: usize) -> String {
        fitting(bytes_max, |name_max| self.with_names(name_max))
    }

    fn with_names(&self, name_max: usize) -> String {
        let Self { protocol, user: (name, process), status, streams, bytes, .. } = self;
        let host = host(self.host);
        // The number behind the colon is that of a descriptor on other servers, which means nothing elsewhere.
        let client = quoted(&format!("{name}.{process}:0@{host}"), name_max);
        let (begun, ended) = (time(self.begun), time(self.ended));
        let kind = if self.is_push { "push" } else { "pull" };
        let is_v6 = self.address.is_some_and(|address| address.to_canonical().is_ipv6());
        let family = if is_v6 { 6 } else { 4 };
        let (source, destination) = (quoted(self.source, name_max), quoted(self.destination, name_max));
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
    /// Returns the record, with names that are cut if it has more than this number of bytes otherwise.
    #[must_use]
    pub fn record(&self, bytes_max: usize) -> String {
        fitting(bytes_max, |name_max| self.with_names(name_max))
    }

    fn with_names(&self, name_max: usize) -> String {
        let Self { size, block_bytes, blocks, blocks_stored, accesses, period: (begin, end), .. } = self;
        let Self { hit, missed, bypassed, stored, prefetched, damaged, .. } = self;
        let remotes = self.remotes.iter().take(name_max.div_ceil(REMOTE_BYTES));
        let remotes: Vec<_> = remotes.map(|remote| quoted(remote, name_max)).collect();
        let (path, remotes) = (quoted(self.path, name_max), remotes.join(","));
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
    /// Number of those whose reply was handed to the connection whole.
    pub whole: u64,
    /// Number of those whose client has disconnected before.
    pub cut: u64,
    /// Number of those that the server has refused, or whose reply it could not end.
    pub failed: u64,
    /// Time from the heads of the requests to the ends of their replies.
    pub time: Duration,
}

impl HttpStatusFigures {
    /// Returns the number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.whole.saturating_add(self.cut).saturating_add(self.failed)
    }
}

/// Returns the records of all requests of HTTP since the start. One has at most this number of bytes, unless
/// one method and status need more. A method and status are in one record, so that a collector can join them.
#[must_use]
pub fn http_records(figures: &[HttpStatusFigures], bytes_max: usize) -> Vec<String> {
    let mut records: Vec<String> = Vec::new();
    for figures in figures {
        let HttpStatusFigures { method, status, whole, cut, failed, time } = figures;
        let status = status.map_or_else(|| "OTHERS".to_owned(), |status| status.to_string());
        let (requests, seconds) = (figures.requests(), time.as_secs_f64());
        let text = format!(
            "\"HTTP_{method}_{status}\":{{\"count\":{requests},\"errors_network\":{cut},\
             \"errors_xrootd\":{failed},\"success\":{whole},\"duration_seconds\":{seconds:.6}}}",
        );
        match records.last_mut() {
            // The brackets at its ends and the comma.
            Some(last) if last.len() + text.len() + 3 <= bytes_max => *last = format!("{last},{text}"),
            _ => records.push(text),
        }
    }
    records.into_iter().map(|text| format!("{{{text}}}")).collect()
}

/// Returns what `make` makes of the longest names with which it fits. Clients choose names, so they must not
/// be able to make a record too long for its packet.
fn fitting(bytes_max: usize, make: impl Fn(usize) -> String) -> String {
    let mut record = make(usize::MAX);
    let mut name_max = bytes_max / 2;
    while record.len() > bytes_max && name_max > REST.len() {
        record = make(name_max);
        name_max /= 2;
    }
    record
}

/// Returns a text as a JSON string, of which at most this number of bytes stay.
fn quoted(text: &str, bytes_max: usize) -> String {
    let text = line(text);
    if text.len() <= bytes_max {
        return Value::from(text.as_ref()).to_string();
    }
    let end = text.floor_char_boundary(bytes_max.saturating_sub(REST.len()));
    Value::from(format!("{}{REST}", text.get(..end).unwrap_or_default())).to_string()
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
        assert_eq!(copy.record(1024), expected);
        let hostile = CopyFigures { source: "http://h/a\"\n\u{2028}", is_push: true, ..copy };
        let found: Value = serde_json::from_str(&hostile.record(1024)).unwrap();
        assert_eq!(
            (found["Src"].as_str(), found["Xeq"]["Type"].as_str()),
            (Some("http://h/a\"??"), Some("push"))
        );
        assert!(!hostile.record(1024).contains('\n'));
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
        assert_eq!(file.record(1024), expected);
    }

    #[test]
    fn a_record_with_long_names_fits() {
        for name in ["/a".repeat(4096), "\"".repeat(8192), "\u{e9}".repeat(4096)] {
            let host = "h".repeat(255);
            let copy = CopyFigures {
                protocol: "xroot",
                user: (&name, u32::MAX),
                host: &host,
                address: Some([0xffff; 8].into()),
                begun: at(1),
                ended: at(2),
                status: u32::MAX,
                streams: u32::MAX,
                is_push: true,
                source: &name,
                destination: &name,
                bytes: u64::MAX,
            };
            let remotes = vec![name.clone(); 16];
            let file = CachedFileFigures {
                path: &name,
                size: u64::MAX,
                block_bytes: u64::MAX,
                blocks: u64::MAX,
                blocks_stored: u64::MAX,
                accesses: u64::MAX,
                period: (i64::MIN, i64::MIN),
                remotes: &remotes,
                hit: u64::MAX,
                missed: u64::MAX,
                bypassed: u64::MAX,
                stored: u64::MAX,
                prefetched: u64::MAX,
                damaged: u64::MAX,
            };
            for most in [RECORD_ROOM, 1024, 16_384] {
                for (record, key) in [(copy.record(most), "Src"), (file.record(most), "lfn")] {
                    assert!(record.len() <= most, "{most}: {}", record.len());
                    let value: Value = serde_json::from_str(&record).unwrap();
                    let found = value[key].as_str().unwrap();
                    let kept = found.strip_suffix(REST).unwrap_or(found);
                    assert!(name.starts_with(kept) && found.len() < name.len() + REST.len());
                }
            }
            assert!(copy.record(usize::MAX).len() > 3 * name.len(), "it is whole where there is room");
        }
    }

    #[test]
    fn requests_of_http_are_one_record() {
        assert!(http_records(&[], 1024).is_empty());
        let one = HttpStatusFigures {
            method: "GET",
            status: Some(200),
            whole: 4,
            cut: 1,
            failed: 0,
            time: Duration::from_millis(1500),
        };
        let other =
            HttpStatusFigures { method: "PUT", status: None, whole: 0, cut: 0, failed: 2, ..one.clone() };
        let expected = r#"{"HTTP_GET_200":{"count":5,"errors_network":1,"errors_xrootd":0,"success":4,"duration_seconds":1.500000},"HTTP_PUT_OTHERS":{"count":2,"errors_network":0,"errors_xrootd":2,"success":0,"duration_seconds":1.500000}}"#;
        assert_eq!(http_records(&[one.clone(), other.clone()], expected.len()), [expected]);
        assert_eq!(http_records(&[one, other], expected.len() - 1).len(), 2);
    }

    #[test]
    fn requests_of_http_of_all_methods_and_statuses_fit_in_records() {
        let figures: Vec<_> = (0..264)
            .map(|number| HttpStatusFigures {
                method: "PROPFIND",
                status: Some(number),
                whole: 9_999_999_999,
                cut: 9_999_999_999,
                failed: 9_999_999_999,
                time: Duration::from_secs(9_999_999_999),
            })
            .collect();
        let records = http_records(&figures, RECORD_ROOM);
        assert!(records.iter().all(|record| record.len() <= RECORD_ROOM));
        let mut keys = std::collections::BTreeSet::new();
        for record in &records {
            let value: Value = serde_json::from_str(record).unwrap();
            for (key, value) in value.as_object().unwrap() {
                assert!(keys.insert(key.clone()), "{key}");
                assert_eq!(value["count"].as_u64(), Some(29_999_999_997));
            }
        }
        assert_eq!(keys.len(), 264);
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
