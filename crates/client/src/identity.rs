//! [`RemoteFileIdentity`]: the identity of an open file, or of a path at one moment (decision 016).
//!
//! A path alone does not identify a file: another file may have its name later, and another server
//! may have another file of that name.

use std::fmt;

use crate::answers::StatInfo;

/// The identity of a file at one server at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteFileIdentity {
    /// The server, `host:port`.
    pub server: String,
    /// The number of the file there; 0 from servers without such numbers.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last modification of the content, seconds since the epoch.
    pub mtime: i64,
    /// Set if it was opened for writing.
    pub is_writable: bool,
}

impl RemoteFileIdentity {
    pub(crate) fn new(server: String, stat: &StatInfo, is_writable: bool) -> Self {
        Self { server, id: stat.id, size: stat.size, mtime: stat.mtime, is_writable }
    }

    /// Reports whether both are the same object of one server, whatever was written to it in
    /// between.
    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        (&self.server, self.id) == (&other.server, other.id)
    }

    /// Reports whether a status may belong to this file.
    pub(crate) fn is_alike(&self, stat: &StatInfo) -> bool {
        self.id != 0 && (self.id, self.size, self.mtime) == (stat.id, stat.size, stat.mtime)
    }

    /// Reports whether both may be the same file. Servers have several names, so names do not
    /// distinguish files. Two servers are unlikely to have files of the same number, size and time.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let is_alike =
            self.id != 0 && (self.id, self.size, self.mtime) == (other.id, other.size, other.mtime);
        self.is_same_object(other) || is_alike
    }

    /// Checks that the reopened file is the same. Writes up to byte `written_to` were acknowledged,
    /// and a reader has seen a file of `size` bytes.
    ///
    /// # Errors
    /// The difference.
    pub(crate) fn check_again(&self, again: &Self, written_to: u64, size: u64) -> Result<(), String> {
        if self.is_writable {
            return self.check_writer(again, written_to);
        }
        let replaced = || {
            let (before, now) = (self.mtime, again.mtime);
            Err(format!(
                "another file has its name: of {size} bytes and time {before}, now {} and {now}",
                again.size
            ))
        };
        let is_there = self.server == again.server;
        match is_there {
            // A replica at another server has a different number and time.
            false if again.size != size => Err(format!("it had {size} bytes and has {}", again.size)),
            true if again.size < size => Err(format!("it had {size} bytes and has {}", again.size)),
            // At the same server a file may grow. Numbers may change with a mount; with the same
            // size and time it is the same file.
            true if self.id != again.id && (self.size, self.mtime) != (again.size, again.mtime) => replaced(),
            _ => Ok(()),
        }
    }

    fn check_writer(&self, again: &Self, written_to: u64) -> Result<(), String> {
        if self.server != again.server {
            return Err(format!("it was written at {} and is at {} now", self.server, again.server));
        }
        if self.id != again.id {
            return Err("another file has its name now".to_owned());
        }
        if again.size < written_to {
            let left = again.size;
            return Err(format!("writes up to byte {written_to} were acknowledged, {left} bytes are left"));
        }
        Ok(())
    }
}

/// One line, which is equal for a file that is the same and has not changed.
impl fmt::Display for RemoteFileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.server, self.id, self.size, self.mtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(server: &str, id: u64, size: u64, mtime: i64, is_writable: bool) -> RemoteFileIdentity {
        RemoteFileIdentity { server: server.to_owned(), id, size, mtime, is_writable }
    }

    #[test]
    fn a_reader_needs_the_same_bytes() {
        let before = file("a:1", 7, 8, 100, false);
        let check =
            |server, id, size, mtime| before.check_again(&file(server, id, size, mtime, false), 0, 8).is_ok();
        assert!(check("a:1", 7, 8, 100) && check("a:1", 7, 9, 101), "it may grow");
        assert!(check("a:1", 9, 8, 100), "another number after a mount");
        assert!(check("b:1", 3, 8, 55), "a replica");
        assert!(!check("a:1", 9, 8, 101) && !check("a:1", 9, 9, 100), "a file that took its name");
        assert!(!check("a:1", 7, 7, 100) && !check("b:1", 7, 9, 100) && !check("b:1", 7, 7, 100));
    }

    #[test]
    fn a_writer_needs_the_file_itself() {
        let before = file("a:1", 7, 0, 100, true);
        let check = |server, id, size| before.check_again(&file(server, id, size, 101, true), 4, 0).is_ok();
        assert!(check("a:1", 7, 4) && check("a:1", 7, 9));
        assert!(!check("a:1", 7, 3), "acknowledged writes are gone");
        assert!(!check("a:1", 8, 4), "a file that took its name");
        assert!(!check("b:1", 7, 4), "a replica");
        let alias = file("alias:1", 7, 0, 100, true);
        assert!(before.may_be(&alias) && !before.may_be(&file("alias:1", 7, 1, 100, true)));
        assert!(
            before.is_same_object(&file("a:1", 7, 5, 9, false))
                && !before.is_same_object(&file("b:1", 7, 0, 100, true))
        );
    }
}
