//! [`GridMap`]: users of distinguished names, by a grid map file.
//!
//! A line is a name, which is quoted if it has blanks, and its users: `"/C=../CN=.." user,user`. A name
//! may begin with `^` (names that begin so), end with `$` (names that end so) or `+` (names that contain
//! it), and have `*` for any text. A line with exactly the name counts first, then the first line that
//! matches. A malformed line makes the whole file unusable, because without it a later line could
//! match.

use super::fault::GridTrustError;
use super::glob::Glob;
use crate::trusted_file::{
    FileStamp, FileTrust, NO_SHARED_WRITE, TrustedFileError, TrustedOwner, read_trusted,
};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Maximum size of a grid map in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of lines with names.
const LINES_MAX: usize = 100_000;
/// Maximum number of lines with patterns, each of which is compared.
const PATTERNS_MAX: usize = 2_000;
/// Maximum number of users on a line.
const USERS_MAX: usize = 32;
/// Maximum length of a user.
const USER_BYTES_MAX: usize = 64;
/// Maximum length of a name.
const NAME_BYTES_MAX: usize = 4096;

/// The demands on a grid map.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "map names to users",
    bytes_max: FILE_BYTES_MAX,
};

/// The lines of a file.
#[derive(Default, Debug)]
struct MapLines {
    exact: HashMap<String, Vec<String>>,
    patterns: Vec<(Glob, Vec<String>)>,
}

/// The content of a file, and the stamp of the file; `None` if there was no file.
#[derive(Debug)]
struct MapContent {
    lines: MapLines,
    stamp: Option<FileStamp>,
}

/// A grid map file, which can be read again.
#[derive(Debug)]
pub struct GridMap {
    path: PathBuf,
    content: RwLock<Arc<MapContent>>,
    /// Held while the file is read again, because a read that began earlier must not replace a later one.
    refreshes: Mutex<()>,
}

impl GridMap {
    /// Reads a file. An absent file maps no name. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, others could have written it, or a line is malformed.
    pub fn open(path: &Path) -> Result<Self, GridTrustError> {
        let content = RwLock::new(Arc::new(read(path)?));
        Ok(Self { path: path.to_owned(), content, refreshes: Mutex::default() })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let content = MapContent { lines: MapLines::parse(text)?, stamp: None };
        let content = RwLock::new(Arc::new(content));
        Ok(Self { path: PathBuf::new(), content, refreshes: Mutex::default() })
    }

    /// Reads the file again and reports whether it changed. The earlier content stays in force after
    /// an error. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn refresh(&self) -> Result<bool, GridTrustError> {
        let _turn = self.refreshes.lock().unwrap_or_else(PoisonError::into_inner);
        let content = read(&self.path)?;
        if content.stamp == self.content().stamp {
            return Ok(false);
        }
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
        Ok(true)
    }

    /// Returns its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        let content = self.content();
        content.lines.exact.len() + content.lines.patterns.len()
    }

    /// Reports whether no name is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the users of the name of an end entity, the first of them first. There is none if the
    /// name is not mapped.
    #[must_use]
    pub fn names_for(&self, name: &str) -> Vec<String> {
        self.content().lines.users(name).map(<[String]>::to_vec).unwrap_or_default()
    }

    /// Returns the user of a name: the one that the client asked for if it is one of the name's, else
    /// the first.
    #[must_use]
    pub fn user_for(&self, name: &str, requested: Option<&str>) -> Option<String> {
        let content = self.content();
        let users = content.lines.users(name)?;
        users.iter().find(|user| Some(user.as_str()) == requested).or_else(|| users.first()).cloned()
    }

    fn content(&self) -> Arc<MapContent> {
        self.content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(path: &Path) -> Result<MapContent, GridTrustError> {
    match read_trusted(path, &TRUST) {
        Ok((text, stamp)) => {
            let lines = MapLines::parse(&text).map_err(|reason| GridTrustError::content(path, reason))?;
            Ok(MapContent { lines, stamp: Some(stamp) })
        }
        Err(TrustedFileError::Unreadable(error)) if error.kind() == ErrorKind::NotFound => {
            Ok(MapContent { lines: MapLines::default(), stamp: None })
        }
        Err(error) => Err(GridTrustError::of_file(path, error)),
    }
}

impl MapLines {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| {
            "it is not UTF-8; write other characters of names as \\xHH, as in the log".to_owned()
        })?;
        let mut lines = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, users) = parse_line(line).map_err(|what| format!("line {number}: {what}"))?;
            match pattern_of(&name) {
                Some(pattern) => lines.patterns.push((Glob::with_star(&pattern), users)),
                // The first line with a name counts.
                None => drop(lines.exact.entry(with_escaped_slashes(&name)).or_insert(users)),
            }
            if lines.exact.len() > LINES_MAX || lines.patterns.len() > PATTERNS_MAX {
                return Err(format!("more than {LINES_MAX} names or {PATTERNS_MAX} patterns"));
            }
        }
        Ok(lines)
    }

    fn users(&self, name: &str) -> Option<&[String]> {
        if let Some(users) = self.exact.get(name) {
            return Some(users);
        }
        let found = self.patterns.iter().find(|(glob, _)| glob.matches(name));
        found.map(|(_, users)| users.as_slice())
    }
}

fn parse_line(line: &str) -> Result<(String, Vec<String>), &'static str> {
    let (name, users) = match line.strip_prefix('"') {
        Some(rest) => rest.split_once('"').ok_or("the closing '\"' of the name is missing")?,
        None => line.split_once([' ', '\t']).ok_or("there is no user after the name")?,
    };
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("the name is empty or longer than 4096 bytes");
    }
    let users = users.trim();
    if users.is_empty() {
        return Err("there is no user after the name");
    }
    let users: Vec<String> = users.split(',').map(|user| user.trim().to_owned()).collect();
    if users.len() > USERS_MAX {
        return Err("more than 32 users");
    }
    if !users.iter().all(|user| is_user(user)) {
        return Err("a user is not 1 to 64 printable characters without blanks, or begins with '-'");
    }
    Ok((with_usual_attributes(name), users))
}

pub(crate) fn is_user(user: &str) -> bool {
    let is_short = (1..=USER_BYTES_MAX).contains(&user.len());
    is_short && !user.starts_with('-') && user.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the name with the attribute types that [`super::DistinguishedName`] uses.
pub(super) fn with_usual_attributes(name: &str) -> String {
    let name = name.replace("/Email=", "/emailAddress=").replace("/E=", "/emailAddress=");
    name.replace("/USERID=", "/UID=").replace("/userid=", "/UID=")
}

/// Returns a name in the form of [`super::DistinguishedName::text`].
pub(super) fn usual_name(name: &str) -> String {
    with_escaped_slashes(&with_usual_attributes(name))
}

/// Returns a name in which a `/` that no attribute follows is escaped as in
/// [`super::DistinguishedName::text`], because files have names such as `/CN=host/data.example.org`.
fn with_escaped_slashes(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (index, part) in name.split('/').enumerate() {
        if index > 0 {
            let is_attribute = part.contains('=') || escaped.ends_with('\\');
            escaped.push_str(if is_attribute || index == 1 { "/" } else { "\\/" });
        }
        escaped.push_str(part);
    }
    escaped
}

/// Returns the pattern of a name with a modifier, in which `*` stands for any text.
fn pattern_of(name: &str) -> Option<String> {
    let (has_begin, rest) = name.strip_prefix('^').map_or((false, name), |rest| (true, rest));
    if let Some(part) = rest.strip_suffix('+') {
        return Some(format!("*{part}*"));
    }
    match (has_begin, rest.strip_suffix('$')) {
        (true, Some(whole)) => Some(whole.to_owned()),
        (true, None) => Some(format!("{rest}*")),
        (false, Some(end)) => Some(format!("*{end}")),
        (false, None) => rest.contains('*').then(|| rest.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_computed_case_has_its_user() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/names.json");
        let vectors: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let computed = &vectors["gridmap"];
        let map = GridMap::parse(computed["file"].as_str().unwrap().as_bytes()).unwrap();
        let cases = computed["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 10);
        for case in cases {
            let found = map.user_for(case[0].as_str().unwrap(), case[1].as_str());
            assert_eq!(found.as_deref(), case[2].as_str(), "{case}");
        }
    }

    #[test]
    fn patterns_match_where_their_modifiers_allow() {
        let text = "/CN=a* star\n^/O=x/CN=b$ whole\n^/O=y/*/CN=c begins\n\"*/OU=z $\" ends\n/CN=a exact\n\
                    /CN=m/Email=m@x mail\n";
        let lines = MapLines::parse(text.as_bytes()).unwrap();
        let cases = [
            ("/CN=a", Some("exact")),
            ("/CN=ab", Some("star")),
            ("/O=x/CN=b", Some("whole")),
            ("/O=x/CN=bb", None),
            ("/O=y/CN=c", None),
            ("/O=y/OU=q/CN=cd", Some("begins")),
            ("/O=q/OU=z ", Some("ends")),
            ("/CN=m/emailAddress=m@x", Some("mail")),
            ("", None),
        ];
        for (name, user) in cases {
            assert_eq!(lines.users(name).map(|users| users[0].as_str()), user, "{name}");
        }
    }

    #[test]
    fn slashes_of_values_need_no_escape_where_they_are_unambiguous() {
        let text = "/DC=org/CN=host/data.example.org host\n/CN=a\\/b/c esc\n/CN=x/CN=root two\n";
        let lines = MapLines::parse(text.as_bytes()).unwrap();
        let user = |name| lines.users(name).map(|users| users[0].as_str());
        assert_eq!(user(r"/DC=org/CN=host\/data.example.org"), Some("host"));
        assert_eq!(user("/DC=org/CN=host/data.example.org"), None);
        assert_eq!(user(r"/CN=a\/b\/c"), Some("esc"));
        assert_eq!((user("/CN=x/CN=root"), user(r"/CN=x\/CN=root")), (Some("two"), None));
    }

    /// The value of one attribute must not look like the end or the middle of another name.
    #[test]
    fn a_pattern_does_not_match_inside_of_a_value() {
        let text = "/CN=admin$ ends\n*/OU=staff/* middle\n/OU=ops/CN=+ contains\n";
        let lines = MapLines::parse(text.as_bytes()).unwrap();
        let user = |name: &str| lines.users(name).map(|users| users[0].as_str());
        assert_eq!(user("/O=x/CN=admin"), Some("ends"));
        assert_eq!((user("/O=x/OU=staff/CN=a"), user("/OU=ops/CN=a")), (Some("middle"), Some("contains")));
        for name in
            [r"/O=x/CN=y\/CN=admin", r"/CN=a\/OU=staff/CN=b", r"/CN=a\/OU=staff\/b", r"/CN=\/OU=ops\/CN=b"]
        {
            assert_eq!(user(name), None, "{name}");
        }
    }

    #[test]
    fn malformed_lines_are_named() {
        let cases = [
            ("# \n\n\"/CN=a b\n", "line 3: the closing"),
            ("/CN=a\n", "line 1: there is no user"),
            ("\"/CN=a\"  \n", "no user"),
            ("\"\" a\n", "the name is empty"),
            ("/CN=a -rf\n", "begins with '-'"),
            ("/CN=a b,,c\n", "a user is not"),
        ];
        for (text, expected) in cases {
            let error = MapLines::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let many = format!("/CN=a {}\n", "u,".repeat(32) + "u");
        assert!(MapLines::parse(many.as_bytes()).unwrap_err().contains("more than 32 users"));
        assert!(MapLines::parse(b"/CN=\xe9 a\n").unwrap_err().contains("not UTF-8"));
    }

    #[test]
    fn a_changed_file_is_read_and_a_malformed_one_changes_nothing() {
        let directory = std::env::temp_dir().join(format!("auth-grid-map-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("grid-mapfile");
        let map = GridMap::open(&path).unwrap();
        assert!(map.is_empty() && !map.refresh().unwrap());
        fs::write(&path, "/CN=a alice\n").unwrap();
        assert!(map.refresh().unwrap());
        assert_eq!(map.names_for("/CN=a"), ["alice"]);
        fs::write(&path, "/CN=a\n").unwrap();
        assert!(map.refresh().is_err());
        assert_eq!(map.names_for("/CN=a"), ["alice"]);
        fs::write(&path, "/CN=a robert,alice\n").unwrap();
        assert!(map.refresh().unwrap());
        assert_eq!(map.names_for("/CN=a"), ["robert", "alice"]);
        fs::remove_file(&path).unwrap();
        assert!(map.refresh().unwrap() && map.names_for("/CN=a").is_empty());
        fs::remove_dir_all(directory).unwrap();
    }
}
