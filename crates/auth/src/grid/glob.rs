//! [`Glob`]: patterns of names in which a character stands for any text.
//!
//! Patterns of distinguished names are compared by characters, and an escape of [`super::DistinguishedName::text`]
//! (`\/`, `\+`, `\\`, `\xHH`) is one character. Otherwise `*` could stand for its backslash, and the
//! value of the name `/CN=x\/CN=root` would match `*/CN=root` like an attribute. Other names, such as
//! those of groups, have no escapes.

/// A character of a name: a byte, or an escape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NameCharacter {
    Byte(u8),
    Escaped(u8),
    /// Two hexadecimal digits.
    Hexadecimal([u8; 2]),
}

impl NameCharacter {
    fn first(text: &[u8], has_escapes: bool) -> Option<(Self, usize)> {
        if has_escapes { Self::first_escaped(text) } else { Self::first_byte(text) }
    }

    /// Returns the first character of a text, in which every byte is one, and its length in bytes.
    fn first_byte(text: &[u8]) -> Option<(Self, usize)> {
        text.first().map(|byte| (Self::Byte(*byte), 1))
    }

    /// Returns the first character of a distinguished name and its length in bytes.
    fn first_escaped(text: &[u8]) -> Option<(Self, usize)> {
        Some(match *text {
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (Self::Hexadecimal([high, low].map(|digit| digit.to_ascii_uppercase())), 4)
            }
            [b'\\', escaped @ (b'/' | b'+' | b'\\'), ..] => (Self::Escaped(escaped), 2),
            [byte, ..] => (Self::Byte(byte), 1),
            [] => return None,
        })
    }
}

/// A part of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GlobItem {
    /// Any text.
    Text,
    /// Any character.
    One,
    Character(NameCharacter),
}

impl GlobItem {
    fn of_star(character: NameCharacter) -> Self {
        if character == NameCharacter::Byte(b'*') { Self::Text } else { Self::Character(character) }
    }
}

/// Returns the items of a pattern, character by character.
fn items(mut pattern: &[u8], has_escapes: bool, item: impl Fn(NameCharacter) -> GlobItem) -> Vec<GlobItem> {
    let mut items = Vec::new();
    while let Some((character, length)) = NameCharacter::first(pattern, has_escapes) {
        items.push(item(character));
        pattern = pattern.get(length..).unwrap_or_default();
    }
    items
}

/// A pattern of a whole text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Glob {
    items: Vec<GlobItem>,
    has_escapes: bool,
}

impl Glob {
    /// Parses a pattern of distinguished names in which `*` stands for any text.
    pub(crate) fn with_star(pattern: &str) -> Self {
        Self { items: items(pattern.as_bytes(), true, GlobItem::of_star), has_escapes: true }
    }

    /// Parses a pattern of names without escapes in which `*` stands for any text.
    pub(crate) fn without_escapes(pattern: &str) -> Self {
        Self { items: items(pattern.as_bytes(), false, GlobItem::of_star), has_escapes: false }
    }

    /// Parses a pattern of distinguished names in which `*` stands for any text and `?` for a character.
    pub(super) fn with_star_and_mark(pattern: &str) -> Self {
        let item = |character| match character {
            NameCharacter::Byte(b'?') => GlobItem::One,
            other => GlobItem::of_star(other),
        };
        Self { items: items(pattern.as_bytes(), true, item), has_escapes: true }
    }

    /// Parses a regular expression of literal text, `.`, `.*`, and `\` before a literal. Returns
    /// `None` for other expressions.
    pub(super) fn of_expression(expression: &str) -> Option<Self> {
        let (mut parsed, mut bytes) = (Vec::new(), expression.bytes().peekable());
        // Characters of names can have several bytes, so literals are read together.
        let mut literals = Vec::new();
        while let Some(byte) = bytes.next() {
            match byte {
                b'.' => {
                    parsed.append(&mut items(&literals, true, GlobItem::Character));
                    literals.clear();
                    parsed.push(bytes.next_if_eq(&b'*').map_or(GlobItem::One, |_| GlobItem::Text));
                }
                // Letters after a backslash are classes.
                b'\\' => literals.push(bytes.next_if(|byte| !byte.is_ascii_alphanumeric())?),
                b'*' | b'+' | b'?' | b'[' | b']' | b'(' | b')' | b'{' | b'}' | b'|' | b'^' | b'$' => {
                    return None;
                }
                byte => literals.push(byte),
            }
            if matches!(bytes.peek(), Some(b'*')) {
                return None;
            }
        }
        parsed.append(&mut items(&literals, true, GlobItem::Character));
        Some(Self { items: parsed, has_escapes: true })
    }

    /// Reports whether a name matches. The time is bounded by the product of the lengths.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (&self.items, name.as_bytes());
        let next =
            |offset: usize| NameCharacter::first(name.get(offset..).unwrap_or_default(), self.has_escapes);
        let (mut at, mut read) = (0, 0);
        // The position after the last item for any text, and the end of the text that it has taken.
        let mut retry: Option<(usize, usize)> = None;
        while let Some((character, length)) = next(read) {
            match (pattern.get(at), retry) {
                (Some(GlobItem::Text), _) => {
                    at += 1;
                    retry = Some((at, read));
                }
                (Some(GlobItem::One), _) => (at, read) = (at + 1, read + length),
                (Some(GlobItem::Character(expected)), _) if *expected == character => {
                    (at, read) = (at + 1, read + length);
                }
                (_, Some((after, taken))) => {
                    let taken = taken + next(taken).map_or(1, |(_, length)| length);
                    retry = Some((after, taken));
                    (at, read) = (after, taken);
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

    /// An asterisk that took the backslash of an escape would make a value look like an attribute.
    #[test]
    fn escapes_of_names_are_not_split() {
        let star = |pattern: &str, name: &str| Glob::with_star_and_mark(pattern).matches(name);
        assert!(star("*/CN=root", "/O=x/CN=root") && !star("*/CN=root", r"/O=x\/CN=root"));
        assert!(!star("/O=x?/CN=root", r"/O=x\/CN=root") && !star("*+UID=1", r"/CN=a\+UID=1"));
        assert!(star("*/CN=root", r"/O=x\\/CN=root") && star("*/CN=?", r"/CN=\xC3"));
        assert!(star(r"/CN=host\/*", r"/CN=host\/a") && !star(r"/CN=host\/*", "/CN=host/a"));
        assert!(star(r"/CN=\xe9*", r"/CN=\xE9a") && !star("*A9", r"/CN=\xA9"));
        let expression =
            |expression: &str, name: &str| Glob::of_expression(expression).unwrap().matches(name);
        assert!(expression(".*/CN=root", "/O=x/CN=root") && !expression(".*/CN=root", r"/O=x\/CN=root"));
        assert!(!expression("/O=x./CN=root", r"/O=x\/CN=root"));
        assert!(expression(r"/CN=host\\/.*", r"/CN=host\/a") && !expression(r"/CN=host\/.*", r"/CN=host\/a"));
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
