//! The servers that get a proxy of the user.
//!
//! A proxy is signed during the login, before the server can be asked anything. So a server is first
//! asked on a connection that delegates nothing whether it copies with delegated proxies. Managers on the
//! way to it, and servers that would not use the proxy, get none.

use std::borrow::Cow;

use bytes::Bytes;
use rawclient::Encoded;
use wire::xroot::FileHandle;
use wire::xroot::codes::QueryType;
use wire::xroot::request::{Query, Request};

use crate::channel::{BodyLimit, Channel, Deadlines, ReplySink, ServerReply};
use crate::client::Client;
use crate::credentials::CredentialChoice;
use crate::failure::Cause;
use crate::pool::ConnectionRequest;

/// The key of the configuration with the protocols of delegated credentials.
pub(crate) const DELEGATION_KEY: &str = "tpcdlg";
/// The protocol whose credentials are delegated.
const DELEGATED_PROTOCOL: &str = "gsi";

/// Reports whether a server that answers this for [`DELEGATION_KEY`] copies with delegated proxies.
pub(crate) fn takes_proxies(answer: &str) -> bool {
    answer.split([' ', ',', '\n', '\0']).any(|protocol| protocol.trim() == DELEGATED_PROTOCOL)
}

/// Returns the choice of credentials for a server: that of the request, without delegation if the
/// server would not use the proxy.
///
/// # Errors
/// The server cannot be reached.
pub(crate) async fn choice_for<'r>(
    client: &Client,
    wanted: ConnectionRequest<'r>,
    until: Deadlines,
) -> Result<Cow<'r, CredentialChoice>, Cause> {
    let choice = wanted.choice;
    if !choice.delegates() {
        return Ok(Cow::Borrowed(choice));
    }
    let plain = choice.without_delegation();
    let channel = client.pool().channel(ConnectionRequest { choice: &plain, ..wanted }).await?;
    let is_declared = declares_delegation(&channel, until).await;
    Ok(if is_declared { Cow::Borrowed(choice) } else { Cow::Owned(plain) })
}

async fn declares_delegation(channel: &Channel, until: Deadlines) -> bool {
    if channel.is_manager() {
        return false;
    }
    let (infotype, args) = (QueryType::CONFIG, [DELEGATION_KEY.as_bytes(), b"\0"].concat());
    let query = Query { infotype, fhandle: FileHandle::default(), args: &args };
    let request = Encoded::new(&Request::Query(query));
    // A server that cannot answer gets no proxy.
    match channel.call(request, Bytes::new(), ReplySink::Body(BodyLimit::ANSWER), until, None).await {
        Ok(ServerReply::Ok(content)) => takes_proxies(&String::from_utf8_lossy(&content.body)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_that_copy_with_proxies_get_one() {
        assert!(takes_proxies("gsi\n") && takes_proxies("ztn gsi\0") && takes_proxies("ztn,gsi"));
        assert!(!takes_proxies("tpcdlg\n") && !takes_proxies("") && !takes_proxies("gsi2"));
    }
}
