//! Macros for the two kinds of numbers in the protocols: open codes and sets of flag bits.
//!
//! Both keep values without a name, so that an unknown code of a newer peer is relayed unchanged
//! and logged as a number.

/// Defines an open newtype over an integer: named constants, any other value allowed.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident($int:ty) { $($konst:ident = $value:literal $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $(
                #[doc = concat!("`", $text, "`, ", stringify!($value), ".")]
                pub const $konst: Self = Self($value);
            )*

            /// Returns the name in the protocol; `None` for a value without a name.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Defines a set of flag bits: named bits, any other bit allowed.
macro_rules! flags {
    ($(#[$meta:meta])* $name:ident($int:ty) {
        $($konst:ident = $value:literal $text:literal $(, $note:literal)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $(
                #[doc = concat!("`", $text, "`, bit ", stringify!($value) $(, ": ", $note)?, ".")]
                pub const $konst: Self = Self($value);
            )*

            /// No bit set.
            pub const NONE: Self = Self(0);

            /// Reports whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Reports whether any bit of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns the bits of both sets.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns these bits without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Reports whether no bit is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.with(other);
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut rest = self.0;
                let mut separator = "";
                $(
                    if rest & $value != 0 {
                        f.write_str(separator)?;
                        f.write_str($text)?;
                        separator = "|";
                        rest &= !$value;
                    }
                )*
                if rest != 0 || separator.is_empty() {
                    write!(f, "{separator}{rest:#x}")?;
                }
                Ok(())
            }
        }
    };
}

pub(crate) use {codes, flags};

#[cfg(test)]
mod tests {
    use crate::xroot::codes::RequestCode;
    use crate::xroot::flags::OpenOptions;

    #[test]
    fn unknown_values_print_as_numbers() {
        assert_eq!(RequestCode::READ.to_string(), "kXR_read");
        assert_eq!(RequestCode(2900).to_string(), "2900");
        assert_eq!(RequestCode(2900).name(), None);
    }

    #[test]
    fn flag_sets_print_named_and_unnamed_bits() {
        assert_eq!(format!("{:?}", OpenOptions(0x0450)), "open_read|async|retstat");
        assert_eq!(format!("{:?}", OpenOptions::NONE), "0x0");
        assert!(OpenOptions(0x0450).contains(OpenOptions::RETSTAT | OpenOptions::READ));
        assert!(!OpenOptions(0x0450).contains(OpenOptions::RETSTAT | OpenOptions::NEW));
        assert!(OpenOptions(0x0450).intersects(OpenOptions::RETSTAT | OpenOptions::NEW));
        assert_eq!(OpenOptions(0x0450).without(OpenOptions::ASYNC), OpenOptions(0x0410));
    }
}
