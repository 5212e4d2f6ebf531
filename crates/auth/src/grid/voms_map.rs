//! [`VomsMap`]: users of groups, by a map file (`voms.mapfile`).
//!
//! A line is an expression in quotes and a user: `"/cms/Role=production/Capability=NULL" cmsprod`. In
//! an element of the expression `*` stands for any text, and `/*` at the end for any further elements.
//! The first line that matches counts. A malformed line makes the whole file unusable, because without
//! it a later line could match.

use super::fault::GridTrustError;
use super::fqan::Fqan;
use super::glob::Glob;
use super::map::is_user;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner, read_trusted};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of lines with expressions.
const LINES_MAX: usize = 2_000;

/// The demands on a map file.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "map groups to users",
    bytes_max: FILE_BYTES_MAX,
};

/// A line of a file.
#[derive(Debug)]
struct MapLine {
    elements: Vec<Glob>,
    /// Whether further elements may follow.
    is_open: bool,
    user: String,
}

/// A map file, which can be read again.
#[derive(Debug)]
pub struct VomsMap {
    path: PathBuf,
    lines: RwLock<Arc<Vec<MapLine>>>,
}

impl VomsMap {
    /// Reads a file. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, others could have written it, or a line is malformed.
    pub fn open(path: &Path) -> Result<Self, GridTrustError> {
        Ok(Self { path: path.to_owned(), lines: RwLock::new(Arc::new(read(path)?)) })
    }

    /// Parses the content of a file. The map cannot be read again.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { path: PathBuf::new(), lines: RwLock::new(Arc::new(parse(text)?)) })
    }

    /// Reads the file again. The earlier content stays in force after an error. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn refresh(&self) -> Result<(), GridTrustError> {
        let lines = Arc::new(read(&self.path)?);
        *self.lines.write().unwrap_or_else(PoisonError::into_inner) = lines;
        Ok(())
    }

    /// Returns the user of the first of these names that a line matches.
    #[must_use]
    pub fn user_for(&self, names: &[Fqan]) -> Option<String> {
        let lines = self.lines.read().unwrap_or_else(PoisonError::into_inner).clone();
        names.iter().find_map(|name| user_of(&lines, name)).map(str::to_owned)
    }
}

fn read(path: &Path) -> Result<Vec<MapLine>, GridTrustError> {
    let (text, _) = read_trusted(path, &TRUST).map_err(|error| GridTrustError::of_file(path, error))?;
    let text = std::str::from_utf8(&text).map_err(|_| GridTrustError::content(path, "it is not UTF-8"))?;
    parse(text).map_err(|reason| GridTrustError::content(path, reason))
}

fn parse(text: &str) -> Result<Vec<MapLine>, String> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if lines.len() >= LINES_MAX {
            return Err(format!("more than {LINES_MAX} lines"));
        }
        lines.push(parse_line(line).map_err(|what| format!("line {number}: {what}"))?);
    }
    Ok(lines)
}

fn parse_line(line: &str) -> Result<MapLine, &'static str> {
    let quoted = line.strip_prefix('"').ok_or("the expression is not in quotes")?;
    let (expression, user) = unescaped(quoted)?;
    let user = user.trim();
    if !is_user(user) {
        return Err("the user is not 1 to 64 printable characters without blanks, or begins with '-'");
    }
    let (begin, elements) = expression.split_first().ok_or("the expression is empty")?;
    if !begin.is_empty() || elements.is_empty() || elements.iter().any(String::is_empty) {
        return Err("the expression has not the form \"/VO/GROUP/Role=ROLE/Capability=NULL\"");
    }
    let (elements, is_open) = match elements {
        [above @ .., last] if last == "*" => (above, true),
        _ => (elements, false),
    };
    let elements = elements.iter().map(|element| Glob::without_escapes(element)).collect();
    Ok(MapLine { elements, is_open, user: user.to_owned() })
}

/// Returns the elements of an expression up to the closing quote, and the text after it.
fn unescaped(text: &str) -> Result<(Vec<String>, &str), &'static str> {
    let (mut elements, mut element) = (Vec::new(), String::new());
    let mut characters = text.chars();
    loop {
        match characters.next().ok_or("the closing '\"' of the expression is missing")? {
            '"' => {
                elements.push(element);
                return Ok((elements, characters.as_str()));
            }
            '/' => elements.push(std::mem::take(&mut element)),
            '\\' => element.push(match characters.next() {
                Some(literal @ ('\'' | '"' | '\\' | '/')) => literal,
                Some('f') => '\x0c',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                _ => return Err("an unknown character follows '\\'"),
            }),
            character => element.push(character),
        }
    }
}

/// Returns the user of the first line that matches a name.
fn user_of<'a>(lines: &'a [MapLine], name: &Fqan) -> Option<&'a str> {
    let role = format!("Role={}", name.role());
    let groups = name.group().split('/').skip(1);
    let elements: Vec<&str> = groups.chain([role.as_str(), "Capability=NULL"]).collect();
    let matches = |line: &&MapLine| {
        let is_long_enough = match line.is_open {
            true => line.elements.len() <= elements.len(),
            false => line.elements.len() == elements.len(),
        };
        is_long_enough && line.elements.iter().zip(&elements).all(|(glob, element)| glob.matches(element))
    };
    lines.iter().find(matches).map(|line| line.user.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_computed_case_has_its_user() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/names.json");
        let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let computed = &vectors["voms_mapfile"];
        let lines = parse(computed["file"].as_str().unwrap()).unwrap();
        for case in computed["cases"].as_array().unwrap() {
            let [organization, group, role] = [0, 1, 2].map(|index| case[index].as_str().unwrap());
            let name = Fqan::parse(&format!("{group}/Role={role}")).unwrap();
            // A name of another organization is never a membership.
            let name = (name.organization() == organization).then_some(name);
            let user = name.and_then(|name| user_of(&lines, &name).map(str::to_owned));
            assert_eq!(user.as_deref(), case[3].as_str(), "{case}");
        }
    }

    #[test]
    fn malformed_lines_are_named() {
        for (text, expected) in [
            ("# \n\n/cms cms\n", "line 3: the expression is not in quotes"),
            ("\"/cms cms\n", "the closing"),
            ("\"/cms\"\n", "the user is not"),
            ("\"/cms\" -x\n", "the user is not"),
            ("\"/cms\" a b\n", "the user is not"),
            ("\"cms\" a\n", "has not the form"),
            ("\"/cms//x\" a\n", "has not the form"),
            ("\"\" a\n", "has not the form"),
            ("\"/c\\ms\" a\n", "an unknown character"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_first_name_with_a_user_counts() {
        let map = VomsMap::parse("\"/b/*\" second\n\"/a*/*\" first\n\"/*\" any\n").unwrap();
        let user = |names: &[&str]| {
            map.user_for(&names.iter().map(|name| Fqan::parse(name).unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(user(&["/ab/c", "/b"]).as_deref(), Some("first"));
        assert_eq!(user(&["/b", "/ab/c"]).as_deref(), Some("second"));
        assert_eq!(user(&["/x", "/b"]).as_deref(), Some("any"));
        assert_eq!(user(&[]), None);
    }

    /// Distinguished names have escapes, names of groups do not.
    #[test]
    fn a_backslash_in_a_group_is_a_character() {
        let user = |line: &str, group: &str| {
            user_of(&parse(line).unwrap(), &Fqan::parse(group).unwrap()).map(str::to_owned)
        };
        assert_eq!(user(r#""/cms/a\\*/*" u"#, r"/cms/a\x41").as_deref(), Some("u"));
        assert_eq!(user(r#""/cms/*41/*" u"#, r"/cms/a\x41").as_deref(), Some("u"));
        assert_eq!(user(r#""/cms/*+b/*" u"#, r"/cms/a\+b").as_deref(), Some("u"));
        assert_eq!(user(r#""/cms/a\\xab/*" u"#, r"/cms/a\xAB"), None);
        assert_eq!(user(r#""/cms/a\\xab/*" u"#, r"/cms/a\xab").as_deref(), Some("u"));
    }
}
