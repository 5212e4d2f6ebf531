//! Logins with authentication over sockets: time limits, delayed refusals, steps on a pool, names of
//! hosts, and connections that join a session.

#![allow(clippy::unwrap_used)]

mod support;

use auth::unix::UnixServer;
use auth::{LoginPeer, LoginWaker, ServerLogin, ServerProtocol, ServerStep, StepCost};
use config::{AuthBinding, HostPattern};
use session::LoginPolicy;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use support::client::{READING, login_request};
use support::*;
use xroot::{LoginPool, PeerNames};

/// A step of a login that must run on a pool.
struct SlowLogin(Box<dyn ServerLogin>);

impl ServerLogin for SlowLogin {
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        self.0.step(credentials, now)
    }
}

/// `unix` with logins that this function changes.
struct ChangedUnix<Change>(Change);

impl<Change> ServerProtocol for ChangedUnix<Change>
where
    Change: Fn(&LoginPeer, Box<dyn ServerLogin>) -> Box<dyn ServerLogin> + Send + Sync,
{
    fn id(&self) -> &'static str {
        UnixServer.id()
    }

    fn parameters(&self) -> String {
        UnixServer.parameters()
    }

    fn credential_bytes_min(&self) -> usize {
        UnixServer.credential_bytes_min()
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        self.0(peer, UnixServer.begin(peer))
    }
}

/// Returns `unix`, whose steps must run on a pool.
fn slow_unix() -> Arc<dyn ServerProtocol> {
    Arc::new(ChangedUnix(|_: &LoginPeer, login| Box::new(SlowLogin(login)) as Box<dyn ServerLogin>))
}

/// Returns the options of a server whose clients authenticate by `unix`.
fn guarded(unix: Arc<dyn ServerProtocol>, bindings: Vec<AuthBinding>) -> Wish {
    let mut wish = Wish { loops: 1, ..Wish::default() };
    let policy = LoginPolicy::new(vec![unix], &["unix"], bindings, false, "h.example.org");
    wish.config.settings.login = Some(Arc::new(policy.unwrap()));
    wish
}

fn unix(name: &str) -> Raw {
    Raw::new(AUTH).at(16, b"unix").payload(format!("unix\0{name}\0").as_bytes())
}

/// Returns a client that has logged in and must authenticate.
fn unauthenticated(address: SocketAddr) -> Client {
    let mut client = Client::greeted(address);
    let reply = client.call(&login_request());
    assert_eq!((reply.status, &reply.body[16..]), (OK, &b"&P=unix"[..]));
    client.session = reply.body[..16].try_into().unwrap();
    client
}

fn refused(reply: &Reply) -> u16 {
    reply.error().0
}

#[test]
fn a_client_authenticates_and_reads() {
    let server = Server::with(guarded(Arc::new(UnixServer), Vec::new()));
    server.put("/f", b"content");
    let mut client = unauthenticated(server.address);
    assert_eq!(server.totals().logins, 0);
    assert_eq!(refused(&client.call(&unix("bad/name"))), 3030);
    assert_eq!(client.call(&unix("alice staff")).status, OK);
    let handle = client.open("/f", READING);
    assert_eq!(client.read(handle, 0, 100), b"content");
    assert_eq!((server.totals().logins, server.totals().refused_logins), (1, 1));
    assert_eq!(server.totals().authenticated, 1);
    let identity = server.door.clients().pop().unwrap();
    assert_eq!((identity.protocol(), identity.user()), ("unix", "tester"));
}

#[test]
fn requests_that_follow_credentials_in_one_segment_wait_for_their_result() {
    let server = Server::with(guarded(Arc::new(UnixServer), Vec::new()));
    server.put("/f", b"content");
    let mut client = Client::greeted(server.address);
    let stat = Raw::new(STAT).stream(9).payload(b"/f");
    client.send_bytes(&[login_request().bytes(), unix("alice").bytes(), stat.bytes()].concat());
    let replies = [client.reply(), client.reply(), client.reply()];
    assert!(replies.iter().all(|reply| reply.status == OK) && replies[2].stream == 9, "{replies:?}");
}

#[test]
fn a_client_that_does_not_authenticate_is_closed() {
    let mut wish = guarded(Arc::new(UnixServer), Vec::new());
    wish.config.login_timeout = Duration::from_millis(50);
    let server = Server::with(wish);
    let mut silent = unauthenticated(server.address);
    let mut good = unauthenticated(server.address);
    assert_eq!(good.call(&unix("alice")).status, OK);
    silent.is_closed();
    // Pings do not extend the time.
    let mut alive = unauthenticated(server.address);
    alive.call(&Raw::new(PING));
    alive.is_closed();
    assert_eq!(good.call(&Raw::new(PING)).status, OK);
}

#[test]
fn a_delayed_refusal_delays_no_other_client() {
    let server = Server::with(guarded(Arc::new(UnixServer), Vec::new()));
    let mut guesser = unauthenticated(server.address);
    for _ in 0..2 {
        assert_eq!(refused(&guesser.call(&unix("/"))), 3030);
    }
    guesser.send(&unix("/"));
    // What follows waits for the refusal.
    guesser.send(&Raw::new(PING).stream(8));
    let mut other = unauthenticated(server.address);
    assert_eq!(other.call(&unix("bob")).status, OK);
    let (third, ping) = (guesser.reply(), guesser.reply());
    assert_eq!((refused(&third), ping.stream, ping.status), (3030, 8, OK));
    assert_eq!(guesser.call(&unix("carol")).status, OK);
}

#[test]
fn only_an_authenticated_session_can_be_joined_or_ended() {
    let server = Server::with(guarded(Arc::new(UnixServer), Vec::new()));
    server.put("/f", b"content");
    let mut main = unauthenticated(server.address);
    let mut early = Client::greeted(server.address);
    let reply = early.call(&Raw::new(BIND).at(4, &main.session));
    assert_eq!(refused(&reply), 3000);
    assert_eq!(main.call(&unix("alice")).status, OK);
    let (_bound, path) = Client::bound(&main, server.address);
    assert_eq!(path, 1);
    // The login names are equal, but another user has authenticated.
    let mut other = unauthenticated(server.address);
    assert_eq!(other.call(&unix("mallory")).status, OK);
    assert_eq!(refused(&other.call(&Raw::new(ENDSESS).at(4, &main.session))), 3010);
    let mut again = unauthenticated(server.address);
    assert_eq!(again.call(&unix("alice")).status, OK);
    assert_eq!(again.call(&Raw::new(ENDSESS).at(4, &main.session)).status, OK);
    main.is_closed();
}

#[test]
fn an_expensive_step_runs_on_the_pool() {
    type Job = Box<dyn FnOnce() + Send>;
    let (queue, jobs) = mpsc::channel::<Job>();
    let queue = Mutex::new(queue);
    let mut wish = guarded(slow_unix(), Vec::new());
    wish.config.login_pool = Some(LoginPool(Arc::new(move |_, job| queue.lock().unwrap().send(job).is_ok())));
    let server = Server::with(wish);
    let mut client = unauthenticated(server.address);
    client.send(&unix("alice"));
    client.send(&Raw::new(PING).stream(8));
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    // The loop serves others meanwhile.
    unauthenticated(server.address);
    job();
    let (auth, ping) = (client.reply(), client.reply());
    assert_eq!((auth.status, ping.stream, ping.status), (OK, 8, OK));
    // The client of the next job disconnects before its result is there.
    let mut gone = unauthenticated(server.address);
    gone.send(&unix("bob"));
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    let sessions = server.door.sessions();
    drop(gone);
    until("the end of the session", || server.door.sessions() < sessions);
    job();
    // A full pool refuses, and the client may try again.
    drop(jobs);
    let mut late = unauthenticated(server.address);
    assert_eq!(refused(&late.call(&unix("carol"))), 3030);
    assert_eq!(late.call(&Raw::new(PING)).status, OK);
}

/// A login whose first step waits until it is woken.
struct LaterLogin {
    login: Box<dyn ServerLogin>,
    waits: bool,
    wakers: Arc<Mutex<Vec<LoginWaker>>>,
}

impl ServerLogin for LaterLogin {
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        if std::mem::take(&mut self.waits) { ServerStep::Later } else { self.login.step(credentials, now) }
    }

    fn wake_when_ready(&mut self, waker: LoginWaker) {
        self.wakers.lock().unwrap().push(waker);
    }
}

/// Returns a server whose clients have to wait for each other, with one thread for their logins.
fn with_waiting_logins(login_timeout: Duration) -> (Server, Arc<Mutex<Vec<LoginWaker>>>) {
    let wakers: Arc<Mutex<Vec<LoginWaker>>> = Arc::default();
    let of_logins = Arc::clone(&wakers);
    let later = move |peer: &LoginPeer, login| {
        let waits = peer.login_id == "tester";
        Box::new(LaterLogin { login, waits, wakers: of_logins.clone() }) as Box<dyn ServerLogin>
    };
    let mut wish = guarded(Arc::new(ChangedUnix(later)), Vec::new());
    wish.config.login_timeout = login_timeout;
    wish.config.login_pool = Some(one_thread());
    (Server::with(wish), wakers)
}

fn one_thread() -> LoginPool {
    let (queue, jobs) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
    let queue = Mutex::new(queue);
    LoginPool(Arc::new(move |_, job| queue.lock().unwrap().send(job).is_ok()))
}

#[test]
fn logins_that_wait_for_others_hold_no_thread() {
    let (server, wakers) = with_waiting_logins(PATIENCE);
    let mut waiting: Vec<_> = (0..50).map(|_| unauthenticated(server.address)).collect();
    for client in &mut waiting {
        client.send(&unix("alice"));
        client.send(&Raw::new(PING).stream(8));
    }
    until("all wait", || wakers.lock().unwrap().len() == 50);
    // A login of another user needs the only thread.
    let mut other = Client::greeted(server.address);
    other.call(&login_request().at(8, b"other\0"));
    assert_eq!(other.call(&unix("bob")).status, OK);
    let mut wakers = std::mem::take(&mut *wakers.lock().unwrap());
    // A client that has left is not missed.
    drop(waiting.remove(0));
    until("the end of its session", || server.door.sessions() == 50);
    wakers.drain(..).for_each(|wake| wake());
    for client in &mut waiting {
        let (auth, ping) = (client.reply(), client.reply());
        assert_eq!((auth.status, ping.stream, ping.status), (OK, 8, OK));
    }
}

#[test]
fn a_login_that_waits_for_others_ends_with_its_time_limit() {
    let (server, wakers) = with_waiting_logins(Duration::from_millis(50));
    let mut client = unauthenticated(server.address);
    client.send(&unix("alice"));
    client.is_closed();
    until("the end of the session", || server.door.sessions() == 0);
    wakers.lock().unwrap().drain(..).for_each(|wake| wake());
    assert_eq!(server.totals().logins, 0);
}

/// The pool serves owners in turn, so a host with many connections must be one owner.
#[test]
fn steps_of_all_clients_of_a_host_have_one_owner() {
    let (queue, owners) = mpsc::channel();
    let queue = Mutex::new(queue);
    let mut wish = guarded(slow_unix(), Vec::new());
    wish.config.login_pool = Some(LoginPool(Arc::new(move |owner, job| {
        queue.lock().unwrap().send(owner).unwrap();
        job();
        true
    })));
    let server = Server::with(wish);
    let mut clients = [unauthenticated(server.address), unauthenticated(server.address)];
    let found = clients.each_mut().map(|client| {
        assert_eq!(client.call(&unix("alice")).status, OK);
        owners.recv_timeout(PATIENCE).unwrap()
    });
    assert_eq!(found[0], found[1]);
    assert!(!found[0].is_server());
}

#[test]
fn the_name_of_a_host_is_looked_up_once_without_delaying_others() {
    let binding = |hosts: &str, protocols: &[&str]| AuthBinding {
        hosts: HostPattern::parse(hosts).unwrap(),
        protocols: protocols.iter().map(|id| (*id).to_owned()).collect(),
        only: true,
    };
    let bindings = vec![binding("*.trusted.org", &[]), binding("*", &["unix"])];
    let mut wish = guarded(Arc::new(UnixServer), bindings);
    let (asked, questions) = mpsc::channel();
    let asked = Mutex::new(asked);
    wish.config.peer_names = Some(PeerNames(Arc::new(move |_| {
        let (answer, name) = tokio::sync::oneshot::channel::<auth::HostName>();
        asked.lock().unwrap().send(answer).unwrap();
        Box::pin(async move { name.await.unwrap_or_default() })
    })));
    let server = Server::with(wish);
    let mut first = Client::greeted(server.address);
    first.send(&login_request());
    let first_answer = questions.recv_timeout(PATIENCE).unwrap();
    let mut second = Client::greeted(server.address);
    second.send(&login_request());
    let second_answer: tokio::sync::oneshot::Sender<_> = questions.recv_timeout(PATIENCE).unwrap();
    second_answer.send(auth::HostName::Unknown).unwrap();
    assert_eq!(second.reply().body[16..], *b"&P=unix");
    first_answer.send(auth::HostName::Known("a.Trusted.org".into())).unwrap();
    let reply = first.reply();
    assert_eq!((reply.status, reply.body.len()), (OK, 16));
    assert_eq!(first.call(&Raw::new(STAT).payload(b"/")).status, OK);
    assert!(questions.try_recv().is_err());
}
