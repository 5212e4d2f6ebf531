//! The identity that the key and the items of a packet give.
//!
//! Source: security facts, section 2.3.4.

use std::net::{SocketAddr, SocketAddrV6};

use base::meant_ip;

use super::SSS;
use super::keytab::SssKey;
use super::packet::{CREDENTIAL_BYTES_MAX, ItemKind, PacketBody, PacketError};
use super::settings::SssServerSettings;
use crate::accounts::AccountDatabase;
use crate::entity::{Entity, EntityFields, is_reserved_attribute};
use crate::secret::Secret;
use crate::server::LoginPeer;

/// User of a packet that names none.
const NOBODY: &str = "nobody";
/// Groups of a packet that names none.
const NO_GROUP: &str = "nogroup";

/// The items of a packet that describe its sender.
#[derive(Default)]
pub(super) struct Claims<'a> {
    name: Option<&'a str>,
    vorg: Option<&'a str>,
    role: Option<&'a str>,
    groups: Option<&'a str>,
    endorsements: Option<&'a str>,
    capabilities: Option<&'a str>,
    protocol: Option<&'a str>,
    trace_id: Option<&'a str>,
    unix_user: Option<&'a str>,
    unix_group: Option<&'a str>,
    credential: Option<&'a [u8]>,
    attributes: Vec<(&'a str, &'a str)>,
    address: Option<&'a str>,
    host: Option<&'a str>,
}

impl<'a> Claims<'a> {
    /// Collects the items of a packet. An item that occurs twice is refused, because it is not clear
    /// which one counts. Attributes may occur twice; of equal keys the first counts.
    pub(super) fn collect(body: &'a PacketBody) -> Result<Self, &'static str> {
        const MALFORMED: &str = "an item is malformed";
        const TWICE: &str = "an item occurs twice";
        const ATTRIBUTES: &str = "keys and values of attributes do not alternate";
        let mut claims = Self::default();
        let (mut is_identified, mut pending) = (false, None);
        for item in body.items() {
            let item = item.map_err(|_: PacketError| MALFORMED)?;
            let text = || item.text().map_err(|_| MALFORMED);
            if item.kind != ItemKind::FILLER {
                is_identified = true;
            }
            if pending.is_some() && item.kind != ItemKind::ATTRIBUTE_VALUE {
                return Err(ATTRIBUTES);
            }
            let place = match item.kind {
                ItemKind::NAME => &mut claims.name,
                ItemKind::VORG => &mut claims.vorg,
                ItemKind::ROLE => &mut claims.role,
                ItemKind::GROUPS => &mut claims.groups,
                ItemKind::ENDORSEMENTS => &mut claims.endorsements,
                ItemKind::CAPABILITIES => &mut claims.capabilities,
                ItemKind::PROTOCOL => &mut claims.protocol,
                ItemKind::TRACE_ID => &mut claims.trace_id,
                ItemKind::UNIX_USER => &mut claims.unix_user,
                ItemKind::UNIX_GROUP => &mut claims.unix_group,
                ItemKind::HOST if item.data.starts_with(b"[") => &mut claims.address,
                ItemKind::HOST => &mut claims.host,
                ItemKind::CREDENTIAL if item.data.len() > CREDENTIAL_BYTES_MAX => {
                    return Err("the credential inside is too long");
                }
                ItemKind::CREDENTIAL => {
                    if claims.credential.replace(item.data).is_some() {
                        return Err(TWICE);
                    }
                    continue;
                }
                ItemKind::ATTRIBUTE_KEY => {
                    pending = Some(text()?);
                    continue;
                }
                ItemKind::ATTRIBUTE_VALUE => {
                    let key = pending.take().ok_or(ATTRIBUTES)?;
                    claims.attributes.push((key, text()?));
                    continue;
                }
                _ => continue,
            };
            if place.replace(text()?).is_some() {
                return Err(TWICE);
            }
        }
        match (pending, is_identified) {
            (Some(_), _) => Err(ATTRIBUTES),
            (None, false) => Err("it identifies nobody"),
            (None, true) => Ok(claims),
        }
    }

    /// Checks that the packet comes from its sender.
    pub(super) fn check_source(&self, key: &SssKey, peer: &LoginPeer) -> Result<(), String> {
        if key.is_forwardable() {
            return Ok(());
        }
        match (self.address, self.host) {
            (Some(address), _) if is_address_of(address, peer.address) => Ok(()),
            (Some(address), _) => {
                Err(format!("it was made at the address {address}, and the peer has {}", peer.address))
            }
            (None, Some(host)) => Err(format!("it names the host {host} instead of the address of the peer")),
            (None, None) => Err("it names neither address nor host of its sender".to_owned()),
        }
    }

    /// Returns the identity.
    pub(super) fn entity(
        &self,
        key: &SssKey,
        peer: &LoginPeer,
        settings: &SssServerSettings,
        accounts: Option<&dyn AccountDatabase>,
    ) -> Entity {
        let mut fields = EntityFields { host: peer.host.as_str().into(), ..EntityFields::default() };
        if key.is_for_any_user() {
            self.add_claims(key, settings, &mut fields);
        }
        match self.original(key, settings) {
            Some((protocol, trace_id, name)) => {
                fields.protocol = protocol.into();
                fields.original_trace_id = Some(trace_id.into());
                fields.name = Some(name.into());
                fields.groups = self.groups.map(Into::into);
                fields.uid = self.unix_user.and_then(|name| account(accounts, name)).map(|found| found.0);
                fields.gid = self.unix_group.and_then(|name| group_id(accounts, name));
            }
            None => self.add_user(key, accounts, &mut fields),
        }
        Entity::new(fields)
    }

    /// Adds the claims that are accepted only with a key for any user.
    fn add_claims(&self, key: &SssKey, settings: &SssServerSettings, fields: &mut EntityFields) {
        let text = |text: Option<&str>| text.map(Into::into);
        fields.vorg = text(self.vorg);
        fields.role = text(self.role);
        fields.endorsements = text(self.endorsements);
        fields.capabilities = text(self.capabilities);
        for (key, value) in &self.attributes {
            let is_known = fields.attributes.iter().any(|(known, _)| **known == **key);
            if !is_reserved_attribute(key) && !is_known {
                fields.attributes.push(((*key).into(), (*value).into()));
            }
        }
        if settings.wants_credentials && key.is_for_all_users() {
            fields.credentials = self.credential.map(Secret::from);
        }
    }

    /// Returns protocol, trace id and name of the original client, if the packet forwards one and
    /// the server accepts it.
    fn original(&self, key: &SssKey, settings: &SssServerSettings) -> Option<(&'a str, &'a str, &'a str)> {
        if !key.is_for_all_users() {
            return None;
        }
        let protocol = self.protocol.filter(|protocol| {
            (2..=7).contains(&protocol.len()) && settings.forwarded_protocols.iter().any(|of| of == protocol)
        })?;
        Some((protocol, self.trace_id?, self.name?))
    }

    /// Adds user and groups of the sender itself.
    fn add_user(&self, key: &SssKey, accounts: Option<&dyn AccountDatabase>, fields: &mut EntityFields) {
        let name = if key.is_for_any_user() { self.name.unwrap_or(NOBODY) } else { key.user.as_str() };
        let of_user = account(accounts, name);
        fields.protocol = SSS.into();
        fields.name = Some(name.into());
        fields.uid = of_user.map(|(uid, _)| uid);
        if key.is_for_user_group() {
            fields.gid = of_user.map(|(_, gid)| gid);
            return;
        }
        let group = if key.is_for_any_group() { self.groups.unwrap_or(NO_GROUP) } else { key.group.as_str() };
        fields.groups = Some(group.into());
        fields.gid = group_id(accounts, group);
    }
}

/// Returns user and group id of an account. Without an answer there are none, never those of
/// somebody else.
fn account(accounts: Option<&dyn AccountDatabase>, name: &str) -> Option<(u32, u32)> {
    accounts?.user(name).ok().flatten().map(|account| (account.uid, account.gid))
}

fn group_id(accounts: Option<&dyn AccountDatabase>, name: &str) -> Option<u32> {
    accounts?.group(name).ok().flatten()
}

/// Reports whether `text` is address and port of this peer: `[::ffff:192.0.2.1]:4711`, or the older
/// form `[::192.0.2.1]:4711`.
fn is_address_of(text: &str, peer: SocketAddr) -> bool {
    let Ok(claimed) = text.parse::<SocketAddrV6>() else { return false };
    meant_ip((*claimed.ip()).into()) == meant_ip(peer.ip()) && claimed.port() == peer.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_occurs_twice_is_refused() {
        let packet = |kinds: &[ItemKind]| {
            let mut body = PacketBody::new(Default::default(), 0, false);
            kinds.iter().for_each(|kind| body.bytes(*kind, b"x\0"));
            body
        };
        for kind in [ItemKind::NAME, ItemKind::HOST, ItemKind::CREDENTIAL] {
            assert!(Claims::collect(&packet(&[kind])).is_ok(), "{kind:?}");
            assert_eq!(
                Claims::collect(&packet(&[kind, kind])).err(),
                Some("an item occurs twice"),
                "{kind:?}"
            );
        }
        let attribute = [ItemKind::ATTRIBUTE_KEY, ItemKind::ATTRIBUTE_VALUE];
        let claims = packet(&[attribute, attribute].concat());
        assert_eq!(Claims::collect(&claims).map(|claims| claims.attributes.len()), Ok(2));
    }

    #[test]
    fn an_address_has_three_forms_and_always_a_port() {
        let ipv4 = "192.0.2.1:4711".parse().unwrap();
        let mapped = "[::ffff:192.0.2.1]:4711".parse().unwrap();
        for peer in [ipv4, mapped] {
            assert!(is_address_of("[::ffff:192.0.2.1]:4711", peer));
            assert!(is_address_of("[::192.0.2.1]:4711", peer));
            for other in
                ["[::ffff:192.0.2.2]:4711", "[::ffff:192.0.2.1]:4712", "[::ffff:192.0.2.1]", "", "[::1]:1"]
            {
                assert!(!is_address_of(other, peer), "{other}");
            }
        }
        assert!(is_address_of("[2001:db8::1]:1", "[2001:db8::1]:1".parse().unwrap()));
        assert!(!is_address_of("[::1]:1", "0.0.0.1:2".parse().unwrap()));
        // The loopback address is not the older form of 0.0.0.1.
        assert!(!is_address_of("[::1]:1", "0.0.0.1:1".parse().unwrap()));
        assert!(is_address_of("[::1]:1", "[::1]:1".parse().unwrap()));
    }
}
