//! [`ProcessStatus`]: the memory, threads and descriptors of this process.

use std::fs;

/// The report of the system about this process. A figure that it does not report is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ProcessStatus {
    pub(super) threads: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) descriptors: Option<u64>,
    pub(super) descriptors_max: Option<u64>,
}

impl ProcessStatus {
    /// Asks the system. The time grows with the number of descriptors.
    pub(super) fn read() -> Self {
        let page = rustix::param::page_size() as u64;
        let mut found =
            fs::read_to_string("/proc/self/stat").map(|text| of_stat(&text, page)).unwrap_or_default();
        // The directory itself is one of them.
        let descriptors = fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64);
        found.descriptors = descriptors.ok().map(|number| number.saturating_sub(1));
        found.descriptors_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        found
    }
}

/// Returns the figures of a line of `/proc/PID/stat`. The name of the program may contain any character.
fn of_stat(text: &str, page: u64) -> ProcessStatus {
    let fields: Vec<&str> =
        text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    // The first field behind the name is the third one of the line.
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
    ProcessStatus {
        threads: field(20),
        virtual_bytes: field(23),
        resident_bytes: field(24).map(|pages| pages.saturating_mul(page)),
        ..ProcessStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_is() {
        let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 12 0 900 7000000 300 18446744073709551615";
        for name in ["scalla", "a b", "x) R 1 (y"] {
            let found = of_stat(&format!("7 ({name}) {rest}\n"), 4096);
            assert_eq!(found.threads, Some(12), "{name}");
            assert_eq!((found.virtual_bytes, found.resident_bytes), (Some(7_000_000), Some(300 * 4096)));
        }
        assert_eq!(of_stat("7 (x", 4096), ProcessStatus::default());
    }

    #[test]
    fn this_process_has_descriptors_and_memory() {
        let found = ProcessStatus::read();
        assert!(found.threads >= Some(1) && found.resident_bytes > Some(0));
        assert!(found.descriptors >= Some(3) && found.virtual_bytes >= found.resident_bytes, "{found:?}");
    }
}
