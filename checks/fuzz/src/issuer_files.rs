//! Fuzz target for issuer files, and for the map files and key sets that they name.
//!
//! A file is refused with lines inside it, or its issuers are complete.

use auth::tokens::{ISSUERS_MAX, IssuerFile, IssuerFileError};
use std::path::Path;

/// Checks `data` as an issuer file, whose other files have the same content, and as such a file.
pub fn target(data: &[u8]) {
    let lines = data.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count() + 1;
    let mut read = |_: &Path, _| Ok(data.to_vec());
    match IssuerFile::parse(data, Path::new("f"), &mut read) {
        Ok(file) => {
            assert!((1..=ISSUERS_MAX).contains(&file.issuers.len()));
            for (index, issuer) in file.issuers.iter().enumerate() {
                assert!(!issuer.url.is_empty() && !issuer.base_paths.is_empty());
                assert!(issuer.url.starts_with("https://") || issuer.keys_file.is_some());
                assert!(file.issuers.iter().skip(index + 1).all(|other| other.url != issuer.url));
            }
        }
        Err(IssuerFileError::Invalid { problems, .. }) => {
            assert!(!problems.is_empty());
            for problem in problems {
                assert!((1..=lines).contains(&(problem.line as usize)), "{problem}");
            }
        }
        Err(error) => panic!("{error}"),
    }
    let names_it = b"[Issuer a]\nissuer = https://a\nbase_path = /a\nname_mapfile = /m\n";
    let _ = IssuerFile::parse(names_it, Path::new("f"), &mut read);
}
