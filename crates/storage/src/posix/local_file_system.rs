//! Recognises file systems that only this machine uses.
//!
//! A lease of the system knows the opens of this machine. On a file system that several machines share,
//! it could succeed although a process on another one has the file open. Not all such file systems
//! refuse leases, so only those that are known to be local count.

use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// The magic numbers of `statfs` of local file systems.
const LOCAL_FILE_SYSTEMS: [u64; 12] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0xf2f5_2010, // F2FS
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs, whose files are opened through it
];

/// Fails with `EOPNOTSUPP` unless a file is on a file system that only this machine uses.
pub(super) fn check_local(file: impl AsFd) -> io::Result<()> {
    // The type of the field differs between architectures; the numbers have 32 bits.
    let magic = rustix::fs::fstatfs(file)?.f_type as u64 & 0xffff_ffff;
    if is_local(magic) { Ok(()) } else { Err(Errno::OPNOTSUPP.into()) }
}

fn is_local(magic: u64) -> bool {
    LOCAL_FILE_SYSTEMS.contains(&magic)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_known_local_file_systems_count() {
        assert!(is_local(0xef53) && is_local(0x5846_5342));
        for (magic, name) in [(0x6573_5546, "FUSE"), (0x6969, "NFS"), (0x00c3_6400, "Ceph"), (0, "unknown")] {
            assert!(!is_local(magic), "{name}");
        }
        let other = check_local(File::open("/proc/version").unwrap()).unwrap_err();
        assert_eq!(other.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
