//! [`SssServer`]: the server's side of `sss`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Clock, Rng};

use super::cipher::KeySchedules;
use super::identity::Claims;
use super::keytab::{Keytab, KeytabError, SssKey};
use super::packet::{ItemKind, PACKET_BYTES_MIN, PacketBody, PacketError, PacketHeader, RANDOM_BYTES};
use super::parameters::SssParameters;
use super::replay::{Replay, ReplayStore, UsedPacket};
use super::settings::SssServerSettings;
use super::{SSS, seconds};
use crate::accounts::AccountDatabase;
use crate::server::{
    FileRefresh, LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost,
};

/// Login id that is sent to a client whose own is empty.
const NOBODY: &str = "nobody";
/// Maximum number of packets of one exchange: one that asks for the login id, and the identity.
const PACKETS_MAX: usize = 2;

/// `sss` as a server offers it. All exchanges share its keys and its store of used packets.
pub struct SssServer(Arc<SssShared>);

/// State shared by all exchanges.
struct SssShared {
    settings: SssServerSettings,
    keys: RwLock<Arc<Keytab>>,
    schedules: KeySchedules,
    /// Held during a whole renewal of the keys.
    renewal: Mutex<()>,
    /// The reason why the present file is not in force, if it is not.
    failure: Mutex<Option<String>>,
    /// The start of the server, seconds since 1970.
    start: u64,
    replays: ReplayStore,
    accounts: Option<Arc<dyn AccountDatabase>>,
    rng: Mutex<Box<dyn Rng>>,
    /// The steady clock, on which used packets are remembered.
    clock: Arc<dyn Clock>,
}

impl SssShared {
    fn keys(&self) -> Arc<Keytab> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Implements [`SssServer::renew`].
    fn renew(&self, read: impl FnOnce(&Path) -> Result<Keytab, String>) -> Result<(), String> {
        // Held until the keys are in force, so that those of an earlier read never replace later ones.
        let _renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = read(&self.settings.keytab);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = keys.as_ref().err().cloned();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys?);
        self.schedules.clear();
        Ok(())
    }

    /// Replaces the keys by those of the file. It does not look at the time of modification, which
    /// can stay the same when a file is replaced twice within a second. Without a file there are no
    /// keys, because the removal of the last key removes the file.
    fn refresh(&self) -> Result<(), String> {
        self.renew(|path| {
            let shown = path.display();
            let keys = match Keytab::open(path) {
                Err(KeytabError::Absent { .. }) => Keytab::default(),
                read => read.map_err(|error| format!("{shown}: the previous keys stay in use: {error}"))?,
            };
            if keys.keys.is_empty() {
                tracing::warn!("{shown} is missing or has no keys: no client can authenticate by sss");
            }
            Ok(keys)
        })
    }
}

impl SssServer {
    /// Reads the key table. Without `accounts`, identities have no user and group ids. Packets that
    /// were made before the second after the present time of `clock` are refused.
    ///
    /// # Errors
    /// [`KeytabError`].
    pub fn open(
        settings: SssServerSettings,
        accounts: Option<Arc<dyn AccountDatabase>>,
        rng: Box<dyn Rng>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, KeytabError> {
        let keys = Keytab::open(&settings.keytab)?;
        Ok(Self::with_keys(settings, keys, accounts, rng, clock))
    }

    /// Creates a server with these keys, which are not read from a file until the first refresh.
    #[must_use]
    pub fn with_keys(
        settings: SssServerSettings,
        keys: Keytab,
        accounts: Option<Arc<dyn AccountDatabase>>,
        rng: Box<dyn Rng>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let start = seconds(clock.today());
        Self(Arc::new(SssShared {
            settings,
            keys: RwLock::new(Arc::new(keys)),
            schedules: KeySchedules::default(),
            renewal: Mutex::default(),
            failure: Mutex::default(),
            start,
            replays: ReplayStore::new(start),
            accounts,
            rng: Mutex::new(rng),
            clock,
        }))
    }

    /// Replaces the keys by those that `read` returns for the file. After an error the previous keys
    /// stay in use, and [`ServerProtocol::state`] has the error.
    ///
    /// # Errors
    /// The one of `read`.
    pub fn renew(&self, read: impl FnOnce(&Path) -> Result<Keytab, String>) -> Result<(), String> {
        self.0.renew(read)
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

    fn ready_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.0.start.saturating_add(1))
    }

    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        let shared = self.0.clone();
        vec![FileRefresh::new(self.0.settings.refresh, move || shared.refresh())]
    }

    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        let keytab = self.0.keys();
        let shown = self.0.settings.keytab.display();
        if keytab.keys.is_empty() {
            return vec![format!("{shown} has no keys, so no client can authenticate by sss")];
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let warning = |key: &SssKey| {
            let SssKey { id, name, user, expires, .. } = key;
            let left = expires.saturating_sub(now);
            let what = match left {
                _ if *expires == 0 || left >= soon.as_secs() => return None,
                0 => "has expired".to_owned(),
                left => format!("expires in {} days", left / 86_400),
            };
            Some(format!("{shown}: the key {id} ({name}, user {user}) {what}; replace it with xrdsssadmin"))
        };
        keytab.keys.iter().filter_map(warning).collect()
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
        // Only the look-up of accounts waits; the cipher takes a few microseconds, and some ten more
        // for a key that was not used lately.
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
        let SssShared { settings, accounts, .. } = &*self.shared;
        let text = |error: PacketError| error.to_string();
        let (header, encrypted) = PacketHeader::decode(packet).map_err(text)?;
        let keys = self.shared.keys();
        let name =
            if settings.checks_key_names { Some(header.key_name.as_deref().unwrap_or("")) } else { None };
        let key = keys.find(header.key_id, name, now).ok_or_else(|| {
            format!("the key {:x} of the client is not in the key table, or is expired", header.key_id)
        })?;
        let cipher = self.shared.schedules.cipher(&key.secret);
        let body = PacketBody::open_by(encrypted, &cipher).map_err(text)?;
        check_age(body.time(), settings.lifetime, now)?;
        let used = UsedPacket { key_id: header.key_id, random: body.random(), time: body.time() };
        self.check_unused(&used, keys.keys.len(), now)?;
        if body.asks_login_id() {
            return Ok(ServerStep::Continue(self.login_id(&header, key, now)));
        }
        let claims = Claims::collect(&body)?;
        claims.check_source(key, &self.peer)?;
        Ok(ServerStep::Done(claims.entity(key, &self.peer, settings, accounts.as_deref())))
    }

    /// Checks that a packet is used for the first time. `keys` is the number of valid keys.
    fn check_unused(&self, packet: &UsedPacket, keys: usize, now: u64) -> Result<(), String> {
        let SssShared { settings, replays, clock, .. } = &*self.shared;
        let age = now.saturating_sub(packet.time);
        match replays.remember(packet, settings.lifetime, keys, clock.now()) {
            Replay::New => Ok(()),
            Replay::Known => Err("the credentials were used before".to_owned()),
            Replay::BeforeStart => Err(format!(
                "the credentials are {age} s old and were made before this server started, so they could \
                 have been used before; check the clocks if this lasts"
            )),
            Replay::Forgotten => Err(format!(
                "the clock of this server was set back, and credentials {age} s old could have been used \
                 before; restart the server to accept credentials from now on"
            )),
            Replay::Full => Err(format!(
                "the key {:x} has too many logins within the lifetime of credentials",
                packet.key_id
            )),
        }
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
    use super::super::test_clock::TestClock;
    use super::*;
    use std::path::PathBuf;

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
        let clock = Arc::new(TestClock::default());
        let server = SssServer::open(settings, None, Box::new(crate::SystemRng), clock).unwrap();
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

    /// A server with one key, and its clock.
    struct Bench {
        server: SssServer,
        clock: Arc<TestClock>,
    }

    impl Bench {
        fn starting_at(today: u64) -> Self {
            let keys = Keytab::parse(b"0 u:ann g:staff n:k+ N:1 k:00").unwrap();
            let clock = Arc::new(TestClock::default());
            clock.set_today(today);
            let settings = SssServerSettings::new(PathBuf::from("/nonexistent"));
            let server =
                SssServer::with_keys(settings, keys, None, Box::new(crate::SystemRng), clock.clone());
            Self { server, clock }
        }

        /// Returns a packet of a client whose clock shows `time`.
        fn packet(&self, time: u64) -> Vec<u8> {
            let mut random = [0; RANDOM_BYTES];
            crate::SystemRng.fill(&mut random);
            let mut body = PacketBody::new(random, time, false);
            body.text(ItemKind::NAME, "ann");
            let header = PacketHeader { key_id: 1, key_name: None };
            body.seal(&header, &self.server.0.keys().keys[0].secret)
        }

        /// Returns the reason of a refusal, or an empty text.
        fn send(&self, packet: &[u8]) -> String {
            let address = ([192, 0, 2, 1], 4711).into();
            let peer = LoginPeer { address, host: "h".into(), login_id: "u".into(), is_tls: false };
            match self.server.begin(&peer).step(packet, self.clock.today()) {
                ServerStep::Refused(refused) => refused.reason().to_owned(),
                ServerStep::Done(_) => String::new(),
                other => format!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_used_packet_valid_again() {
        let bench = Bench::starting_at(1_799_999_999);
        bench.clock.set_today(1_800_000_000);
        let first = bench.packet(1_800_000_000);
        assert_eq!(bench.send(&first), "");
        bench.clock.advance(100);
        assert_eq!(bench.send(&bench.packet(1_800_000_100)), "");
        bench.clock.set_today(1_800_000_001);
        let refused = bench.send(&first);
        assert!(refused.starts_with("the clock of this server was set back, "), "{refused}");
        bench.clock.set_today(1_800_000_105);
        assert_eq!(bench.send(&bench.packet(1_800_000_105)), "");
    }

    #[test]
    fn a_packet_from_before_the_start_is_refused() {
        let bench = Bench::starting_at(1_800_000_000);
        // An earlier process could have accepted a packet in the second of the start.
        for time in [1_799_999_999, 1_800_000_000] {
            let refused = bench.send(&bench.packet(time));
            assert!(refused.contains("made before this server started"), "{refused}");
        }
        let ready = seconds(bench.server.ready_at());
        assert_eq!(ready, 1_800_000_001);
        bench.clock.set_today(ready);
        assert_eq!(bench.send(&bench.packet(ready)), "");
    }

    #[test]
    fn a_used_packet_is_refused_by_the_next_process() {
        let first = Bench::starting_at(1_800_000_000);
        first.clock.set_today(1_800_000_005);
        let packet = first.packet(1_800_000_005);
        assert_eq!(first.send(&packet), "");
        let next = Bench::starting_at(1_800_000_005);
        assert!(next.send(&packet).contains("made before this server started"));
    }
}
