//! The words of a command: its options, and the paths that it concerns.

use base::LogicalPath;

/// An option of a command. It may be abbreviated.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandOption {
    name: &'static str,
    has_value: bool,
}

impl CommandOption {
    pub(super) const fn switch(name: &'static str) -> Self {
        Self { name, has_value: false }
    }

    pub(super) const fn valued(name: &'static str) -> Self {
        Self { name, has_value: true }
    }
}

/// The options of a command line, by their full names.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct GivenOptions(Vec<(&'static str, String)>);

impl GivenOptions {
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the last value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }
}

/// The words of a command that are not read yet.
pub(super) struct CommandWords<'w>(&'w [Vec<u8>]);

impl<'w> CommandWords<'w> {
    pub(super) fn new(words: &'w [Vec<u8>]) -> Self {
        Self(words)
    }

    /// Returns the next word.
    pub(super) fn next(&mut self) -> Option<&'w [u8]> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Reports whether there are no more words.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next word as text.
    pub(super) fn text(&mut self) -> Option<String> {
        self.next().map(|word| String::from_utf8_lossy(word).into_owned())
    }

    /// Reads the options before the next other word. Of names with the same begin, the first one is meant.
    pub(super) fn options(&mut self, known: &[CommandOption]) -> Result<GivenOptions, String> {
        let mut given = GivenOptions::default();
        while let Some(name) =
            self.0.first().and_then(|word| word.strip_prefix(b"-")).filter(|name| !name.is_empty())
        {
            let name = String::from_utf8_lossy(name).into_owned();
            self.0 = self.0.get(1..).unwrap_or_default();
            let exact = known.iter().find(|option| option.name == name);
            let option = exact.or_else(|| known.iter().find(|option| option.name.starts_with(&name)));
            let option = option.ok_or_else(|| format!("Invalid option, '{name}'."))?;
            let value = match option.has_value {
                true => match self.0.first().filter(|value| !value.starts_with(b"-")) {
                    Some(_) => self.text().unwrap_or_default(),
                    None => return Err(format!("Value not specified for '{name}'.")),
                },
                false => String::new(),
            };
            given.0.push((option.name, value));
        }
        Ok(given)
    }
}

/// A path of a command line, and whether it stands for all files in it (`/*`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PathWord {
    pub(super) path: LogicalPath,
    pub(super) is_content: bool,
}

impl PathWord {
    /// Parses a word.
    pub(super) fn parse(word: &[u8]) -> Result<Self, String> {
        let content = word.strip_suffix(b"/*");
        let text = match content {
            Some(b"") => b"/",
            Some(directory) => directory,
            None => word,
        };
        Ok(Self { path: parse_path(text)?.without_slash(), is_content: content.is_some() })
    }
}

/// Parses a logical path.
pub(super) fn parse_path(word: &[u8]) -> Result<LogicalPath, String> {
    let text = || String::from_utf8_lossy(word);
    LogicalPath::parse(word).map_err(|_| format!("Invalid path {}; give an absolute one without ..", text()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    const KNOWN: [CommandOption; 3] =
        [CommandOption::switch("force"), CommandOption::switch("fix"), CommandOption::valued("keep")];

    fn parse(line: &str) -> (Result<GivenOptions, String>, Vec<String>) {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let mut words = CommandWords::new(&words);
        let options = words.options(&KNOWN);
        (options, std::iter::from_fn(|| words.text()).collect())
    }

    #[test]
    fn options_are_abbreviated_and_stand_before_paths() {
        let (options, rest) = parse("-f -fix -k 2d /a -k");
        let options = options.unwrap();
        assert!(options.has("force") && options.has("fix"));
        assert_eq!(options.value("keep"), Some("2d"));
        assert_eq!(rest, ["/a", "-k"]);
        assert!(!parse("-fi /a").0.unwrap().has("force"));
        for (line, text) in [
            ("-x /a", "Invalid option, 'x'."),
            ("-fixx", "Invalid option, 'fixx'."),
            ("-k", "Value not specified for 'k'."),
            ("-k -5", "Value not specified for 'k'."),
        ] {
            assert_eq!(parse(line).0.unwrap_err(), text, "{line}");
        }
    }

    #[test]
    fn a_path_may_stand_for_what_is_in_it() {
        for (word, path, is_content) in [
            ("/a", "/a", false),
            ("/a/*", "/a", true),
            ("/*", "/", true),
            ("/a*", "/a*", false),
            ("/a/", "/a", false),
        ] {
            let parsed = PathWord::parse(word.as_bytes()).unwrap();
            assert_eq!((parsed.path.text().as_ref(), parsed.is_content), (path, is_content), "{word}");
        }
        assert!(PathWord::parse(b"relative").is_err());
        assert!(PathWord::parse(b"/../etc/passwd").is_err());
    }
}
