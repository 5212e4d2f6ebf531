//! Which files a purge may remove, and in which order.

use base::LogicalPath;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use storage::{
    COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, FilePin, Metadata, PIN_ATTRIBUTE,
    REQUEST_PIN_ATTRIBUTE,
};

/// An amount of free space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeSpaceMark {
    /// A part of the file system, in percent.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

impl FreeSpaceMark {
    /// Returns the bytes for a file system of this size.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => {
                u64::try_from(u128::from(total) * u128::from(percent) / 100).unwrap_or(u64::MAX)
            }
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// When files are removed, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgePolicy {
    /// A purge begins when less is free.
    pub low: FreeSpaceMark,
    /// It ends when this much is free.
    pub high: FreeSpaceMark,
    /// Time in seconds for which a file stays after its last access.
    pub hold: u64,
    /// The program that selects files is asked.
    pub asks_program: bool,
}

/// The policies of spaces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PurgePolicies {
    /// That of all spaces without one of their own; `None`: they are not purged.
    pub default: Option<PurgePolicy>,
    /// Those of spaces by their names; `None`: the space is not purged.
    pub spaces: BTreeMap<String, Option<PurgePolicy>>,
}

impl PurgePolicies {
    /// Returns the policy of a space; `None` if it is not purged.
    #[must_use]
    pub fn of(&self, space: &str) -> Option<&PurgePolicy> {
        self.spaces.get(space).unwrap_or(&self.default).as_ref()
    }

    /// Reports whether any space is purged.
    #[must_use]
    pub fn are_active(&self) -> bool {
        self.default.is_some() || self.spaces.values().any(Option::is_some)
    }
}

impl From<PurgePolicy> for PurgePolicies {
    fn from(policy: PurgePolicy) -> Self {
        Self { default: Some(policy), spaces: BTreeMap::new() }
    }
}

/// A reason for which a file stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeptReason {
    /// Its export has no `purge`.
    NotPurgeable,
    /// Its space is not purged.
    SpaceNotPurged,
    /// Nothing is known about a copy.
    NoCopyTime,
    /// Mass storage has no copy of this version.
    NotCopied,
    /// The copy is not known to be one of this file under this name.
    UnknownCopy,
    /// The program that knows the names in mass storage does not confirm the copy.
    NotConfirmed(String),
    /// The program that knows the names in mass storage cannot be asked for this name.
    NotAskable(String),
    /// The program that knows the names in mass storage has failed.
    CatalogFailed(String),
    /// The program that selects files keeps it.
    ProgramKeeps,
    /// The program that selects files has ended the purge, or could not be asked.
    ProgramEnds(String),
    /// Clients have set attributes of it, which mass storage does not have.
    ClientAttributes,
    /// It was accessed a short time ago.
    InHold,
    /// It is pinned.
    Pinned(FilePin),
    /// A process has it open.
    InUse,
    /// It has several names.
    SeveralNames,
    /// It is a link, or links lead to it from another path.
    Link,
    /// It belongs to another user than the server.
    OtherOwner,
    /// Its file system cannot tell whether it is open.
    NoLeases,
    /// It is gone, or another file has its name.
    Changed,
    /// The removal was stopped before its end.
    Stopped,
    /// It cannot be examined or removed.
    Failed(String),
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPurgeable => "its export is not purged",
            Self::SpaceNotPurged => "its space is not purged",
            Self::NoCopyTime => "it has no attribute with the time of its copy",
            Self::NotCopied => "mass storage has no copy of this version",
            Self::UnknownCopy => "this server has made no copy of this file under this name",
            Self::NotConfirmed(text) => return write!(f, "mass storage does not confirm its copy: {text}"),
            Self::NotAskable(text) | Self::CatalogFailed(text) => {
                return write!(f, "mass storage cannot be asked for its copy: {text}");
            }
            Self::ProgramKeeps => "the program of frm.purge.polprog keeps it",
            Self::ProgramEnds(text) => {
                return write!(f, "the program of frm.purge.polprog has ended the purge: {text}");
            }
            Self::ClientAttributes => "it has attributes of clients, which mass storage does not have",
            Self::InHold => "it was accessed within the hold time",
            Self::Pinned(FilePin::Forever) => "it is pinned",
            Self::Pinned(FilePin::Idle(seconds)) => {
                return write!(f, "it is pinned until it was idle for {seconds} s");
            }
            Self::Pinned(FilePin::Until(time)) => return write!(f, "it is pinned until {time}"),
            Self::InUse => "it is open",
            Self::SeveralNames => "it has several names",
            Self::Link => "it is a link, or is at another path behind links",
            Self::OtherOwner => "it belongs to another user than the server",
            Self::NoLeases => "its file system cannot tell whether it is open",
            Self::Changed => "it is gone, or was replaced",
            Self::Stopped => "its removal was stopped",
            Self::Failed(text) => text,
        })
    }
}

/// Returns the last access to a file. A file system that does not record reads has that of the arrival.
pub(crate) fn last_access(metadata: &Metadata) -> i64 {
    metadata.accessed.max(metadata.modified)
}

/// Reports whether the hold time of a file is over.
pub(crate) fn is_out_of_hold(metadata: &Metadata, hold: u64, now: i64) -> bool {
    let idle = now.saturating_sub(last_access(metadata));
    u64::try_from(idle).is_ok_and(|idle| idle >= hold)
}

/// The attributes of a file that decide whether it may be removed.
pub(crate) struct PurgeAttributes {
    copy: Option<Vec<u8>>,
    record: Option<Vec<u8>>,
    /// Pins of administrators and of tape requests.
    pins: [Option<Vec<u8>>; 2],
}

impl PurgeAttributes {
    /// Reads the attributes through a function that returns one by its full local name.
    pub(crate) fn read(of: impl Fn(&str) -> io::Result<Option<Vec<u8>>>) -> io::Result<Self> {
        Ok(Self {
            copy: of(COPY_TIME_ATTRIBUTE)?,
            record: of(COPY_RECORD_ATTRIBUTE)?,
            pins: [of(PIN_ATTRIBUTE)?, of(REQUEST_PIN_ATTRIBUTE)?],
        })
    }
}

/// Returns the reason for which a file with this path, status and attributes stays at the time `now`, in
/// seconds since the epoch; `None` if it may be removed.
pub(crate) fn kept(
    (path, metadata): (&LogicalPath, &Metadata),
    attributes: &PurgeAttributes,
    hold: u64,
    now: i64,
) -> Option<KeptReason> {
    let copy = attributes.copy.as_deref().and_then(CopyTime::decode);
    let Some(copy) = copy else { return Some(KeptReason::NoCopyTime) };
    if !copy.has_copy(metadata.modified) {
        return Some(KeptReason::NotCopied);
    }
    // The time alone goes with the file to another name, for which there is no copy.
    if attributes.record.as_deref() != Some(CopyRecord::new(path, metadata).encode()) {
        return Some(KeptReason::UnknownCopy);
    }
    let mut pins = attributes.pins.iter().flatten().filter_map(|pin| FilePin::decode(pin));
    if let Some(pin) = pins.find(|pin| pin.keeps(now, last_access(metadata))) {
        return Some(KeptReason::Pinned(pin));
    }
    (!is_out_of_hold(metadata, hold, now)).then_some(KeptReason::InHold)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
pub(crate) mod tests {
    use super::*;

    /// Returns the status of a regular file.
    pub(crate) fn file(accessed: i64, modified: i64, size: u64) -> Metadata {
        Metadata {
            device: 1,
            inode: 1,
            mode: 0o100_644,
            size,
            uid: 0,
            gid: 0,
            modified,
            modified_nanoseconds: 0,
            changed: modified,
            accessed,
            offline: false,
        }
    }

    #[test]
    fn a_file_goes_only_with_a_copy_and_without_hold_and_pin() {
        let copied = CopyTime(1000).encode();
        let pin = |pin: FilePin| pin.encode();
        let path = LogicalPath::parse(b"/f").unwrap();
        let at = |metadata: &Metadata, copy: Option<&[u8]>, pin: Option<&[u8]>| {
            let [copy, pin] = [copy, pin].map(|value| value.map(<[u8]>::to_vec));
            let record = Some(CopyRecord::new(&path, metadata).encode().to_vec());
            let decide = |pins| {
                let attributes = PurgeAttributes { copy: copy.clone(), record: record.clone(), pins };
                kept((&path, metadata), &attributes, 100, 10_000)
            };
            // Each of the two pins keeps it, whatever the other one is.
            let ended = FilePin::Until(1).encode().to_vec();
            let reason = decide([pin.clone(), Some(ended.clone())]);
            assert_eq!(reason, decide([Some(ended), pin]));
            reason
        };
        let old = file(2000, 1000, 1);
        assert_eq!(at(&old, Some(&copied), None), None);
        assert_eq!(at(&old, None, None), Some(KeptReason::NoCopyTime));
        assert_eq!(at(&old, Some(b"short"), None), Some(KeptReason::NoCopyTime));
        // It was renamed or copied with its attributes, or the record is missing.
        let other = CopyRecord::new(&LogicalPath::parse(b"/g").unwrap(), &old).encode().to_vec();
        for record in [None, Some(other)] {
            let attributes = PurgeAttributes { copy: Some(copied.to_vec()), record, pins: [None, None] };
            assert_eq!(kept((&path, &old), &attributes, 100, 10_000), Some(KeptReason::UnknownCopy));
        }
        // Changed since, also if the clock was set back, and never copied at all.
        for time in [999, 1001, 1, 0] {
            let other = CopyTime(time).encode();
            assert_eq!(at(&old, Some(&other), None), Some(KeptReason::NotCopied), "{time}");
        }
        for (one, keeps) in [
            (FilePin::Forever, true),
            (FilePin::Until(10_001), true),
            (FilePin::Until(10_000), false),
            (FilePin::Idle(8001), true),
            (FilePin::Idle(8000), false),
        ] {
            let reason = keeps.then_some(KeptReason::Pinned(one));
            assert_eq!(at(&old, Some(&copied), Some(&pin(one))), reason, "{one:?}");
        }
        assert_eq!(at(&old, Some(&copied), Some(b"?")), Some(KeptReason::Pinned(FilePin::Forever)));
        for (accessed, reason) in
            [(9900, None), (9901, Some(KeptReason::InHold)), (20_000, Some(KeptReason::InHold))]
        {
            assert_eq!(at(&file(accessed, 1000, 1), Some(&copied), None), reason, "{accessed}");
        }
    }

    #[test]
    fn free_space_is_a_part_or_bytes() {
        assert_eq!(FreeSpaceMark::Percent(10).bytes(2000), 200);
        assert_eq!(FreeSpaceMark::Percent(100).bytes(u64::MAX), u64::MAX);
        assert_eq!(FreeSpaceMark::Bytes(5).bytes(2000), 5);
    }
}
