//! The authorities of grids that a client trusts, as the environment names them.

use auth::grid::{AuthorityLevel, CrlLevel, GridTrust, GridTrustSettings};
use auth::gsi::{ChainTrust, TrustOpener};
use std::path::PathBuf;
use std::sync::Arc;

/// Returns the function that reads the authorities. Each login reads them again, so that new ones and
/// new revocation lists count at once.
pub(crate) fn opener() -> TrustOpener {
    Arc::new(|| {
        let settings = settings(|name| std::env::var(name).ok())?;
        let trust = GridTrust::open(settings).map_err(|error| error.to_string())?;
        Ok(Arc::new(trust) as Arc<dyn ChainTrust>)
    })
}

/// Takes the settings from the environment.
fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<GridTrustSettings, String> {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    let directories = |name: &str| value(name).map(|list| list.split(',').map(PathBuf::from).collect());
    let mut settings = GridTrustSettings::default();
    if let Some(found) = directories("XrdSecGSICADIR").or_else(|| directories("X509_CERT_DIR")) {
        settings.directories = found;
    }
    if let Some(found) = directories("XrdSecGSICRLDIR") {
        settings.crl_directories = found;
    }
    if let Some(extension) = value("XrdSecGSICRLEXT") {
        settings.crl_extension = extension;
    }
    if let Some(word) = value("XrdSecGSICACHECK") {
        let level = AuthorityLevel::parse(&word);
        settings.authority_level =
            level.ok_or_else(|| format!("XrdSecGSICACHECK={word} is not 0, 1 or 2"))?;
    }
    if let Some(word) = value("XrdSecGSICRLCHECK") {
        let level = CrlLevel::parse(&word);
        settings.crl_level = level.ok_or_else(|| format!("XrdSecGSICRLCHECK={word} is not 0, 1, 2 or 3"))?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_authorities_and_checks() {
        let of = |variables: &[(&str, &str)]| {
            settings(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]).unwrap(), GridTrustSettings::default());
        let found =
            of(&[("X509_CERT_DIR", "/a"), ("XrdSecGSICADIR", "/b,/c"), ("XrdSecGSICRLCHECK", "3")]).unwrap();
        assert_eq!(found.directories, [PathBuf::from("/b"), PathBuf::from("/c")]);
        assert_eq!(found.crl_level, CrlLevel::Require);
        assert!(of(&[("XrdSecGSICRLCHECK", "always")]).unwrap_err().contains("XrdSecGSICRLCHECK=always"));
        assert!(of(&[("XrdSecGSICACHECK", "3")]).is_err());
        let found = of(&[
            ("XrdSecGSICACHECK", "2"),
            ("XrdSecGSICRLCHECK", "0"),
            ("XrdSecGSICRLDIR", "/lists,/more"),
            ("XrdSecGSICRLEXT", ".crl"),
        ])
        .unwrap();
        assert_eq!(found.authority_level, AuthorityLevel::Full);
        assert_eq!(found.crl_level, CrlLevel::Ignore);
        assert_eq!(found.crl_directories, [PathBuf::from("/lists"), PathBuf::from("/more")]);
        assert_eq!(found.crl_extension, ".crl");
        assert_eq!(found.directories, GridTrustSettings::default().directories);
    }
}
