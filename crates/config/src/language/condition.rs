//! Evaluation of `if` conditions: `[hosts…] [defined ?v… &&] [exec p…] [&& named n…]`, in this
//! order.

use super::variables::Variables;
use super::{ANONYMOUS, DirectiveToken, Evaluation};
use crate::setting::Position;

/// An invalid condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ConditionError {
    pub(super) position: Position,
    pub(super) what: String,
}

/// The inputs of a condition.
pub(super) struct Facts<'a> {
    pub(super) evaluation: &'a Evaluation,
    pub(super) variables: &'a Variables,
    /// The environment after the `setenv` directives so far.
    pub(super) environment: &'a Variables,
}

const KEYWORDS: [&str; 3] = ["defined", "exec", "named"];

/// Evaluates the condition after the token `keyword` (`if`). Tokens after the group that decides
/// are not checked.
pub(super) fn decide(
    keyword: &DirectiveToken,
    tokens: &[DirectiveToken],
    facts: &Facts<'_>,
) -> Result<bool, ConditionError> {
    let mut cursor = Cursor { rest: tokens, last: keyword };
    let hosts = cursor.take_while(|token| !KEYWORDS.contains(&token.text.as_str()));
    if !hosts.is_empty() {
        if !hosts.iter().any(|pattern| host_matches(&pattern.text, &facts.evaluation.host)) {
            return Ok(false);
        }
    } else if cursor.rest.is_empty() {
        return Err(cursor.missing("Host name missing after 'if' in if directive"));
    }
    // Repeated only after `defined … &&` and a keyword.
    while let Some(group) = cursor.next() {
        match group.text.as_str() {
            "defined" => {
                if !defined(&mut cursor, facts)? {
                    return Ok(false);
                }
            }
            "exec" => {
                if !exec(&mut cursor, facts)? {
                    return Ok(false);
                }
                if let Some(next) = cursor.next() {
                    return match next.text.as_str() {
                        "named" => named(&cursor, facts),
                        _ => Err(next_is(next, "is invalid after '&&' in if directive")),
                    };
                }
            }
            "named" => return named(&cursor, facts),
            _ => return Err(next_is(group, "is invalid in if directive")),
        }
    }
    Ok(true)
}

fn defined(cursor: &mut Cursor<'_>, facts: &Facts<'_>) -> Result<bool, ConditionError> {
    let names = cursor.take_while(|token| token.text.starts_with('?'));
    if names.is_empty() {
        return Err(cursor.missing("'?var' missing after 'defined' in if directive"));
    }
    let exists = names.iter().any(|token| match token.text.strip_prefix("?~") {
        Some(name) => facts.environment.contains_key(name),
        None => facts.variables.contains_key(token.text.trim_start_matches('?')),
    });
    match cursor.next() {
        _ if !exists => Ok(false),
        None => Ok(true),
        Some(token) if token.text == "&&" => cursor.keyword_after_and(),
        Some(token) => Err(next_is(token, "is invalid for defined test in if directive")),
    }
}

/// Evaluates the names, and consumes a `&&` after them.
fn exec(cursor: &mut Cursor<'_>, facts: &Facts<'_>) -> Result<bool, ConditionError> {
    let names = cursor.take_while(|token| token.text != "&&");
    if names.is_empty() {
        return Err(cursor.missing("Program name missing after 'if exec' in if directive"));
    }
    if !names.iter().any(|token| token.text == facts.evaluation.program) {
        return Ok(false);
    }
    match cursor.next() {
        None => Ok(true),
        Some(_) => cursor.keyword_after_and(),
    }
}

fn named(cursor: &Cursor<'_>, facts: &Facts<'_>) -> Result<bool, ConditionError> {
    if cursor.rest.is_empty() {
        return Err(cursor.missing("Instance name missing after 'if named' in if directive"));
    }
    let instance = facts.evaluation.instance.as_deref().unwrap_or(ANONYMOUS);
    Ok(cursor.rest.iter().any(|token| token.text == instance))
}

fn next_is(token: &DirectiveToken, what: &str) -> ConditionError {
    ConditionError { position: token.position.clone(), what: format!("{} {what}", token.text) }
}

/// Reports whether a pattern with at most one `*` matches. The comparison is case-sensitive.
fn host_matches(pattern: &str, host: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == host,
        Some((_, tail)) if tail.contains('*') => false,
        Some((head, tail)) => {
            host.len() >= head.len() + tail.len() && host.starts_with(head) && host.ends_with(tail)
        }
    }
}

struct Cursor<'a> {
    rest: &'a [DirectiveToken],
    /// The token read last, where a missing token is reported.
    last: &'a DirectiveToken,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<&'a DirectiveToken> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.last = first;
        Some(first)
    }

    fn take_while(&mut self, wanted: impl Fn(&DirectiveToken) -> bool) -> &'a [DirectiveToken] {
        let count = self.rest.iter().take_while(|token| wanted(token)).count();
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        self.last = taken.last().unwrap_or(self.last);
        taken
    }

    fn keyword_after_and(&self) -> Result<bool, ConditionError> {
        match self.rest.first() {
            None => Err(self.missing("Keyword missing after '&&' in if directive")),
            Some(token) if KEYWORDS.contains(&token.text.as_str()) => Ok(true),
            Some(token) => Err(next_is(token, "is invalid after '&&' in if directive")),
        }
    }

    fn missing(&self, what: &str) -> ConditionError {
        ConditionError { position: self.last.position.clone(), what: what.to_owned() }
    }
}
