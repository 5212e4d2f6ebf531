//! Extended attributes of files that are copied from and to mass storage. Names and forms are those
//! of XRootD, so that both read what the other one has written. Only the [`CopyRecord`] is of this server.
//!
//! Clients do not reach these attributes, because theirs have another prefix.

use crate::Metadata;
use base::LogicalPath;
use digest::{Algorithm, RunningChecksum};

/// The attribute with a [`CopyTime`].
pub const COPY_TIME_ATTRIBUTE: &str = "user.XrdFrm.Cpy";

/// The attribute with a [`FilePin`].
pub const PIN_ATTRIBUTE: &str = "user.XrdFrm.Pin";

/// The attribute with a [`FilePin`] of tape requests, which end it. It keeps a file like the other one.
pub const REQUEST_PIN_ATTRIBUTE: &str = "user.scalla.pin";

/// The prefix of the attributes of clients. Mass storage does not have them.
pub const CLIENT_ATTRIBUTE_PREFIX: &str = "user.U.";

/// The attribute with a [`CopyRecord`].
pub const COPY_RECORD_ATTRIBUTE: &str = "user.scalla.copied";

/// Bytes of the value of a [`CopyTime`], and of a [`FilePin`] as it is written.
const VALUE_BYTES: usize = 24;

/// Bytes of a [`FilePin`] without padding.
const PIN_BYTES: usize = 16;

const PIN_FOREVER: u8 = 0x01;
const PIN_IDLE: u8 = 0x02;
const PIN_KEEP: u8 = 0x04;

/// The modification time of a file at its last copy from or to mass storage, in seconds since the
/// epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyTime(pub i64);

impl CopyTime {
    /// The value of a new file, which was never copied.
    pub const NEVER: Self = Self(1);

    /// The value of a file that is never migrated.
    pub const PLACEHOLDER: Self = Self(0);

    /// Returns the value of the attribute: the time as 64 bits, the most significant byte first, and
    /// 16 bytes of zero.
    #[must_use]
    pub fn encode(self) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        let (time, _) = value.split_at_mut(size_of::<i64>());
        time.copy_from_slice(&self.0.to_be_bytes());
        value
    }

    /// Returns the time of a value; `None` if its size is wrong.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (time, _) = value.split_first_chunk()?;
        (value.len() == VALUE_BYTES).then(|| Self(i64::from_be_bytes(*time)))
    }

    /// Reports whether mass storage has a copy of a file with this modification time. A later time of
    /// the copy is no proof: the clock may have been set back before the last write.
    #[must_use]
    pub fn has_copy(self, modified: i64) -> bool {
        self.0 == modified && self.0 > Self::NEVER.0
    }

    /// Reports whether this value of the attribute shows such a copy. A missing or malformed one does not.
    #[must_use]
    pub fn shows_copy(attribute: Option<&[u8]>, modified: i64) -> bool {
        attribute.and_then(Self::decode).is_some_and(|copied| copied.has_copy(modified))
    }
}

/// The file that was copied from or to mass storage: its logical path, inode, size, and modification time
/// in nanoseconds.
///
/// The [`CopyTime`] goes with a file to another name, into a copy of the file, and does not differ after
/// two changes in one second. This record fits the file only under the name that its copy has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRecord(String);

impl CopyRecord {
    /// Returns the record of a file with this path and status.
    #[must_use]
    pub fn new(path: &LogicalPath, file: &Metadata) -> Self {
        let mut identity = Vec::with_capacity(path.as_bytes().len() + 32);
        identity.extend_from_slice(path.as_bytes());
        identity.push(0);
        identity.extend_from_slice(&file.inode.to_be_bytes());
        identity.extend_from_slice(&file.size.to_be_bytes());
        identity.extend_from_slice(&file.modified.to_be_bytes());
        identity.extend_from_slice(&file.modified_nanoseconds.to_be_bytes());
        Self(format!("1 {}", RunningChecksum::of(Algorithm::Sha256, &identity).hex()))
    }

    /// Returns the value of the attribute: the version of its form, and a hash in hexadecimal digits.
    #[must_use]
    pub fn encode(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A reason to keep a file on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePin {
    /// It is never purged.
    Forever,
    /// It is not purged before it was not accessed for this number of seconds.
    Idle(u64),
    /// It is not purged before this time, in seconds since the epoch.
    Until(i64),
}

impl FilePin {
    /// Returns the value of the attribute: a time as 64 bits, the most significant byte first, the
    /// flags, and bytes of zero.
    #[must_use]
    pub fn encode(self) -> [u8; VALUE_BYTES] {
        let (time, flags) = match self {
            Self::Forever => (0, PIN_FOREVER),
            Self::Idle(seconds) => (i64::try_from(seconds).unwrap_or(i64::MAX), PIN_IDLE),
            Self::Until(time) => (time, PIN_KEEP),
        };
        let mut value = CopyTime(time).encode();
        if let Some(byte) = value.get_mut(size_of::<i64>()) {
            *byte = flags;
        }
        value
    }

    /// Returns the pin of a value; `None` if no flag is set. A value that cannot be understood pins
    /// the file, because whoever wrote it wanted to keep it.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let Some((time, rest)) = value.split_first_chunk() else { return Some(Self::Forever) };
        let time = i64::from_be_bytes(*time);
        if ![PIN_BYTES, VALUE_BYTES].contains(&value.len()) {
            return Some(Self::Forever);
        }
        match rest.first() {
            Some(0) => None,
            Some(&PIN_IDLE) => u64::try_from(time).ok().map(Self::Idle).or(Some(Self::Forever)),
            Some(&PIN_KEEP) => Some(Self::Until(time)),
            _ => Some(Self::Forever),
        }
    }

    /// Reports whether the pin keeps a file at the time `now` that was last accessed at `accessed`, both
    /// in seconds since the epoch.
    #[must_use]
    pub fn keeps(self, now: i64, accessed: i64) -> bool {
        match self {
            Self::Forever => true,
            Self::Idle(seconds) => {
                let idle = now.saturating_sub(accessed);
                u64::try_from(idle).map_or(true, |idle| idle < seconds)
            }
            Self::Until(time) => now < time,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    /// Values that XRootD writes.
    #[test]
    fn the_copy_time_has_the_form_of_xrootd() {
        let mut wanted = [0; 24];
        wanted[4..8].copy_from_slice(&[0x6b, 0x00, 0x5f, 0xc5]);
        assert_eq!(CopyTime(0x6b00_5fc5).encode(), wanted);
        assert_eq!(CopyTime::decode(&wanted), Some(CopyTime(0x6b00_5fc5)));
        wanted = [0; 24];
        wanted[7] = 1;
        assert_eq!(CopyTime::NEVER.encode(), wanted);
        for bytes in [0, 7, 8, 16, 23, 25] {
            assert_eq!(CopyTime::decode(&vec![0; bytes]), None);
        }
    }

    #[test]
    fn only_the_time_of_the_copy_proves_it() {
        assert!(CopyTime(100).has_copy(100));
        for (copied, modified) in [(100, 101), (100, 99), (1, 1), (0, 0), (1, 100), (0, 100)] {
            assert!(!CopyTime(copied).has_copy(modified), "{copied} {modified}");
        }
    }

    #[test]
    fn a_copy_record_fits_one_version_of_one_file_at_one_path() {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let file = Metadata {
            device: 1,
            inode: 2,
            mode: 0o100_644,
            size: 3,
            uid: 0,
            gid: 0,
            modified: 4,
            modified_nanoseconds: 5,
            changed: 4,
            accessed: 4,
            offline: false,
        };
        let record = CopyRecord::new(&path("/f"), &file);
        assert_eq!(record, CopyRecord::new(&path("/f"), &Metadata { device: 9, accessed: 9, ..file }));
        // The value is on disks.
        let wanted = "1 15e63509de2e055c3eb2b2a40e038cbe0d28de3b3317afae01149890bc9d8972";
        assert_eq!(std::str::from_utf8(record.encode()).unwrap(), wanted);
        assert_ne!(record, CopyRecord::new(&path("/g"), &file));
        for other in [
            Metadata { inode: 9, ..file },
            Metadata { size: 9, ..file },
            Metadata { modified: 9, ..file },
            Metadata { modified_nanoseconds: 9, ..file },
        ] {
            assert_ne!(record, CopyRecord::new(&path("/f"), &other), "{other:?}");
        }
    }

    #[test]
    fn pins_have_the_form_of_xrootd() {
        for (pin, time, flags) in [
            (FilePin::Forever, 0, 1),
            (FilePin::Idle(3600), 3600, 2),
            (FilePin::Until(1_795_186_726), 1_795_186_726i64, 4),
        ] {
            let mut wanted = [0; 24];
            wanted[..8].copy_from_slice(&time.to_be_bytes());
            wanted[8] = flags;
            assert_eq!(pin.encode(), wanted);
            assert_eq!(FilePin::decode(&wanted), Some(pin));
            assert_eq!(FilePin::decode(&wanted[..16]), Some(pin));
            assert_eq!(FilePin::decode(&wanted[..15]), Some(FilePin::Forever));
        }
        assert_eq!(FilePin::decode(&[0; 24]), None);
        let mut several = [0; 24];
        several[8] = PIN_IDLE | PIN_KEEP;
        assert_eq!(FilePin::decode(&several), Some(FilePin::Forever));
    }

    #[test]
    fn a_pin_ends_at_its_time() {
        assert!(FilePin::Until(100).keeps(99, 0) && !FilePin::Until(100).keeps(100, 0));
        assert!(FilePin::Idle(10).keeps(109, 100) && !FilePin::Idle(10).keeps(110, 100));
        assert!(FilePin::Idle(10).keeps(50, 100), "the clock was set back");
        assert!(FilePin::Forever.keeps(i64::MAX, 0));
    }
}
