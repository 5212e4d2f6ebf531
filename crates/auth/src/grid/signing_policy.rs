//! Signing policies (`HASH.signing_policy`): the subjects for which an authority may sign.
//!
//! ```text
//! access_id_CA  X509    '/DC=org/CN=Authority'
//! pos_rights    globus  CA:sign
//! cond_subjects globus  '"/DC=org/*" "/DC=net/CN=?x"'
//! ```
//!
//! A file has one block per authority. An authority without a block may not sign for anybody.

use super::glob::Glob;
use super::limits::{POLICY_BYTES_MAX, POLICY_RULES_MAX};
use super::map::with_usual_attributes;

/// A block of a file.
#[derive(Clone, Default, Debug)]
struct PolicyBlock {
    issuer: String,
    may_sign: bool,
    /// A negative right takes precedence.
    must_not_sign: bool,
    subjects: Vec<Glob>,
}

/// The content of a file.
#[derive(Clone, Default, Debug)]
pub struct SigningPolicy(Vec<PolicyBlock>);

impl SigningPolicy {
    /// Parses a file.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(format!("larger than {POLICY_BYTES_MAX} bytes"));
        }
        let (text, mut policy, mut rules) = (String::from_utf8_lossy(text), Self::default(), 0);
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            rules += 1;
            if rules > POLICY_RULES_MAX {
                return Err(format!("more than {POLICY_RULES_MAX} rules"));
            }
            policy.add(line).map_err(|what| format!("line {number}: {what}"))?;
        }
        Ok(policy)
    }

    fn add(&mut self, line: &str) -> Result<(), &'static str> {
        let blank = |character: char| character.is_ascii_whitespace();
        let malformed = "it is not a keyword, an authority for its value, and a value";
        let (keyword, rest) = line.split_once(blank).ok_or(malformed)?;
        let (kind, value) = rest.trim_start().split_once(blank).ok_or(malformed)?;
        let value = unquoted(value.trim());
        if keyword == "access_id_CA" {
            if !kind.eq_ignore_ascii_case("X509") {
                return Err("authorities are named by X509");
            }
            let issuer = with_usual_attributes(value);
            self.0.push(PolicyBlock { issuer, ..PolicyBlock::default() });
            return Ok(());
        }
        if keyword.starts_with("access_id_") {
            return Err("only access_id_CA is supported");
        }
        let block = self.0.last_mut().ok_or("a line with access_id_CA must be first")?;
        match (keyword, value) {
            _ if !kind.eq_ignore_ascii_case("globus") => {
                return Err("rights and subjects are those of globus");
            }
            ("pos_rights", "CA:sign") => block.may_sign = true,
            ("neg_rights", "CA:sign") => block.must_not_sign = true,
            ("pos_rights" | "neg_rights", _) => {}
            ("cond_subjects", list) => block.subjects.extend(subjects(list)?),
            _ => return Err("the keyword is unknown"),
        }
        Ok(())
    }

    /// Reports whether an authority may sign for a subject.
    #[must_use]
    pub fn allows(&self, issuer: &str, subject: &str) -> bool {
        self.0.iter().filter(|block| block.issuer == issuer).any(|block| {
            let may_sign = block.may_sign && !block.must_not_sign;
            may_sign && block.subjects.iter().any(|glob| glob.matches(subject))
        })
    }
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"').filter(|inner| !inner.contains('"'))).unwrap_or(value)
}

/// Parses a list of quoted patterns, or one pattern without quotes.
fn subjects(list: &str) -> Result<Vec<Glob>, &'static str> {
    let glob = |pattern: &str| Glob::with_star_and_mark(&with_usual_attributes(pattern));
    let list = list.trim();
    if !list.contains('"') {
        return if list.is_empty() { Err("there is no subject") } else { Ok(vec![glob(list)]) };
    }
    let mut found = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let (pattern, behind) = quoted.ok_or("a '\"' of a subject is missing")?;
        found.push(glob(pattern));
        rest = behind.trim_start();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# comment\naccess_id_CA\tX509  '/DC=org/CN=A'\npos_rights globus CA:sign\n\
        cond_subjects globus '\"/DC=org/*\" \"/DC=net/CN=?x/Email=a@b\"'\n\
        access_id_CA X509 \"/CN=B\"\n  pos_rights globus CA:sign\ncond_subjects globus \"/CN=b*\"\n\
        access_id_CA X509 '/CN=C'\nneg_rights globus CA:sign\npos_rights globus CA:sign\ncond_subjects globus '\"*\"'\n";

    #[test]
    fn subjects_are_those_of_the_block_of_the_issuer() {
        let policy = SigningPolicy::parse(FILE.as_bytes()).unwrap();
        let cases = [
            ("/DC=org/CN=A", "/DC=org/CN=user", true),
            ("/DC=org/CN=A", "/DC=com/CN=user", false),
            ("/DC=org/CN=A", "/DC=net/CN=yx/emailAddress=a@b", true),
            ("/DC=org/CN=A", r"/DC=org\/x/CN=user", false),
            ("/CN=B", "/CN=bob", true),
            ("/CN=B", "/DC=org/CN=user", false),
            ("/CN=C", "/CN=bob", false),
            ("/CN=other", "/DC=org/CN=user", false),
        ];
        for (issuer, subject, expected) in cases {
            assert_eq!(policy.allows(issuer, subject), expected, "{issuer} {subject}");
        }
    }

    #[test]
    fn malformed_files_are_refused() {
        let cases = [
            ("pos_rights globus CA:sign\n", "line 1: a line with access_id_CA"),
            ("access_id_CA X509\n", "line 1: it is not a keyword"),
            ("access_id_ANYBODY X509 'x'\n", "only access_id_CA"),
            ("access_id_CA X509 'x'\ncond_subjects globus '\"/CN=a'\n", "line 2: a '\"'"),
            ("access_id_CA X509 'x'\nrights globus x\n", "line 2: the keyword"),
        ];
        for (text, expected) in cases {
            let error = SigningPolicy::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
