//! [`EntityRule`]: one rule of a map of identities, parsed and compared with a client.

use super::MappedClient;
use crate::access::AttributeColumn;
use crate::grid::is_user;
use crate::patterns::{PeerHostPattern, TextPattern};
use crate::{EntityAttributes, EntityNames};
use std::iter::Peekable;
use std::str::Chars;

/// The word between the conditions and the result.
const ARROW: &str = "->";
/// Maximum length of a protocol id in bytes.
const PROTOCOL_BYTES_MAX: usize = 7;
/// Maximum length of a list of words in a result in bytes.
const LIST_BYTES_MAX: usize = 1024;

/// The keys of conditions, for messages.
const CONDITIONS: &str = "conditions are protocol= name= subject= host= vo= group= role=";
/// The results, for messages.
const RESULTS: &str = "results are user= with groups= vo= role=, keep, refuse";

/// The identity that a rule gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RuleResult {
    /// That of the protocol.
    Keep,
    /// None: the client is refused.
    Refuse,
    Names(EntityNames),
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntityRule {
    line: u32,
    protocol: Option<String>,
    name: Option<TextPattern>,
    subject: Option<TextPattern>,
    host: Option<PeerHostPattern>,
    organization: Option<TextPattern>,
    group: Option<TextPattern>,
    role: Option<TextPattern>,
    result: RuleResult,
}

impl EntityRule {
    pub(super) fn parse(line: u32, text: &str) -> Result<Self, String> {
        let words = words(text)?;
        let mut parts = words.split(|word| word.key.is_none() && word.value == ARROW);
        let (Some(conditions), Some(result), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("a rule has the form CONDITIONS {ARROW} RESULT, with one {ARROW}"));
        };
        let mut rule = Self {
            line,
            protocol: None,
            name: None,
            subject: None,
            host: None,
            organization: None,
            group: None,
            role: None,
            result: parse_result(result)?,
        };
        for word in conditions {
            rule.take_condition(word)?;
        }
        Ok(rule)
    }

    fn take_condition(&mut self, word: &Word) -> Result<(), String> {
        let unknown = || format!("unknown condition '{}'; {CONDITIONS}", base::shown(word.text().as_bytes()));
        let key = word.key.as_deref().ok_or_else(unknown)?;
        if word.value.is_empty() {
            return Err(format!("the value of '{key}' is empty"));
        }
        let is_first = match key {
            "protocol" if word.value.len() > PROTOCOL_BYTES_MAX => {
                return Err(format!("there is no protocol '{}'", base::shown(word.value.as_bytes())));
            }
            "protocol" => self.protocol.replace(word.value.clone()).is_none(),
            "name" => self.name.replace(TextPattern::of_names(&word.value)).is_none(),
            "subject" => self.subject.replace(TextPattern::of_names(&word.value)).is_none(),
            "host" => self.host.replace(PeerHostPattern::parse(&word.value)).is_none(),
            "vo" => self.organization.replace(TextPattern::of_words(&word.value)).is_none(),
            "group" => self.group.replace(TextPattern::of_words(&word.value)).is_none(),
            "role" => self.role.replace(TextPattern::of_words(&word.value)).is_none(),
            _ => return Err(unknown()),
        };
        if is_first { Ok(()) } else { Err(format!("there are two conditions '{key}'")) }
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn result(&self) -> &RuleResult {
        &self.result
    }

    pub(super) fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    pub(super) fn needs_host_name(&self) -> bool {
        self.host.as_ref().is_some_and(PeerHostPattern::needs_host_name)
    }

    /// Reports whether all conditions hold for a client. Conditions about organization, group and role must
    /// hold for attributes that belong together. One about the name of a host that has no name holds as well,
    /// unless the rule changes nothing: the owner of an address could avoid the rule otherwise.
    pub(super) fn matches(&self, client: MappedClient<'_>, columns: &[AttributeColumn<'_>]) -> bool {
        let entity = client.entity;
        let holds = |pattern: &Option<TextPattern>, text: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
        };
        let has_column = |column: &AttributeColumn<'_>| {
            holds(&self.organization, column.organization)
                && holds(&self.group, column.group)
                && holds(&self.role, column.role)
        };
        self.protocol().is_none_or(|protocol| protocol == client.protocol)
            && holds(&self.name, entity.name.as_deref())
            && holds(&self.subject, entity.certificate_subject.as_deref())
            && columns.iter().any(has_column)
            && self.host.as_ref().is_none_or(|host| {
                host.matches(client.host, client.address) || host.is_unknown_for(client.host) && !self.keeps()
            })
    }

    /// Reports whether it is unknown if the rule holds for a client that it matches, because the host of the client
    /// has no name.
    pub(super) fn is_uncertain_for(&self, client: MappedClient<'_>) -> bool {
        self.host.as_ref().is_some_and(|host| host.is_unknown_for(client.host))
    }

    fn keeps(&self) -> bool {
        matches!(self.result, RuleResult::Keep)
    }

    /// Reports whether all conditions hold wherever those of another rule do.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_wider = |own: &Option<TextPattern>, other: &Option<TextPattern>| match (own, other) {
            (None, _) => true,
            (Some(own), Some(other)) => own.covers(other),
            (Some(_), None) => false,
        };
        let has_hosts = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(own), Some(other)) => own.covers(other),
            (Some(own), None) => own.is_any(),
        };
        has_hosts
            && (self.protocol.is_none() || self.protocol == other.protocol)
            && is_wider(&self.name, &other.name)
            && is_wider(&self.subject, &other.subject)
            && is_wider(&self.organization, &other.organization)
            && is_wider(&self.group, &other.group)
            && is_wider(&self.role, &other.role)
    }
}

/// Parses the words after the arrow.
fn parse_result(words: &[Word]) -> Result<RuleResult, String> {
    match words {
        [] => return Err(format!("the result is missing; {RESULTS}")),
        [Word { key: None, value }] if value == "keep" => return Ok(RuleResult::Keep),
        [Word { key: None, value }] if value == "refuse" => return Ok(RuleResult::Refuse),
        _ => {}
    }
    let [mut user, mut organizations, mut roles, mut groups] = [None; 4];
    for word in words {
        let field = match word.key.as_deref() {
            Some("user") => &mut user,
            Some("vo") => &mut organizations,
            Some("role") => &mut roles,
            Some("groups") => &mut groups,
            _ => return Err(format!("unknown result '{}'; {RESULTS}", base::shown(word.text().as_bytes()))),
        };
        if field.replace(word.value.as_str()).is_some() {
            return Err(format!("the result has two words '{}'", word.text()));
        }
    }
    if user.is_some_and(|user| !is_user(user)) {
        return Err(
            "the user is not 1 to 64 printable characters without blanks, or begins with '-'".to_owned()
        );
    }
    let lists = [organizations, roles, groups];
    let attributes = match lists.iter().any(Option::is_some) {
        false => None,
        true => {
            let [vorg, role, groups] = lists.map(Option::unwrap_or_default);
            if [vorg, role, groups].iter().any(|list| list.len() > LIST_BYTES_MAX) {
                return Err(format!("a list is longer than {LIST_BYTES_MAX} bytes"));
            }
            let attributes = EntityAttributes::new(vorg, role, groups);
            Some(attributes.ok_or("vo, role and groups have different numbers of words")?)
        }
    };
    Ok(RuleResult::Names(EntityNames { name: user.map(Into::into), attributes }))
}

/// A word of a line: `key=value`, `key="value with blanks"`, or a word alone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Word {
    key: Option<String>,
    value: String,
}

impl Word {
    /// Returns the key, or the word alone.
    fn text(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.value)
    }
}

fn words(line: &str) -> Result<Vec<Word>, String> {
    if line.chars().any(|character| character.is_control() && character != '\t') {
        return Err("a control character is in the line".to_owned());
    }
    let (mut words, mut rest) = (Vec::new(), line.chars().peekable());
    loop {
        while rest.next_if(|character| character.is_ascii_whitespace()).is_some() {}
        if rest.peek().is_none() {
            return Ok(words);
        }
        words.push(word(&mut rest)?);
    }
}

fn word(rest: &mut Peekable<Chars<'_>>) -> Result<Word, String> {
    let mut text = String::new();
    while let Some(character) = rest.next_if(|character| !character.is_ascii_whitespace()) {
        // The first `=` ends the key; a value can have further ones.
        if character == '=' {
            let value = value(rest)?;
            return Ok(Word { key: Some(text), value });
        }
        text.push(character);
    }
    Ok(Word { key: None, value: text })
}

fn value(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut value = String::new();
    if rest.next_if_eq(&'"').is_none() {
        while let Some(character) = rest.next_if(|character| !character.is_ascii_whitespace()) {
            value.push(character);
        }
        return Ok(value);
    }
    loop {
        match rest.next().ok_or("the closing '\"' is missing")? {
            '"' => break,
            // Names have escapes of their own, such as `\/`, which stay.
            '\\' if rest.next_if_eq(&'"').is_some() => value.push('"'),
            '\\' => {
                value.push('\\');
                value.extend(rest.next_if_eq(&'\\'));
            }
            character => value.push(character),
        }
    }
    match rest.peek() {
        Some(character) if !character.is_ascii_whitespace() => {
            Err(format!("'{character}' follows the closing '\"'"))
        }
        _ => Ok(value),
    }
}
