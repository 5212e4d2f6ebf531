//! The connections of a session.

use crate::ids::PathId;
use base::{Error, ErrorKind};
use wire::xroot::limits::PATH_ID_MAX;

/// The set of bound connections. The control connection always belongs to its session.
#[derive(Clone, Copy, Default)]
pub(crate) struct BoundLinks {
    /// Bit p is set if path id p is bound.
    bits: u16,
}

impl BoundLinks {
    /// Reports whether a connection belongs to the session.
    pub(crate) fn has(self, link: PathId) -> bool {
        link == PathId::CONTROL || (link.0 <= PATH_ID_MAX && self.bits & (1 << link.0) != 0)
    }

    /// Takes the lowest free path id.
    pub(crate) fn bind(&mut self) -> Result<PathId, Error> {
        let free = (1..=PATH_ID_MAX).find(|&path| self.bits & (1 << path) == 0);
        let path = free.ok_or_else(|| Error::new(ErrorKind::NoMemory, "bind limit exceeded"))?;
        self.bits |= 1 << path;
        Ok(PathId(path))
    }

    /// Frees the path id of a connection that was lost.
    pub(crate) fn unbind(&mut self, link: PathId) {
        if link.0 <= PATH_ID_MAX {
            self.bits &= !(1 << link.0);
        }
    }
}
