//! Rules that translate logical paths to paths below the local root (`scalla.namerule`), instead of
//! the name libraries of XRootD.

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use std::fmt;

/// Maximum number of name rules. Each operation on a name examines all of them.
pub const NAME_RULES_MAX: usize = 64;
/// Maximum memory of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a translated name in bytes. No longer path is valid.
const RESULT_BYTES_MAX: usize = 4095;

/// `scalla.namerule from to …`: paths below `from` lie below `to`.
#[derive(Clone, PartialEq, Debug)]
pub struct NameRule {
    /// The logical directory, in normal form.
    pub from: String,
    /// The directory below the local root, in normal form.
    pub to: String,
    /// The translation of the paths below `from`.
    pub layout: NameLayout,
}

/// The translation of the paths below the directory of a rule.
#[derive(Clone, PartialEq, Debug)]
pub enum NameLayout {
    /// Paths stay as they are.
    Prefix,
    /// `SCOPE:NAME` becomes `SCOPE/xx/yy/NAME`, where `xx` and `yy` are the first two bytes of the
    /// MD5 checksum of `SCOPE:NAME` in hexadecimal. Dots in scopes that begin with `user` or `group`
    /// become `/`.
    Rucio,
    /// A pattern and its result, and another pair for the inverse direction.
    Pattern(Box<PatternPair>),
}

/// The two directions of a translation by patterns.
#[derive(Clone, PartialEq, Debug)]
pub struct PatternPair {
    /// From the logical path below `from` to the path below `to`.
    pub forward: NamePattern,
    /// The inverse.
    pub inverse: NamePattern,
}

/// A pattern that matches whole names, and the result that replaces them.
#[derive(Clone)]
pub struct NamePattern {
    pattern: String,
    result: String,
    regex: Regex,
    pieces: Vec<ResultPiece>,
}

/// A part of the result of a pattern.
#[derive(Clone)]
enum ResultPiece {
    Text(Vec<u8>),
    /// The text that the group with this number matched.
    Group(usize),
}

impl NamePattern {
    /// Compiles a pattern and its result, in which `{1}` to `{9}` stand for the groups of the
    /// pattern, `{0}` for the whole name, and `{{` and `}}` for braces. A backslash would be an escape
    /// of the configuration language.
    ///
    /// # Errors
    /// The pattern or the result is invalid; the text is the reason.
    pub fn new(pattern: &str, result: &str) -> Result<Self, String> {
        let build = |text: &str| {
            let config = Regex::config().utf8_empty(false).nfa_size_limit(Some(PATTERN_BYTES_MAX));
            // Names are bytes, so a dot matches any byte.
            let syntax = syntax::Config::new().unicode(false).utf8(false).dot_matches_new_line(true);
            let built = Regex::builder().configure(config).syntax(syntax).build(text);
            built.map_err(|error| reason(&error))
        };
        // The pattern alone must be valid, so that no part of it ends the group around it.
        build(pattern)?;
        let regex = build(&format!("^(?:{pattern})$"))?;
        let pieces = pieces(result, regex.group_info().group_len(regex_automata::PatternID::ZERO))?;
        Ok(Self { pattern: pattern.to_owned(), result: result.to_owned(), regex, pieces })
    }

    /// Returns the result for a name; `None` if the pattern does not match it, or the result is
    /// longer than any valid path.
    #[must_use]
    pub fn apply(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut groups = self.regex.create_captures();
        self.regex.captures(name, &mut groups);
        if groups.get_match()?.range() != (0..name.len()) {
            return None;
        }
        let mut out = Vec::with_capacity(name.len());
        for piece in &self.pieces {
            match piece {
                ResultPiece::Text(text) => out.extend_from_slice(text),
                ResultPiece::Group(number) => {
                    let group = groups.get_group(*number).map(|span| span.range());
                    out.extend_from_slice(group.and_then(|range| name.get(range)).unwrap_or_default());
                }
            }
            if out.len() > RESULT_BYTES_MAX {
                return None;
            }
        }
        Some(out)
    }
}

/// Returns the reason of an error in one line.
fn reason(error: &regex_automata::meta::BuildError) -> String {
    if error.size_limit().is_some() {
        return format!("it needs more than {PATTERN_BYTES_MAX} bytes of memory");
    }
    let text = match error.syntax_error() {
        Some(regex_syntax::Error::Parse(error)) => error.kind().to_string(),
        Some(regex_syntax::Error::Translate(error)) => error.kind().to_string(),
        _ => error.to_string(),
    };
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn pieces(result: &str, groups: usize) -> Result<Vec<ResultPiece>, String> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut rest = result.as_bytes();
    loop {
        match rest {
            [] => break,
            [b'{', b'{', more @ ..] | [b'}', b'}', more @ ..] => {
                text.extend(rest.first());
                rest = more;
            }
            [b'{', digit @ b'0'..=b'9', b'}', more @ ..] => {
                let number = usize::from(digit - b'0');
                if number >= groups {
                    return Err(format!("'{result}': the pattern has no group {number}"));
                }
                pieces.push(ResultPiece::Text(std::mem::take(&mut text)));
                pieces.push(ResultPiece::Group(number));
                rest = more;
            }
            [b'{' | b'}', ..] => {
                return Err(format!("'{result}': braces are around one digit, or doubled"));
            }
            [byte, more @ ..] => {
                text.push(*byte);
                rest = more;
            }
        }
    }
    pieces.push(ResultPiece::Text(text));
    Ok(pieces)
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.pattern, &self.result) == (&other.pattern, &other.result)
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped as in a file.
        for (number, text) in [&self.pattern, &self.result].into_iter().enumerate() {
            let text = text.replace('\\', r"\\").replace('$', r"\$");
            write!(f, "{}{text}", if number == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl fmt::Display for NameRule {
    /// Writes the arguments of the directive.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.from, self.to)?;
        match &self.layout {
            NameLayout::Prefix => Ok(()),
            NameLayout::Rucio => f.write_str(" rucio"),
            NameLayout::Pattern(pair) => {
                write!(f, " regex {:?} inverse {:?}", pair.forward, pair.inverse)
            }
        }
    }
}

impl NameRule {
    /// Returns the path below the local root of a (normalised) logical directory, if it is the
    /// directory of this rule or below it, and paths stay as they are there.
    pub(crate) fn directory(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.from.trim_end_matches('/'))?;
        if rest.is_empty() || rest == "/" {
            return Some(self.to.clone());
        }
        let inside = rest.starts_with('/') && self.layout == NameLayout::Prefix;
        inside.then(|| format!("{}{rest}", self.to.trim_end_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(pattern: &str, result: &str, name: &[u8]) -> Option<Vec<u8>> {
        NamePattern::new(pattern, result).unwrap().apply(name)
    }

    #[test]
    fn a_pattern_matches_whole_names_as_bytes() {
        assert_eq!(applied("a|ab", "{0}!", b"ab").as_deref(), Some(&b"ab!"[..]));
        assert_eq!(applied("a", "x", b"ab"), None);
        assert_eq!(applied("a", "x", b"a\n"), None);
        assert_eq!(applied(r"(.)/(.*)", "{2}/{1}{{}}", b"\xff/a\nb").as_deref(), Some(&b"a\nb/\xff{}"[..]));
        assert_eq!(
            applied(r"(a)|(b)", "[{1}{2}]", b"b").as_deref(),
            Some(&b"[b]"[..]),
            "a group without a match"
        );
    }

    #[test]
    fn a_result_longer_than_a_path_is_none() {
        let result = "{0}".repeat(9);
        let pattern = NamePattern::new(".*", &result).unwrap();
        assert_eq!(pattern.apply(&[b'a'; 455]).map(|name| name.len()), Some(4095));
        assert_eq!(pattern.apply(&[b'a'; 456]), None);
    }

    #[test]
    fn bad_patterns_and_results_have_a_reason() {
        for (pattern, result, says) in [
            ("(", "", "unclosed group"),
            ("a)(b", "", "unopened group"),
            ("(?x)a #", "", "unclosed group"),
            ("(a{1000}){1000}", "", "it needs more than 1048576 bytes of memory"),
            ("a", "{1}", "'{1}': the pattern has no group 1"),
            ("(a)", "{2}", "'{2}': the pattern has no group 2"),
            ("a", "x{", "'x{': braces are around one digit, or doubled"),
            ("a", "{10}", "'{10}': braces are around one digit, or doubled"),
            ("a", "}", "'}': braces are around one digit, or doubled"),
        ] {
            let error = NamePattern::new(pattern, result).unwrap_err();
            assert!(error.contains(says), "{pattern} {result}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn directories_of_a_rule_are_translated() {
        let rule = |layout| NameRule { from: "/a/b".to_owned(), to: "/".to_owned(), layout };
        let at = |layout, path| rule(layout).directory(path);
        assert_eq!(at(NameLayout::Prefix, "/a/b").as_deref(), Some("/"));
        assert_eq!(at(NameLayout::Prefix, "/a/b/c").as_deref(), Some("/c"));
        assert_eq!(at(NameLayout::Prefix, "/a/bc"), None);
        assert_eq!(at(NameLayout::Rucio, "/a/b").as_deref(), Some("/"));
        assert_eq!(at(NameLayout::Rucio, "/a/b/c"), None);
    }
}
