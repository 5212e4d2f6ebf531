//! Parser of options in the syntax of XRootD's client programs.
//!
//! Short options may be combined, long options may be abbreviated if unambiguous, and options may
//! stand before and after other words.

use std::fmt;

/// An option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionSpec {
    /// The option letter, if there is one.
    pub(crate) short: Option<char>,
    pub(crate) long: &'static str,
    /// Set if the option takes a value.
    pub(crate) value: bool,
}

impl OptionSpec {
    pub(crate) const fn switch(short: Option<char>, long: &'static str) -> Self {
        Self { short, long, value: false }
    }

    pub(crate) const fn valued(short: Option<char>, long: &'static str) -> Self {
        Self { short, long, value: true }
    }
}

/// The reason why a command line is invalid.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum OptionError {
    Invalid(String),
    NoValue(String),
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(option) => write!(f, "Invalid option, '{option}'."),
            Self::NoValue(option) => write!(f, "'{option}' argument missing."),
        }
    }
}

/// A parsed command line.
#[derive(PartialEq, Eq, Default, Debug)]
pub(crate) struct ParsedOptions {
    /// The long names of the options with their values. Options without a value have an empty one.
    pub(crate) options: Vec<(&'static str, String)>,
    /// The other words.
    pub(crate) words: Vec<String>,
}

/// Parses a command line. All arguments after `--` are words.
pub(crate) fn parse(line: &[String], known: &[OptionSpec]) -> Result<ParsedOptions, OptionError> {
    let mut parsed = ParsedOptions::default();
    let mut left = line.iter();
    while let Some(word) = left.next() {
        if word == "--" {
            parsed.words.extend(left.cloned());
            break;
        }
        if let Some(name) = word.strip_prefix("--") {
            let (name, attached) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let option = long(name, known).filter(|option| option.value || attached.is_none());
            let option = option.ok_or_else(|| OptionError::Invalid(word.clone()))?;
            let value = match (option.value, attached) {
                (true, Some(value)) => Some(value.to_owned()),
                (true, None) => left.next().cloned(),
                (false, _) => Some(String::new()),
            };
            let value = value.ok_or_else(|| OptionError::NoValue(format!("--{}", option.long)))?;
            parsed.options.push((option.long, value));
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let mut letters = letters.chars();
            while let Some(letter) = letters.next() {
                let shown = format!("-{letter}");
                let option = known.iter().find(|option| option.short == Some(letter));
                let option = option.ok_or_else(|| OptionError::Invalid(shown.clone()))?;
                let mut value = String::new();
                if option.value {
                    value = letters.by_ref().collect();
                    if value.is_empty() {
                        value = left.next().cloned().ok_or(OptionError::NoValue(shown))?;
                    }
                }
                parsed.options.push((option.long, value));
            }
        } else {
            parsed.words.push(word.clone());
        }
    }
    Ok(parsed)
}

/// Returns the option with that name, or the only one with that prefix.
fn long<'a>(name: &str, known: &'a [OptionSpec]) -> Option<&'a OptionSpec> {
    known.iter().find(|option| option.long == name).or_else(|| {
        let mut begin = known.iter().filter(|option| option.long.starts_with(name) && !name.is_empty());
        begin.next().filter(|_| begin.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_anywhere_and_together() {
        let known = [
            OptionSpec::switch(Some('f'), "force"),
            OptionSpec::switch(None, "forget"),
            OptionSpec::valued(Some('l'), "list"),
        ];
        let parse = |line: &str| {
            let line: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&line, &known)
        };
        let parsed = parse("a -fl x --lis=y - --force b -ly -- -f").unwrap();
        let values: Vec<(&str, &str)> =
            parsed.options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(values, [("force", ""), ("list", "x"), ("list", "y"), ("force", ""), ("list", "y")]);
        assert_eq!(parsed.words, ["a", "-", "b", "-f"]);
        let table = [
            ("-fx", "Invalid option, '-x'."),
            ("--for", "Invalid option, '--for'."),
            ("--force=1", "Invalid option, '--force=1'."),
            ("--list", "'--list' argument missing."),
            ("-l", "'-l' argument missing."),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
        }
    }
}
