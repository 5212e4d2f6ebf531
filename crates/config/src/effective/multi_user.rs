//! Values of multi-user: `multiuser.`.

use crate::setting::Setting;

/// Values of multi-user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultiUserConfig {
    /// Operations are made with the rights of the accounts of clients (`libXrdMultiuser.so` in
    /// `ofs.osslib` or `xrootd.fslib`).
    pub enabled: Setting<bool>,
    /// The library is named in `ofs.ckslib`. Checksums are always computed with the rights of the
    /// account.
    pub checksums: Setting<bool>,
    /// `multiuser.umask`; `None` for the umask of the process.
    pub umask: Setting<Option<u32>>,
    /// `multiuser.minuid`.
    pub uid_min: Setting<u32>,
    /// `multiuser.mingid`.
    pub gid_min: Setting<u32>,
}

/// The lowest user id and group id that may be used by default.
const ID_MIN: u32 = 500;

impl Default for MultiUserConfig {
    fn default() -> Self {
        Self {
            enabled: Setting::default_of(false),
            checksums: Setting::default_of(false),
            umask: Setting::default_of(None),
            uid_min: Setting::default_of(ID_MIN),
            gid_min: Setting::default_of(ID_MIN),
        }
    }
}
