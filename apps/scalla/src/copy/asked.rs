//! Values of options.

use client::copy::{Against, ChecksumWish, Place};
use client::digest::Algorithm;

/// `TYPE`, `TYPE:print`, `TYPE:source`, `TYPE:VALUE`; the type may be `auto`.
pub(crate) fn checksum(text: &str) -> Result<ChecksumWish, String> {
    let (kind, against) = text.split_once(':').map_or((text, None), |(kind, against)| (kind, Some(against)));
    let algorithm = match kind {
        "auto" => None,
        kind => Some(Algorithm::from_name(kind).ok_or_else(|| {
            let known: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
            format!("`{kind}` is no type of checksum; there are auto, {}", known.join(", "))
        })?),
    };
    let against = match against {
        None => Against::EachOther,
        Some("print") => Against::PrintTarget,
        Some("source") => Against::PrintSource,
        Some(value) => {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_hexdigit());
            let fits = algorithm.is_some_and(|algorithm| value.len() <= algorithm.bytes() * 2);
            if !digits || !fits {
                return Err(format!("`{value}` is no value of {kind}; `print` and `source` go too"));
            }
            Against::Value(value.to_ascii_lowercase())
        }
    };
    Ok(ChecksumWish { algorithm, against })
}

/// Bytes a second, with `k`, `m` or `g` behind it.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (text.len() - 1, 10),
        Some(b'm') => (text.len() - 1, 20),
        Some(b'g') => (text.len() - 1, 30),
        _ => (text.len(), 0),
    };
    let number = text.get(..digits).and_then(|digits| digits.parse::<u64>().ok());
    let rate = number.and_then(|number| number.checked_mul(1 << shift)).filter(|rate| *rate > 0);
    rate.ok_or_else(|| "bytes a second: a number, with k, m or g behind it".to_owned())
}

/// A path, a URL, or `-`.
pub(super) fn place(text: &str) -> Result<Place, String> {
    Place::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!((rate("7"), rate("10k"), rate("2G")), (Ok(7), Ok(10_240), Ok(2 << 30)));
        for bad in ["", "k", "0", "-1", "1x", "1.5m", "99999999999999999999", "18446744073709551615k", "1é"]
        {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn checksums() {
        let wish = |text: &str| checksum(text).map(|wish| (wish.algorithm, wish.against));
        assert_eq!(wish("adler32"), Ok((Some(Algorithm::Adler32), Against::EachOther)));
        assert_eq!(wish("auto:print"), Ok((None, Against::PrintTarget)));
        assert_eq!(wish("md5:source"), Ok((Some(Algorithm::Md5), Against::PrintSource)));
        assert_eq!(wish("crc32c:0AF"), Ok((Some(Algorithm::Crc32c), Against::Value("0af".into()))));
        for bad in ["foo", "adler32:xyz", "adler32:", "adler32:123456789", "auto:12"] {
            assert!(wish(bad).is_err(), "{bad}");
        }
    }
}
