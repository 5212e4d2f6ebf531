//! Recognises network file systems, on which the database of the queue would not be safe: its
//! write-ahead log needs memory that all processes with the database share.

use std::io;
use std::path::Path;

/// The magic numbers of `statfs` of file systems that several machines can use, and their names.
/// A file system in user space may be one of them.
const NETWORK_FILE_SYSTEMS: [(u64, &str); 17] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x0102_1997, "9P"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x1983_0326, "BeeGFS"),
    (0xaad7_aaea, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x7375_7245, "Coda"),
    (0x6573_5546, "FUSE"),
];

/// Returns the name of the network file system that a directory is on; `None` on a local one.
pub(crate) fn network_file_system(directory: &Path) -> io::Result<Option<&'static str>> {
    // The type of the field differs between architectures; the numbers have 32 bits.
    let magic = rustix::fs::statfs(directory)?.f_type as u64 & 0xffff_ffff;
    Ok(name_of(magic))
}

fn name_of(magic: u64) -> Option<&'static str> {
    NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_named_and_local_ones_are_not() {
        assert_eq!(name_of(0x6969), Some("NFS"));
        assert_eq!(name_of(0xef53), None, "ext4");
        assert_eq!(network_file_system(Path::new("/proc")).unwrap(), None);
        let error = network_file_system(Path::new("/nonexistent/x")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
