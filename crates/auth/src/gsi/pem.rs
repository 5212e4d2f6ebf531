//! PEM text: base64 between lines with a label.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The label of a certificate.
pub(super) const CERTIFICATE: &str = "CERTIFICATE";
/// The label of a public key.
pub(super) const PUBLIC_KEY: &str = "PUBLIC KEY";
/// The label of the group of a key agreement.
pub(super) const DH_PARAMETERS: &str = "DH PARAMETERS";
/// The label of a certificate request.
pub(super) const CERTIFICATE_REQUEST: &str = "CERTIFICATE REQUEST";
/// The label of a private key.
pub(super) const PRIVATE_KEY: &str = "PRIVATE KEY";

/// Length of a line.
const LINE_BYTES: usize = 64;

/// Maximum number of sections of a text.
const SECTIONS_MAX: usize = 64;

/// A section.
pub(super) struct PemSection<'a> {
    pub(super) label: &'a str,
    pub(super) content: Zeroizing<Vec<u8>>,
}

/// Returns the sections of a text. Text between them is skipped.
pub(super) fn sections(text: &str) -> Result<Vec<PemSection<'_>>, String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let (label, after) = after.split_once("-----").ok_or("a PEM label has no end")?;
        let end = format!("-----END {label}-----");
        let (body, after) = after.split_once(end.as_str()).ok_or_else(|| format!("{label} has no end"))?;
        if body.contains(':') {
            return Err(format!("{label} is encrypted, or has headers"));
        }
        let body: Zeroizing<Vec<u8>> =
            Zeroizing::new(body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
        let content = STANDARD.decode(body.as_slice()).map_err(|_| format!("{label} is not base64"))?;
        found.push(PemSection { label, content: Zeroizing::new(content) });
        if found.len() > SECTIONS_MAX {
            return Err(format!("there are more than {SECTIONS_MAX} sections"));
        }
        rest = after;
    }
    Ok(found)
}

/// Returns the content of the only section, which has this label.
pub(super) fn single(text: &str, label: &str) -> Option<Vec<u8>> {
    match sections(text).ok()?.as_mut_slice() {
        [one] if one.label == label => Some(std::mem::take(&mut *one.content)),
        _ => None,
    }
}

/// Appends a section.
pub(super) fn append(label: &str, content: &[u8], out: &mut String) {
    let encoded = Zeroizing::new(STANDARD.encode(content));
    out.push_str("-----BEGIN ");
    out.push_str(label);
    out.push_str("-----\n");
    for line in encoded.as_bytes().chunks(LINE_BYTES) {
        out.extend(line.iter().copied().map(char::from));
        out.push('\n');
    }
    out.push_str("-----END ");
    out.push_str(label);
    out.push_str("-----\n");
}

/// Returns the text of one section.
pub(super) fn encode(label: &str, content: &[u8]) -> String {
    let mut text = String::new();
    append(label, content, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_survive_encoding() {
        let text = format!("x\n{}\n{}", encode("A", &[7; 100]), encode("PRIVATE KEY", b""));
        let found = sections(&text).unwrap();
        let found: Vec<_> = found.iter().map(|section| (section.label, section.content.len())).collect();
        assert_eq!(found, [("A", 100), ("PRIVATE KEY", 0)]);
        assert_eq!(single(&encode("A", b"xyz"), "A").as_deref(), Some(&b"xyz"[..]));
        assert!(single(&text, "A").is_none() && single(&encode("A", b""), "B").is_none());
        for malformed in ["-----BEGIN A", "-----BEGIN A-----\nAA==", "-----BEGIN A-----\n?\n-----END A-----"]
        {
            assert!(sections(malformed).is_err(), "{malformed}");
        }
        let encrypted = "-----BEGIN A-----\nProc-Type: 4,ENCRYPTED\n\nAA==\n-----END A-----\n";
        assert!(sections(encrypted).is_err_and(|error| error.contains("encrypted")));
        assert!(sections(&encode("A", b"").repeat(SECTIONS_MAX + 1)).is_err());
    }
}
