//! Looks up names of hosts because a client asked for it.
//!
//! A look-up occupies a thread until the name service has answered or given up, which may take a minute. A client that
//! cancels its copy does not end the look-up. So the number of look-ups is limited for each client host and for all, and
//! the thread itself holds the place until it is free again: cancelling gains nothing.

use base::{ClientHost, Owner};
use client::{Resolver, Resolving};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::Pool;
use tokio::sync::oneshot;

/// Look-ups for one client host that have not ended.
pub(crate) const LOOK_UPS_PER_HOST_MAX: usize = 16;
/// Look-ups for all clients that have not ended. Each has a thread, which begins when it is needed.
pub(crate) const LOOK_UPS_MAX: usize = 128;

/// Returns the addresses of a host with this port. May block.
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The look-ups of a server.
#[derive(Clone)]
pub(crate) struct LookUps(Arc<Inner>);

struct Inner {
    resolve: Box<Resolve>,
    running: Mutex<Running>,
    threads: Arc<Pool>,
}

/// Numbers of look-ups that have not ended.
#[derive(Default)]
struct Running {
    all: usize,
    by_host: HashMap<ClientHost, usize>,
}

impl Default for LookUps {
    /// Asks the system's name service.
    fn default() -> Self {
        Self::new(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }
}

impl LookUps {
    pub(crate) fn new(
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let threads = Pool::new("source-names", LOOK_UPS_MAX);
        Self(Arc::new(Inner { resolve: Box::new(resolve), running: Mutex::default(), threads }))
    }

    /// Returns the addresses of a host with this port. The error says why there are none, or that too many look-ups
    /// for this client, or for all clients, have not ended.
    pub(crate) async fn resolve(
        &self,
        client: Option<IpAddr>,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, String> {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let place = self.take_place(client)?;
        let host = host.to_owned();
        let (answer, answered) = oneshot::channel();
        // The thread keeps the place, whether or not anybody still waits for the answer.
        let look_up = move || drop(answer.send((place.look_ups.0.resolve)(&host, port)));
        // Every look-up is its own owner, because the shares are those of client hosts. Dropped, a job answers.
        drop(self.0.threads.run(Owner::unique(), Box::new(look_up)));
        let found = answered.await.map_err(|_| "the look-up broke off".to_owned())?;
        found.map_err(|error| error.to_string())
    }

    fn take_place(&self, client: Option<IpAddr>) -> Result<Place, String> {
        let host = ClientHost::from(client);
        let refused = |max: usize, whose: &str| {
            Err(format!(
                "its name was not looked up, because {max} look-ups {whose} have not ended; try again later"
            ))
        };
        let mut running = self.running();
        let of_host = running.by_host.get(&host).copied().unwrap_or_default();
        if of_host >= LOOK_UPS_PER_HOST_MAX {
            return refused(LOOK_UPS_PER_HOST_MAX, "for this client");
        }
        if running.all >= LOOK_UPS_MAX {
            return refused(LOOK_UPS_MAX, "for clients of this server");
        }
        running.all += 1;
        running.by_host.insert(host, of_host + 1);
        drop(running);
        Ok(Place { look_ups: self.clone(), host })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the resolver for what this client asks for.
    pub(crate) fn for_client(&self, client: Option<IpAddr>) -> Arc<dyn Resolver> {
        Arc::new(ClientLookUps { look_ups: self.clone(), client })
    }
}

/// The place of one look-up, until this is dropped.
struct Place {
    look_ups: LookUps,
    host: ClientHost,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.look_ups.running();
        running.all = running.all.saturating_sub(1);
        match running.by_host.get_mut(&self.host) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(running.by_host.remove(&self.host)),
        }
    }
}

/// The look-ups for one client.
struct ClientLookUps {
    look_ups: LookUps,
    client: Option<IpAddr>,
}

impl Resolver for ClientLookUps {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let (look_ups, client, host) = (self.look_ups.clone(), self.client, host.to_owned());
        Box::pin(async move { look_ups.resolve(client, &host, port).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::runtime::{Builder, Runtime};

    /// A name service that answers for names that begin with `slow` only after it was opened.
    #[derive(Default)]
    struct Service {
        open: Mutex<bool>,
        opened: Condvar,
        asked: AtomicUsize,
    }

    impl Service {
        fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            if host.starts_with("slow") {
                self.asked.fetch_add(1, Ordering::SeqCst);
                drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
            }
            Ok(vec![SocketAddr::new(IpAddr::from([192, 0, 2, 1]), port)])
        }

        fn open(&self) {
            *self.open.lock().unwrap() = true;
            self.opened.notify_all();
        }
    }

    fn start() -> (Arc<Service>, LookUps, Runtime) {
        let service = Arc::new(Service::default());
        let inside = service.clone();
        let look_ups = LookUps::new(move |host, port| inside.resolve(host, port));
        (service, look_ups, Builder::new_current_thread().build().unwrap())
    }

    fn client(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Begins a look-up of a slow name and cancels it at once. Returns the error of one that did not begin.
    async fn cancelled(look_ups: &LookUps, from: &str) -> Option<String> {
        tokio::select! {
            biased;
            result = look_ups.resolve(client(from), "slow.example.org", 1094) => Some(result.unwrap_err()),
            () = std::future::ready(()) => None,
        }
    }

    #[test]
    fn cancelled_look_ups_of_one_host_leave_those_of_others() {
        let (service, look_ups, runtime) = start();
        runtime.block_on(async {
            let mut refused = Vec::new();
            for _ in 0..1000 {
                refused.extend(cancelled(&look_ups, "198.51.100.1").await);
            }
            assert_eq!(refused.len(), 1000 - LOOK_UPS_PER_HOST_MAX);
            assert_eq!(
                refused[0],
                "its name was not looked up, because 16 look-ups for this client have not ended; try again later"
            );
            let found = look_ups.resolve(client("198.51.100.2"), "fast.example.org", 1094).await;
            assert_eq!(found.unwrap(), ["192.0.2.1:1094".parse().unwrap()]);
            // An address takes no thread, so it has no limit.
            for literal in ["192.0.2.9", "2001:db8::9", "[2001:db8::9]"] {
                let found = look_ups.resolve(client("198.51.100.1"), literal, 1).await.unwrap();
                assert_eq!(found[0].ip(), literal.trim_matches(['[', ']']).parse::<IpAddr>().unwrap());
            }
            service.open();
        });
        // The threads give their places back.
        while look_ups.running().all > 0 {
            std::thread::yield_now();
        }
        assert_eq!(service.asked.load(Ordering::SeqCst), LOOK_UPS_PER_HOST_MAX);
        assert!(look_ups.running().by_host.is_empty());
        let again = look_ups.resolve(client("198.51.100.1"), "slow.example.org", 1094);
        assert!(runtime.block_on(again).is_ok());
    }

    #[test]
    fn look_ups_of_all_hosts_have_a_limit() {
        let (service, look_ups, runtime) = start();
        runtime.block_on(async {
            for host in 0..LOOK_UPS_MAX / LOOK_UPS_PER_HOST_MAX {
                for _ in 0..LOOK_UPS_PER_HOST_MAX {
                    assert_eq!(cancelled(&look_ups, &format!("198.51.100.{host}")).await, None);
                }
            }
            let refused = cancelled(&look_ups, "203.0.113.1").await.unwrap();
            assert!(refused.contains("128 look-ups for clients of this server"), "{refused}");
            service.open();
        });
    }

    #[test]
    fn a_host_with_many_addresses_is_one_host() {
        let (service, look_ups, runtime) = start();
        runtime.block_on(async {
            for number in 0..LOOK_UPS_PER_HOST_MAX {
                assert_eq!(cancelled(&look_ups, &format!("2001:db8::{number:x}")).await, None);
            }
            assert!(cancelled(&look_ups, "2001:db8::ffff").await.is_some());
            assert_eq!(cancelled(&look_ups, "2001:db8:0:1::1").await, None);
            assert_eq!(cancelled(&look_ups, "::ffff:198.51.100.1").await, None);
            service.open();
        });
    }
}
