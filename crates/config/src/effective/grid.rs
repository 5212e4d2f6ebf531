//! Values for logins with grid certificates (`sec.protocol gsi`, `gsi.`).

use std::path::PathBuf;
use std::time::Duration;

use super::names::named;

/// Default directory of authorities.
pub const GRID_AUTHORITIES: &str = "/etc/grid-security/certificates";
/// Default certificate of a server.
pub const GRID_CERTIFICATE: &str = "/etc/grid-security/xrd/xrdcert.pem";
/// Default key of a server.
pub const GRID_KEY: &str = "/etc/grid-security/xrd/xrdkey.pem";
/// Default grid map, which may be missing.
pub const GRID_MAP: &str = "/etc/grid-security/grid-mapfile";
/// Minimum size of RSA keys unless configured, in bits.
pub const GRID_KEY_BITS: u32 = 2048;

/// `-ca`: the check of the certificates of authorities.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AuthorityCheck {
    /// None.
    NoVerify,
    /// The signature of one that is signed by itself.
    #[default]
    SelfSigned,
    /// The whole chain up to one that is signed by itself.
    Verify,
}

impl AuthorityCheck {
    /// All values with their names, in the order of their numbers.
    pub const ALL: [(&'static str, Self); 3] =
        [("noverify", Self::NoVerify), ("verifyss", Self::SelfSigned), ("verify", Self::Verify)];
}

named!(AuthorityCheck);

/// `-crl`: the use of revocation lists.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RevocationCheck {
    /// They are not used.
    Ignore,
    /// They are used where they exist.
    #[default]
    Try,
    /// Each authority must have one.
    Use,
    /// Each authority must have a current one.
    Require,
}

impl RevocationCheck {
    /// All values with their names, in the order of their numbers.
    pub const ALL: [(&'static str, Self); 4] =
        [("ignore", Self::Ignore), ("try", Self::Try), ("use", Self::Use), ("require", Self::Require)];
}

named!(RevocationCheck);

/// `-gmapopt`: the use of the grid map.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GridMapping {
    /// It is not used.
    Off,
    /// Other subjects have a name of their own.
    #[default]
    Try,
    /// Other subjects are refused.
    Required,
}

impl GridMapping {
    /// All values with their names, in the order of their numbers.
    pub const ALL: [(&'static str, Self); 3] =
        [("nomap", Self::Off), ("trymap", Self::Try), ("usemap", Self::Required)];
}

named!(GridMapping);

/// `gsi.limited`: the rights of clients with a limited proxy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GridLimited {
    /// They are refused.
    Refuse,
    /// They may read.
    #[default]
    Read,
    /// All of the user.
    Full,
}

impl GridLimited {
    /// All values with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("refuse", Self::Refuse), ("read", Self::Read), ("full", Self::Full)];
}

named!(GridLimited);

/// `-cipher`: a cipher of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridCipher {
    /// AES with keys of 256 bits.
    Aes256,
    /// AES with keys of 128 bits.
    Aes128,
}

impl GridCipher {
    /// All values with their names, in the order of preference.
    pub const ALL: [(&'static str, Self); 2] = [("aes-256-cbc", Self::Aes256), ("aes-128-cbc", Self::Aes128)];
}

named!(GridCipher);

/// `-authzpxy`: the certificates of a client that later layers receive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GridForwarding {
    /// As endorsements instead of credentials.
    pub as_endorsements: bool,
    /// All of them instead of the last one.
    pub is_full: bool,
}

/// `-authzfunparms`: names that are derived from the virtual organization of a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GridVoNames {
    /// `valido`: organizations that are accepted; empty for all.
    pub organizations: Vec<String>,
    /// `vo2grp`: the group, in which `%s` stands for the organization.
    pub group: Option<String>,
    /// `vo2usr`.
    pub user: GridVoUser,
    /// `-authzcall:novoms`: clients with attributes of VOMS are left as they are.
    pub only_without_attributes: bool,
}

/// `vo2usr`: the user of a client of a virtual organization.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum GridVoUser {
    /// Without the parameter: a user whose name is the subject has its first common name, with `_` for
    /// blanks. Others stay as they are.
    #[default]
    CommonName,
    /// `*`: the one that it has without the organization.
    Unchanged,
    /// A text in which `%s` stands for the organization.
    Format(String),
}

/// `-exppxy`: the place of proxies that clients delegate, in addition to the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GridExport {
    /// `=creds`: the credentials of the identity.
    Credentials,
    /// A file of this template, which has `<user>` or `<uid>`.
    File(String),
}

/// `grpopt` of `-vomsfunparms`: the groups of a client that count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum VomsGroups {
    /// All.
    #[default]
    All,
    /// The first one.
    First,
    /// The last one.
    Last,
}

impl VomsGroups {
    /// All values with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("useall", Self::All), ("usefirst", Self::First), ("uselast", Self::Last)];
}

named!(VomsGroups);

/// `-vomsat` and `-vomsfunparms`: the use of attributes of VOMS.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VomsOptions {
    /// `-vomsat:require`: a client without memberships that count is refused.
    pub is_required: bool,
    /// `grpopt`.
    pub choice: VomsGroups,
    /// `grps`; all if it is empty.
    pub groups: Vec<String>,
    /// `vos`; all if it is empty.
    pub organizations: Vec<String>,
    /// `grpfmt`.
    pub group_format: Option<String>,
    /// `rolefmt`.
    pub role_format: Option<String>,
    /// `vofmt`.
    pub organization_format: Option<String>,
}

/// Options of the server side of gsi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GsiOptions {
    /// `-certdir`: directories of authorities.
    pub authorities: Vec<PathBuf>,
    /// `-cert`.
    pub certificate: PathBuf,
    /// `-key`.
    pub key: PathBuf,
    /// `-cipher`.
    pub ciphers: Vec<GridCipher>,
    /// `-md`.
    pub digests: Vec<String>,
    /// `-ca`.
    pub authority_check: AuthorityCheck,
    /// `-crl`.
    pub revocation: RevocationCheck,
    /// `updt` of `-crl`: revocation lists are downloaded, too.
    pub downloads_lists: bool,
    /// `-crldir`; those of the authorities if it is empty.
    pub revocation_directories: Vec<PathBuf>,
    /// `-crlext`.
    pub revocation_extension: String,
    /// `-crlrefresh`.
    pub refresh: Duration,
    /// `-gridmap`; `None` for the default, which may be missing.
    pub map: Option<PathBuf>,
    /// `-gmapopt`.
    pub mapping: GridMapping,
    /// `usedn` of `-gmapopt`: the name of a subject that is not mapped is the subject.
    pub names_by_subject: bool,
    /// `-gmapto`.
    pub map_refresh: Duration,
    /// The use of attributes of VOMS; `None` if they are ignored.
    pub voms: Option<VomsOptions>,
    /// `-gmapfun` and `-gmapfunparms`: a file whose users count before those of the grid map.
    pub name_file: Option<PathBuf>,
    /// `-authzfun` and `-authzfunparms`.
    pub vo_names: Option<GridVoNames>,
    /// `-authzpxy`.
    pub forwarding: Option<GridForwarding>,
    /// `-dlgpxy`: clients are asked to delegate a proxy, if they offer it.
    pub asks_for_proxy: bool,
    /// `-exppxy`. Clients are then asked for a proxy, too.
    pub export: Option<GridExport>,
    /// `-moninfo`.
    pub monitors_subject: bool,
    /// `-showdn`.
    pub logs_subject: bool,
    /// `-defaulthash`.
    pub new_hash_only: bool,
}

impl Default for GsiOptions {
    fn default() -> Self {
        Self {
            authorities: vec![GRID_AUTHORITIES.into()],
            certificate: GRID_CERTIFICATE.into(),
            key: GRID_KEY.into(),
            ciphers: GridCipher::ALL.iter().map(|(_, cipher)| *cipher).collect(),
            digests: vec!["sha256".to_owned()],
            authority_check: AuthorityCheck::default(),
            revocation: RevocationCheck::default(),
            downloads_lists: false,
            revocation_directories: Vec::new(),
            revocation_extension: ".r0".to_owned(),
            refresh: Duration::from_secs(86_400),
            map: None,
            mapping: GridMapping::default(),
            names_by_subject: false,
            map_refresh: Duration::from_secs(600),
            voms: None,
            name_file: None,
            vo_names: None,
            forwarding: None,
            asks_for_proxy: false,
            export: None,
            monitors_subject: false,
            logs_subject: false,
            new_hash_only: false,
        }
    }
}
