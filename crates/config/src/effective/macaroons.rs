//! Values of macaroons: `macaroons.`.

use std::path::PathBuf;
use std::time::Duration;

use super::names::named;
use super::process::Trace;
use crate::setting::Setting;

/// `macaroons.onmissing`: the decision about requests without a macaroon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingMacaroon {
    /// The next layer decides.
    #[default]
    PassThrough,
    /// Allow.
    Allow,
    /// Deny.
    Deny,
}

impl MissingMacaroon {
    /// All values with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("passthrough", Self::PassThrough), ("allow", Self::Allow), ("deny", Self::Deny)];
}

named!(MissingMacaroon);

/// Values of macaroons.
#[derive(Clone, PartialEq, Debug)]
pub struct MacaroonConfig {
    /// `macaroons.secretkey`.
    pub secret: Setting<Option<PathBuf>>,
    /// `macaroons.sitename`; `None` for `all.sitename`.
    pub site: Setting<Option<String>>,
    /// `macaroons.maxduration`; `None` for no limit.
    pub lifetime_max: Setting<Option<Duration>>,
    /// `macaroons.onmissing`.
    pub on_missing: Setting<MissingMacaroon>,
    /// `macaroons.trace`.
    pub trace: Setting<Trace>,
}

impl Default for MacaroonConfig {
    fn default() -> Self {
        Self {
            secret: Setting::default_of(None),
            site: Setting::default_of(None),
            lifetime_max: Setting::default_of(Some(Duration::from_secs(86_400))),
            on_missing: Setting::default_of(MissingMacaroon::default()),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
