//! Time spans in messages for users.

/// Returns the text of a time span in the unit in which it has at least two digits.
pub(crate) fn age(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / MINUTE),
        7200..172_800 => format!("{} h", seconds / HOUR),
        _ => format!("{} days", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rounded_down() {
        let found = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(age);
        assert_eq!(found, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }
}
