//! Credentials of a client: their sources, and the choice of a URL among them.
//!
//! Both are fixed before the first request. Servers cannot change them: a redirect or a metalink
//! contributes neither a user nor a choice of credentials.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};

use auth::gsi::{GridFiles, GsiClient, GsiClientSettings};
use auth::host::HostClient;
use auth::krb5::{Krb5Client, Krb5ClientSettings};
use auth::pwd::{PwdClient, PwdClientSettings, ask_password};
use auth::sss::{IdentitySource, IdentityTable, SssClient, SssClientSettings};
use auth::unix::{UNIX, UnixClient};
use auth::ztn::{TokenPlaces, ZtnClient};
use auth::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol, OfferedProtocol, SystemRng};
use nix::unistd::{Gid, Group, Uid, User};

use crate::authorities;
use crate::url::Url;

/// The variable with the protocols that the user allows.
pub(crate) const PROTOCOLS_VARIABLE: &str = "XrdSecPROTOCOL";

/// The variable that marks a proxy server.
const PROXY_VARIABLE: &str = "XrdSecPROXY";

/// The key of the cgi with the purpose of connections.
const INTENT: &str = "xrdcl.intent";
/// The purpose of connections to the target of a third-party copy with delegated credentials.
const DELEGATION_INTENT: &str = "tpc";

/// Keys of the cgi that select credentials. Connections with different values are never shared.
const CREDENTIAL_KEYS: [&str; 10] = [
    INTENT,
    "xrdcl.secuid",
    "xrdcl.secgid",
    "xrd.gsiusrpxy",
    "xrd.gsiusrcrt",
    "xrd.gsiusrkey",
    "xrd.sss",
    "xrd.k5ccname",
    "xrd.wantprot",
    "xrd.ztn",
];

/// The credentials with which a client may authenticate.
#[derive(Clone)]
pub struct Credentials(Option<Arc<UserCredentials>>);

/// Credentials of the user of this process.
pub(crate) struct UserCredentials {
    pub(crate) protocols: Vec<Box<dyn ClientProtocol>>,
    /// The list of allowed protocols; `None` allows all.
    pub(crate) allowed: Option<String>,
    /// The process serves others (`XrdSecPROXY`), so URLs choose no credentials.
    pub(crate) is_proxy_server: bool,
    /// The places of the bearer token for HTTP servers.
    pub(crate) tokens: Option<TokenPlaces>,
}

impl UserCredentials {
    /// Disables core dumps of this process, and access to its memory by other processes of its user,
    /// before the first secret is read. Clients of servers without authentication read none.
    pub(crate) fn keep_out_of_core_dumps(&self) {
        use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
        static DISABLED: Once = Once::new();
        DISABLED.call_once(|| {
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            let disabled = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            if let Err(error) = disabled.and_then(|()| setrlimit(Resource::Core, none)) {
                tracing::warn!("core dumps are not disabled, so they can contain credentials: {error}");
            }
        });
    }
}

impl Credentials {
    /// Creates no credentials: servers that demand authentication are not used. Servers use it,
    /// because their credentials are not those of the clients for which they act.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Takes the proxy that a client has delegated to a server, for requests on behalf of that client.
    #[must_use]
    pub fn of_proxy(proxy: GsiClient) -> Self {
        let protocols: Vec<Box<dyn ClientProtocol>> = vec![Box::new(proxy)];
        let credentials = UserCredentials { protocols, allowed: None, is_proxy_server: false, tokens: None };
        Self(Some(Arc::new(credentials)))
    }

    /// Takes the key table of `sss` of the user of this process, to stand for the clients of a server: each
    /// connection has the identity that is registered for the user of its URL, and no other credentials.
    #[must_use]
    pub fn of_identities(identities: Arc<IdentityTable>) -> Self {
        let settings = settings_of_identities(identities, |name| std::env::var(name).ok());
        let sss = SssClient::new(settings, Arc::new(Mutex::new(SystemRng)));
        let protocols: Vec<Box<dyn ClientProtocol>> = vec![Box::new(sss)];
        // The user of the URL is that of the server, and selects the identity.
        let credentials = UserCredentials { protocols, allowed: None, is_proxy_server: false, tokens: None };
        Self(Some(Arc::new(credentials)))
    }

    /// Takes the credentials of the user of this process, as named by the environment. It is for
    /// programs that a user has started.
    #[must_use]
    pub fn of_user() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let settings = SssClientSettings::of_environment(variable);
        let sss = SssClient::new(settings, Arc::new(Mutex::new(SystemRng)));
        let gsi = GsiClient::new(GsiClientSettings::of_environment(variable), authorities::opener());
        let krb5 = Krb5Client::new(Krb5ClientSettings::of_environment(variable));
        let pwd = PwdClient::new(PwdClientSettings::of_environment(variable), Arc::new(ask_password));
        let tokens = TokenPlaces::of_environment(variable);
        let ztn = ZtnClient::new(tokens.clone());
        let protocols: Vec<Box<dyn ClientProtocol>> = vec![
            Box::new(ztn),
            Box::new(krb5),
            Box::new(gsi),
            Box::new(sss),
            Box::new(pwd),
            Box::new(ProcessUser),
            Box::new(HostClient),
        ];
        let (allowed, is_proxy_server) = (variable(PROTOCOLS_VARIABLE), variable(PROXY_VARIABLE).is_some());
        let tokens = Some(tokens);
        Self(Some(Arc::new(UserCredentials { protocols, allowed, is_proxy_server, tokens })))
    }

    #[cfg(test)]
    pub(crate) fn of_protocols(
        protocols: Vec<Box<dyn ClientProtocol>>,
        allowed: Option<String>,
        is_proxy_server: bool,
    ) -> Self {
        let tokens = None;
        Self(Some(Arc::new(UserCredentials { protocols, allowed, is_proxy_server, tokens })))
    }

    pub(crate) const fn user(&self) -> Option<&Arc<UserCredentials>> {
        self.0.as_ref()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credentials(user)" } else { "Credentials(none)" })
    }
}

/// The protocol `unix` with the user of this process. The look-up of names can block, so it is made
/// for each exchange, outside of the runtime.
struct ProcessUser;

impl ClientProtocol for ProcessUser {
    fn id(&self) -> &'static str {
        UNIX
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let user = User::from_uid(Uid::effective()).ok().flatten().map(|user| user.name);
        let group = Group::from_gid(Gid::effective()).ok().flatten().map(|group| group.name);
        UnixClient { user, group }.begin(offer, context)
    }
}

/// What the URL of the user chooses among the credentials. It is taken from that URL once, and
/// remains the same at the targets of redirects.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct CredentialChoice {
    pub(crate) user: Option<String>,
    /// Values of the keys that are set, in their order.
    values: Vec<(&'static str, String)>,
}

impl CredentialChoice {
    /// Takes the choice of a URL.
    pub(crate) fn of(url: &Url) -> Self {
        let value = |key: &'static str| Some((key, url.cgi.get(key)?.clone()));
        Self { user: url.user.clone(), values: CREDENTIAL_KEYS.into_iter().filter_map(value).collect() }
    }

    fn value(&self, wanted: &str) -> Option<&str> {
        let found = self.values.iter().find(|(key, value)| *key == wanted && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the protocols that the URL allows.
    pub(crate) fn protocols(&self) -> Option<&str> {
        self.value("xrd.wantprot")
    }

    /// Returns the key table of the URL.
    pub(crate) fn sss_keytab(&self) -> Option<PathBuf> {
        self.value("xrd.sss").map(PathBuf::from)
    }

    /// Returns the token file of the URL.
    pub(crate) fn token_file(&self) -> Option<PathBuf> {
        self.value("xrd.ztn").map(PathBuf::from)
    }

    /// Returns the files of grid certificates of the URL.
    pub(crate) fn grid_files(&self) -> GridFiles {
        let file = |key| self.value(key).map(PathBuf::from);
        GridFiles {
            proxy: file("xrd.gsiusrpxy"),
            certificate: file("xrd.gsiusrcrt"),
            key: file("xrd.gsiusrkey"),
        }
    }

    /// Returns the same choice without delegation.
    pub(crate) fn without_delegation(&self) -> Self {
        let is_kept = |(key, value): &&(&str, String)| (*key, value.as_str()) != (INTENT, DELEGATION_INTENT);
        let values = self.values.iter().filter(is_kept).cloned().collect();
        Self { user: self.user.clone(), values }
    }

    /// Reports whether servers that ask for a proxy get one.
    pub(crate) fn delegates(&self) -> bool {
        self.value(INTENT) == Some(DELEGATION_INTENT)
    }

    /// Returns the cache of Kerberos tickets of the URL.
    pub(crate) fn ticket_cache(&self) -> Option<String> {
        self.value("xrd.k5ccname").map(str::to_owned)
    }
}

/// Gives the URL of a target, which the user wrote, the purpose that delegates a proxy to its server.
/// Connections of other purposes are not shared with it.
pub(crate) fn delegate_to(url: &mut Url) {
    url.cgi.insert(INTENT.to_owned(), DELEGATION_INTENT.to_owned());
}

/// Removes that purpose, for requests that need no delegation.
pub(crate) fn end_delegation(url: &mut Url) {
    if url.cgi.get(INTENT).is_some_and(|intent| intent == DELEGATION_INTENT) {
        url.cgi.remove(INTENT);
    }
}

/// Removes the user and the elements for the client from a URL that the user did not write.
pub(crate) fn remove_choice(url: &mut Url) {
    (url.user, url.password) = (None, None);
    url.cgi.retain(|key, _| !is_for_client(key));
}

/// Gives a URL the choice of credentials of the URL that the user wrote. A user that it has remains.
pub(crate) fn copy_choice(url: &mut Url, of_user: &Url) {
    if url.user.is_none() {
        url.user.clone_from(&of_user.user);
        url.password.clone_from(&of_user.password);
    }
    let chosen = of_user.cgi.iter().filter(|(key, _)| CREDENTIAL_KEYS.contains(&key.as_str()));
    url.cgi.extend(chosen.map(|(key, value)| (key.clone(), value.clone())));
}

/// Reports whether an element of cgi is for the client itself, so that only its user may set it.
pub(crate) fn is_for_client(key: &str) -> bool {
    key.starts_with("xrd.") || key.starts_with("xrdcl.")
}

/// Returns the settings of `sss` for identities of others. The endorsements of the environment are those of the
/// user of this process, so they are not used.
fn settings_of_identities(
    identities: Arc<IdentityTable>,
    variable: impl Fn(&str) -> Option<String>,
) -> SssClientSettings {
    let identity = IdentitySource::ByUser(identities);
    SssClientSettings { identity, endorsements: None, ..SssClientSettings::of_environment(variable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_of_others_get_nothing_of_the_environment_but_the_key_table() {
        let variable = |name: &str| Some(format!("/{name}"));
        assert!(SssClientSettings::of_environment(variable).endorsements.is_some());
        let settings = settings_of_identities(Arc::default(), variable);
        assert!(settings.endorsements.is_none() && matches!(settings.identity, IdentitySource::ByUser(_)));
        assert_eq!(settings.keytab, SssClientSettings::of_environment(variable).keytab);
    }

    #[test]
    fn a_proxy_is_delegated_to_the_target_of_a_copy_only() {
        let plain = Url::parse("root://h//a?xrd.wantprot=gsi").unwrap();
        let mut url = plain.clone();
        delegate_to(&mut url);
        assert!(CredentialChoice::of(&url).delegates() && !CredentialChoice::of(&plain).delegates());
        assert_ne!(CredentialChoice::of(&url), CredentialChoice::of(&plain), "connections are not shared");
        // A redirect or a metalink delegates nothing.
        let mut redirected = url.clone();
        remove_choice(&mut redirected);
        assert!(!CredentialChoice::of(&redirected).delegates());
        assert_eq!(CredentialChoice::of(&url).without_delegation(), CredentialChoice::of(&plain));
        end_delegation(&mut url);
        assert_eq!(CredentialChoice::of(&url), CredentialChoice::of(&plain));
    }

    #[test]
    fn the_choice_is_that_of_the_url_of_the_user() {
        let of_user = Url::parse("root://me:pw@m//a?xrd.wantprot=unix&xrdcl.unzip=b&x=1").unwrap();
        let mut url = Url::parse("root://alice@s//b?xrd.sss=/k&xrdcl.secuid=0&y=2").unwrap();
        remove_choice(&mut url);
        assert_eq!(CredentialChoice::of(&url), CredentialChoice { user: None, values: Vec::new() });
        copy_choice(&mut url, &of_user);
        assert_eq!(CredentialChoice::of(&url), CredentialChoice::of(&of_user));
        let cgi: Vec<_> = url.cgi.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(cgi, ["xrd.wantprot=unix", "y=2"]);
    }
}
