//! The words of directives with a fixed choice of values.

/// Returns the name of a value in a table of all values.
pub(super) fn name_of<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// Returns the value with this case-sensitive name.
pub(super) fn value_of<T: Copy>(all: &[(&'static str, T)], name: &str) -> Option<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Gives a type whose constant `ALL` has all values with their words the functions `name` and
/// `from_name`.
macro_rules! named {
    ($kind:ty) => {
        impl $kind {
            /// Returns the word of the directive.
            #[must_use]
            pub fn name(self) -> &'static str {
                $crate::effective::names::name_of(&Self::ALL, self)
            }

            /// Returns the value of this word, whose case counts.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                $crate::effective::names::value_of(&Self::ALL, name)
            }
        }
    };
}

pub(super) use named;
