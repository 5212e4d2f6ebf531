//! Fuzz target for ZIP archives: no decoded offset may lie outside of the archive.

use client::zip::{EndRecord, FoundEnd, LOCAL_BYTES, WIDE_END_BYTES};

/// Checks `data` as an archive.
pub fn target(data: &[u8]) {
    let size = data.len() as u64;
    let part = |at: u64, length: u64| {
        let range = usize::try_from(at).ok()?..usize::try_from(at.checked_add(length)?).ok()?;
        data.get(range)
    };
    let end = match EndRecord::find(data, size) {
        Ok(FoundEnd::End(end)) => end,
        Ok(FoundEnd::Wide(end, at)) => {
            let Some(record) = part(at, WIDE_END_BYTES) else { panic!("a record outside of the archive") };
            match end.widen(record) {
                Ok(end) => end,
                Err(_) => return,
            }
        }
        Err(_) => return,
    };
    let length = end.directory.end - end.directory.start;
    let Some(directory) = part(end.directory.start, length) else {
        panic!("a directory outside of the archive")
    };
    let Ok(members) = end.members(directory) else { return };
    assert!(members.len() * 46 <= directory.len());
    for member in members {
        let _ = member.modified();
        let Some(header) = part(member.header_at, LOCAL_BYTES as u64) else {
            panic!("a member outside of the archive")
        };
        let Ok(range) = member.data(header, end.directory.start) else { continue };
        assert!(range.start <= range.end && range.end <= end.directory.start);
    }
}
