//! [`ReportSender`]: sends reports to one destination.

use config::ReportDestination;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Maximum size of a report, in bytes: that of the data of a datagram over IPv4.
pub const REPORT_BYTES_MAX: usize = 65_507;
/// Time for which the address of a host is used. A collector may move.
const ADDRESS_TIME: Duration = Duration::from_secs(600);

/// Sends reports to one destination. It is for a thread of its own, because look-ups of names block.
pub struct ReportSender {
    destination: ReportDestination,
    target: Option<(Target, Instant)>,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

enum Target {
    Udp(UdpSocket, SocketAddr),
    Unix(UnixDatagram),
}

impl ReportSender {
    /// Creates a sender. Nothing is looked up yet.
    pub fn new(destination: ReportDestination) -> Self {
        Self { destination, target: None, failure: None }
    }

    /// Sends a report. A failure is logged when it begins and when it ends, because reports may be lost anyway.
    pub fn send(&mut self, report: &[u8]) {
        self.deliver(report);
    }

    /// Sends a report as [`Self::send`] does. Returns `false` if it was lost.
    pub(crate) fn deliver(&mut self, report: &[u8]) -> bool {
        match self.try_send(report) {
            Ok(()) => {
                if self.failure.take().is_some() {
                    tracing::info!("monitoring: reports to {} are sent again", self.destination);
                }
                true
            }
            Err(error) => {
                // If the buffer of the socket is full, the address is as good as before.
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.target = None;
                }
                let text = error.to_string();
                if self.failure.as_ref() != Some(&text) {
                    tracing::warn!("monitoring: no report can be sent to {}: {text}", self.destination);
                    self.failure = Some(text);
                }
                false
            }
        }
    }

    /// Reports whether the destination must be looked up before the next report, which can block for long.
    pub(crate) fn needs_look_up(&self) -> bool {
        self.target.is_none()
    }

    fn try_send(&mut self, report: &[u8]) -> io::Result<()> {
        if report.len() > REPORT_BYTES_MAX {
            let text = format!(
                "the report has {} bytes, more than {REPORT_BYTES_MAX}; select fewer parts",
                report.len()
            );
            return Err(io::Error::other(text));
        }
        let is_current = self.target.as_ref().is_some_and(|(_, found)| found.elapsed() < ADDRESS_TIME);
        if !is_current {
            self.target = Some((Target::find(&self.destination)?, Instant::now()));
        }
        match (&self.target, &self.destination) {
            (Some((Target::Udp(socket, address), _)), _) => socket.send_to(report, address)?,
            (Some((Target::Unix(socket), _)), ReportDestination::Socket(path)) => {
                socket.send_to(report, path)?
            }
            _ => 0,
        };
        Ok(())
    }
}

impl Target {
    fn find(destination: &ReportDestination) -> io::Result<Self> {
        match destination {
            ReportDestination::Socket(_) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                Ok(Self::Unix(socket))
            }
            ReportDestination::Host { host, port } => {
                let address = (host.as_str(), *port).to_socket_addrs()?.next();
                let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                // A full buffer loses the report instead of delaying the others.
                socket.set_nonblocking(true)?;
                Ok(Self::Udp(socket, address))
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
