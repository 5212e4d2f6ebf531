//! [`RepeatedFailures`]: deduplication of failures that concern a server as a whole.

use std::collections::HashMap;

use client::copy::CopyError;
use client::xroot::ErrorCode;

/// Maximum number of distinguished servers and reasons.
const KINDS_MAX: usize = 64;

/// The number of failures by server and reason.
#[derive(Default, Debug)]
pub(super) struct RepeatedFailures(HashMap<(String, ErrorCode), u64>);

impl RepeatedFailures {
    /// Reports whether an error should be printed: it is the first of its kind, or concerns only
    /// its file.
    pub(super) fn is_first(&mut self, error: &CopyError) -> bool {
        let Some(kind) = kind(error) else { return true };
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            return true;
        }
        let seen = self.0.entry(kind).or_default();
        *seen += 1;
        *seen == 1
    }

    /// Returns the suppressed failures: the reason and the count.
    pub(super) fn more(&self) -> Vec<(String, u64)> {
        let more = self.0.iter().filter(|(_, seen)| **seen > 1);
        let mut more: Vec<_> =
            more.map(|((server, code), seen)| (format!("{} at {server}", reason(*code)), seen - 1)).collect();
        more.sort();
        more
    }
}

/// Returns the server and the reason, unless the error concerns a single file.
fn kind(error: &CopyError) -> Option<(String, ErrorCode)> {
    if let CopyError::Full { server, .. } = error {
        return Some((server.clone(), ErrorCode::NO_SPACE));
    }
    let error = error.remote_error()?;
    let code = error.code()?;
    let concerns_all = matches!(
        code,
        ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA | ErrorCode::FS_READ_ONLY | ErrorCode::OVERLOADED
    );
    concerns_all.then(|| (error.failure().server.clone().unwrap_or_default(), code))
}

fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NO_SPACE => "no space",
        ErrorCode::OVER_QUOTA => "quota used up",
        ErrorCode::FS_READ_ONLY => "read only",
        _ => "overloaded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::copy::Side;
    use client::{Cause, Error};

    #[test]
    fn what_concerns_a_server_is_told_once() {
        let error = |code, server: &str| {
            let cause = Cause::Server { code, text: "no".to_owned() };
            CopyError::Remote {
                side: Side::Target,
                error: Error::new("write", "root://m//f", cause).at(server, &[]),
            }
        };
        let mut alike = RepeatedFailures::default();
        assert!(alike.is_first(&error(ErrorCode::NO_SPACE, "a:1")));
        assert!(!alike.is_first(&error(ErrorCode::NO_SPACE, "a:1")));
        assert!(!alike.is_first(&error(ErrorCode::NO_SPACE, "a:1")));
        assert!(alike.is_first(&error(ErrorCode::NO_SPACE, "b:1")));
        for _ in 0..2 {
            assert!(alike.is_first(&error(ErrorCode::NOT_FOUND, "a:1")));
        }
        assert_eq!(alike.more(), [("no space at a:1".to_owned(), 2)]);
    }
}
