//! [`Entity`]: the authenticated identity of a peer.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use crate::access::Principal;
use crate::exported_file::ExportedFile;
use crate::gsi::DelegatedProxy;
use crate::secret::Secret;

/// The attribute with the issuer of the token with which the peer logged in.
pub(crate) const TOKEN_ISSUER: &str = "token.issuer";
/// The attribute with the subject of that token.
pub(crate) const TOKEN_SUBJECT: &str = "token.subject";

/// The name of a peer's host, as far as it is known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum HostName {
    /// It was not looked up.
    #[default]
    NotAsked,
    /// The address has no name, or the name does not resolve back to it.
    Unknown,
    /// The confirmed name.
    Known(Arc<str>),
    /// The name service did not answer.
    Failed,
}

impl HostName {
    /// Returns the name, if it is known.
    #[must_use]
    pub fn known(&self) -> Option<&Arc<str>> {
        match self {
            Self::Known(name) => Some(name),
            Self::NotAsked | Self::Unknown | Self::Failed => None,
        }
    }
}

/// The fields of an [`Entity`]. A field that the protocol does not provide is `None` or empty.
///
/// `vorg`, `role` and `groups` are lists separated by blanks; the i-th entries of each belong
/// together.
#[derive(Clone, Default, Debug)]
pub struct EntityFields {
    /// The authentication protocol, at most 7 bytes: `host`, `unix`, `sss`, ... For an identity that
    /// an authenticated proxy forwards it is the protocol of the original client.
    pub protocol: Box<str>,
    /// The extractor of attributes, such as `xrdvoms`.
    pub extractor: Option<Box<str>>,
    /// Local or mapped name, subject of a certificate or token.
    pub name: Option<Box<str>>,
    /// Subject of the certificate of the peer, which the name need not contain.
    pub certificate_subject: Option<Box<str>>,
    /// Host name of the peer, or its address as text.
    pub host: Box<str>,
    /// Name of the host of the peer, for rules. Unlike `host`, it is never the text of an address.
    pub host_name: HostName,
    /// Address of the peer as text; empty if unknown.
    pub address: Box<str>,
    /// Virtual organizations.
    pub vorg: Option<Box<str>>,
    /// Roles.
    pub role: Option<Box<str>>,
    /// Groups.
    pub groups: Option<Box<str>>,
    /// Capabilities.
    pub capabilities: Option<Box<str>>,
    /// Endorsements, for VOMS a list of FQANs separated by commas.
    pub endorsements: Option<Box<str>>,
    /// Text for monitoring.
    pub monitor_info: Option<Box<str>>,
    /// Trace id `user.pid:fd@host` of the original client behind a proxy.
    pub original_trace_id: Option<Box<str>>,
    /// A credential that later layers need: a token, a chain of certificates.
    pub credentials: Option<Secret>,
    /// The Kerberos ticket that the peer has forwarded.
    pub forwarded_ticket: Option<Arc<ExportedFile>>,
    /// The proxy of a grid certificate that the peer has delegated.
    pub delegated_proxy: Option<Arc<DelegatedProxy>>,
    /// The credentials of the peer only let it read, whatever its name may do.
    pub only_reads: bool,
    /// Time after which the identity no longer counts.
    pub expires: Option<SystemTime>,
    /// Local user id, where the protocol knows it.
    pub uid: Option<u32>,
    /// Local group id, where the protocol knows it.
    pub gid: Option<u32>,
    /// The line of the map of identities that decided about the name, see [`crate::EntityMap`].
    pub map_line: Option<u32>,
    /// Further attributes, each key once.
    pub attributes: Vec<(Box<str>, Box<str>)>,
}

/// Names for [`Entity::renamed`]; `None` leaves those of the protocol.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EntityNames {
    /// See [`EntityFields::name`].
    pub name: Option<Box<str>>,
    /// Organizations, roles and groups. They replace all of the protocol, because attributes of
    /// different sources do not belong together.
    pub attributes: Option<EntityAttributes>,
}

/// The organizations, roles and groups of a client by one source.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EntityAttributes {
    vorg: Box<str>,
    role: Box<str>,
    groups: Box<str>,
}

impl EntityAttributes {
    /// Creates the attributes from lists of words, each of which may be empty. Returns `None` if their
    /// lengths do not show which words belong together.
    #[must_use]
    pub fn new(vorg: &str, role: &str, groups: &str) -> Option<Self> {
        let principal = Principal { organizations: vorg, roles: role, groups, ..Principal::default() };
        let has_columns = principal.columns().is_some();
        has_columns.then(|| Self { vorg: vorg.into(), role: role.into(), groups: groups.into() })
    }
}

/// The identity of a peer after authentication. Clones share the fields.
///
/// Only the protocols of this crate create entities, so an entity proves that authentication
/// succeeded, or that none was required ([`Entity::of_host`]).
#[derive(Clone, Debug)]
pub struct Entity(Arc<EntityFields>);

/// A reference to an entity that does not keep its fields.
pub(crate) type WeakEntity = Weak<EntityFields>;

impl Entity {
    pub(crate) fn new(fields: EntityFields) -> Self {
        Self(Arc::new(fields))
    }

    /// Creates the entity of a peer of which only the host is known, because the server asks for no
    /// authentication.
    #[must_use]
    pub fn of_host(host: &str) -> Self {
        Self::new(EntityFields { protocol: "host".into(), host: host.into(), ..EntityFields::default() })
    }

    /// Returns the entity with what the server knows about the host of its peer.
    #[must_use]
    pub fn at(self, host_name: HostName, address: &str) -> Self {
        let fields = Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone());
        Self::new(EntityFields { host_name, address: address.into(), ..fields })
    }

    /// Returns the entity with names that this server gives it instead of those of its protocol.
    #[must_use]
    pub fn renamed(self, names: EntityNames) -> Self {
        let mut fields = Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone());
        let EntityNames { name, attributes } = names;
        if name.is_some() {
            // The ids are those of the other name.
            (fields.name, fields.uid, fields.gid) = (name, None, None);
        }
        if let Some(EntityAttributes { vorg, role, groups }) = attributes {
            let present = |list: Box<str>| Some(list).filter(|list| !list.is_empty());
            (fields.vorg, fields.role, fields.groups) = (present(vorg), present(role), present(groups));
        }
        Self::new(fields)
    }

    /// Returns the entity with the result of a line of the map of identities. Without names it keeps its own.
    pub(crate) fn mapped(self, line: u32, names: Option<EntityNames>) -> Self {
        let renamed = self.renamed(names.unwrap_or_default());
        let fields = Arc::try_unwrap(renamed.0).unwrap_or_else(|shared| (*shared).clone());
        Self::new(EntityFields { map_line: Some(line), ..fields })
    }

    /// Returns a reference that keeps the address of the entity occupied, but not its fields.
    pub(crate) fn downgrade(&self) -> WeakEntity {
        Arc::downgrade(&self.0)
    }

    /// Returns the address of the fields, which identifies the entity as long as it or a weak
    /// reference to it exists.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Reports whether the identity no longer counts. Requests are then those of an unknown client.
    #[must_use]
    pub fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= SystemTime::now())
    }

    /// Returns the issuer and the subject of the token that was verified at the login; `None` for
    /// other logins. Together they identify the bearer.
    ///
    /// The rights and the name of such an entity come from its token at each request, because the
    /// issuers can change after the login.
    #[must_use]
    pub fn verified_bearer(&self) -> Option<(&str, &str)> {
        self.attribute(TOKEN_ISSUER).zip(self.attribute(TOKEN_SUBJECT))
    }

    /// Reports whether this is the subject of the certificate of the peer, or its name.
    #[must_use]
    pub fn has_subject(&self, subject: &str) -> bool {
        self.certificate_subject.as_deref() == Some(subject) || self.name.as_deref() == Some(subject)
    }

    /// Reports whether the peer is in a group.
    #[must_use]
    pub fn is_in_group(&self, group: &str) -> bool {
        has_element(self.groups.as_deref(), group)
    }

    /// Reports whether the peer is in a virtual organization.
    #[must_use]
    pub fn is_in_organization(&self, organization: &str) -> bool {
        has_element(self.vorg.as_deref(), organization)
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }
}

/// Reports whether a list that is separated by blanks has an element.
fn has_element(list: Option<&str>, element: &str) -> bool {
    list.is_some_and(|list| list.split_ascii_whitespace().any(|one| one == element))
}

impl Deref for Entity {
    type Target = EntityFields;

    fn deref(&self) -> &EntityFields {
        &self.0
    }
}

/// Returns the text of an address that stands for a host without a name: `[::ffff:192.0.2.7]`,
/// `[2001:db8::1]`.
#[must_use]
pub fn address_text(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("[::ffff:{address}]"),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Reports whether only our own code may set an attribute, never the data of a peer.
#[must_use]
pub fn is_reserved_attribute(key: &str) -> bool {
    matches!(key, "request.name" | "gridmap.name") || key.starts_with("token.") || key.starts_with("xrd.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_of_a_host_has_no_name() {
        let entity = Entity::of_host("c.example.org");
        assert_eq!((&*entity.protocol, &*entity.host), ("host", "c.example.org"));
        assert!(entity.name.is_none() && entity.uid.is_none() && entity.attribute("x").is_none());
    }

    #[test]
    fn other_names_do_not_keep_the_ids_of_the_earlier_one() {
        let fields = EntityFields {
            name: Some("alice".into()),
            groups: Some("staff".into()),
            role: Some("prod".into()),
            uid: Some(0),
            gid: Some(0),
            ..EntityFields::default()
        };
        let same = Entity::new(fields).renamed(EntityNames::default());
        assert_eq!((same.name.as_deref(), same.groups.as_deref()), (Some("alice"), Some("staff")));
        assert_eq!((same.role.as_deref(), same.uid), (Some("prod"), Some(0)));
        let other = same.renamed(EntityNames { name: Some("bob".into()), ..EntityNames::default() });
        assert_eq!((other.name.as_deref(), other.uid, other.gid), (Some("bob"), None, None));
    }

    #[test]
    fn elements_of_lists_are_compared_whole() {
        let text = |text: &str| Some(Box::from(text));
        let entity = Entity::new(EntityFields {
            name: text("alice"),
            certificate_subject: text("/CN=Alice"),
            groups: text("/cms /cms/prod"),
            vorg: text("cms atlas"),
            ..EntityFields::default()
        });
        assert!(
            entity.has_subject("/CN=Alice") && entity.has_subject("alice") && !entity.has_subject("/CN=")
        );
        assert!(entity.is_in_group("/cms/prod") && !entity.is_in_group("/cms /cms/prod"));
        assert!(!entity.is_in_group("/cms/pro") && !entity.is_in_group(""));
        assert!(entity.is_in_organization("atlas") && !entity.is_in_organization("/cms"));
        let host = Entity::of_host("h");
        assert!(!host.has_subject("") && !host.is_in_group("") && !host.is_in_organization(""));
    }

    #[test]
    fn attributes_of_two_sources_are_not_mixed() {
        let member = EntityFields {
            vorg: Some("atlas atlas".into()),
            role: Some("NULL production".into()),
            groups: Some("/atlas /atlas/prod".into()),
            ..EntityFields::default()
        };
        let attributes = EntityAttributes::new("", "", "staff");
        let entity = Entity::new(member).renamed(EntityNames { attributes, ..EntityNames::default() });
        assert_eq!((entity.vorg.as_deref(), entity.role.as_deref()), (None, None));
        assert_eq!(entity.groups.as_deref(), Some("staff"));
        assert_eq!(EntityAttributes::new("atlas cms", "", "a b c"), None);
        assert_eq!(EntityAttributes::new("atlas", "x y", "a"), None);
        assert!(EntityAttributes::new("atlas", "production", "a b c").is_some());
    }

    #[test]
    fn keys_of_our_own_code_are_reserved() {
        for key in ["request.name", "gridmap.name", "token.subject", "xrd.appname"] {
            assert!(is_reserved_attribute(key), "{key}");
        }
        assert!(!is_reserved_attribute("request.names") && !is_reserved_attribute("project"));
    }
}
