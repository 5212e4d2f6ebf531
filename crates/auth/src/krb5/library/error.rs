//! Errors of the library.

use std::ffi::CString;
use std::fmt;

/// The reason why the library cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LibraryFault {
    pub(crate) reason: String,
    /// The action that makes it usable.
    pub(crate) remedy: &'static str,
}

impl LibraryFault {
    /// Creates the fault of a library that is missing or too old.
    pub(super) fn missing(reason: String) -> Self {
        Self { reason, remedy: "install the package libkrb5-3 (Debian) or krb5-libs (Red Hat)" }
    }

    /// Creates the fault of a configuration that cannot be read.
    pub(super) fn of_configuration(code: i32) -> Self {
        let reason = format!("the configuration of Kerberos cannot be read (error {code})");
        Self { reason, remedy: "correct /etc/krb5.conf, or the file in KRB5_CONFIG" }
    }
}

impl fmt::Display for LibraryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

impl From<LibraryFault> for String {
    fn from(fault: LibraryFault) -> Self {
        fault.to_string()
    }
}

/// Errors of a key table without the key of a message, by the names of `krb5.h`.
const KEY_ERRORS: [i32; 7] = [
    KT_NOTFOUND,
    KT_KVNONOTFOUND,
    AP_ERR_BADKEYVER,
    AP_ERR_NOKEY,
    AP_ERR_NOT_US,
    AP_ERR_BAD_INTEGRITY,
    AP_WRONG_PRINC,
];
const KT_NOTFOUND: i32 = -1_765_328_203;
const KT_KVNONOTFOUND: i32 = -1_765_328_154;
const AP_ERR_BADKEYVER: i32 = -1_765_328_340;
const AP_ERR_NOKEY: i32 = -1_765_328_339;
const AP_ERR_NOT_US: i32 = -1_765_328_349;
const AP_ERR_BAD_INTEGRITY: i32 = -1_765_328_353;
const AP_WRONG_PRINC: i32 = -1_765_328_240;

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

    /// Reports whether another key table may have the key of the message.
    pub(in crate::krb5) fn is_of_keys(&self) -> bool {
        KEY_ERRORS.contains(&self.code)
    }
}

pub(super) fn text(value: &str) -> Result<CString, KerberosError> {
    CString::new(value).map_err(|_| KerberosError::new("a name contains a NUL"))
}
