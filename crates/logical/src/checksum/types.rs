//! Selects the checksum algorithm of a request. Separate from [`super`] because opening a file for
//! writing uses it too.

use crate::config::Checksums;
use base::{Cgi, Error, ErrorKind};
use digest::Algorithm;

impl Checksums {
    /// Returns the type that `cks.type` names, or the first configured one.
    pub(crate) fn algorithm(&self, cgi: &Cgi) -> Result<Algorithm, Error> {
        let Some(default) = self.types.first() else {
            return Err(Error::new(ErrorKind::Unsupported, "query chksum is not supported"));
        };
        let Some(name) = cgi.get("cks.type").filter(|name| !name.is_empty()) else { return Ok(*default) };
        let named = std::str::from_utf8(name).ok().and_then(Algorithm::from_name);
        named.filter(|named| self.types.contains(named)).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::new(ErrorKind::ServerError, format!("{name} checksum not supported."))
        })
    }

    /// Returns the type that is computed while files are written.
    pub(crate) fn default_type(&self) -> Option<Algorithm> {
        self.types.first().copied()
    }
}
