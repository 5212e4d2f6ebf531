//! The file with quotas of directories of the disk cache (`pfc.purgelib libXrdPfcPurgeQuota.so FILE`).

use crate::language::DirectiveToken;
use crate::setting::Position;
use crate::values::{self, between};
use base::LogicalPath;
use std::collections::HashSet;

/// Maximum number of quotas.
pub const CACHE_QUOTAS_MAX: usize = 10_000;

/// Reads lines `DIRECTORY BYTES`: names in the cache, and numbers of bytes or sizes. Empty lines and those that begin
/// with `#` are ignored.
///
/// # Errors
/// The first line that is wrong, with its number.
pub fn cache_quotas(text: &str) -> Result<Vec<(LogicalPath, u64)>, String> {
    let (mut quotas, mut known) = (Vec::new(), HashSet::new());
    for (number, line) in (1_u32..).zip(text.lines()) {
        let wrong = |what: &str| format!("line {number}: {what}; write DIRECTORY SIZE, as in /data 500g");
        let mut words = line.split_whitespace();
        let Some(name) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let directory =
            LogicalPath::parse(name.as_bytes()).map_err(|_| wrong("the directory is no absolute path"))?;
        let (Some(size), None) = (words.next(), words.next()) else {
            return Err(wrong("it has not two words"));
        };
        let position = Position { file: "quotas".into(), line: number, column: 1 };
        let token = DirectiveToken { text: size.to_owned(), position };
        let bytes =
            values::size(&token, "quota", between(0, u64::MAX)).map_err(|fault| wrong(&fault.what))?;
        let directory = directory.without_slash();
        if !known.insert(directory.clone()) {
            return Err(wrong("the directory has a quota already"));
        }
        if quotas.len() >= CACHE_QUOTAS_MAX {
            return Err(format!("line {number}: there are more than {CACHE_QUOTAS_MAX} quotas"));
        }
        quotas.push((directory, bytes));
    }
    Ok(quotas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        let found = cache_quotas("# quotas\n\n/data 10g\n  /data/a/\t1.5k \n/ 7").unwrap();
        let found: Vec<_> =
            found.into_iter().map(|(path, bytes)| (path.text().into_owned(), bytes)).collect();
        let expected = [("/data".to_owned(), 10 << 30), ("/data/a".to_owned(), 1536), ("/".to_owned(), 7)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, what) in [
            ("data 1g", "line 2: the directory is no absolute path"),
            ("/data", "line 2: it has not two words"),
            ("/data 1g 2g", "line 2: it has not two words"),
            ("/data -5", "line 2: quota"),
            ("/data much", "line 2: quota"),
            ("/b/ 5", "line 2: the directory has a quota already"),
            ("/../data 1g", "line 2: the directory is no absolute path"),
        ] {
            let error = cache_quotas(&format!("/b 1\n{line}\n")).unwrap_err();
            assert!(error.starts_with(what), "{line}: {error}");
        }
    }
}
