//! [`SessionFlow`]: the flow of data of a session that is reported with its experiment (`xrootd.pmark`).
//!
//! It begins when the first file is open, and ends with the control connection. Sessions of servers without such
//! reports do not have one.

use monitor::{FlowClient, FlowMarker, FlowUsage, MarkedFlow};
use net::Socket;
use session::CallId;
use std::sync::Arc;
use std::time::Instant;
use vfs::{Answer, Caller, Operation, Value};

/// The key of the marks that a client names.
const TAG_KEY: &str = "scitag.flow";
/// The key of the name of an application, which replaces that of the login.
const APPLICATION_KEY: &str = "pmark.appname";
/// The authentication of clients of which only the host is known.
const UNAUTHENTICATED: &str = "host";
/// Opens without an answer that can begin a flow. Others cannot.
const PENDING_MAX: usize = 16;

/// The flow of a session.
#[derive(Default)]
pub(super) struct SessionFlow {
    /// Opens without an answer: each with its path, its marks and its application.
    pending: Vec<(CallId, String, Option<String>, Option<String>)>,
    /// The open that begins the flow with the next turn of the connection.
    ready: Option<(String, Option<String>, Option<String>)>,
    /// The flow was begun, or is not to be reported.
    is_decided: bool,
    flow: Option<MarkedFlow>,
}

impl SessionFlow {
    /// Keeps the path, the marks and the application of an open until [`SessionFlow::answered`].
    pub(super) fn note_request(&mut self, call: CallId, operation: &Operation) {
        let Operation::Open(target, _) = operation else { return };
        if self.is_decided || self.ready.is_some() || self.pending.len() >= PENDING_MAX {
            return;
        }
        let value = |key| target.cgi.text(key).map(str::to_owned);
        let path = target.path.text().into_owned();
        self.pending.push((call, path, value(TAG_KEY), value(APPLICATION_KEY)));
    }

    /// Takes the answer to a request.
    pub(super) fn answered(&mut self, call: CallId, answer: &Answer) {
        let Some(place) = self.pending.iter().position(|(known, ..)| *known == call) else { return };
        let (_, path, tag, application) = self.pending.swap_remove(place);
        if matches!(answer, Answer::Value(Value::Opened(_))) && !self.is_decided && self.ready.is_none() {
            self.pending = Vec::new();
            self.ready = Some((path, tag, application));
        }
    }

    /// Begins the flow if it is time, and reports it if it goes on.
    pub(super) fn advance(&mut self, marker: &Arc<FlowMarker>, caller: &Caller, socket: &Socket) {
        if let Some((path, tag, application)) = self.ready.take() {
            self.is_decided = true;
            self.flow = begin(marker, caller, socket, (&path, tag.as_deref(), application.as_deref()));
            return;
        }
        if let Some(flow) = &mut self.flow {
            flow.echo_if_due(Instant::now, || usage(socket));
        }
    }

    /// Ends the flow.
    pub(super) fn end(&mut self, socket: &Socket) {
        if let Some(flow) = self.flow.take() {
            flow.end(usage(socket));
        }
    }
}

fn begin(
    marker: &Arc<FlowMarker>,
    caller: &Caller,
    socket: &Socket,
    (path, tag, application): (&str, Option<&str>, Option<&str>),
) -> Option<MarkedFlow> {
    let addresses = net::connection_addresses(socket.descriptor())?;
    let entity = caller.entity().filter(|entity| &*entity.protocol != UNAUTHENTICATED);
    let client = FlowClient {
        tag,
        path,
        organizations: entity.and_then(|entity| entity.vorg.as_deref()),
        roles: entity.and_then(|entity| entity.role.as_deref()),
        user: entity.and_then(|entity| entity.name.as_deref()),
        host: caller.identity.host(),
        application: application.or(Some(caller.identity.application())),
        addresses,
    };
    marker.begin(&client, usage(socket))
}

fn usage(socket: &Socket) -> FlowUsage {
    let net::TcpUsage { received, sent, round_trip } = net::tcp_usage(socket.descriptor());
    FlowUsage { received, sent, round_trip }
}
