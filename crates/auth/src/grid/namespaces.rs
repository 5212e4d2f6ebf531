//! Name spaces of authorities (`HASH.namespaces`): the subjects for which an authority may sign.
//!
//! ```text
//! TO Issuer "/DC=org/CN=Authority" PERMIT Subject "/DC=org/.*"
//! TO Issuer SELF DENY Subject "/DC=org/CN=forbidden.*"
//! ```
//!
//! A backslash at the end of a line continues it. A rule that denies takes precedence. An authority
//! without a rule may not sign for anybody.

use super::glob::Glob;
use super::limits::{POLICY_BYTES_MAX, POLICY_RULES_MAX};
use super::map::with_usual_attributes;

/// A rule.
#[derive(Clone, Debug)]
struct NamespaceRule {
    /// `None` is the authority of the file.
    issuer: Option<String>,
    permits: bool,
    subject: Glob,
}

/// The content of a file.
#[derive(Clone, Default, Debug)]
pub struct Namespaces(Vec<NamespaceRule>);

impl Namespaces {
    /// Parses a file.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(format!("larger than {POLICY_BYTES_MAX} bytes"));
        }
        let text = String::from_utf8_lossy(text).replace("\r\n", "\n");
        let without_comments: Vec<&str> =
            text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let text = without_comments.join("\n").replace("\\\n", " ");
        let mut rules = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            rules.push(NamespaceRule::parse(line).map_err(|what| format!("{line:.80?}: {what}"))?);
            if rules.len() > POLICY_RULES_MAX {
                return Err(format!("more than {POLICY_RULES_MAX} rules"));
            }
        }
        Ok(Self(rules))
    }

    /// Reports whether an authority may sign for a subject.
    #[must_use]
    pub fn allows(&self, issuer: &str, subject: &str) -> bool {
        let is_of_issuer = |rule: &&NamespaceRule| rule.issuer.as_deref().is_none_or(|named| named == issuer);
        let matching: Vec<bool> = self
            .0
            .iter()
            .filter(is_of_issuer)
            .filter(|rule| rule.subject.matches(subject))
            .map(|rule| rule.permits)
            .collect();
        !matching.is_empty() && matching.iter().all(|permits| *permits)
    }
}

impl NamespaceRule {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let malformed = "it is not TO Issuer \"NAME\" {PERMIT|DENY} Subject \"EXPRESSION\"";
        let words = words(line).ok_or(malformed)?;
        let [to, issuer_word, issuer, right, subject_word, subject] = words.as_slice() else {
            return Err(malformed);
        };
        let is = |word: &str, expected: &str| word.eq_ignore_ascii_case(expected);
        if !is(to, "TO") || !is(issuer_word, "Issuer") || !is(subject_word, "Subject") {
            return Err(malformed);
        }
        let permits = match right {
            right if is(right, "PERMIT") => true,
            right if is(right, "DENY") => false,
            _ => return Err(malformed),
        };
        let issuer = (!is(issuer, "SELF")).then(|| with_usual_attributes(issuer));
        let subject = Glob::of_expression(&with_usual_attributes(subject))
            .ok_or("only '.' and '.*' are supported in expressions")?;
        Ok(Self { issuer, permits, subject })
    }
}

/// Splits a line at blanks outside of quotes.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut found, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(|character: char| character.is_ascii_whitespace()).unwrap_or((rest, "")),
        };
        found.push(word.to_owned());
        rest = behind.trim_start();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_permit_and_deny() {
        let file = "#NAMESPACES-VERSION: 1.0\nTO Issuer \"/CN=A\" \\\n  PERMIT Subject \"/DC=org/.*\"\n\
                    to issuer self deny subject \"/DC=org/CN=x.*\"\n";
        let namespaces = Namespaces::parse(file.as_bytes()).unwrap();
        let cases = [
            ("/CN=A", "/DC=org/CN=user", true),
            ("/CN=A", "/DC=org/CN=xuser", false),
            ("/CN=A", "/DC=com/CN=user", false),
            ("/CN=B", "/DC=org/CN=user", false),
        ];
        for (issuer, subject, expected) in cases {
            assert_eq!(namespaces.allows(issuer, subject), expected, "{issuer} {subject}");
        }
        assert!(!Namespaces::default().allows("/CN=A", "/DC=org/CN=user"));
    }

    #[test]
    fn malformed_rules_are_refused() {
        for text in [
            "TO Issuer SELF PERMIT Subject",
            "TO Issuer \"x PERMIT Subject y",
            "x",
            "TO Issuer SELF MAYBE Subject y",
        ] {
            assert!(
                Namespaces::parse(text.as_bytes()).unwrap_err().contains("it is not TO Issuer"),
                "{text}"
            );
        }
        let expression = Namespaces::parse(b"TO Issuer SELF PERMIT Subject \"/CN=(a|b)\"").unwrap_err();
        assert!(expression.contains("only '.' and '.*'"), "{expression}");
    }
}
