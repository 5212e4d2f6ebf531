//! [`HttpFlow`]: the flow of data of one request that is reported with its experiment (`xrootd.pmark`).

use crate::reply::RequestReply;
use crate::service::{RequestContext, ServedConnection};
use hyper::Method;
use monitor::{FlowClient, FlowUsage, MarkedFlow};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The key and the header of the marks that a client names. The key counts first.
const TAG_KEY: &str = "scitag.flow";
const TAG_HEADER: &str = "scitag";
/// The key of the name of an application.
const APPLICATION_KEY: &str = "pmark.appname";
/// The authentication of clients of which only the host is known.
const UNAUTHENTICATED: &str = "host";

/// The socket of a connection whose flows can be reported.
pub(crate) struct FlowSocket {
    socket: OwnedFd,
    own: SocketAddr,
}

impl FlowSocket {
    /// Keeps the socket of a connection. Its end is sent by hyper, and does not wait for this copy.
    pub(crate) fn new(socket: &tokio::net::TcpStream) -> Option<Self> {
        let own = socket.local_addr().ok()?;
        Some(Self { socket: socket.as_fd().try_clone_to_owned().ok()?, own })
    }

    fn usage(&self) -> FlowUsage {
        let net::TcpUsage { received, sent, round_trip } = net::tcp_usage(self.socket.as_fd());
        FlowUsage { received, sent, round_trip }
    }
}

/// The flow of one request. It ends when it is dropped.
pub(crate) struct HttpFlow {
    flow: Option<MarkedFlow>,
    connection: Arc<ServedConnection>,
}

impl HttpFlow {
    /// Begins the flow of an upload, which is over when it has a reply.
    pub(crate) fn of_upload(context: &RequestContext) -> Option<Arc<Self>> {
        (context.head.method == Method::PUT).then(|| Self::begin(context)).flatten()
    }

    /// Begins the flow of a download, which is over when its reply was sent.
    pub(crate) fn of_download(context: &RequestContext, mut reply: RequestReply) -> RequestReply {
        if context.head.method == Method::GET
            && reply.status().is_success()
            && let Some(flow) = Self::begin(context)
        {
            reply.extensions_mut().insert(flow);
        }
        reply
    }

    /// Begins the flow of a download or an upload, if it is to be reported.
    fn begin(context: &RequestContext) -> Option<Arc<Self>> {
        let marker = context.shared().config.marker.as_ref()?;
        let is_upload = match context.head.method {
            Method::GET => false,
            Method::PUT => true,
            _ => return None,
        };
        let connection = &context.connection;
        let socket = connection.flow_socket.as_ref()?;
        let cgi = &context.target.cgi;
        let header = context.headers().get(TAG_HEADER).and_then(|value| value.to_str().ok()).map(str::trim);
        let entity = context.caller.entity().filter(|entity| &*entity.protocol != UNAUTHENTICATED);
        let kind = if is_upload { "http-put" } else { "http-get" };
        let client = FlowClient {
            tag: cgi.text(TAG_KEY).or(header),
            path: &context.target.path.text(),
            organizations: entity.and_then(|entity| entity.vorg.as_deref()),
            roles: entity.and_then(|entity| entity.role.as_deref()),
            user: entity.and_then(|entity| entity.name.as_deref()),
            host: context.caller.identity.host(),
            application: cgi.text(APPLICATION_KEY).or(Some(kind)),
            is_upload,
            addresses: (socket.own, connection.peer_address()),
        };
        let flow = marker.begin(&client, socket.usage())?;
        Some(Arc::new(Self { flow: Some(flow), connection: connection.clone() }))
    }
}

impl Drop for HttpFlow {
    fn drop(&mut self) {
        if let (Some(flow), Some(socket)) = (self.flow.take(), &self.connection.flow_socket) {
            flow.end(socket.usage());
        }
    }
}
