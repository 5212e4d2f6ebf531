//! The syntax of issuer files: sections with keys and values.
//!
//! ```text
//! # comment
//! [Section name]
//! key = value ; comment
//!     further words of the value
//! ```
//!
//! Sections and keys may be written in upper and lower case. A line that begins with a blank
//! continues the value above.

use super::issuer_file::IssuerFileProblem;

/// Maximum number of lines of a file.
const LINES_MAX: u32 = 100_000;

/// A section of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IniSection {
    /// The name as in the file, with single blanks.
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) entries: Vec<IniEntry>,
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IniEntry {
    /// The key in lower case.
    pub(super) key: String,
    pub(super) value: String,
    pub(super) line: u32,
}

/// Parses a file. Returns all problems of its syntax if it has any.
pub(super) fn parse(text: &str) -> Result<Vec<IniSection>, Vec<IssuerFileProblem>> {
    let mut sections: Vec<IniSection> = Vec::new();
    let mut problems = Vec::new();
    let mut may_continue = false;
    for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        if line > LINES_MAX {
            let what = format!("the file has more than {LINES_MAX} lines");
            problems.push(IssuerFileProblem { line, what });
            break;
        }
        let is_indented = text.starts_with([' ', '\t']);
        let text = without_comment(text).trim();
        if text.is_empty() {
            continue;
        }
        let problem = |what: &str| IssuerFileProblem { line, what: what.to_owned() };
        if is_indented && may_continue {
            if is_assignment(text) {
                problems.push(problem(
                    "an indented line continues the value above, but this one has a '='; remove the blanks in front of it",
                ));
            } else if let Some(entry) = sections.last_mut().and_then(|section| section.entries.last_mut()) {
                entry.value.push(' ');
                entry.value.push_str(text);
            }
            continue;
        }
        may_continue = false;
        if let Some(name) = text.strip_prefix('[') {
            let name =
                name.strip_suffix(']').map(|name| name.split_whitespace().collect::<Vec<_>>().join(" "));
            match name.filter(|name| !name.is_empty() && !name.contains(['[', ']'])) {
                Some(name) => sections.push(IniSection { name, line, entries: Vec::new() }),
                None => problems.push(problem("a section is written as [name]")),
            }
            continue;
        }
        let Some((key, value)) = text.split_once(['=', ':']) else {
            problems.push(problem("expected key = value"));
            continue;
        };
        match sections.last_mut() {
            None => {
                problems.push(problem("a key before the first section; begin with [Global] or [Issuer NAME]"))
            }
            Some(section) => {
                let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
                section.entries.push(IniEntry { key, value, line });
                may_continue = true;
            }
        }
    }
    if problems.is_empty() { Ok(sections) } else { Err(problems) }
}

/// Reports whether a line looks like a key with a value: a word, then `=`.
fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(key, _)| {
        let key = key.trim();
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Returns a line without its comment: `#` or `;` at its beginning, or `;` behind a blank.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with(['#', ';']) {
        return "";
    }
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        if letter == ';' && before.is_whitespace() {
            return line.get(..at).unwrap_or_default();
        }
        before = letter;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        match parse(text) {
            Ok(sections) => sections
                .into_iter()
                .flat_map(|IniSection { name, line, entries }| {
                    let entries = entries
                        .into_iter()
                        .map(|IniEntry { key, value, line }| format!("{line} {key}={value}"));
                    [format!("{line} [{name}]")].into_iter().chain(entries).collect::<Vec<_>>()
                })
                .collect(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn values_belong_to_their_sections() {
        let text = "# c\n; c\n\n[Global]\nAudience = a b ; c\n  # not c\n\tc,\n[ Issuer   One ]\r\nissuer=https://x#y;z\r\nbase_path : /a\n";
        let expected = [
            "4 [Global]",
            "5 audience=a b c,",
            "8 [Issuer One]",
            "9 issuer=https://x#y;z",
            "10 base_path=/a",
        ];
        assert_eq!(shown(text), expected);
        assert_eq!(shown(""), [""; 0]);
    }

    #[test]
    fn errors_have_lines() {
        assert_eq!(shown("a = b\n[x]\nword\n[y\n[]\n").len(), 4);
        assert_eq!(shown("\n[x]\nword"), ["3: expected key = value"]);
        let indented = "[x]\nissuer = a\n  base_path = /b";
        assert!(shown(indented)[0].starts_with("3: an indented line continues"), "{:?}", shown(indented));
        // A URL with a query is a value.
        assert_eq!(shown("[x]\na = b\n  https://h/?x=y"), ["1 [x]", "2 a=b https://h/?x=y"]);
    }
}
