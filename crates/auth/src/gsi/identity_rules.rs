//! [`IdentityRules`]: the identity of the owner of a verified chain: names of the grid map, memberships of VOMS,
//! limited proxies.

use super::settings::{ForwardedChain, GsiServerSettings, LimitedProxies, NameMapping};
use super::trust::{GridIdentity, NameMap};
use super::{GSI, pem};
use crate::accounts::AccountDatabase;
use crate::entity::EntityFields;
use crate::grid::{VomsColumns, VomsMap};
use crate::secret::Secret;
use std::sync::Arc;

/// The attribute of a name that comes from the grid map.
const MAPPED: &str = "gridmap.name";

/// The extractor of attributes, as authorization rules and XRootD name it.
const VOMS_EXTRACTOR: &str = "xrdvoms";

/// Maximum length of a mapped name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The sources of the names of users.
#[derive(Clone, Default)]
pub struct NameMaps {
    /// Users of subjects. They count first.
    pub subjects: Option<Arc<dyn NameMap>>,
    /// Users of groups.
    pub groups: Option<Arc<VomsMap>>,
    /// Accounts of users, for the names of files with delegated proxies.
    pub accounts: Option<Arc<dyn AccountDatabase>>,
}

/// The rules by which the owner of a chain gets an identity.
pub(super) struct IdentityRules<'a> {
    /// The protocol of the identity.
    pub(super) protocol: &'static str,
    pub(super) settings: &'a GsiServerSettings,
    pub(super) names: &'a NameMaps,
}

impl IdentityRules<'_> {
    /// Returns the identity of the owner of a verified chain, who asks for the name `user`.
    pub(super) fn entity(
        &self,
        identity: &GridIdentity,
        chain: &[Vec<u8>],
        host: &str,
        user: Option<&str>,
    ) -> Result<EntityFields, String> {
        let settings = self.settings;
        if identity.is_limited && settings.limited == LimitedProxies::Refuse {
            return Err("the proxy is a limited one, which gsi.limited refuses".to_owned());
        }
        let columns = self.columns(identity)?;
        let mut fields = EntityFields {
            protocol: self.protocol.into(),
            host: host.into(),
            expires: Some(columns.as_ref().map_or(identity.expires, |one| one.expires.min(identity.expires))),
            certificate_subject: Some(identity.subject.as_str().into()),
            only_reads: identity.is_limited && settings.limited == LimitedProxies::Read,
            ..EntityFields::default()
        };
        let user_of_group = columns.as_ref().and_then(|columns| self.user_of_group(columns));
        if let Some(columns) = columns {
            fields.extractor = Some(VOMS_EXTRACTOR.into());
            fields.vorg = Some(columns.organizations.into());
            fields.groups = Some(columns.groups.into());
            fields.role = Some(columns.roles.into());
            fields.endorsements = Some(columns.endorsements.into());
        }
        match self.mapped(&identity.subject, user) {
            Some(name) => {
                fields.name = Some(name.into());
                fields.attributes.push((MAPPED.into(), "1".into()));
            }
            None if settings.mapping == NameMapping::Required => {
                return Err(format!("{} is not in the grid map", identity.subject));
            }
            None if user_of_group.is_some() => fields.name = user_of_group.map(Into::into),
            None if settings.names_by_subject => fields.name = Some(identity.subject.as_str().into()),
            None => fields.name = Some(self.name_of_hash(&identity.subject_hash).into()),
        }
        if let Some(names) = &settings.vo_names {
            names.apply(&mut fields, &identity.subject)?;
        }
        if settings.logs_subject {
            tracing::info!("{}: {:?} at {host}", self.protocol, identity.subject);
        }
        if settings.monitors_subject {
            fields.monitor_info = Some(identity.subject.as_str().into());
        }
        if let Some(forwarded) = settings.forwarded_chain {
            forward(chain, forwarded, &mut fields);
        }
        Ok(fields)
    }

    /// Returns the name of a subject that has no other. Over HTTP it has no suffix, as at XRootD.
    fn name_of_hash(&self, hash: &str) -> String {
        if self.protocol == GSI { format!("{hash}.0") } else { hash.to_owned() }
    }

    /// Returns the memberships that count.
    fn columns(&self, identity: &GridIdentity) -> Result<Option<VomsColumns>, String> {
        let Some(attributes) = &self.settings.attributes else { return Ok(None) };
        let columns = attributes.selection.columns(&identity.memberships);
        if columns.is_none() && attributes.is_required {
            return Err(format!(
                "{} has no attributes of VOMS that count (-vomsat:require); the debug log has the reason",
                identity.subject
            ));
        }
        Ok(columns)
    }

    fn user_of_group(&self, columns: &VomsColumns) -> Option<String> {
        let user = self.names.groups.as_ref()?.user_for(&columns.names);
        user.filter(|name| is_user_name(name))
    }

    /// Returns the name of a subject in the grid map: the one that the client asks for, or its first.
    fn mapped(&self, subject: &str, user: Option<&str>) -> Option<String> {
        if self.settings.mapping == NameMapping::Off {
            return None;
        }
        let names = self.names.subjects.as_ref()?.names_for(subject);
        let wanted = user.filter(|user| names.iter().any(|name| name == user)).map(str::to_owned);
        wanted.or_else(|| names.into_iter().next()).filter(|name| is_user_name(name))
    }
}

/// Reports whether a name of the grid map can be that of a user.
pub(super) fn is_user_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.@$-".contains(&byte);
    let first = name.bytes().next();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_letter)
        && first.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn forward(chain: &[Vec<u8>], forwarded: ForwardedChain, fields: &mut EntityFields) {
    let kept = if forwarded.is_full { chain } else { chain.get(..1).unwrap_or_default() };
    let mut text = String::new();
    kept.iter().for_each(|certificate| pem::append(pem::CERTIFICATE, certificate, &mut text));
    if forwarded.as_endorsements {
        fields.endorsements = Some(text.into());
    } else {
        fields.credentials = Some(Secret::from(text.as_bytes()));
    }
}
