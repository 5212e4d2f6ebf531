//! [`Size`]: a number of bytes for people.

use std::fmt;

/// A number of bytes in the largest unit that it reaches: `24 B`, `1.50 KiB`, `19.07 MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shift = 0;
        let mut unit = None;
        for name in UNITS {
            if self.0 >> (shift + 10) == 0 {
                break;
            }
            shift += 10;
            unit = Some(name);
        }
        match unit {
            None => write!(f, "{} B", self.0),
            Some(unit) => {
                let hundredths = (u128::from(self.0) * 100) >> shift;
                write!(f, "{}.{:02} {unit}", hundredths / 100, hundredths % 100)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (20_000_000, "19.07 MiB"),
            ((1 << 30) - 1, "1023.99 MiB"),
            (u64::MAX, "15.99 EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
