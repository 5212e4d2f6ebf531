//! `set` variables and their substitution in tokens.

use std::collections::BTreeMap;

use super::{SUBSTITUTED_CHARS_MAX, VARIABLE_NAME_MAX};

/// Variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// Reports whether `set` and `setenv` accept a name.
pub(super) fn valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().count() <= VARIABLE_NAME_MAX
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Replaces `$name`, `$(name)`, `${name}` and `$[name]` in a token, and `\x` by `x`. A `$` before
/// any other character is kept. Returns `None` if the result is empty.
///
/// # Errors
/// A message without position: undefined or malformed variable, result too long.
pub(super) fn substitute(
    token: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, String> {
    let mut out = String::with_capacity(token.len());
    let mut rest = token;
    let mut replaced = false;
    while let Some(at) = rest.find(['$', '\\']) {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        if let Some(escaped) = special.strip_prefix('\\') {
            let mut chars = escaped.chars();
            out.extend(chars.next());
            rest = chars.as_str();
            continue;
        }
        let behind = special.strip_prefix('$').unwrap_or_default();
        if behind.starts_with(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '(' | '{' | '[')) {
            out.push('$');
            rest = behind;
            continue;
        }
        let reference = Reference::parse(behind).ok_or_else(|| format!("Variable {special} is malformed"))?;
        match lookup(reference.name) {
            Some(value) => out.push_str(&value),
            None if reference.optional => {}
            None => return Err(format!("Variable {} is undefined", reference.name)),
        }
        replaced = true;
        rest = reference.rest;
    }
    out.push_str(rest);
    if replaced && out.chars().count() > SUBSTITUTED_CHARS_MAX {
        return Err(format!("Substituted text exceeds {SUBSTITUTED_CHARS_MAX} characters"));
    }
    Ok((!out.is_empty()).then_some(out))
}

/// Returns the value of `set` for `token`. A leading `$` names an environment variable: the whole
/// rest of the token is its name, unless brackets delimit it. Any other text is the value itself.
///
/// # Errors
/// A message without position: undefined or malformed variable, result too long.
pub(super) fn from_environment(
    token: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let undefined = |what: String| format!("{what} in the environment, which is where 'set' looks");
    let Some(name) = token.strip_prefix('$') else { return Ok(token.to_owned()) };
    if name.starts_with(['(', '{', '[']) {
        return Ok(substitute(token, lookup).map_err(undefined)?.unwrap_or_default());
    }
    if name.is_empty() {
        return Err(format!("Variable {token} is malformed"));
    }
    let Some(value) = lookup(name) else {
        let what = undefined(format!("Variable {name} is undefined"));
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        let (shorter, rest) = name.split_at(end);
        let hint = format!("; to end the name before '{rest}' write ${{{shorter}}}{rest}");
        return Err(if rest.is_empty() || shorter.is_empty() { what } else { what + &hint });
    };
    match value.chars().count() {
        0..=SUBSTITUTED_CHARS_MAX => Ok(value),
        _ => Err(format!("Substituted text exceeds {SUBSTITUTED_CHARS_MAX} characters")),
    }
}

/// A parsed reference after a `$`.
struct Reference<'a> {
    name: &'a str,
    /// Set for `$[name]`, which is empty if the variable is undefined.
    optional: bool,
    rest: &'a str,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let close = match text.chars().next()? {
            '(' => ')',
            '{' => '}',
            '[' => ']',
            _ => {
                let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
                let (name, rest) = text.split_at(end);
                return (!name.is_empty()).then_some(Self { name, optional: false, rest });
            }
        };
        let (name, rest) = text.get(1..)?.split_once(close)?;
        valid_name(name).then_some(Self { name, optional: close == ']', rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(token: &str) -> Result<Option<String>, String> {
        substitute(token, &|name| match name {
            "a" => Some("5".to_owned()),
            "a_b" => Some("6".to_owned()),
            "empty" => Some(String::new()),
            "long" => Some("x".repeat(SUBSTITUTED_CHARS_MAX)),
            _ => None,
        })
    }

    #[test]
    fn each_form_is_replaced() {
        for (token, expected) in [
            ("$a", "5"),
            ("x$a-y", "x5-y"),
            ("$(a)0", "50"),
            ("${a}0", "50"),
            ("$[a]0", "50"),
            ("$a$a", "55"),
            ("$a_b", "5_b"),
            ("${a_b}", "6"),
            ("x$[nope]y", "xy"),
            (r"\$a", "$a"),
            (r"a\b\\", r"ab\"),
            ("plain", "plain"),
            ("a$-$a", "a$-5"),
            ("$_$/$.", "$_$/$."),
            ("$$a", "$5"),
        ] {
            assert_eq!(run(token), Ok(Some(expected.to_owned())), "{token}");
        }
    }

    #[test]
    fn an_empty_result_is_not_a_token() {
        assert_eq!(run("$[nope]"), Ok(None));
        assert_eq!(run("$empty"), Ok(None));
    }

    #[test]
    fn undefined_and_malformed_are_errors() {
        for token in ["$nope", "${nope}", "$(nope)"] {
            assert_eq!(run(token), Err("Variable nope is undefined".to_owned()), "{token}");
        }
        for token in ["$", "x$", "${a", "${}", "$[a b", "${a!}"] {
            assert!(run(token).is_err_and(|e| e.ends_with("is malformed")), "{token}");
        }
    }

    #[test]
    fn set_uses_the_rest_of_the_token_as_environment_variable() {
        let run = |token: &str| {
            from_environment(token, &|name| match name {
                "SOURCE_DIR" => Some("/src".to_owned()),
                "A/x" => Some("7".to_owned()),
                "SOURCE" => Some("wrong".to_owned()),
                "long" => Some("x".repeat(SUBSTITUTED_CHARS_MAX + 1)),
                _ => None,
            })
        };
        for (token, value) in [
            ("$SOURCE_DIR", "/src"),
            ("$A/x", "7"),
            ("${SOURCE_DIR}/x", "/src/x"),
            ("$(SOURCE_DIR)", "/src"),
            ("$[SOURCE_DIR]", "/src"),
            ("$[NO_SUCH]", ""),
            ("x$SOURCE_DIR", "x$SOURCE_DIR"),
            ("", ""),
        ] {
            assert_eq!(run(token), Ok(value.to_owned()), "{token}");
        }
        let undefined = |name: &str| {
            format!("Variable {name} is undefined in the environment, which is where 'set' looks")
        };
        assert_eq!(run("$NO_SUCH"), Err(undefined("NO_SUCH")));
        let hint = "; to end the name before '/x' write ${SOURCE_DIR}/x";
        assert_eq!(run("$SOURCE_DIR/x"), Err(undefined("SOURCE_DIR/x") + hint));
        assert!(run("$").is_err() && run("${SOURCE_DIR").is_err() && run("$long").is_err());
    }

    #[test]
    fn the_length_limit_applies_to_substituted_text() {
        assert!(run("$long").is_ok());
        assert!(run("x$long").is_err());
    }
}
