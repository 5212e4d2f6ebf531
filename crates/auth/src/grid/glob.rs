//! [`Glob`]: patterns in which a character stands for any text.

/// A part of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GlobItem {
    /// Any text.
    Text,
    /// Any byte.
    One,
    Byte(u8),
}

/// A pattern of a whole text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Glob(Vec<GlobItem>);

impl Glob {
    /// Parses a pattern in which `*` stands for any text.
    pub(super) fn with_star(pattern: &str) -> Self {
        Self(
            pattern
                .bytes()
                .map(|byte| if byte == b'*' { GlobItem::Text } else { GlobItem::Byte(byte) })
                .collect(),
        )
    }

    /// Parses a pattern in which `*` stands for any text and `?` for a character.
    pub(super) fn with_star_and_mark(pattern: &str) -> Self {
        let item = |byte| match byte {
            b'*' => GlobItem::Text,
            b'?' => GlobItem::One,
            byte => GlobItem::Byte(byte),
        };
        Self(pattern.bytes().map(item).collect())
    }

    /// Parses a regular expression of literal text, `.`, `.*`, and `\` before a literal. Returns
    /// `None` for other expressions.
    pub(super) fn of_expression(expression: &str) -> Option<Self> {
        let (mut items, mut bytes) = (Vec::new(), expression.bytes().peekable());
        while let Some(byte) = bytes.next() {
            let item = match byte {
                b'.' => match bytes.next_if_eq(&b'*') {
                    Some(_) => GlobItem::Text,
                    None => GlobItem::One,
                },
                // Letters after a backslash are classes.
                b'\\' => GlobItem::Byte(bytes.next_if(|byte| !byte.is_ascii_alphanumeric())?),
                b'*' | b'+' | b'?' | b'[' | b']' | b'(' | b')' | b'{' | b'}' | b'|' | b'^' | b'$' => {
                    return None;
                }
                byte => GlobItem::Byte(byte),
            };
            if matches!(bytes.peek(), Some(b'*')) {
                return None;
            }
            items.push(item);
        }
        Some(Self(items))
    }

    /// Reports whether a text matches. The time is bounded by the product of the lengths.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (&self.0, text.as_bytes());
        let (mut at, mut read) = (0, 0);
        // The position after the last item for any text, and the text that it has taken.
        let mut retry: Option<(usize, usize)> = None;
        while let Some(byte) = text.get(read) {
            match (pattern.get(at), retry) {
                (Some(GlobItem::Text), _) => {
                    at += 1;
                    retry = Some((at, read));
                }
                (Some(GlobItem::One), _) => (at, read) = (at + 1, read + 1),
                (Some(GlobItem::Byte(expected)), _) if expected == byte => (at, read) = (at + 1, read + 1),
                (_, Some((after, taken))) => {
                    retry = Some((after, taken + 1));
                    (at, read) = (after, taken + 1);
                }
                (_, None) => return false,
            }
        }
        pattern.iter().skip(at).all(|item| *item == GlobItem::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        let cases = [
            ("", "", true),
            ("*", "", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*a", "aba", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a**", "a", true),
            ("a", "aa", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Glob::with_star_and_mark(pattern).matches(text), expected, "{pattern} {text}");
        }
        assert!(!Glob::with_star("a?c").matches("abc") && Glob::with_star("a?c").matches("a?c"));
    }

    #[test]
    fn expressions_with_other_operators_are_refused() {
        let matches =
            |expression: &str, text: &str| Glob::of_expression(expression).map(|glob| glob.matches(text));
        assert_eq!(matches("/DC=org/.*", "/DC=org/CN=a"), Some(true));
        assert_eq!(matches(r"/CN=a\.b", "/CN=axb"), Some(false));
        assert_eq!(matches(r"/CN=a.b", "/CN=axb"), Some(true));
        for wrong in ["a*", ".**", "[ab]", "(a|b)", "a+", "^a", "a$", r"\d", r"a\", r"\.*"] {
            assert_eq!(matches(wrong, ""), None, "{wrong}");
        }
    }
}
