//! Wildcards in paths.
//!
//! * `*` matches any characters, `?` one character.
//! * `[a-z]` matches one of these characters, `[!a-z]` one of the others.
//! * No wildcard matches a `/`, and a `\` makes the next character literal.
//!
//! In a URL a `?` begins the cgi, so only the other wildcards can be used there.

/// Reports whether a path contains a wildcard.
#[must_use]
pub fn has_wildcard(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Reports whether a name matches `pattern`. A name that begins with a dot matches only a pattern
/// that begins with a dot.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with(['.', '\\']) {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    // Position to continue from if the rest after the last star does not match.
    let mut star = None;
    while in_name < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at + 1, in_name));
            at += 1;
            continue;
        }
        let next = name.get(in_name).copied().unwrap_or_default();
        if let Some(after) = one(&pattern, at, next) {
            (at, in_name) = (after, in_name + 1);
            continue;
        }
        let Some((after, from)) = star else { return false };
        star = Some((after, from + 1));
        (at, in_name) = (after, from + 1);
    }
    pattern.iter().skip(at).all(|sign| *sign == '*')
}

/// Returns the position after the next element of the pattern if that element matches `sign`.
fn one(pattern: &[char], at: usize, sign: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '\\' => (pattern.get(at + 1)? == &sign).then_some(at + 2),
        '[' => {
            let Some((fits, after)) = class(pattern, at + 1, sign) else {
                // Without its end it is an ordinary character.
                return (sign == '[').then_some(at + 1);
            };
            fits.then_some(after)
        }
        other => (*other == sign).then_some(at + 1),
    }
}

/// Reports whether `sign` is in the class that begins at `at`, and returns the end of the class.
fn class(pattern: &[char], mut at: usize, sign: char) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(at)?, '!' | '^');
    at += usize::from(negated);
    let mut fits = false;
    let mut first = true;
    loop {
        let low = *pattern.get(at)?;
        if low == ']' && !first {
            return Some((fits != negated, at + 1));
        }
        first = false;
        let high = match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some('-'), Some(high)) if *high != ']' => {
                at += 2;
                *high
            }
            _ => low,
        };
        fits |= (low..=high).contains(&sign);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        let table = [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("*.root", "run7.root", true),
            ("*.root", "run7.roo", false),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axbxbx", false),
            ("r?n", "rün", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("a", "", false),
            ("**a", "ba", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(has_wildcard("/a/*.root") && !has_wildcard("/a/b"));
    }
}
