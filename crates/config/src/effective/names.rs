//! The words of directives with a fixed choice of values.

/// Returns the name of a value in a table of all values.
pub(super) fn name_of<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// Returns the value with this case-sensitive name.
pub(super) fn value_of<T: Copy>(all: &[(&'static str, T)], name: &str) -> Option<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}
