//! Splitting of a line into words, with the quotes, backslashes and comments of a POSIX shell.
//!
//! There are no variables, pipes or redirections. Wildcards are left to the commands, which receive
//! the information about quoted ones.

/// The state at the end of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuotingState {
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
pub(crate) struct ShellWord {
    /// The word without its quotes.
    pub(crate) text: String,
    /// The word with a backslash before each quoted wildcard and quoted backslash.
    pub(crate) pattern: String,
    /// The byte offset in the line at which the word begins.
    pub(crate) start: usize,
}

/// The words of a line.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct SplitLine {
    pub(crate) words: Vec<ShellWord>,
    pub(crate) end: QuotingState,
    /// The first operator of a POSIX shell that is not supported here.
    pub(crate) operator: Option<char>,
}

impl SplitLine {
    /// Reports whether the line continues: a quotation is open, or it ends with a backslash.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.end, QuotingState::Single | QuotingState::Double | QuotingState::Escape)
    }
}

/// Splits a line into words.
pub(crate) fn split(line: &str) -> SplitLine {
    let mut splitter = WordSplitter {
        word: None,
        split: SplitLine { words: Vec::new(), end: QuotingState::Blank, operator: None },
    };
    let mut letters = line.char_indices().peekable();
    // The state before a backslash.
    let mut within = QuotingState::Word;
    while let Some((index, letter)) = letters.next() {
        let end = splitter.split.end;
        splitter.split.end = match (end, letter) {
            (QuotingState::Comment, '\n') => QuotingState::Blank,
            (QuotingState::Comment, _) => QuotingState::Comment,
            // A continued line contributes no character.
            (QuotingState::Escape, '\n') => {
                if within == QuotingState::Word && splitter.word.is_none() {
                    QuotingState::Blank
                } else {
                    within
                }
            }
            (QuotingState::Escape, letter) => {
                if within == QuotingState::Double && !matches!(letter, '"' | '\\' | '$' | '`') {
                    splitter.push_quoted(index, '\\');
                }
                splitter.push_quoted(index, letter);
                within
            }
            (QuotingState::Single, '\'') | (QuotingState::Double, '"') => QuotingState::Word,
            (QuotingState::Single, letter) => splitter.push_quoted(index, letter),
            (_, '\\') => {
                within = if end == QuotingState::Double { QuotingState::Double } else { QuotingState::Word };
                // A backslash before a line feed does not begin a word.
                if letters.peek().is_none_or(|(_, next)| *next != '\n') {
                    splitter.begin(index);
                }
                QuotingState::Escape
            }
            (QuotingState::Double, letter) => splitter.push_quoted(index, letter),
            (_, '\'') => splitter.open(index, QuotingState::Single),
            (_, '"') => splitter.open(index, QuotingState::Double),
            (_, ' ' | '\t' | '\r' | '\n') => splitter.finish(),
            (QuotingState::Blank, '#') => QuotingState::Comment,
            (_, letter) => {
                if matches!(letter, '|' | '<' | '>' | ';') {
                    splitter.split.operator.get_or_insert(letter);
                }
                splitter.push(index, letter)
            }
        };
    }
    let WordSplitter { word, mut split } = splitter;
    split.words.extend(word);
    split
}

struct WordSplitter {
    word: Option<ShellWord>,
    split: SplitLine,
}

impl WordSplitter {
    /// Begins a word unless one has begun.
    fn begin(&mut self, start: usize) {
        self.word.get_or_insert_with(|| ShellWord { text: String::new(), pattern: String::new(), start });
    }

    /// Opens a quotation, which begins a word even if it is empty.
    fn open(&mut self, start: usize, quotation: QuotingState) -> QuotingState {
        self.begin(start);
        quotation
    }

    /// Adds a letter. The state is unchanged.
    fn push(&mut self, index: usize, letter: char) -> QuotingState {
        self.begin(index);
        if let Some(word) = &mut self.word {
            word.text.push(letter);
            word.pattern.push(letter);
        }
        if self.split.end == QuotingState::Blank { QuotingState::Word } else { self.split.end }
    }

    /// Adds a literal letter.
    fn push_quoted(&mut self, index: usize, letter: char) -> QuotingState {
        self.begin(index);
        if let Some(word) = self.word.as_mut().filter(|_| "*?[\\".contains(letter)) {
            word.pattern.push('\\');
        }
        self.push(index, letter)
    }

    fn finish(&mut self) -> QuotingState {
        self.split.words.extend(self.word.take());
        QuotingState::Blank
    }
}

/// Quotes a word so that [`split`] returns it. Within open quotes, quotes it accordingly.
pub(crate) fn quoted(text: &str, end: QuotingState) -> String {
    match end {
        QuotingState::Single => format!("'{}", text.replace('\'', r"'\''")),
        QuotingState::Double => {
            format!("\"{}", escaped(text, |letter| matches!(letter, '"' | '\\' | '$' | '`')))
        }
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
        let table: [(&str, &[&str], QuotingState); 20] = [
            ("", &[], QuotingState::Blank),
            ("  ls\t-l ", &["ls", "-l"], QuotingState::Blank),
            ("ls 'a b'c\"d e\"", &["ls", "a bcd e"], QuotingState::Word),
            (r"a\ b c\\d", &["a b", r"c\d"], QuotingState::Word),
            (r#""a\"b\x\\" 'c\'"#, &[r#"a"b\x\"#, r"c\"], QuotingState::Word),
            ("rm ''", &["rm", ""], QuotingState::Word),
            ("ls 'a", &["ls", "a"], QuotingState::Single),
            ("ls \"a'", &["ls", "a'"], QuotingState::Double),
            ("ls a\\", &["ls", "a"], QuotingState::Escape),
            ("ls \\", &["ls", ""], QuotingState::Escape),
            ("ls a\\\nb", &["ls", "ab"], QuotingState::Word),
            ("ls \\\n b", &["ls", "b"], QuotingState::Word),
            ("\"a\\\nb\"", &["ab"], QuotingState::Word),
            ("'a\nb'", &["a\nb"], QuotingState::Word),
            ("ls # a 'b", &["ls"], QuotingState::Comment),
            ("# c\nls", &["ls"], QuotingState::Word),
            ("ls a#b '#c'", &["ls", "a#b", "#c"], QuotingState::Word),
            ("ls \\#a", &["ls", "#a"], QuotingState::Word),
            ("é 'ü", &["é", "ü"], QuotingState::Single),
            ("a\r", &["a"], QuotingState::Blank),
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
            for end in [QuotingState::Blank, QuotingState::Word, QuotingState::Single, QuotingState::Double] {
                let closed = match end {
                    QuotingState::Single => format!("{}'", quoted(text, end)),
                    QuotingState::Double => format!("{}\"", quoted(text, end)),
                    _ => quoted(text, end),
                };
                let split = split(&closed);
                let found: Vec<&str> = split.words.iter().map(|word| word.text.as_str()).collect();
                assert_eq!((found, split.is_open(), split.operator), (vec![text], false, None), "{closed}");
            }
        }
    }
}
