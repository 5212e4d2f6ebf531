//! Values of authorization: `ofs.authorize`, `ofs.authlib` and `acc.`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::macaroons::MacaroonConfig;
use crate::setting::Setting;

/// Rule files that are used if `acc.authdb` is not set; the first that exists.
pub const AUTHDB_DEFAULTS: [&str; 2] = ["/etc/xrootd/authdb", "/opt/xrd/etc/Authfile"];

/// `acc.audit`: the decisions that are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccessAudit {
    /// Log granted operations.
    pub grants: bool,
    /// Log denied operations.
    pub denials: bool,
}

/// `acc.encoding`: the spelling of the rule file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleEncoding {
    /// Decode `%XX` in paths.
    pub decode_paths: bool,
    /// ASCII character that stands for a blank in identifiers.
    pub space: Option<u8>,
}

/// `acc.pathmatch`: the paths that a rule path covers with what it grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RulePathMatch {
    /// The path itself and the paths below it.
    #[default]
    Component,
    /// All paths that begin with it.
    Prefix,
}

/// The issuer file of tokens that is used if `ofs.authlib` names none.
pub const ISSUER_FILE_DEFAULT: &str = "/etc/xrootd/scitokens.cfg";

/// A layer of `ofs.authlib` that decides by the credential of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CredentialLayer {
    /// Macaroons, with the settings of [`MacaroonConfig`].
    Macaroons,
    /// Tokens, with their issuer file.
    Tokens(PathBuf),
}

/// `ofs.authlib`: the layers that decide, credentials before rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizationLayers {
    /// The layers of credentials, at most one of each kind. The first one decides first.
    pub credentials: Vec<CredentialLayer>,
    /// The rules of `acc.authdb` decide about what no credential authorizes.
    pub rules: bool,
}

impl Default for AuthorizationLayers {
    fn default() -> Self {
        Self { credentials: Vec::new(), rules: true }
    }
}

impl AuthorizationLayers {
    /// Returns the issuer file of tokens; `None` if tokens do not count.
    #[must_use]
    pub fn tokens(&self) -> Option<&Path> {
        self.credentials.iter().find_map(|layer| match layer {
            CredentialLayer::Tokens(file) => Some(file.as_path()),
            CredentialLayer::Macaroons => None,
        })
    }

    /// Reports whether tokens of issuers count.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.credentials.iter().any(|layer| matches!(layer, CredentialLayer::Tokens(_)))
    }

    /// Reports whether macaroons count.
    #[must_use]
    pub fn has_macaroons(&self) -> bool {
        self.credentials.contains(&CredentialLayer::Macaroons)
    }
}

/// Values of authorization.
#[derive(Clone, PartialEq, Debug)]
pub struct AuthorizationConfig {
    /// `ofs.authorize`.
    pub enabled: Setting<bool>,
    /// `ofs.authlib`.
    pub layers: Setting<AuthorizationLayers>,
    /// `macaroons.`
    pub macaroons: MacaroonConfig,
    /// `acc.authdb`; `None` for the first of [`AUTHDB_DEFAULTS`] that exists.
    pub authdb: Setting<Option<PathBuf>>,
    /// `acc.authrefresh`: interval at which the server looks for a changed rule file.
    pub refresh: Setting<Duration>,
    /// `acc.audit`.
    pub audit: Setting<AccessAudit>,
    /// `acc.encoding`, `acc.spacechar`.
    pub encoding: Setting<RuleEncoding>,
    /// Name of the directive that has set `encoding`, for messages.
    pub encoding_directive: &'static str,
    /// `acc.pathmatch`.
    pub path_match: Setting<RulePathMatch>,
    /// `acc.gidlifetime`: time after which netgroups are looked up again.
    pub lookup_lifetime: Setting<Duration>,
    /// `acc.nisdomain`: domain of netgroups; `None` for all.
    pub netgroup_domain: Setting<Option<String>>,
}

impl Default for AuthorizationConfig {
    fn default() -> Self {
        let half_a_day = Setting::default_of(Duration::from_secs(43_200));
        Self {
            enabled: Setting::default_of(false),
            layers: Setting::default_of(AuthorizationLayers::default()),
            macaroons: MacaroonConfig::default(),
            authdb: Setting::default_of(None),
            refresh: half_a_day.clone(),
            audit: Setting::default_of(AccessAudit::default()),
            encoding: Setting::default_of(RuleEncoding::default()),
            encoding_directive: "acc.encoding",
            path_match: Setting::default_of(RulePathMatch::default()),
            lookup_lifetime: half_a_day,
            netgroup_domain: Setting::default_of(None),
        }
    }
}
