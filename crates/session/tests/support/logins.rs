//! Logins with authentication: protocols whose exchanges the tests decide, and a client.

use super::*;
use auth::{
    Entity, LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, SignatureCipher, StepCost,
};
use config::{AuthBinding, HostPattern};
use session::LoginPolicy;
use std::time::SystemTime;

/// A protocol that decides by the first byte after the id: `d` done, `c` continue, `e` continue
/// without a challenge, anything else refused. It counts rounds, and `r` succeeds in the second
/// round only; `w` waits for others in the first round.
pub struct FakeProtocol {
    pub id: &'static str,
    pub tls: bool,
    pub expensive: bool,
    /// Agrees on a session key.
    pub keyed: bool,
}

impl FakeProtocol {
    pub fn named(id: &'static str) -> Arc<dyn ServerProtocol> {
        Arc::new(Self { id, tls: false, expensive: false, keyed: false })
    }
}

struct FakeLogin {
    id: &'static str,
    host: String,
    rounds: usize,
    expensive: bool,
    keyed: bool,
}

/// A cipher that inverts each byte and adds a fixed prefix.
pub struct FakeCipher;

impl SignatureCipher for FakeCipher {
    fn encrypt(&self, hash: &[u8; 32]) -> Vec<u8> {
        [&b"prefix"[..], &hash.map(|byte| !byte)].concat()
    }

    fn decrypt(&self, signature: &[u8]) -> Option<[u8; 32]> {
        let hash: [u8; 32] = signature.strip_prefix(b"prefix")?.try_into().ok()?;
        Some(hash.map(|byte| !byte))
    }
}

impl ServerLogin for FakeLogin {
    fn cost(&self) -> StepCost {
        if self.expensive { StepCost::Expensive } else { StepCost::Cheap }
    }

    fn step(&mut self, credentials: &[u8], _: SystemTime) -> ServerStep {
        self.rounds += 1;
        match credentials.get(self.id.len() + 1) {
            Some(b'd') => ServerStep::Done(Entity::of_host(&self.host)),
            Some(b'r') if self.rounds == 2 => ServerStep::Done(Entity::of_host(&self.host)),
            Some(b'w') if self.rounds == 1 => ServerStep::Later,
            Some(b'w') => ServerStep::Done(Entity::of_host(&self.host)),
            Some(b'c') => ServerStep::Continue(format!("challenge {}", self.rounds).into_bytes()),
            Some(b'e') => ServerStep::Continue(Vec::new()),
            _ => ServerStep::Refused(RefusedLogin::new(self.id, "a reason for the log")),
        }
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.keyed.then(|| Arc::new(FakeCipher) as Arc<dyn SignatureCipher>)
    }
}

impl ServerProtocol for FakeProtocol {
    fn id(&self) -> &'static str {
        self.id
    }

    fn parameters(&self) -> String {
        if self.id == "sss" { "0.+013:/k".to_owned() } else { String::new() }
    }

    fn credential_bytes_min(&self) -> usize {
        self.id.len() + 1
    }

    fn needs_tls(&self) -> bool {
        self.tls
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        let FakeProtocol { id, expensive, keyed, .. } = *self;
        Box::new(FakeLogin { id, host: peer.host.clone(), rounds: 0, expensive, keyed })
    }
}

pub fn binding(hosts: &str, only: bool, protocols: &[&str]) -> AuthBinding {
    let protocols = protocols.iter().map(|id| (*id).to_owned()).collect();
    AuthBinding { hosts: HostPattern::parse(hosts).unwrap(), protocols, only }
}

/// Returns settings with these protocols, offered in this order.
pub fn guarded(ids: &[&'static str], bindings: Vec<AuthBinding>) -> Settings {
    let mut known: Vec<&'static str> = ids.to_vec();
    known.dedup();
    known.retain(|id| *id != "host");
    let protocols = known.into_iter().map(FakeProtocol::named).collect();
    let policy = LoginPolicy::new(protocols, ids, bindings, false, "server.example.org").unwrap();
    Settings { login: Some(Arc::new(policy)), ..Settings::default() }
}

/// Returns a kXR_auth with credentials of a protocol.
pub fn auth_request(id: &str, data: &str) -> Raw {
    let mut kind = [0; 4];
    id.bytes().zip(&mut kind).for_each(|(from, to)| *to = from);
    Raw::new(AUTH).at(16, &kind).payload(format!("{id}\0{data}").as_bytes())
}

impl Bench {
    /// Returns a session after a login that asks for authentication.
    pub fn unauthenticated(settings: Settings) -> Self {
        let mut bench = Self::greeted(settings);
        let reply = bench.reply_to(&login(5));
        assert_eq!((reply.status, reply.body.get(..16)), (OK, Some(&OWN_ID[..])));
        assert!(reply.body.len() > 16 && bench.session.is_authenticating());
        bench
    }

    /// Returns a session whose client has authenticated by the first protocol.
    pub fn authenticated(settings: Settings, id: &str) -> Self {
        let mut bench = Self::unauthenticated(settings);
        let reply = bench.authenticates(&auth_request(id, "d"));
        assert_eq!((reply.status, reply.body.len()), (OK, 0));
        assert!(bench.session.is_active());
        bench
    }

    /// Feeds credentials, executes the step, and returns the reply after any delay.
    pub fn authenticates(&mut self, request: &Raw) -> Reply {
        let todo = self.ask(request);
        self.finish_step(todo);
        self.reply()
    }

    /// Executes tasks of an authentication until there is none. Returns the delays.
    pub fn finish_step(&mut self, mut todo: DriverTask) -> Vec<u32> {
        let mut delays = Vec::new();
        loop {
            todo = match todo {
                DriverTask::Authenticate(task) => {
                    assert!(!self.session.has_room(), "a request is taken during a step");
                    self.session.authenticated(task.run(SystemTime::UNIX_EPOCH), &mut self.out)
                }
                DriverTask::LoginRefused { reason, delay_seconds } => {
                    assert!(!reason.is_empty());
                    delays.push(delay_seconds);
                    if delay_seconds > 0 {
                        assert!(!self.session.has_room() && self.out_is_empty());
                        self.session.send_delayed_refusal(&mut self.out);
                    }
                    DriverTask::Nothing
                }
                DriverTask::Nothing => match self.session.next_todo() {
                    Some(todo) => todo,
                    None => return delays,
                },
                DriverTask::Close => return delays,
                other => panic!("{}", name(&other)),
            }
        }
    }
}
