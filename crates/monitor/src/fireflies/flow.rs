//! [`MarkedFlow`]: the flow of data of one client, and the reports about it.

use super::rules::{MarkRules, Marks};
use super::sender::{Firefly, FireflySender};
use crate::gstreams::time;
use base::AddressClass;
use config::{MarkedDomain, PacketMarking};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Number of reports that wait to be sent. Further ones are lost.
const QUEUE_REPORTS_MAX: usize = 1024;
/// Maximum length of the name of an application in bytes.
const APPLICATION_BYTES_MAX: usize = 128;

/// The bytes that a connection has transferred, and its round trip, from the system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowUsage {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent that the client has acknowledged.
    pub sent: u64,
    /// Time of a round trip.
    pub round_trip: Duration,
}

/// The client of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowClient<'a> {
    /// The marks that it names (`scitag.flow`).
    pub tag: Option<&'a str>,
    /// The path of the file.
    pub path: &'a str,
    /// Its organizations.
    pub organizations: Option<&'a str>,
    /// Its roles.
    pub roles: Option<&'a str>,
    /// Its name.
    pub user: Option<&'a str>,
    /// Name or address of its host.
    pub host: &'a str,
    /// Its application, if it is known.
    pub application: Option<&'a str>,
    /// The own address of the connection, and that of the client.
    pub addresses: (SocketAddr, SocketAddr),
}

/// Decides which flows are reported.
pub struct FlowMarker {
    rules: MarkRules,
    domain: MarkedDomain,
    echo: Option<Duration>,
    origin_port: Option<u16>,
    host: String,
    reports: SyncSender<Firefly>,
    lost: Arc<AtomicU64>,
}

impl std::fmt::Debug for FlowMarker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FlowMarker")
    }
}

impl FlowMarker {
    /// Creates the marker of a server with this name, and the sender of its reports, which needs a thread.
    #[must_use]
    pub fn new(settings: &PacketMarking, rules: MarkRules, host: &str) -> (Arc<Self>, FireflySender) {
        let (reports, received) = sync_channel(QUEUE_REPORTS_MAX);
        let lost = Arc::<AtomicU64>::default();
        let sender = FireflySender::new(settings.collector.clone(), received, lost.clone());
        let marker = Self {
            rules,
            domain: settings.domain,
            echo: settings.echo,
            origin_port: settings.origin_port,
            host: host.to_owned(),
            reports,
            lost,
        };
        (Arc::new(marker), sender)
    }

    /// Begins a flow, if it is to be reported.
    pub fn begin(self: &Arc<Self>, client: &FlowClient<'_>, usage: FlowUsage) -> Option<MarkedFlow> {
        let (own, peer) = client.addresses;
        let is_local = self.is_local(peer.ip(), client.host);
        let is_wanted = match self.domain {
            MarkedDomain::Any => true,
            MarkedDomain::Local => is_local,
            MarkedDomain::Remote => !is_local,
        };
        let user = (client.organizations, client.roles, client.user);
        let marks = self.rules.marks(client.tag, client.path, user).filter(|_| is_wanted)?;
        let application = client.application.filter(|name| !name.is_empty()).map(|name| {
            let end = name.floor_char_boundary(APPLICATION_BYTES_MAX);
            Value::from(name.get(..end).unwrap_or_default()).to_string()
        });
        let flow = MarkedFlow {
            marker: self.clone(),
            marks,
            application,
            own,
            peer,
            begun: SystemTime::now(),
            echoed: Instant::now(),
        };
        flow.report("start", usage, flow.begun, None);
        Some(flow)
    }

    /// Reports whether a client is of this site: by its address, or by the domain of its name.
    fn is_local(&self, address: IpAddr, host: &str) -> bool {
        let class = AddressClass::of(address);
        let domain = self.host.split_once('.').map(|(_, domain)| domain);
        let same = |domain: &str| host.split_once('.').is_some_and(|(_, of)| of.eq_ignore_ascii_case(domain));
        matches!(class, AddressClass::Loopback | AddressClass::LinkLocal | AddressClass::Private(_))
            || (host.parse::<IpAddr>().is_err() && domain.is_some_and(same))
    }
}

/// A flow that is reported.
#[derive(Debug)]
pub struct MarkedFlow {
    marker: Arc<FlowMarker>,
    marks: Marks,
    /// The application as a JSON string.
    application: Option<String>,
    own: SocketAddr,
    peer: SocketAddr,
    begun: SystemTime,
    /// The time of the last report.
    echoed: Instant,
}

impl MarkedFlow {
    /// Reports the flow that goes on, if that is configured and due. Only then are the time and the usage looked up.
    pub fn echo_if_due(&mut self, now: impl FnOnce() -> Instant, usage: impl FnOnce() -> FlowUsage) {
        let Some(echo) = self.marker.echo else { return };
        let now = now();
        if now.saturating_duration_since(self.echoed) >= echo {
            self.echoed = now;
            self.report("ongoing", usage(), SystemTime::now(), None);
        }
    }

    /// Reports the end of the flow.
    pub fn end(self, usage: FlowUsage) {
        let now = SystemTime::now();
        self.report("end", usage, now, Some(now));
    }

    fn report(&self, state: &str, usage: FlowUsage, now: SystemTime, ended: Option<SystemTime>) {
        let report = Firefly {
            text: self.text(state, usage, now, ended),
            origin: self.marker.origin_port.map(|port| SocketAddr::new(self.peer.ip(), port)),
        };
        if self.marker.reports.try_send(report).is_err() {
            self.marker.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn text(&self, state: &str, usage: FlowUsage, now: SystemTime, ended: Option<SystemTime>) -> String {
        let (now, begun) = (zoned(now), zoned(self.begun));
        let ended = ended.map(|ended| format!(",\"end-time\":\"{}\"", zoned(ended))).unwrap_or_default();
        let FlowUsage { received, sent, round_trip } = usage;
        let micros = round_trip.as_micros();
        let (milliseconds, rest) = (micros / 1000, micros % 1000);
        let (experiment, activity) = self.marks;
        let application =
            self.application.as_ref().map(|name| format!(",\"application\":{name}")).unwrap_or_default();
        let (source, destination) = (self.own.ip().to_canonical(), self.peer.ip().to_canonical());
        let family = if destination.is_ipv6() { "ipv6" } else { "ipv4" };
        let (source_port, destination_port) = (self.own.port(), self.peer.port());
        format!(
            "<134>1 - {} xrootd - firefly-json - {{\"version\":1,\"flow-lifecycle\":{{\"state\":\"{state}\",\
             \"current-time\":\"{now}\",\"start-time\":\"{begun}\"{ended}}},\
             \"usage\":{{\"received\":{received},\"sent\":{sent}}},\"netlink\":{{\"rtt\":{milliseconds}.{rest:03}}},\
             \"context\":{{\"experiment-id\":{experiment},\"activity-id\":{activity}{application}}},\
             \"flow-id\":{{\"afi\":\"{family}\",\"src-ip\":\"{source}\",\"dst-ip\":\"{destination}\",\"protocol\":\"tcp\",\
             \"src-port\":{source_port},\"dst-port\":{destination_port}}}}}",
            self.marker.host
        )
    }
}

/// Returns a time as `2026-11-30T12:22:19.065515+00:00`.
fn zoned(at: SystemTime) -> String {
    let text = time(at);
    format!("{}+00:00", text.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(domain: MarkedDomain, host: &str) -> (Arc<FlowMarker>, FireflySender) {
        let settings =
            PacketMarking { domain, echo: Some(Duration::from_secs(30)), ..PacketMarking::default() };
        let rules = MarkRules::new(&settings, None).unwrap();
        FlowMarker::new(&settings, rules, host)
    }

    fn client(address: &'static str) -> FlowClient<'static> {
        FlowClient {
            tag: Some("133"),
            path: "/f",
            organizations: None,
            roles: None,
            user: None,
            host: "h.example.org",
            application: Some("xrdcp"),
            addresses: ("[::ffff:127.0.0.1]:18481".parse().unwrap(), address.parse().unwrap()),
        }
    }

    /// A report of XRootD 5.5.3, with these times.
    #[test]
    fn a_report_has_the_recorded_form() {
        let (marker, _sender) = marker(MarkedDomain::Any, "vm");
        let mut flow =
            marker.begin(&client("[::ffff:127.0.0.1]:56794"), FlowUsage::default()).expect("a flow");
        flow.begun = SystemTime::UNIX_EPOCH + Duration::from_micros(1_796_041_339_065_515);
        let usage = FlowUsage { received: 237, sent: 500_689, round_trip: Duration::from_micros(274) };
        let end = flow.begun + Duration::from_micros(4881);
        let expected = r#"<134>1 - vm xrootd - firefly-json - {"version":1,"flow-lifecycle":{"state":"end","current-time":"2026-11-30T12:22:19.070396+00:00","start-time":"2026-11-30T12:22:19.065515+00:00","end-time":"2026-11-30T12:22:19.070396+00:00"},"usage":{"received":237,"sent":500689},"netlink":{"rtt":0.274},"context":{"experiment-id":2,"activity-id":5,"application":"xrdcp"},"flow-id":{"afi":"ipv4","src-ip":"127.0.0.1","dst-ip":"127.0.0.1","protocol":"tcp","src-port":18481,"dst-port":56794}}"#;
        assert_eq!(flow.text("end", usage, end, Some(end)), expected);
        let other = client("[2001:db8::7]:5");
        let text = marker.begin(&other, usage).expect("a flow").text("end", usage, end, None);
        let ends = r#""afi":"ipv6","src-ip":"127.0.0.1","dst-ip":"2001:db8::7","protocol":"tcp","src-port":18481,"dst-port":5"#;
        assert!(text.contains(ends), "{text}");
    }

    #[test]
    fn flows_are_those_of_the_domain_with_marks() {
        for (domain, host, address, is_marked) in [
            (MarkedDomain::Any, "vm", "127.0.0.1:1", true),
            (MarkedDomain::Remote, "vm", "127.0.0.1:1", false),
            (MarkedDomain::Remote, "vm", "192.168.1.1:1", false),
            (MarkedDomain::Remote, "vm", "192.0.2.1:1", true),
            (MarkedDomain::Local, "vm", "192.0.2.1:1", false),
            (MarkedDomain::Local, "s.example.org", "192.0.2.1:1", true),
            (MarkedDomain::Remote, "s.example.org", "[2001:db8::1]:1", false),
        ] {
            let (marker, _sender) = marker(domain, host);
            let flow = marker.begin(&client(address), FlowUsage::default());
            assert_eq!(flow.is_some(), is_marked, "{domain:?} {host} {address}");
            let unmarked = FlowClient { tag: None, ..client(address) };
            assert!(marker.begin(&unmarked, FlowUsage::default()).is_none());
        }
    }

    #[test]
    fn a_flow_that_goes_on_is_reported_at_intervals() {
        let (marker, sender) = marker(MarkedDomain::Any, "vm");
        let mut flow = marker.begin(&client("127.0.0.1:1"), FlowUsage::default()).expect("a flow");
        let now = Instant::now();
        for seconds in [0, 31, 60] {
            flow.echo_if_due(|| now + Duration::from_secs(seconds), FlowUsage::default);
        }
        flow.end(FlowUsage::default());
        let states: Vec<_> = sender
            .waiting()
            .iter()
            .map(|text| {
                let json = text.split_once(" - {").map(|(_, json)| format!("{{{json}")).unwrap();
                let found: Value = serde_json::from_str(&json).unwrap();
                found["flow-lifecycle"]["state"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(states, ["start", "ongoing", "end"]);
    }

    #[test]
    fn reports_that_cannot_be_sent_are_lost() {
        let (marker, sender) = marker(MarkedDomain::Any, "vm");
        for _ in 0..QUEUE_REPORTS_MAX {
            let hostile = FlowClient { application: Some("a\"b\n"), ..client("127.0.0.1:1") };
            marker.begin(&hostile, FlowUsage::default()).expect("a flow").end(FlowUsage::default());
        }
        assert_eq!(marker.lost.load(Ordering::Relaxed), QUEUE_REPORTS_MAX as u64);
        assert_eq!(sender.waiting().len(), QUEUE_REPORTS_MAX);
    }
}
