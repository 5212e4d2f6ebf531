//! The section of the cache of a proxy, on disk or in memory. Source: monitoring facts, `cache`.

use cache::{DiskCacheStatus, MemoryCacheStatus};
use monitor::{ReportSection, ReportValue, number_group, numbers};

/// Returns the section in the order of XRootD. What this cache does not have is 0: hits of bytes that were fetched
/// ahead, updates, complete files, and delayed opens and closes.
pub(super) fn cache_section(status: &DiskCacheStatus) -> ReportSection {
    section("pfc", status)
}

/// Returns the section of a memory cache, in the same form.
pub(super) fn memory_cache_section(status: &MemoryCacheStatus) -> ReportSection {
    let status = DiskCacheStatus {
        opens: status.opens,
        closes: status.closes,
        open_files: status.opens.saturating_sub(status.closes),
        bytes_delivered: status.bytes_delivered,
        bytes_hit: status.bytes_hit,
        bytes_missed: status.bytes_missed,
        bytes_shared: status.bytes_shared,
        bypasses: status.bypasses,
        bytes_bypassed: status.bytes_bypassed,
        evicted_bytes: status.evicted_bytes,
        memory: status.bytes,
        memory_limit: status.limit,
        ..DiskCacheStatus::default()
    };
    section("rmc", &status)
}

fn section(kind: &'static str, status: &DiskCacheStatus) -> ReportSection {
    let fetched = status.bytes_missed.saturating_sub(status.bytes_ahead);
    let (total, high, low) = status.disk;
    let reads = number_group([
        ("in", fetched),
        ("out", status.bytes_delivered),
        ("hits", status.bytes_hit),
        ("miss", status.bytes_shared),
    ]);
    let files = number_group([
        ("opened", status.opens),
        ("closed", status.closes),
        ("new", 0),
        ("del", status.evicted_files),
        ("now", status.open_files),
        ("full", 0),
    ]);
    let store = number_group([("size", total), ("used", status.bytes), ("min", low), ("max", high)]);
    let memory =
        number_group([("size", status.memory_limit), ("used", status.memory), ("wq", status.waiting_writes)]);
    let figures = vec![
        ("prerd".into(), number_group([("in", status.bytes_ahead), ("hits", 0), ("miss", 0)])),
        ("rd".into(), reads),
        ("pass".into(), ReportValue::Counted(status.bytes_bypassed, numbers([("cnt", status.bypasses)]))),
        ("wr".into(), number_group([("out", status.bytes_stored), ("updt", 0)])),
        ("saved".into(), status.bytes_hit.into()),
        ("purge".into(), status.evicted_bytes.into()),
        ("files".into(), files),
        ("store".into(), store),
        ("mem".into(), memory),
        ("opcl".into(), number_group([("odefer", 0), ("defero", 0), ("cdefer", 0), ("clost", 0)])),
    ];
    ReportSection { attribute: Some(("type", kind)), ..ReportSection::new("cache", figures) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monitor::SummaryReport;

    #[test]
    fn the_section_has_the_elements_of_xrootd() {
        let status = DiskCacheStatus {
            bytes_missed: 1000,
            bytes_ahead: 300,
            bytes_delivered: 5000,
            bytes_hit: 4000,
            bytes_shared: 940,
            bytes_bypassed: 60,
            bypasses: 2,
            disk: (900, 800, 700),
            ..DiskCacheStatus::default()
        };
        let sections = vec![cache_section(&status)];
        let text = SummaryReport { sections, ..SummaryReport::default() }.xml();
        for part in [
            "<stats id=\"cache\" type=\"pfc\"><prerd><in>300</in><hits>0</hits><miss>0</miss></prerd><rd>",
            "<rd><in>700</in><out>5000</out><hits>4000</hits><miss>940</miss></rd>",
            "<pass>60<cnt>2</cnt></pass>",
            "<store><size>900</size><used>0</used><min>700</min><max>800</max></store>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_memory_cache_has_the_same_elements() {
        let status = MemoryCacheStatus {
            opens: 5,
            closes: 3,
            bytes_delivered: 5000,
            bytes_hit: 4000,
            bytes_missed: 32_768,
            bytes_shared: 1000,
            bytes: 70,
            limit: 100,
            ..MemoryCacheStatus::default()
        };
        let sections = vec![memory_cache_section(&status)];
        let text = SummaryReport { sections, ..SummaryReport::default() }.xml();
        for part in [
            "<stats id=\"cache\" type=\"rmc\"><prerd>",
            "<rd><in>32768</in><out>5000</out><hits>4000</hits><miss>1000</miss></rd>",
            "<files><opened>5</opened><closed>3</closed>",
            "<mem><size>100</size><used>70</used>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
