//! The parameters in a server's list of protocols: `v:<version>,c:<modules>,ca:<hashes>`.
//!
//! Source: security facts, section 2.6.1.

use super::messages::{CRYPTO_MODULE, VERSION, hashes};

/// The parameters of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GsiOffer {
    pub(super) version: u32,
    /// Set if the server has a crypto module that pads secrets.
    pub(super) has_module: bool,
    /// Hashes of the authority of the server's certificate.
    pub(super) authorities: Vec<String>,
}

impl GsiOffer {
    /// Parses the parameters; `None` if they are malformed.
    pub(super) fn parse(parameters: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(parameters).ok()?;
        let mut offer = Self { version: 0, has_module: false, authorities: Vec::new() };
        for part in text.split(',') {
            match part.split_once(':') {
                Some(("v", version)) => offer.version = version.parse().ok()?,
                Some(("c", modules)) => {
                    offer.has_module = modules.split(['|', ':']).any(|module| module == CRYPTO_MODULE);
                }
                Some(("ca", list)) => offer.authorities = hashes(list).map(str::to_owned).collect(),
                _ => {}
            }
        }
        Some(offer)
    }
}

/// Returns the parameters of our server, whose authority has these hashes.
pub(super) fn parameters(authorities: &[String]) -> String {
    format!("v:{VERSION},c:{CRYPTO_MODULE},ca:{}", hash_list(authorities))
}

/// Returns hashes as a list of file names.
pub(super) fn hash_list(hashes: &[String]) -> String {
    hashes.iter().map(|hash| format!("{hash}.0")).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_parameters() {
        let recorded = b"v:10600,c:ssl,ca:5cdab576.0|606cb0fc.0";
        let offer = GsiOffer::parse(recorded).unwrap();
        assert_eq!((offer.version, offer.has_module), (10600, true));
        assert_eq!(parameters(&offer.authorities).as_bytes(), recorded);
        for (parameters, version, has_module) in [
            (&b"v:10300,c:sslnopad,ca:x"[..], 10300, false),
            (b"c:xyz|ssl,future:1", 0, true),
            (b"v:1,c:local:ssl", 1, true),
            (b"", 0, false),
        ] {
            let offer = GsiOffer::parse(parameters).unwrap();
            assert_eq!((offer.version, offer.has_module), (version, has_module));
            assert!(offer.authorities.is_empty());
        }
        assert!(GsiOffer::parse(b"v:x").is_none() && GsiOffer::parse(b"\xff").is_none());
    }
}
