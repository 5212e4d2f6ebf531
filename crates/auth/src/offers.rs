//! The list of protocols in the reply to a login: `&P=id[,parameters]` repeated, in the server's
//! order of preference.

use wire::xroot::reply::LoginReply;

/// Maximum length of the whole list in bytes.
pub const OFFERS_BYTES_MAX: usize = 4096;
/// Maximum length of the id of a protocol.
const ID_BYTES_MAX: usize = 7;

/// A protocol in the list of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfferedProtocol {
    /// The id, 1 to 7 letters and digits.
    pub id: String,
    /// The parameters, whose meaning belongs to the protocol.
    pub parameters: Vec<u8>,
}

/// Parses the list of a server. Entries whose id is malformed are skipped, because a client must
/// not fail on protocols that it does not know.
#[must_use]
pub fn offered_protocols(text: &[u8]) -> Vec<OfferedProtocol> {
    let text = text.get(..OFFERS_BYTES_MAX).unwrap_or(text);
    let list = LoginReply { sessid: None, security: text };
    list.protocols()
        .filter_map(|offer| {
            let id = std::str::from_utf8(offer.name).ok().filter(|id| is_protocol_id(id))?;
            Some(OfferedProtocol { id: id.to_owned(), parameters: offer.parameters.to_vec() })
        })
        .collect()
}

/// Appends one protocol to the list that a server sends.
pub fn encode_offer(id: &str, parameters: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"&P=");
    out.extend_from_slice(id.as_bytes());
    if !parameters.is_empty() {
        out.push(b',');
        out.extend_from_slice(parameters.as_bytes());
    }
}

/// Reports whether a comma-separated list of ids (`XrdSecPROTOCOL`, `xrd.wantprot`) contains `id`.
/// An absent or empty list allows every protocol.
#[must_use]
pub fn allowed_by(list: Option<&str>, id: &str) -> bool {
    match list.map(str::trim).filter(|list| !list.is_empty()) {
        Some(list) => list.split(',').any(|allowed| allowed.trim() == id),
        None => true,
    }
}

fn is_protocol_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_and_loses_malformed_entries() {
        let text = b"x&P=gsi,v:10600,c:ssl&P=&P=toolongid&P=u-x&P=sss,0.+013:/etc/sss.keytab&P=unix";
        let offers = offered_protocols(text);
        let ids: Vec<_> = offers.iter().map(|offer| offer.id.as_str()).collect();
        assert_eq!(ids, ["gsi", "sss", "unix"]);
        assert_eq!(offers[1].parameters, b"0.+013:/etc/sss.keytab");
        let mut again = Vec::new();
        for offer in &offers {
            encode_offer(&offer.id, std::str::from_utf8(&offer.parameters).unwrap(), &mut again);
        }
        assert_eq!(offered_protocols(&again), offers);
        assert_eq!(offered_protocols(b""), []);
    }

    #[test]
    fn a_list_of_the_user_restricts_the_choice() {
        assert!(allowed_by(None, "unix") && allowed_by(Some(" "), "unix"));
        assert!(allowed_by(Some("sss, unix"), "unix") && !allowed_by(Some("sss,unixx"), "unix"));
    }
}
