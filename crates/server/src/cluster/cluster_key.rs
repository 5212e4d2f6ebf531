//! The key of a cluster (`scalla.clusterkey`): each node proves with it that it belongs to the
//! cluster, by the protocol `sss`.
//!
//! A node authenticates itself to its parent, and not the reverse: a node connects to the addresses
//! that its configuration or a parent names. Functions that read files block, so the cluster thread
//! calls them on other threads.

use super::node_login::NodeAuthentication;
use crate::adapters::SystemClock;
use crate::admission::Doorkeeper;
use crate::error::StartError;
use crate::login::keep_out_of_core_dumps;
use auth::sss::{
    IdentitySource, Keytab, SSS, SssClient, SssClientSettings, SssIdentity, SssParameters, SssServer,
    SssServerSettings,
};
use auth::{
    ClientContext, ClientProtocol, LoginPeer, ServerProtocol, SystemRng, encode_offer, offered_protocols,
};
use cluster::tree::limits::LOGIN;
use config::{ClusterKeyConfig, Effective, NetworkConfig, Setting};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The interval at which the key table is read again.
pub(super) const REFRESH: Duration = Duration::from_secs(60);

/// Maximum delay of the first login. It applies if the clock was set back during the start.
const READY_TIME_MAX: Duration = Duration::from_secs(1);

/// The user in credentials of nodes. The server side uses it only for keys of any user.
const USER: &str = "cms";

/// The key of a cluster, and the hosts that do not need it.
pub struct ClusterKey {
    config: ClusterKeyConfig,
    server: SssServer,
    client: SssClient,
    exempt: Option<Doorkeeper>,
    /// Name of this host, for credentials.
    host: String,
    /// The permit of the thread that makes credentials.
    reader: Arc<Semaphore>,
}

impl ClusterKey {
    /// Reads the key table.
    ///
    /// # Errors
    /// [`StartError::Cluster`].
    pub(crate) fn open(config: &ClusterKeyConfig, effective: &Effective) -> Result<Self, StartError> {
        keep_out_of_core_dumps("the key of the cluster");
        let keys = read(config).map_err(|why| StartError::Cluster(format!("scalla.clusterkey: {why}")))?;
        let settings = SssServerSettings::new(config.keytab.clone());
        let clock = Arc::new(SystemClock::new());
        let of_keytab = SssClientSettings {
            keytab: Some(("scalla.clusterkey", config.keytab.clone())),
            home_keytab: None,
            endorsements: None,
            identity: IdentitySource::Fixed(Arc::new(SssIdentity::new(USER, USER))),
        };
        let allow = config.exempt.iter().cloned().map(Setting::default_of).collect();
        let exempt = NetworkConfig { allow, ..effective.network.clone() };
        Ok(Self {
            server: SssServer::with_keys(settings, keys, None, Box::new(SystemRng), clock),
            client: SssClient::new(of_keytab, Arc::new(Mutex::new(SystemRng))),
            exempt: (!config.exempt.is_empty()).then(|| Doorkeeper::new(&exempt)),
            host: effective.host.clone(),
            reader: Arc::new(Semaphore::new(1)),
            config: config.clone(),
        })
    }

    /// Reads the key table again. After an error the earlier keys stay in force. Blocks.
    ///
    /// # Errors
    /// The reason why the table is not used.
    pub(crate) fn refresh(&self) -> Result<(), String> {
        self.server
            .renew(|_| read(&self.config))
            .map_err(|why| format!("scalla.clusterkey: the earlier keys stay in force: {why}"))
    }

    /// Returns reasons for attention: keys that expire in less than `soon`.
    pub(crate) fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        self.server.warnings(now, soon)
    }

    /// Describes the keys in force.
    pub(crate) fn state(&self) -> String {
        format!("cluster: {}", self.server.state())
    }

    /// Returns the time until the first credentials are accepted.
    pub(super) fn ready_in(&self) -> Duration {
        let rest = self.server.ready_at().duration_since(SystemTime::now());
        rest.unwrap_or_default().min(READY_TIME_MAX)
    }

    /// Begins the authentication of a peer.
    pub(super) fn begin(&self, peer: SocketAddr) -> NodeAuthentication {
        let host = peer.ip().to_string();
        let peer = LoginPeer { address: peer, host, login_id: USER.to_owned(), is_tls: false };
        NodeAuthentication::Required(self.server.begin(&peer))
    }

    /// Returns the text by which a peer is asked for credentials.
    pub(super) fn challenge(&self) -> Vec<u8> {
        let mut text = Vec::new();
        encode_offer(SSS, &self.server.parameters(), &mut text);
        text.push(0);
        text
    }

    /// Returns the credentials of this node for a parent that asks for them. `local` is the address
    /// of this end of the connection. Blocks.
    ///
    /// # Errors
    /// The reason why there are none, and the remedy.
    pub(super) fn credentials(
        &self,
        challenge: &[u8],
        local: SocketAddr,
        now: SystemTime,
    ) -> Result<Vec<u8>, String> {
        if !self.config.keytab.exists() {
            let shown = self.config.keytab.display();
            return Err(format!("it asks for credentials, and {shown} (scalla.clusterkey) does not exist"));
        }
        let context = ClientContext::new(local, &self.host, "");
        credentials(&self.client, challenge, &context, now)
    }

    /// Returns the permit for a thread that makes credentials; `None` if the previous thread does not
    /// end in time.
    pub(super) async fn turn_to_read(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(LOGIN, self.reader.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Reports whether the nodes of a host need not authenticate. It may look up names.
    pub(super) async fn exempts(&self, host: IpAddr) -> bool {
        match &self.exempt {
            Some(exempt) => exempt.admits(host).await,
            None => false,
        }
    }

    /// Returns the configuration.
    pub(super) const fn config(&self) -> &ClusterKeyConfig {
        &self.config
    }
}

/// Reads the key table of a cluster. It must have keys, and each must bind credentials to the
/// address of their sender.
fn read(config: &ClusterKeyConfig) -> Result<Keytab, String> {
    let keys = Keytab::open(&config.keytab).map_err(|error| error.to_string())?;
    let shown = config.keytab.display();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if keys.choose(now.as_secs()).is_none() {
        return Err(format!("{shown} has no valid key; add one with xrdsssadmin -k cluster add {shown}"));
    }
    match keys.keys.iter().find(|key| key.is_forwardable()) {
        Some(key) => Err(format!(
            "the name of the key {:?} in {shown} ends in '+', so that any host could use intercepted \
             credentials; give it another name",
            key.name
        )),
        None => Ok(keys),
    }
}

/// Returns the credentials by which a client answers a parent. The key table that the parent
/// suggests is ignored, because a foreign parent could choose a file of this host. Blocks.
pub(super) fn credentials(
    client: &SssClient,
    challenge: &[u8],
    context: &ClientContext,
    now: SystemTime,
) -> Result<Vec<u8>, String> {
    let text = challenge.split(|byte| *byte == 0).next().unwrap_or_default();
    let offers = offered_protocols(text);
    let Some(offer) = offers.iter().find(|offer| offer.id == SSS) else {
        let ids: Vec<&str> = offers.iter().map(|offer| offer.id.as_str()).collect();
        return Err(format!(
            "it asks for credentials of {:?}, and nodes have those of {SSS} only",
            ids.join(", ")
        ));
    };
    let malformed = || "the parameters by which it asks for credentials are malformed".to_owned();
    let parameters = SssParameters::parse(&offer.parameters).ok_or_else(malformed)?;
    let mut offer = offer.clone();
    offer.parameters = SssParameters { client_keytab: None, ..parameters }.to_string().into_bytes();
    let login = client.begin(&offer, context).and_then(|mut login| login.step(None, now));
    login.map_err(|error| format!("it asks for credentials, and {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::node_login::NodeAuthenticationStep;
    use super::*;
    use config::HostPattern;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use wire::cms::{Message, NodeLogin};

    /// A key table in a directory of its own.
    struct KeyFile(PathBuf);

    impl KeyFile {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("scalla-ckey-{name}-{}", std::process::id()));
            let file = Self(path);
            file.write(text);
            file
        }

        fn write(&self, text: &str) {
            std::fs::write(&self.0, text).unwrap();
            std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn key(&self) -> Result<ClusterKey, String> {
            let exempt = vec![HostPattern::parse("10.1.*").unwrap()];
            let config = ClusterKeyConfig { keytab: self.0.clone(), exempt };
            ClusterKey::open(&config, &Effective::default()).map_err(|error| error.to_string())
        }
    }

    impl Drop for KeyFile {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).ok();
        }
    }

    const FIRST: &str = "0 u:cms g:cms n:cluster N:1 c:1 e:0 f:0 k:00010203040506070809\n";
    const SECOND: &str = "0 u:cms g:cms n:cluster N:2 c:1 e:0 f:0 k:10111213141516171819\n";

    fn node(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// Returns a time after the second of the start, whose credentials are refused.
    fn after_the_start() -> SystemTime {
        SystemTime::now() + Duration::from_secs(2)
    }

    /// Returns how `parent` answers the credentials that `child` makes at a port, sent from another.
    fn login(parent: &ClusterKey, child: &ClusterKey, made_at: u16, sent_from: u16) -> Result<(), String> {
        let now = after_the_start();
        let credentials = child.credentials(&parent.challenge(), node(made_at), now)?;
        let mut authentication = parent.begin(node(sent_from));
        authentication.step(Some(&Message::Login(NodeLogin::default())), now);
        match authentication.step(Some(&Message::Xauth(&credentials)), now) {
            NodeAuthenticationStep::Accept(_) => Ok(()),
            NodeAuthenticationStep::Refuse(why) => Err(why.to_string()),
            _ => Err("no decision".to_owned()),
        }
    }

    #[test]
    fn keys_can_be_exchanged_while_nodes_run() {
        let (parents, children) = (KeyFile::new("parents", FIRST), KeyFile::new("children", FIRST));
        let (parent, child) = (parents.key().unwrap(), children.key().unwrap());
        assert_eq!(login(&parent, &child, 1, 1), Ok(()));
        children.write(SECOND);
        let refused = login(&parent, &child, 1, 1).unwrap_err();
        assert!(refused.contains("is not in the key table"), "{refused}");
        parents.write(&format!("{FIRST}{SECOND}"));
        parent.refresh().unwrap();
        assert_eq!(login(&parent, &child, 1, 1), Ok(()));
        children.write(FIRST);
        assert_eq!(login(&parent, &child, 1, 1), Ok(()), "both keys are valid");
        parents.write(SECOND);
        parent.refresh().unwrap();
        assert!(login(&parent, &child, 1, 1).is_err(), "the first key is no longer valid");
        parents.write("nonsense\n");
        let kept = parent.refresh().unwrap_err();
        assert!(kept.contains("the earlier keys stay in force"), "{kept}");
        assert!(parent.state().contains("1 key of") && parent.state().contains("as read earlier"));
        std::fs::remove_file(&parents.0).unwrap();
        assert!(parent.refresh().is_err(), "a file that is being replaced locks no node out");
        children.write(SECOND);
        assert_eq!(login(&parent, &child, 1, 1), Ok(()));
    }

    #[test]
    fn the_keys_in_force_are_those_that_were_checked() {
        let file = KeyFile::new("replaced", FIRST);
        let key = file.key().unwrap();
        let bad = format!("{FIRST}{}", SECOND.replace("n:cluster", "n:cluster+"));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for text in [&*bad, FIRST] {
                        let next = KeyFile::new("next", text);
                        std::fs::rename(&next.0, &file.0).unwrap();
                    }
                }
            });
            let wrong = (0..2000).find(|_| {
                // Either result is right, as long as the other table is not in force.
                key.refresh().ok();
                !key.state().contains("1 key of")
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(wrong, None, "{}", key.state());
        });
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_occupies_one_thread() {
        let file = KeyFile::new("hangs", FIRST);
        let key = file.key().unwrap();
        let turn = key.turn_to_read().await;
        assert!(turn.is_some());
        tokio::time::pause();
        assert!(key.turn_to_read().await.is_none(), "the next attempt gives up");
        drop(turn);
        assert!(key.turn_to_read().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_read_again_at_its_interval() {
        let (parents, children) = (KeyFile::new("interval", FIRST), KeyFile::new("second", SECOND));
        let (parent, child) = (Arc::new(parents.key().unwrap()), children.key().unwrap());
        parents.write(SECOND);
        let begin = tokio::time::Instant::now();
        let accepted = async {
            while login(&parent, &child, 1, 1).is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            never = super::super::sockets::refresh(parent.clone()) => match never {},
            () = accepted => assert!(begin.elapsed() >= REFRESH),
        }
    }

    #[test]
    fn credentials_are_bound_to_their_connection() {
        let file = KeyFile::new("bound", FIRST);
        let key = file.key().unwrap();
        let refused = login(&key, &key, 1, 2).unwrap_err();
        assert!(refused.contains("it was made at the address [::ffff:192.0.2.1]:1"), "{refused}");
        let now = after_the_start();
        let credentials = key.credentials(&key.challenge(), node(3), now).unwrap();
        let answers: Vec<bool> = (0..2)
            .map(|_| {
                let mut peer = key.begin(node(3));
                peer.step(Some(&Message::Login(NodeLogin::default())), now);
                let step = peer.step(Some(&Message::Xauth(&credentials)), now);
                matches!(step, NodeAuthenticationStep::Accept(_))
            })
            .collect();
        assert_eq!(answers, [true, false], "the same credentials count once");
    }

    #[test]
    fn credentials_of_the_second_of_the_start_are_not_accepted() {
        let file = KeyFile::new("start", FIRST);
        let key = file.key().unwrap();
        assert!(key.ready_in() <= READY_TIME_MAX);
        let before = SystemTime::now() - Duration::from_secs(1);
        let credentials = key.credentials(&key.challenge(), node(4), before).unwrap();
        let mut peer = key.begin(node(4));
        peer.step(Some(&Message::Login(NodeLogin::default())), before);
        let NodeAuthenticationStep::Refuse(why) = peer.step(Some(&Message::Xauth(&credentials)), before)
        else {
            panic!("an earlier process could have accepted them");
        };
        assert!(why.to_string().contains("before this server started"), "{why}");
    }

    #[test]
    fn a_parent_that_asks_for_something_else_gets_nothing() {
        let file = KeyFile::new("asks", FIRST);
        let key = file.key().unwrap();
        for (challenge, reason) in [
            (&b"&P=unix\0"[..], "it asks for credentials of \"unix\""),
            (b"\0", "it asks for credentials of \"\""),
            (b"&P=sss,9\0", "are malformed"),
        ] {
            let refused = key.credentials(challenge, node(1), SystemTime::now()).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        let other = KeyFile::new("suggested", SECOND);
        std::fs::remove_file(&file.0).unwrap();
        let suggests = format!("&P=sss,0.+13:{}\0", other.0.display());
        let refused = key.credentials(suggests.as_bytes(), node(1), SystemTime::now()).unwrap_err();
        assert!(
            refused.contains("(scalla.clusterkey) does not exist") && !refused.contains("suggested"),
            "{refused}"
        );
    }

    #[test]
    fn a_table_without_usable_keys_stops_the_start() {
        for (name, text, reason) in [
            ("none", "\n", "has no valid key"),
            ("expired", "0 u:a g:b n:cluster N:1 c:1 e:2 f:0 k:00010203\n", "has no valid key"),
            ("forwarded", "0 u:a g:b n:cluster+ N:1 c:1 e:0 f:0 k:00010203\n", "ends in '+'"),
            ("broken", "x\n", "line 1 of the key table"),
        ] {
            let refused = KeyFile::new(name, text).key().err().unwrap_or_default();
            assert!(refused.starts_with("scalla.clusterkey: ") && refused.contains(reason), "{refused}");
        }
        let open = KeyFile::new("open", FIRST);
        std::fs::set_permissions(&open.0, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(open.key().err().unwrap_or_default().contains("is not used"));
    }

    #[tokio::test]
    async fn hosts_are_exempt_by_pattern() {
        let key = KeyFile::new("exempt", FIRST).key().unwrap();
        assert!(key.exempts([10, 1, 0, 1].into()).await);
        assert!(!key.exempts([10, 2, 0, 1].into()).await);
    }
}
