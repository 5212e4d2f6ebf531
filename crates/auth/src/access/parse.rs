//! Parses an authorization database. Any error refuses the whole file, because a rule that is left
//! out may be one that denies.

use super::privileges::Privileges;
use super::records::{
    AUTHDB_PAIRS_MAX, AUTHDB_PROBLEMS_MAX, AuthdbEncoding, AuthdbPair, AuthdbProblem, AuthdbRule,
    CompoundIdentity, ParsedAuthdb, RecordKind,
};
use super::tokens::{AuthdbPosition, AuthdbRecords, AuthdbWord};
use base::{PATH_BYTES_MAX, shown};
use std::collections::HashMap;

/// The place of the user name in paths of `u =` records.
pub(super) const NAME_MARK: &[u8] = b"@=";

/// Returns the position of the mark that stands for a name.
pub(super) fn mark_in(path: &[u8]) -> Option<usize> {
    path.windows(NAME_MARK.len()).position(|part| part == NAME_MARK)
}

/// Maximum length of an identifier in bytes.
const ID_BYTES_MAX: usize = 1024;
/// Maximum number of bytes of paths that are checked for shadowing by earlier ones. The check looks
/// up each prefix of a path, so without a limit it could take minutes for long paths.
const SHADOW_BYTES_MAX: usize = 4 << 20;
/// Maximum number of `x` records that are compared with the earlier ones.
const EXCLUSIVE_COMPARED_MAX: usize = 256;

/// A compound identity, and the line of the rule that uses it.
struct Definition {
    identity: CompoundIdentity,
    at: AuthdbPosition,
    used: Option<AuthdbPosition>,
}

struct AuthdbParser<'a> {
    encoding: AuthdbEncoding,
    parsed: ParsedAuthdb,
    errors: Vec<AuthdbProblem>,
    templates: HashMap<&'a [u8], (AuthdbPosition, Vec<AuthdbPair>)>,
    compounds: HashMap<&'a [u8], Definition>,
    /// Identifiers that have a record, by the letter of the record.
    ids: HashMap<(char, Box<[u8]>), AuthdbPosition>,
    domains: HashMap<Box<[u8]>, AuthdbPosition>,
    /// Number of paths so far, templates expanded.
    pairs: usize,
    /// Bytes of paths that may still be checked for shadowing.
    shadow_budget: usize,
    /// Number of `x` records that were compared with the earlier ones.
    exclusive_records: usize,
}

type Parsed<T> = Result<T, AuthdbProblem>;

fn fault<T>(at: AuthdbPosition, what: impl Into<String>) -> Parsed<T> {
    Err(AuthdbProblem { at, what: what.into() })
}

/// Parses a file.
///
/// # Errors
/// The errors of the file, at most [`AUTHDB_PROBLEMS_MAX`].
pub(super) fn parse(text: &[u8], encoding: AuthdbEncoding) -> Result<ParsedAuthdb, Vec<AuthdbProblem>> {
    let mut parser = AuthdbParser {
        encoding,
        parsed: ParsedAuthdb::default(),
        errors: Vec::new(),
        templates: HashMap::new(),
        compounds: HashMap::new(),
        ids: HashMap::new(),
        domains: HashMap::new(),
        pairs: 0,
        shadow_budget: SHADOW_BYTES_MAX,
        exclusive_records: 0,
    };
    for record in AuthdbRecords::new(text) {
        parser.parsed.records += 1;
        if let Err(problem) = parser.record(&record) {
            parser.errors.push(problem);
            if parser.errors.len() >= AUTHDB_PROBLEMS_MAX {
                break;
            }
        }
    }
    parser.warn_of_unused();
    if parser.errors.is_empty() { Ok(parser.parsed) } else { Err(parser.errors) }
}

impl<'a> AuthdbParser<'a> {
    fn warn(&mut self, at: AuthdbPosition, what: String) {
        if self.parsed.warnings.len() < AUTHDB_PROBLEMS_MAX {
            self.parsed.warnings.push(AuthdbProblem { at, what });
        }
    }

    fn record(&mut self, words: &[AuthdbWord<'a>]) -> Parsed<()> {
        let Some((kind, rest)) = words.split_first() else { return Ok(()) };
        if let Some(word) = words.iter().find(|word| word.text.iter().any(u8::is_ascii_control)) {
            let what = format!("'{}' contains a control character; use plain line ends", shown(word.text));
            return fault(word.at, what);
        }
        let known = match kind.text {
            b"=" | b"t" | b"u" | b"g" | b"h" | b"n" | b"o" | b"r" | b"s" | b"x" => kind.text,
            other => {
                let what = format!("unknown record type '{}'; allowed: u g h n o r s x t =", shown(other));
                return fault(kind.at, what);
            }
        };
        let Some((id, rest)) = rest.split_first() else {
            return fault(kind.at, format!("'{}' record without an identifier", shown(known)));
        };
        if id.text.len() > ID_BYTES_MAX {
            return fault(id.at, format!("identifier is longer than {ID_BYTES_MAX} bytes"));
        }
        match known {
            b"=" => self.compound(*id, rest),
            b"t" => self.template(*id, rest),
            letter => self.rule(letter.first().copied().unwrap_or_default(), *id, rest),
        }
    }

    fn template(&mut self, id: AuthdbWord<'a>, rest: &[AuthdbWord<'a>]) -> Parsed<()> {
        if let Some((first, _)) = self.templates.get(id.text) {
            return fault(id.at, format!("template '{}' is defined in line {}", shown(id.text), first.line));
        }
        let pairs = self.pairs(id, rest)?;
        self.templates.insert(id.text, (id.at, pairs));
        Ok(())
    }

    fn rule(&mut self, letter: u8, id: AuthdbWord<'a>, rest: &[AuthdbWord<'a>]) -> Parsed<()> {
        let kind = match (letter, id.text) {
            (b'u', b"*") => RecordKind::Everybody,
            (b'u', b"=") => RecordKind::Named,
            (b'u', _) => RecordKind::User,
            (b'g', _) => RecordKind::Group,
            (b'h', text) if text.starts_with(b".") => RecordKind::Domain,
            (b'h', _) => RecordKind::Host,
            (b'n', _) => RecordKind::Netgroup,
            (b'o', _) => RecordKind::Organization,
            (b'r', _) => RecordKind::Role,
            (b's', _) => RecordKind::Special,
            _ => RecordKind::Exclusive,
        };
        let compound = match kind {
            RecordKind::Special | RecordKind::Exclusive => Some(self.use_compound(id)?),
            _ => None,
        };
        let name = self.identifier(kind, id.text);
        if compound.is_none() {
            self.note_id(kind, &name, id)?;
        }
        let pairs = self.pairs(id, rest)?;
        self.warn_of_dead_pairs(kind, &pairs);
        if let Some(identity) = compound.as_ref().filter(|_| kind == RecordKind::Exclusive) {
            self.warn_of_dead_record(identity, id);
        }
        self.parsed.rules.push(AuthdbRule { kind, id: name, at: id.at, pairs, compound });
        Ok(())
    }

    /// Returns an identifier with blanks, and host names in lower case.
    fn identifier(&self, kind: RecordKind, text: &[u8]) -> Box<[u8]> {
        match kind {
            RecordKind::Host => host_text(text),
            RecordKind::Domain => text.to_ascii_lowercase().into(),
            RecordKind::User | RecordKind::Group | RecordKind::Organization | RecordKind::Role => {
                self.with_blanks(text)
            }
            _ => text.into(),
        }
    }

    fn with_blanks(&self, text: &[u8]) -> Box<[u8]> {
        text.iter().map(|byte| if Some(*byte) == self.encoding.space { b' ' } else { *byte }).collect()
    }

    /// Refuses a second record of an identifier, and a domain that an earlier domain contains,
    /// because it can never apply.
    fn note_id(&mut self, kind: RecordKind, name: &[u8], id: AuthdbWord<'a>) -> Parsed<()> {
        if let Some(first) = self.ids.insert((kind.letter(), name.into()), id.at) {
            let what = format!("'{} {}' has a record in line {}", kind.letter(), shown(id.text), first.line);
            return fault(id.at, what);
        }
        if kind == RecordKind::Domain {
            let outer = domains_of(name).find_map(|domain| self.domains.get_key_value(domain));
            if let Some((domain, first)) = outer {
                let (inner, outer, line) = (shown(id.text), shown(domain), first.line);
                let what = format!(
                    "'h {inner}' never applies, because 'h {outer}' in line {line} contains it; move it before \
                     that line"
                );
                return fault(id.at, what);
            }
            self.domains.insert(name.into(), id.at);
        }
        Ok(())
    }

    fn use_compound(&mut self, id: AuthdbWord<'a>) -> Parsed<CompoundIdentity> {
        let Some(found) = self.compounds.get_mut(id.text) else {
            let what =
                format!("no '= {0}' record before this one; define the identity first", shown(id.text));
            return fault(id.at, what);
        };
        if let Some(first) = found.used.replace(id.at) {
            let what = format!("identity '{}' has a rule in line {}", shown(id.text), first.line);
            return fault(id.at, what);
        }
        Ok(found.identity.clone())
    }

    fn compound(&mut self, id: AuthdbWord<'a>, rest: &[AuthdbWord<'a>]) -> Parsed<()> {
        if let Some(found) = self.compounds.get(id.text) {
            let what = format!("identity '{}' is defined in line {}", shown(id.text), found.at.line);
            return fault(id.at, what);
        }
        if rest.is_empty() {
            return fault(id.at, format!("identity '{}' has no parts", shown(id.text)));
        }
        let mut identity = CompoundIdentity::default();
        for part in rest.chunks(2) {
            let (kind, value) = match part {
                [kind, value] => (kind, value),
                [kind, ..] => return fault(kind.at, format!("'{}' without a value", shown(kind.text))),
                [] => break,
            };
            if value.text.len() > ID_BYTES_MAX {
                return fault(value.at, format!("identifier is longer than {ID_BYTES_MAX} bytes"));
            }
            let blanks = self.with_blanks(value.text);
            let (place, value) = match kind.text.strip_suffix(b":").unwrap_or(kind.text) {
                b"u" => (&mut identity.user, blanks),
                b"g" => (&mut identity.group, blanks),
                b"o" => (&mut identity.organization, blanks),
                b"r" => (&mut identity.role, blanks),
                b"h" => (&mut identity.host, host_text(value.text)),
                _ => {
                    let what = format!("unknown part '{}'; allowed: u: g: h: o: r:", shown(kind.text));
                    return fault(kind.at, what);
                }
            };
            if place.replace(value).is_some() {
                return fault(kind.at, format!("'{}' is given twice", shown(kind.text)));
            }
        }
        self.compounds.insert(id.text, Definition { identity, at: id.at, used: None });
        Ok(())
    }

    /// Parses paths with privileges, and templates, which are replaced by their pairs.
    fn pairs(&mut self, id: AuthdbWord<'a>, rest: &[AuthdbWord<'a>]) -> Parsed<Vec<AuthdbPair>> {
        let mut pairs = Vec::new();
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let added = match word.text.first() {
                Some(b'/' | b'\\') => {
                    let Some(privileges) = words.next() else {
                        return fault(word.at, format!("path '{}' without privileges", shown(word.text)));
                    };
                    let (positive, negative) = self::privileges(*privileges)?;
                    pairs.push(AuthdbPair { path: self.path(*word)?, positive, negative, at: word.at });
                    1
                }
                _ => {
                    let Some((_, template)) = self.templates.get(word.text) else {
                        let what = format!(
                            "'{}' is neither a path nor a template that is defined before",
                            shown(word.text)
                        );
                        return fault(word.at, what);
                    };
                    if template.len() <= AUTHDB_PAIRS_MAX.saturating_sub(self.pairs) {
                        pairs.extend_from_slice(template);
                    }
                    template.len()
                }
            };
            self.pairs += added;
            if self.pairs > AUTHDB_PAIRS_MAX {
                self.pairs -= added;
                let what = format!("more than {AUTHDB_PAIRS_MAX} paths in the file, templates included");
                return fault(word.at, what);
            }
        }
        if pairs.is_empty() {
            return fault(id.at, format!("no paths for '{}'", shown(id.text)));
        }
        Ok(pairs)
    }

    /// Returns a path, decoded if the encoding requires it. A leading `\` marks an object id.
    fn path(&self, word: AuthdbWord<'a>) -> Parsed<Box<[u8]>> {
        let text = word.text.strip_prefix(b"\\").unwrap_or(word.text);
        let path = if self.encoding.decode_paths { decode_percent(text) } else { text.into() };
        if path.contains(&0) {
            return fault(word.at, format!("path '{}' contains a NUL", shown(word.text)));
        }
        if path.is_empty() {
            return fault(word.at, "empty object id");
        }
        if path.len() > PATH_BYTES_MAX {
            return fault(word.at, format!("path is longer than {PATH_BYTES_MAX} bytes"));
        }
        Ok(path)
    }

    fn warn_of_unused(&mut self) {
        let unused = |(id, found): (&&[u8], &Definition)| {
            found.used.is_none().then(|| (found.at, format!("identity '{}' is not used", shown(id))))
        };
        let mut unused: Vec<_> = self.compounds.iter().filter_map(unused).collect();
        unused.sort_by_key(|(at, _)| *at);
        for (at, what) in unused {
            self.warn(at, what);
        }
    }

    /// Warns of an `x` record whose identity has all parts of an earlier one. The first `x` record that
    /// matches decides alone, so this one never applies.
    fn warn_of_dead_record(&mut self, identity: &CompoundIdentity, id: AuthdbWord<'a>) {
        let is_earlier = |rule: &&AuthdbRule| {
            let compound = rule.compound.as_ref().filter(|_| rule.kind == RecordKind::Exclusive);
            compound.is_some_and(|earlier| earlier.covers(identity))
        };
        if self.exclusive_records >= EXCLUSIVE_COMPARED_MAX {
            return;
        }
        self.exclusive_records += 1;
        let Some(first) = self.parsed.rules.iter().find(is_earlier) else { return };
        let (other, line) = (shown(&first.id), first.at.line);
        let what = format!(
            "'x {}' never applies, because 'x {other}' in line {line} decides for all of its clients",
            shown(id.text)
        );
        self.warn(id.at, what);
    }

    /// Warns of pairs that no path can reach. The first pair whose path is a prefix counts, so a
    /// pair after it with a longer path is dead.
    fn warn_of_dead_pairs(&mut self, kind: RecordKind, pairs: &[AuthdbPair]) {
        let mut earlier: HashMap<&[u8], AuthdbPosition> = HashMap::new();
        for pair in pairs {
            if self.parsed.warnings.len() >= AUTHDB_PROBLEMS_MAX {
                return;
            }
            let Some(budget) = self.shadow_budget.checked_sub(pair.path.len()) else { return };
            self.shadow_budget = budget;
            let path = shown(&pair.path);
            if kind == RecordKind::Named && mark_in(&pair.path).is_none() {
                let what = format!("{path} never applies, because paths of 'u =' records need '@='");
                self.warn(pair.at, what);
                continue;
            }
            let hidden = (0..=pair.path.len())
                .find_map(|end| earlier.get(pair.path.get(..end).unwrap_or_default()).copied());
            if let Some(first) = hidden {
                let what = format!(
                    "{path} never applies, because the path at {first} is a prefix of it; write longer paths \
                     first"
                );
                self.warn(pair.at, what);
            }
            if !is_canonical(&pair.path) {
                let what = format!("{path} never applies, because requests have no '//', '.' and '..'");
                self.warn(pair.at, what);
            }
            earlier.entry(&pair.path).or_insert(pair.at);
        }
    }
}

/// Returns a host in lower case, and an address in the spelling of addresses of clients.
pub(super) fn host_text(text: &[u8]) -> Box<[u8]> {
    let bare = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    let address = std::str::from_utf8(bare).ok().and_then(|text| text.parse().ok());
    match address {
        Some(address) => crate::address_text(address).into_bytes().into(),
        None => text.to_ascii_lowercase().into(),
    }
}

/// Returns the domains that contain a host name, the longest first: for `a.b.c` `.b.c` and `.c`.
/// For a domain `.b.c` the first one is itself.
pub(super) fn domains_of(host: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = host.iter().enumerate().filter(|(_, byte)| **byte == b'.');
    dots.filter_map(|(at, _)| host.get(at..))
}

/// Reports whether a path of a request can have this prefix. Object ids have no such form.
fn is_canonical(path: &[u8]) -> bool {
    let Some(inner) = path.strip_prefix(b"/") else { return true };
    let mut parts = inner.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        // The last part may be the begin of a name.
        if !is_last && matches!(part, b"" | b"." | b"..") {
            return false;
        }
    }
    true
}

/// Parses `letters[-letters]`.
fn privileges(word: AuthdbWord<'_>) -> Parsed<(Privileges, Privileges)> {
    let mut parts = word.text.splitn(2, |byte| *byte == b'-');
    let mut next = || {
        let letters = parts.next().unwrap_or_default();
        letters
            .iter()
            .try_fold(Privileges::NONE, |sum, letter| Some(sum.with(Privileges::of_letter(*letter)?)))
    };
    match (next(), next()) {
        (Some(positive), Some(negative)) => Ok((positive, negative)),
        _ => {
            let what = format!(
                "invalid privileges '{}'; allowed: a d i k l n r w, and '-' once before those to take away",
                shown(word.text)
            );
            fault(word.at, what)
        }
    }
}

/// Decodes `%XX`. Other uses of `%` are kept.
fn decode_percent(text: &[u8]) -> Box<[u8]> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out.into()
}
