//! [`IssuerFile`]: the issuers whose tokens are accepted, and their settings (`config=FILE` of
//! `libXrdAccSciTokens.so`), with the key sets and map files that it names.

use super::claims::is_name;
use super::ini::{self, IniEntry, IniSection};
use super::keys::{JWKS_BYTES_MAX, KeySet};
use super::map_file::{MAP_FILE_BYTES_MAX, MapFile};
use crate::access::AuthdbCheck;
use crate::trusted_file::{ANY_MODE, FileStamp, FileTrust, NO_SHARED_WRITE, TrustedFileError, read_trusted};
use base::LogicalPath;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of an issuer file in bytes.
pub const ISSUER_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of issuers.
pub const ISSUERS_MAX: usize = 256;
/// Maximum number of base paths or restricted paths of one issuer.
const PATHS_MAX: usize = 64;
/// The claim with groups, unless the issuer file names another one.
const GROUPS_CLAIM: &str = "wlcg.groups";

/// `onmissing`: what decides about a request whose token, if it has one, does not authorize it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnMissing {
    /// The rules behind.
    #[default]
    PassThrough,
    /// It is allowed.
    Allow,
    /// It is denied.
    Deny,
}

/// `authorization_strategy`: the ways in which a token counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strategies {
    /// Scopes allow operations.
    pub capability: bool,
    /// The map file names the client for the rules behind.
    pub mapping: bool,
    /// Groups of the token count for the rules behind.
    pub group: bool,
}

/// An issuer and its settings.
#[derive(Clone, PartialEq, Debug)]
pub struct Issuer {
    /// Name of the section.
    pub section: String,
    /// Line of the section.
    pub line: u32,
    /// The claim `iss` of its tokens.
    pub url: String,
    /// Where paths of its tokens begin in the name space of the server.
    pub base_paths: Vec<LogicalPath>,
    /// Paths of the issuer to which scopes are cut; empty for no restriction.
    pub restricted_paths: Vec<LogicalPath>,
    /// The subject is the name of the client.
    pub map_subject: bool,
    /// The name of clients whose scopes allow a request.
    pub default_user: Option<String>,
    /// The claim that names the client.
    pub username_claim: Option<String>,
    /// The claim with the groups of the client.
    pub groups_claim: String,
    /// The ways in which its tokens count.
    pub strategies: Strategies,
    /// The file with the keys of the issuer; `None` for keys from its address.
    pub keys_file: Option<PathBuf>,
    /// The keys of that file.
    pub(super) keys: Option<Arc<KeySet>>,
    pub(super) map: Option<MapFile>,
}

/// A problem of an issuer file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuerFileProblem {
    /// The line.
    pub line: u32,
    /// The problem.
    pub what: String,
}

impl fmt::Display for IssuerFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// The reason why an issuer file is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IssuerFileError {
    /// It cannot be read, or others could have written it.
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason and the remedy.
        reason: String,
    },
    /// It has errors.
    Invalid {
        /// The file.
        path: PathBuf,
        /// The errors, at least one.
        problems: Vec<IssuerFileProblem>,
    },
}

impl fmt::Display for IssuerFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { path, reason } => write!(f, "{} is not used: {reason}", path.display()),
            Self::Invalid { path, problems } => {
                for (index, problem) in problems.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{}:{problem}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for IssuerFileError {}

/// The issuers in an issuer file.
#[derive(Clone, PartialEq, Debug)]
pub struct IssuerFile {
    /// The file.
    pub path: PathBuf,
    /// Audiences of this server.
    pub audiences: Vec<String>,
    /// The decision about requests that tokens do not authorize.
    pub on_missing: OnMissing,
    /// The issuers, each with another address.
    pub issuers: Vec<Arc<Issuer>>,
    /// Rules that never apply.
    pub warnings: Vec<IssuerFileProblem>,
    /// The files that were read, to recognize changes.
    stamps: Vec<(PathBuf, Option<FileStamp>)>,
}

/// Reads a file of at most a number of bytes. The error contains reason and remedy.
type ReadFile<'a> = dyn FnMut(&Path, u64) -> Result<Vec<u8>, String> + 'a;

impl IssuerFile {
    /// Reports whether the keys of the issuer with this address come from the network.
    pub(super) fn fetches_keys_of(&self, url: &str) -> bool {
        self.issuers.iter().any(|issuer| issuer.keys_file.is_none() && issuer.url == url)
    }

    /// Loads a file, with the key sets and map files that it names. Their writers are checked.
    /// Blocks.
    ///
    /// # Errors
    /// [`IssuerFileError`].
    pub fn load(path: &Path, check: AuthdbCheck) -> Result<Self, IssuerFileError> {
        let mut stamps = Vec::new();
        let mut read = |path: &Path, bytes_max: u64| {
            let (text, stamp) = read(path, bytes_max, check)?;
            stamps.push((path.to_owned(), Some(stamp)));
            Ok(text)
        };
        let text = read(path, ISSUER_FILE_BYTES_MAX)
            .map_err(|reason| IssuerFileError::Unusable { path: path.to_owned(), reason })?;
        let loaded = Self::parse(&text, path, &mut read)?;
        Ok(Self { stamps, ..loaded })
    }

    /// Parses the text of a file. `read` reads the files that it names.
    ///
    /// # Errors
    /// [`IssuerFileError::Invalid`].
    pub fn parse(text: &[u8], path: &Path, read: &mut ReadFile<'_>) -> Result<Self, IssuerFileError> {
        let invalid = |problems| IssuerFileError::Invalid { path: path.to_owned(), problems };
        let text = std::str::from_utf8(text).map_err(|_| {
            invalid(vec![IssuerFileProblem { line: 1, what: "the file is not UTF-8".to_owned() }])
        })?;
        let sections = ini::parse(text).map_err(invalid)?;
        let mut parser = IssuerFileParser { read, problems: Vec::new(), warnings: Vec::new() };
        let mut file = Self {
            path: path.to_owned(),
            audiences: Vec::new(),
            on_missing: OnMissing::default(),
            issuers: Vec::new(),
            warnings: Vec::new(),
            stamps: Vec::new(),
        };
        for section in merged(sections) {
            parser.section(&section, &mut file);
        }
        if parser.problems.is_empty() && file.issuers.is_empty() {
            parser.problem(1, "the file has no [Issuer NAME] section, so no token would be accepted");
        }
        file.warnings = parser.warnings;
        if parser.problems.is_empty() { Ok(file) } else { Err(invalid(parser.problems)) }
    }

    /// Reports whether a file that was read has changed since. Blocks.
    pub(super) fn has_changed(&self) -> bool {
        self.stamps.iter().any(|(path, stamp)| {
            // The stamp of the target, because mounted configuration maps are links.
            let present = std::fs::metadata(path).ok().map(|found| FileStamp::of(&found));
            present.is_none() || present != *stamp
        })
    }
}

fn read(path: &Path, bytes_max: u64, check: AuthdbCheck) -> Result<(Vec<u8>, FileStamp), String> {
    let trust = FileTrust {
        owner: check.owner(),
        modes: if check == AuthdbCheck::None { ANY_MODE } else { NO_SHARED_WRITE },
        danger: "change who is trusted",
        bytes_max,
    };
    match read_trusted(path, &trust) {
        Ok((mut text, stamp)) => Ok((std::mem::take(&mut *text), stamp)),
        Err(TrustedFileError::Unreadable(error)) => {
            Err(format!("it cannot be read: {}", base::errno_text(&error)))
        }
        Err(TrustedFileError::Untrusted { reason, remedy }) => Err(format!("{reason}; {remedy}")),
    }
}

/// Returns the sections with entries of sections of the same name together. Of a repeated key the
/// last value counts.
fn merged(sections: Vec<IniSection>) -> Vec<IniSection> {
    let mut merged: Vec<IniSection> = Vec::new();
    for section in sections {
        match merged.iter_mut().find(|known| known.name.eq_ignore_ascii_case(&section.name)) {
            Some(known) => known.entries.extend(section.entries),
            None => merged.push(section),
        }
    }
    for section in &mut merged {
        let mut last: Vec<IniEntry> = Vec::new();
        for entry in section.entries.drain(..) {
            last.retain(|known| known.key != entry.key);
            last.push(entry);
        }
        section.entries = last;
    }
    merged
}

/// Returns the words of a list, separated by commas or blanks.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(|letter: char| letter == ',' || letter.is_whitespace()).filter(|word| !word.is_empty())
}

struct IssuerFileParser<'a, 'b> {
    read: &'a mut ReadFile<'b>,
    problems: Vec<IssuerFileProblem>,
    warnings: Vec<IssuerFileProblem>,
}

impl IssuerFileParser<'_, '_> {
    fn warn_of_hidden_rules(&mut self, entry: &IniEntry, path: &Path, map: &MapFile) {
        self.warnings.extend(map.hidden_rules().into_iter().map(|(rule, earlier)| {
            let what = format!(
                "{}: rule {rule} never applies, because rule {earlier} holds wherever it does; move it before that rule",
                path.display()
            );
            IssuerFileProblem { line: entry.line, what }
        }));
    }

    fn problem(&mut self, line: u32, what: impl Into<String>) {
        self.problems.push(IssuerFileProblem { line, what: what.into() });
    }

    fn section(&mut self, section: &IniSection, file: &mut IssuerFile) {
        if section.name.eq_ignore_ascii_case("global") {
            return self.global(section, file);
        }
        let (kind, name) = section.name.split_once(' ').unwrap_or((&section.name, ""));
        if !kind.eq_ignore_ascii_case("issuer") || name.is_empty() {
            return self.problem(
                section.line,
                format!("unknown section [{}]; allowed: [Global], [Issuer NAME]", section.name),
            );
        }
        let Some(issuer) = self.issuer(section, name) else { return };
        if let Some(other) = file.issuers.iter().find(|other| other.url == issuer.url) {
            let what = format!(
                "the issuer {} is already in section [Issuer {}] (line {})",
                issuer.url, other.section, other.line
            );
            return self.problem(section.line, what);
        }
        if file.issuers.len() >= ISSUERS_MAX {
            return self.problem(section.line, format!("more than {ISSUERS_MAX} issuers"));
        }
        file.issuers.push(Arc::new(issuer));
    }

    fn global(&mut self, section: &IniSection, file: &mut IssuerFile) {
        for entry in &section.entries {
            match entry.key.as_str() {
                "audience" => file.audiences.extend(words(&entry.value).map(str::to_owned)),
                "audience_json" => match audiences(&entry.value) {
                    Some(audiences) => file.audiences.extend(audiences),
                    None => self
                        .problem(entry.line, "audience_json is neither a JSON text nor a JSON list of texts"),
                },
                "onmissing" => match entry.value.to_ascii_lowercase().as_str() {
                    "passthrough" => file.on_missing = OnMissing::PassThrough,
                    "allow" => file.on_missing = OnMissing::Allow,
                    "deny" => file.on_missing = OnMissing::Deny,
                    _ => self.invalid(entry, "passthrough, allow, deny"),
                },
                _ => self.unknown(entry, "audience, audience_json, onmissing"),
            }
        }
    }

    fn invalid(&mut self, entry: &IniEntry, allowed: &str) {
        self.problem(entry.line, format!("invalid {} '{}'; allowed: {allowed}", entry.key, entry.value));
    }

    fn unknown(&mut self, entry: &IniEntry, allowed: &str) {
        self.problem(entry.line, format!("unknown key '{}'; allowed: {allowed}", entry.key));
    }

    /// Returns the issuer of a section, unless it has problems.
    fn issuer(&mut self, section: &IniSection, name: &str) -> Option<Issuer> {
        let before = self.problems.len();
        let mut issuer = Issuer {
            section: name.to_owned(),
            line: section.line,
            url: String::new(),
            base_paths: Vec::new(),
            restricted_paths: Vec::new(),
            map_subject: false,
            default_user: None,
            username_claim: None,
            groups_claim: GROUPS_CLAIM.to_owned(),
            strategies: Strategies { capability: true, mapping: true, group: true },
            keys_file: None,
            keys: None,
            map: None,
        };
        for entry in &section.entries {
            self.issuer_entry(entry, &mut issuer);
        }
        if issuer.url.is_empty() {
            self.problem(section.line, format!("section [{}] has no issuer", section.name));
        }
        if issuer.base_paths.is_empty() {
            self.problem(section.line, format!("section [{}] has no base_path", section.name));
        }
        if issuer.keys_file.is_none() && !issuer.url.is_empty() && !issuer.url.starts_with("https://") {
            let what = format!(
                "keys are fetched over https only, but the issuer is {}; name a key set with jwks_file",
                issuer.url
            );
            self.problem(section.line, what);
        }
        (self.problems.len() == before).then_some(issuer)
    }

    fn issuer_entry(&mut self, entry: &IniEntry, issuer: &mut Issuer) {
        let value = entry.value.as_str();
        match entry.key.as_str() {
            "issuer" if !value.is_empty() && !value.contains(char::is_whitespace) => issuer.url = value.to_owned(),
            "issuer" => self.invalid(entry, "an address, exactly as in tokens"),
            "base_path" => issuer.base_paths = self.paths(entry),
            "restricted_path" => issuer.restricted_paths = self.paths(entry),
            "map_subject" => match value.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => issuer.map_subject = true,
                "false" | "no" | "off" | "0" => issuer.map_subject = false,
                _ => self.invalid(entry, "true, false"),
            },
            "default_user" if is_name(value) => issuer.default_user = Some(value.to_owned()),
            "default_user" => self.invalid(entry, "1 to 64 letters, digits, and ._@- except a leading '-'"),
            "username_claim" if !value.is_empty() => issuer.username_claim = Some(value.to_owned()),
            "groups_claim" if !value.is_empty() => issuer.groups_claim = value.to_owned(),
            "username_claim" | "groups_claim" => self.invalid(entry, "the name of a claim"),
            "authorization_strategy" => self.strategies(entry, issuer),
            "name_mapfile" => {
                if let Some((path, map)) = self.named_file(entry, MAP_FILE_BYTES_MAX, MapFile::parse) {
                    self.warn_of_hidden_rules(entry, &path, &map);
                    issuer.map = Some(map);
                }
            }
            "jwks_file" => {
                let bytes_max = u64::try_from(JWKS_BYTES_MAX).unwrap_or(u64::MAX);
                let parse = |text: &[u8]| KeySet::parse(text).map_err(|error| error.to_string());
                if let Some((path, keys)) = self.named_file(entry, bytes_max, parse) {
                    issuer.keys_file = Some(path);
                    issuer.keys = Some(Arc::new(keys));
                }
            }
            _ => self.unknown(
                entry,
                "issuer, base_path, restricted_path, map_subject, default_user, username_claim, groups_claim, \
                 name_mapfile, authorization_strategy, jwks_file",
            ),
        }
    }

    fn strategies(&mut self, entry: &IniEntry, issuer: &mut Issuer) {
        let mut strategies = Strategies { capability: false, mapping: false, group: false };
        let mut is_empty = true;
        for word in words(&entry.value) {
            is_empty = false;
            match word.to_ascii_lowercase().as_str() {
                "capability" => strategies.capability = true,
                "mapping" => strategies.mapping = true,
                "group" => strategies.group = true,
                _ => return self.invalid(entry, "any of: capability group mapping"),
            }
        }
        if is_empty {
            return self.invalid(entry, "any of: capability group mapping");
        }
        issuer.strategies = strategies;
    }

    fn paths(&mut self, entry: &IniEntry) -> Vec<LogicalPath> {
        let mut paths = Vec::new();
        for word in words(&entry.value) {
            match LogicalPath::parse(word.as_bytes()) {
                Ok(path) => paths.push(path.without_slash()),
                Err(_) => self.problem(
                    entry.line,
                    format!("{}: '{word}' is not an absolute path without '..'", entry.key),
                ),
            }
        }
        if paths.len() > PATHS_MAX {
            self.problem(entry.line, format!("{} has more than {PATHS_MAX} paths", entry.key));
        }
        if words(&entry.value).next().is_none() {
            self.invalid(entry, "paths");
        }
        paths
    }

    /// Reads and parses a file that an entry names.
    fn named_file<T>(
        &mut self,
        entry: &IniEntry,
        bytes_max: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<(PathBuf, T)> {
        let path = PathBuf::from(&entry.value);
        if !path.is_absolute() {
            self.invalid(entry, "an absolute path");
            return None;
        }
        match (self.read)(&path, bytes_max).and_then(|text| parse(&text)) {
            Ok(parsed) => Some((path, parsed)),
            Err(reason) => {
                self.problem(entry.line, format!("{} {} is not used: {reason}", entry.key, entry.value));
                None
            }
        }
    }
}

/// Returns the audiences of `audience_json`.
fn audiences(text: &str) -> Option<Vec<String>> {
    match serde_json::from_str(text).ok()? {
        serde_json::Value::String(one) => Some(vec![one]),
        serde_json::Value::Array(list) => {
            list.into_iter().map(|one| Some(one.as_str()?.to_owned())).collect()
        }
        _ => None,
    }
}
