//! Errors of the library.

use std::ffi::CString;

/// An error of the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KerberosError {
    /// The number in `krb5.h`; 0 for an error of our own.
    pub(crate) code: i32,
    /// The text of the library, which contains no keys.
    pub(crate) text: String,
}

impl KerberosError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { code: 0, text: text.into() }
    }
}

pub(super) fn text(value: &str) -> Result<CString, KerberosError> {
    CString::new(value).map_err(|_| KerberosError::new("a name contains a NUL"))
}
