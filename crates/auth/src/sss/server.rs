//! [`SssServer`]: the server's side of `sss`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use base::Rng;

use super::identity::Claims;
use super::keytab::{Keytab, KeytabError, SssKey};
use super::packet::{ItemKind, PACKET_BYTES_MIN, PacketBody, PacketError, PacketHeader, RANDOM_BYTES};
use super::parameters::SssParameters;
use super::replay::{Replay, ReplayStore};
use super::{SSS, seconds};
use crate::accounts::AccountDatabase;
use crate::server::{LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost};

/// Login id that is sent to a client whose own is empty.
const NOBODY: &str = "nobody";
/// Maximum number of packets of one exchange: one that asks for the login id, and the identity.
const PACKETS_MAX: usize = 2;

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SssServerSettings {
    /// The key table of the server.
    pub keytab: PathBuf,
    /// The key table that is suggested to clients.
    pub client_keytab: Option<PathBuf>,
    /// Lifetime of packets in seconds.
    pub lifetime: u64,
    /// Asks proxies for the credentials of the clients that they forward (`-g`).
    pub wants_credentials: bool,
    /// Looks keys up by name and id instead of the id alone (`-k`).
    pub checks_key_names: bool,
    /// Protocols of original clients whose identities are accepted from proxies (`-p`).
    pub forwarded_protocols: Vec<String>,
    /// Interval at which the key table is read again if it has changed.
    pub refresh: Duration,
}

impl SssServerSettings {
    /// Lifetime of packets unless it is configured, in seconds.
    pub const LIFETIME: u64 = 13;
    /// Interval of refreshes unless it is configured.
    pub const REFRESH: Duration = Duration::from_secs(3600);

    /// Creates the settings of a server with this key table, and defaults otherwise.
    #[must_use]
    pub fn new(keytab: PathBuf) -> Self {
        Self {
            keytab,
            client_keytab: None,
            lifetime: Self::LIFETIME,
            wants_credentials: false,
            checks_key_names: false,
            forwarded_protocols: Vec::new(),
            refresh: Self::REFRESH,
        }
    }
}

/// `sss` as a server offers it. All exchanges share its keys and its store of used packets.
pub struct SssServer(Arc<SssShared>);

/// State shared by all exchanges.
struct SssShared {
    settings: SssServerSettings,
    keys: RwLock<Arc<Keytab>>,
    /// Held during a whole renewal of the keys.
    renewal: Mutex<()>,
    /// The reason why the present file is not in force, if it is not.
    failure: Mutex<Option<String>>,
    replays: ReplayStore,
    accounts: Option<Arc<dyn AccountDatabase>>,
    rng: Mutex<Box<dyn Rng>>,
}

impl SssShared {
    fn keys(&self) -> Arc<Keytab> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SssServer {
    /// Reads the key table. Without `accounts`, identities have no user and group ids.
    ///
    /// # Errors
    /// [`KeytabError`].
    pub fn open(
        settings: SssServerSettings,
        accounts: Option<Arc<dyn AccountDatabase>>,
        rng: Box<dyn Rng>,
    ) -> Result<Self, KeytabError> {
        let keys = Keytab::open(&settings.keytab)?;
        Ok(Self::with_keys(settings, keys, accounts, rng))
    }

    /// Creates a server with these keys, which are not read from a file until the first refresh.
    #[must_use]
    pub fn with_keys(
        settings: SssServerSettings,
        keys: Keytab,
        accounts: Option<Arc<dyn AccountDatabase>>,
        rng: Box<dyn Rng>,
    ) -> Self {
        Self(Arc::new(SssShared {
            settings,
            keys: RwLock::new(Arc::new(keys)),
            renewal: Mutex::default(),
            failure: Mutex::default(),
            replays: ReplayStore::default(),
            accounts,
            rng: Mutex::new(rng),
        }))
    }
}

impl ServerProtocol for SssServer {
    fn id(&self) -> &'static str {
        SSS
    }

    fn parameters(&self) -> String {
        let settings = &self.0.settings;
        let parameters = SssParameters {
            is_version_2: true,
            wants_credentials: settings.wants_credentials,
            lifetime: settings.lifetime,
            client_keytab: settings.client_keytab.clone(),
        };
        parameters.to_string()
    }

    fn credential_bytes_min(&self) -> usize {
        PACKET_BYTES_MIN
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(SssServerLogin { shared: Arc::clone(&self.0), peer: peer.clone(), packets: 0 })
    }

    fn refresh_interval(&self) -> Option<Duration> {
        Some(self.0.settings.refresh)
    }

    /// Replaces the keys by those of the file. It does not look at the time of modification, which
    /// can stay the same when a file is replaced twice within a second. Without a file there are no
    /// keys, because the removal of the last key removes the file.
    fn refresh(&self) -> Result<(), String> {
        let shared = &self.0;
        // Held until the keys are in force, so that those of an earlier read never replace later ones.
        let _renewal = shared.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = shared.settings.keytab.display();
        let keys = match Keytab::open(&shared.settings.keytab) {
            Err(KeytabError::Absent { .. }) => Ok(Keytab::default()),
            read => read.map_err(|error| format!("{shown}: the previous keys stay in use: {error}")),
        };
        *shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = keys.as_ref().err().cloned();
        let keys = keys?;
        if keys.keys.is_empty() {
            tracing::warn!("{shown} is missing or has no keys: no client can authenticate by sss");
        }
        *shared.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        Ok(())
    }

    fn state(&self) -> String {
        let (count, shown) = (self.0.keys().keys.len(), self.0.settings.keytab.display());
        let state = match count {
            0 => format!("sss: no keys in {shown}, so that no client can authenticate by sss"),
            1 => format!("sss: 1 key of {shown}"),
            count => format!("sss: {count} keys of {shown}"),
        };
        match self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(failure) => format!("{state}, as read earlier; {failure}"),
            None => state,
        }
    }
}

/// An exchange with one peer.
struct SssServerLogin {
    shared: Arc<SssShared>,
    peer: LoginPeer,
    packets: usize,
}

impl ServerLogin for SssServerLogin {
    fn cost(&self) -> StepCost {
        // Only the look-up of accounts waits; the cipher takes some ten microseconds, most of them
        // for the key schedule.
        if self.shared.accounts.is_some() { StepCost::Expensive } else { StepCost::Cheap }
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        self.packets += 1;
        if self.packets > PACKETS_MAX {
            return refuse("the client does not stop asking for its login id");
        }
        match self.process(credentials, seconds(now)) {
            Ok(step) => step,
            Err(reason) => refuse(reason),
        }
    }
}

impl SssServerLogin {
    fn process(&self, packet: &[u8], now: u64) -> Result<ServerStep, String> {
        let SssShared { settings, accounts, replays, .. } = &*self.shared;
        let text = |error: PacketError| error.to_string();
        let (header, encrypted) = PacketHeader::decode(packet).map_err(text)?;
        let keys = self.shared.keys();
        let name =
            if settings.checks_key_names { Some(header.key_name.as_deref().unwrap_or("")) } else { None };
        let key = keys.find(header.key_id, name, now).ok_or_else(|| {
            format!("the key {:x} of the client is not in the key table, or is expired", header.key_id)
        })?;
        let body = PacketBody::open(encrypted, &key.secret).map_err(text)?;
        check_age(body.time(), settings.lifetime, now)?;
        match replays.remember(header.key_id, &body.random(), settings.lifetime, now) {
            Replay::New => {}
            Replay::Known => return Err("the credentials were used before".to_owned()),
            Replay::Full => return Err("too many logins within the lifetime of credentials".to_owned()),
        }
        if body.asks_login_id() {
            return Ok(ServerStep::Continue(self.login_id(&header, key, now)));
        }
        let claims = Claims::collect(&body)?;
        claims.check_source(key, &self.peer)?;
        Ok(ServerStep::Done(claims.entity(key, &self.peer, settings, accounts.as_deref())))
    }

    /// Returns the packet with the login id of the connection.
    fn login_id(&self, header: &PacketHeader, key: &SssKey, now: u64) -> Vec<u8> {
        let mut random = [0; RANDOM_BYTES];
        self.shared.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut random);
        let mut body = PacketBody::new(random, now, false);
        let login_id = Some(self.peer.login_id.as_str()).filter(|id| !id.is_empty());
        body.text(ItemKind::LOGIN_ID, login_id.unwrap_or(NOBODY));
        body.seal(header, &key.secret)
    }
}

/// Checks that a packet is not older than its lifetime, and not from a clock that is ahead by more.
fn check_age(generated: u64, lifetime: u64, now: u64) -> Result<(), String> {
    if generated.saturating_add(lifetime) <= now {
        let age = now - generated;
        return Err(format!("the credentials are {age} s old, {lifetime} s are allowed; check the clocks"));
    }
    if generated > now.saturating_add(lifetime) {
        let ahead = generated - now;
        return Err(format!("the credentials are from {ahead} s in the future; check the clocks"));
    }
    Ok(())
}

fn refuse(reason: impl Into<String>) -> ServerStep {
    ServerStep::Refused(RefusedLogin::new(SSS, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_removal_of_the_last_key_revokes_it() {
        let directory = std::env::temp_dir().join(format!("auth-revoked-{}", std::process::id()));
        let path = directory.join("k");
        let write = |text: &[u8]| {
            let table = Keytab::parse(text).unwrap();
            Keytab::update(&path, &mut crate::SystemRng, |_| Ok::<_, ()>((table, ()))).unwrap().unwrap();
        };
        write(b"0 N:1 k:00\n0 N:2 k:01");
        let settings = SssServerSettings::new(path.clone());
        let server = SssServer::open(settings, None, Box::new(crate::SystemRng)).unwrap();
        let count = || server.0.keys().keys.len();
        assert_eq!(server.state(), format!("sss: 2 keys of {}", path.display()));
        std::fs::write(&path, "0 N:1").unwrap();
        assert!(server.refresh().is_err());
        assert_eq!(count(), 2, "a malformed file keeps the keys");
        assert!(server.state().contains("as read earlier; "), "{}", server.state());
        write(b"");
        assert!(!path.exists());
        server.refresh().unwrap();
        assert_eq!(count(), 0);
        assert!(server.state().starts_with("sss: no keys in "), "{}", server.state());
        write(b"0 N:3 k:00");
        server.refresh().unwrap();
        assert_eq!(server.state(), format!("sss: 1 key of {}", path.display()));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
