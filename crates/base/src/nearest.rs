//! Search for the known name closest to a misspelled one, so that error messages can suggest it.

/// Returns the name in `known` that is closest to `name`. Returns `None` if more than a third of
/// its characters, or more than four, differ.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().count();
    let limit = (letters / 3).clamp(1, 4);
    let close = known.into_iter().filter(|known| known.chars().count().abs_diff(letters) <= limit);
    close
        .map(|known| (distance(name, known), known))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Returns the number of edits (insert, remove, replace) between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, cb) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "ac", 1), ("", "xyz", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn only_close_names_are_suggested() {
        let known = ["readme.txt", "run7.root", "a"];
        assert_eq!(nearest("readm.txt", known), Some("readme.txt"));
        assert_eq!(nearest("run8.root", known), Some("run7.root"));
        assert_eq!(nearest("other", known), None);
        assert_eq!(nearest("b", known), Some("a"));
    }
}
