//! Splitting of a line into words, with the quotes, backslashes and comments of a POSIX shell.
//!
//! There are no variables, pipes or redirections. Wildcards are left to the commands, which receive
//! the information about quoted ones.

/// The state at the end of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Between words: the next letter begins a word.
    Blank,
    /// In a word, outside of quotes.
    Word,
    Single,
    Double,
    /// After a backslash.
    Escape,
    Comment,
}

/// A word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    /// The word without its quotes.
    pub(crate) text: String,
    /// The word with a backslash before each quoted wildcard and quoted backslash.
    pub(crate) pattern: String,
    /// The byte offset in the line at which the word begins.
    pub(crate) start: usize,
}

/// The words of a line.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Split {
    pub(crate) words: Vec<Word>,
    pub(crate) end: End,
    /// The first operator of a POSIX shell that is not supported here.
    pub(crate) operator: Option<char>,
}

impl Split {
    /// Reports whether the line continues: a quotation is open, or it ends with a backslash.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.end, End::Single | End::Double | End::Escape)
    }
}

/// Splits a line into words.
pub(crate) fn split(line: &str) -> Split {
    let mut splitter =
        Splitter { word: None, split: Split { words: Vec::new(), end: End::Blank, operator: None } };
    let mut letters = line.char_indices().peekable();
    // The state before a backslash.
    let mut within = End::Word;
    while let Some((index, letter)) = letters.next() {
        let end = splitter.split.end;
        splitter.split.end = match (end, letter) {
            (End::Comment, '\n') => End::Blank,
            (End::Comment, _) => End::Comment,
            // A continued line contributes no character.
            (End::Escape, '\n') => {
                if within == End::Word && splitter.word.is_none() {
                    End::Blank
                } else {
                    within
                }
            }
            (End::Escape, letter) => {
                if within == End::Double && !matches!(letter, '"' | '\\' | '$' | '`') {
                    splitter.push_quoted(index, '\\');
                }
                splitter.push_quoted(index, letter);
                within
            }
            (End::Single, '\'') | (End::Double, '"') => End::Word,
            (End::Single, letter) => splitter.push_quoted(index, letter),
            (_, '\\') => {
                within = if end == End::Double { End::Double } else { End::Word };
                // A backslash before a line feed does not begin a word.
                if letters.peek().is_none_or(|(_, next)| *next != '\n') {
                    splitter.begin(index);
                }
                End::Escape
            }
            (End::Double, letter) => splitter.push_quoted(index, letter),
            (_, '\'') => splitter.open(index, End::Single),
            (_, '"') => splitter.open(index, End::Double),
            (_, ' ' | '\t' | '\r' | '\n') => splitter.finish(),
            (End::Blank, '#') => End::Comment,
            (_, letter) => {
                if matches!(letter, '|' | '<' | '>' | ';') {
                    splitter.split.operator.get_or_insert(letter);
                }
                splitter.push(index, letter)
            }
        };
    }
    let Splitter { word, mut split } = splitter;
    split.words.extend(word);
    split
}

struct Splitter {
    word: Option<Word>,
    split: Split,
}

impl Splitter {
    /// Begins a word unless one has begun.
    fn begin(&mut self, start: usize) {
        self.word.get_or_insert_with(|| Word { text: String::new(), pattern: String::new(), start });
    }

    /// Opens a quotation, which begins a word even if it is empty.
    fn open(&mut self, start: usize, quotation: End) -> End {
        self.begin(start);
        quotation
    }

    /// Adds a letter. The state is unchanged.
    fn push(&mut self, index: usize, letter: char) -> End {
        self.begin(index);
        if let Some(word) = &mut self.word {
            word.text.push(letter);
            word.pattern.push(letter);
        }
        if self.split.end == End::Blank { End::Word } else { self.split.end }
    }

    /// Adds a literal letter.
    fn push_quoted(&mut self, index: usize, letter: char) -> End {
        self.begin(index);
        if let Some(word) = self.word.as_mut().filter(|_| "*?[\\".contains(letter)) {
            word.pattern.push('\\');
        }
        self.push(index, letter)
    }

    fn finish(&mut self) -> End {
        self.split.words.extend(self.word.take());
        End::Blank
    }
}

/// Quotes a word so that [`split`] returns it. Within open quotes, quotes it accordingly.
pub(crate) fn quoted(text: &str, end: End) -> String {
    match end {
        End::Single => format!("'{}", text.replace('\'', r"'\''")),
        End::Double => format!("\"{}", escaped(text, |letter| matches!(letter, '"' | '\\' | '$' | '`'))),
        _ => escaped(text, |letter| !letter.is_alphanumeric() && !"/._-+=:,@%^~?&]{}!".contains(letter)),
    }
}

fn escaped(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if special(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split(line).words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_as_a_posix_shell_makes_them() {
        let table: [(&str, &[&str], End); 20] = [
            ("", &[], End::Blank),
            ("  ls\t-l ", &["ls", "-l"], End::Blank),
            ("ls 'a b'c\"d e\"", &["ls", "a bcd e"], End::Word),
            (r"a\ b c\\d", &["a b", r"c\d"], End::Word),
            (r#""a\"b\x\\" 'c\'"#, &[r#"a"b\x\"#, r"c\"], End::Word),
            ("rm ''", &["rm", ""], End::Word),
            ("ls 'a", &["ls", "a"], End::Single),
            ("ls \"a'", &["ls", "a'"], End::Double),
            ("ls a\\", &["ls", "a"], End::Escape),
            ("ls \\", &["ls", ""], End::Escape),
            ("ls a\\\nb", &["ls", "ab"], End::Word),
            ("ls \\\n b", &["ls", "b"], End::Word),
            ("\"a\\\nb\"", &["ab"], End::Word),
            ("'a\nb'", &["a\nb"], End::Word),
            ("ls # a 'b", &["ls"], End::Comment),
            ("# c\nls", &["ls"], End::Word),
            ("ls a#b '#c'", &["ls", "a#b", "#c"], End::Word),
            ("ls \\#a", &["ls", "#a"], End::Word),
            ("é 'ü", &["é", "ü"], End::Single),
            ("a\r", &["a"], End::Blank),
        ];
        for (line, expected, end) in table {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!((texts(line), split(line).end), (expected, end), "{line:?}");
        }
    }

    #[test]
    fn wildcards_that_are_quoted_are_told_from_others() {
        let table = [
            (r"a\*b*", r"a\*b*"),
            ("'a*'b*", r"a\*b*"),
            (r#""[x]"?"\*""#, r"\[x]?\\\*"),
            ("a*b", "a*b"),
            (r"a\ b*", "a b*"),
            ("'?'", r"\?"),
        ];
        for (line, expected) in table {
            let patterns: Vec<String> = split(line).words.into_iter().map(|word| word.pattern).collect();
            assert_eq!(patterns, [expected], "{line}");
        }
    }

    #[test]
    fn words_know_where_they_begin() {
        let starts: Vec<usize> =
            split("ls  'a b' \"c\" \\ d é x").words.iter().map(|word| word.start).collect();
        assert_eq!(starts, [0, 4, 10, 14, 18, 21]);
    }

    #[test]
    fn what_only_real_shells_understand_is_noticed_unless_it_is_quoted() {
        for (line, sign) in [("ls | wc", '|'), ("a; b", ';'), ("cat a >b", '>'), ("a<b", '<')] {
            assert_eq!(split(line).operator, Some(sign), "{line}");
        }
        assert_eq!(split("ls 'a|b' \\; \"<\" # | >").operator, None);
    }

    #[test]
    fn what_is_quoted_comes_back() {
        for text in
            ["plain", "a b", "it's", "say \"$x\"", "back\\slash", "tab\there", "#x", "a|b;c", "ünï", "(x)"]
        {
            for end in [End::Blank, End::Word, End::Single, End::Double] {
                let closed = match end {
                    End::Single => format!("{}'", quoted(text, end)),
                    End::Double => format!("{}\"", quoted(text, end)),
                    _ => quoted(text, end),
                };
                let split = split(&closed);
                let found: Vec<&str> = split.words.iter().map(|word| word.text.as_str()).collect();
                assert_eq!((found, split.is_open(), split.operator), (vec![text], false, None), "{closed}");
            }
        }
    }
}
