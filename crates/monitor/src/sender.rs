//! [`ReportSender`]: sends reports to one destination.

use config::ReportDestination;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Maximum size of a report, in bytes: that of the data of a datagram over IPv4.
pub const REPORT_BYTES_MAX: usize = 65_507;
/// Time for which the addresses of a host are used. A collector may move.
const ADDRESS_TIME: Duration = Duration::from_secs(600);

/// Returns the addresses of a host and a port.
pub(crate) type LookUp = Box<dyn FnMut(&str, u16) -> io::Result<Vec<SocketAddr>> + Send>;

/// Sends reports to one destination. It is for a thread of its own, because look-ups of names block.
pub struct ReportSender {
    destination: ReportDestination,
    sockets: Sockets,
    addresses: Addresses,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

/// The sockets, which stay for the life of the sender: to collectors the source port is part of the name of a server.
#[derive(Default)]
struct Sockets {
    /// Time for which a send waits for room in the buffer; `None` if it does not wait.
    patience: Option<Duration>,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    local: Option<UnixDatagram>,
}

/// The addresses of a host.
struct Addresses {
    look_up: LookUp,
    /// The addresses, the one in use first.
    known: Vec<SocketAddr>,
    /// Time of the last look-up; `None` if the next report needs one.
    looked_up: Option<Instant>,
}

impl ReportSender {
    /// Creates a sender. Nothing is looked up yet. A full buffer of the socket loses reports.
    pub fn new(destination: ReportDestination) -> Self {
        let look_up = |host: &str, port: u16| Ok((host, port).to_socket_addrs()?.collect());
        let addresses = Addresses { look_up: Box::new(look_up), known: Vec::new(), looked_up: None };
        Self { destination, sockets: Sockets::default(), addresses, failure: None }
    }

    /// Waits for room in the buffer of the socket, at most for this time.
    pub(crate) fn waiting(mut self, patience: Duration) -> Self {
        self.sockets.patience = Some(patience);
        self
    }

    /// Uses another look-up of names.
    #[cfg(test)]
    pub(crate) fn look_up_by(&mut self, look_up: LookUp) {
        self.addresses.look_up = look_up;
    }

    /// Sends a report. A failure is logged when it begins and when it ends, because reports may be lost anyway.
    pub fn send(&mut self, report: &[u8]) {
        match self.try_send(report) {
            Ok(()) if self.failure.take().is_some() => {
                tracing::info!("monitoring: reports to {} are sent again", self.destination);
            }
            Ok(()) => {}
            Err(error) => {
                let text = error.to_string();
                if self.failure.as_ref() != Some(&text) {
                    tracing::warn!("monitoring: no report can be sent to {}: {text}", self.destination);
                    self.failure = Some(text);
                }
            }
        }
    }

    /// Reports whether the destination must be looked up before the next report, which can block for long.
    pub(crate) fn needs_look_up(&self) -> bool {
        matches!(self.destination, ReportDestination::Host { .. }) && self.addresses.looked_up.is_none()
    }

    /// Sends a report.
    ///
    /// # Errors
    /// The report is lost. The kind is `WouldBlock` if the buffer of the socket is full.
    pub(crate) fn try_send(&mut self, report: &[u8]) -> io::Result<()> {
        if report.len() > REPORT_BYTES_MAX {
            let text = format!(
                "the report has {} bytes, more than {REPORT_BYTES_MAX}; select fewer parts",
                report.len()
            );
            return Err(io::Error::other(text));
        }
        match &self.destination {
            ReportDestination::Socket(path) => self.sockets.local()?.send_to(report, path).map(drop),
            ReportDestination::Host { host, port } => {
                self.addresses.renew(host, *port, Instant::now())?;
                self.addresses.send(&mut self.sockets, report)
            }
        }
    }
}

impl Addresses {
    /// Looks the host up if it is time. If that fails, known addresses stay.
    fn renew(&mut self, host: &str, port: u16, now: Instant) -> io::Result<()> {
        if self.looked_up.is_some_and(|at| now.saturating_duration_since(at) < ADDRESS_TIME) {
            return Ok(());
        }
        let found = match (self.look_up)(host, port) {
            Ok(found) if found.is_empty() => Err(io::Error::other("the name has no address")),
            other => other,
        };
        match found {
            Ok(mut found) => {
                // The one in use stays in use, if it is still an address of the host.
                if let Some(place) = found.iter().position(|address| self.known.first() == Some(address)) {
                    found.swap(0, place);
                }
                self.known = found;
            }
            Err(error) if self.known.is_empty() => return Err(error),
            Err(_) => {}
        }
        self.looked_up = Some(Instant::now());
        Ok(())
    }

    /// Sends to the first address that the system accepts.
    fn send(&mut self, sockets: &mut Sockets, report: &[u8]) -> io::Result<()> {
        let mut last = io::Error::other("the name has no address");
        for place in 0..self.known.len() {
            let Some(&address) = self.known.get(place) else { break };
            match sockets.udp(address).and_then(|socket| socket.send_to(report, address)) {
                Ok(_) => {
                    self.known.swap(0, place);
                    return Ok(());
                }
                // The address is as good as before.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) => last = error,
            }
        }
        self.looked_up = None;
        Err(last)
    }
}

impl Sockets {
    /// Returns the socket for addresses of this family.
    fn udp(&mut self, address: SocketAddr) -> io::Result<&UdpSocket> {
        let (socket, any): (_, SocketAddr) = match address {
            SocketAddr::V4(_) => (&mut self.v4, (Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => (&mut self.v6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        match socket {
            Some(socket) => Ok(socket),
            socket => {
                let new = UdpSocket::bind(any)?;
                match self.patience {
                    Some(patience) => new.set_write_timeout(Some(patience))?,
                    // A full buffer loses the report instead of delaying the others.
                    None => new.set_nonblocking(true)?,
                }
                Ok(socket.insert(new))
            }
        }
    }

    fn local(&mut self) -> io::Result<&UnixDatagram> {
        match &mut self.local {
            Some(socket) => Ok(socket),
            socket => {
                let new = UnixDatagram::unbound()?;
                new.set_nonblocking(true)?;
                Ok(socket.insert(new))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_arrive_whole_at_hosts_and_sockets() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let directory = std::env::temp_dir().join(format!("scalla-monitor-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("reports");
        let unix = UnixDatagram::bind(&path).unwrap();
        let report = vec![b'x'; 40_000];
        let mut bytes = vec![0; 65_536];
        for destination in [udp.local_addr().unwrap().to_string(), path.display().to_string()] {
            let mut sender = ReportSender::new(destination.parse().unwrap());
            sender.send(&report);
            sender.send(&vec![0; REPORT_BYTES_MAX + 1]);
            sender.send(b"end");
            let mut receive = || match destination.starts_with('/') {
                true => unix.recv(&mut bytes).unwrap(),
                false => udp.recv(&mut bytes).unwrap(),
            };
            assert_eq!((receive(), receive()), (report.len(), 3));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// A collector, and a sender whose name has these addresses, one list for each look-up.
    fn named(answers: Vec<io::Result<Vec<SocketAddr>>>) -> ReportSender {
        let mut answers = answers.into_iter();
        let mut sender = ReportSender::new("collector.example.org:9".parse().unwrap());
        sender.addresses.look_up =
            Box::new(move |_, _| answers.next().unwrap_or_else(|| Err(io::Error::other("no answer left"))));
        sender
    }

    fn collector() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    /// Sends as if the addresses had expired.
    fn send_late(sender: &mut ReportSender) -> io::Result<()> {
        let look_up = sender.addresses.looked_up.map(|at| at.checked_sub(ADDRESS_TIME));
        sender.addresses.looked_up = look_up.flatten();
        sender.try_send(b"x")
    }

    #[test]
    fn the_source_port_stays() {
        let ((first, address), (second, moved)) = (collector(), collector());
        let mut sender = named(vec![Ok(vec![address]), Ok(vec![address]), Ok(vec![moved])]);
        let mut ports = Vec::new();
        for collector in [&first, &first, &second] {
            send_late(&mut sender).unwrap();
            ports.push(collector.recv_from(&mut [0; 9]).unwrap().1.port());
        }
        // Also after failures.
        sender.try_send(&vec![0; REPORT_BYTES_MAX + 1]).unwrap_err();
        sender.try_send(b"x").unwrap();
        ports.push(second.recv_from(&mut [0; 9]).unwrap().1.port());
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    }

    #[test]
    fn known_addresses_stay_while_names_cannot_be_looked_up() {
        let (collector, address) = collector();
        let failure = || Err(io::Error::other("no name server"));
        let mut sender = named(vec![failure(), Ok(vec![address]), failure(), Ok(Vec::new())]);
        assert_eq!(sender.try_send(b"x").unwrap_err().to_string(), "no name server");
        assert!(sender.needs_look_up());
        for _ in 0..3 {
            send_late(&mut sender).unwrap();
            assert!(!sender.needs_look_up());
            assert_eq!(collector.recv(&mut [0; 9]).unwrap(), 1);
        }
    }

    #[test]
    fn an_address_that_the_system_refuses_is_followed_by_the_next_one() {
        let (collector, address) = collector();
        // No datagram can be sent to port 0.
        let refused: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let mut sender = named(vec![Ok(vec![refused, address]), Ok(vec![refused, address])]);
        for _ in 0..2 {
            send_late(&mut sender).unwrap();
            assert_eq!(collector.recv(&mut [0; 9]).unwrap(), 1);
            assert_eq!(sender.addresses.known[0], address);
        }
        let mut sender = named(vec![Ok(vec![refused]), Ok(vec![address])]);
        sender.try_send(b"x").unwrap_err();
        assert!(sender.needs_look_up());
        sender.try_send(b"x").unwrap();
    }

    #[test]
    fn a_collector_that_comes_back_gets_reports_again() {
        let directory = std::env::temp_dir().join(format!("scalla-monitor-back-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("reports");
        let mut sender = ReportSender::new(ReportDestination::Socket(path.clone()));
        sender.send(b"lost");
        assert!(sender.failure.is_some());
        let unix = UnixDatagram::bind(&path).unwrap();
        sender.send(b"found");
        assert!(sender.failure.is_none());
        assert_eq!(unix.recv(&mut [0; 100]).unwrap(), 5);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
