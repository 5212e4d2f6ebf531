//! The authentication of a peer that connects to the cluster port: a state machine without I/O.
//!
//! The login of the peer is held back until its credentials are accepted, so the tree and the
//! drivers never see a peer that has no key. Source: cms protocol 3, authentication.

use auth::sss::SSS;
use auth::{ServerLogin, ServerStep};
use cluster::tree::{LoginMessage, NodeMessage, from_frame};
use std::fmt;
use std::time::SystemTime;
use wire::cms::Message as Wire;

/// Maximum number of bytes of a foreign protocol name in a reason.
const PROTOCOL_SHOWN_MAX: usize = 16;

/// The progress of a peer's authentication.
pub(super) enum NodeAuthentication {
    /// The peer is authenticated, or need not be.
    Over,
    /// The peer must send its login, and then credentials for the exchange.
    Required(Box<dyn ServerLogin>),
    /// The credentials for this login are expected.
    Pending(Box<dyn ServerLogin>, Box<LoginMessage>),
    /// The peer was refused, or a step did not end. No further frame passes.
    Failed,
}

/// The next step after a frame of the peer.
pub(super) enum NodeAuthenticationStep {
    /// The peer must be asked for credentials, with the list of protocols.
    Ask,
    /// The peer must continue after these bytes.
    Send(Vec<u8>),
    /// The peer is authenticated; this is its login.
    Accept(Box<LoginMessage>),
    /// The peer must be refused.
    Refuse(AuthenticationRefusal),
}

/// The reason why a peer is not authenticated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AuthenticationRefusal {
    /// It begins with another message.
    NoLogin,
    /// It answers with another message, as programs do that cannot authenticate.
    NoCredentials,
    /// It closed the connection instead of an answer.
    Left,
    /// It did not answer.
    Silent,
    /// Its credentials are not accepted.
    Invalid(String),
}

impl fmt::Display for AuthenticationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLogin => "its first message is not a login",
            Self::NoCredentials => "it sends another message instead of credentials",
            Self::Left => "it ends the connection when asked for credentials",
            Self::Silent => "it sends no credentials in time",
            Self::Invalid(why) => why,
        })
    }
}

impl NodeAuthentication {
    /// Reports whether the peer has sent a login and no credentials yet.
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(..))
    }

    /// Reports whether frames of the peer must pass [`Self::step`].
    pub(super) const fn is_required(&self) -> bool {
        !matches!(self, Self::Over)
    }

    /// Processes a frame; `None` for one that cannot be decoded. After a refusal the connection must
    /// be closed.
    pub(super) fn step(&mut self, message: Option<&Wire<'_>>, now: SystemTime) -> NodeAuthenticationStep {
        match std::mem::replace(self, Self::Failed) {
            Self::Required(exchange) => match message.and_then(from_frame) {
                Some(NodeMessage::Login(login)) => {
                    *self = Self::Pending(exchange, login);
                    NodeAuthenticationStep::Ask
                }
                _ => NodeAuthenticationStep::Refuse(AuthenticationRefusal::NoLogin),
            },
            Self::Pending(mut exchange, login) => {
                let Some(Wire::Xauth(credentials)) = message else {
                    return NodeAuthenticationStep::Refuse(AuthenticationRefusal::NoCredentials);
                };
                let protocol = credentials.split(|byte| *byte == 0).next().unwrap_or_default();
                if protocol != SSS.as_bytes() {
                    let named = base::shown(protocol.get(..PROTOCOL_SHOWN_MAX).unwrap_or(protocol));
                    let why = format!("its credentials are for '{named}', not for '{SSS}'");
                    return NodeAuthenticationStep::Refuse(AuthenticationRefusal::Invalid(why));
                }
                match exchange.step(credentials, now) {
                    ServerStep::Done(entity) if entity.name.as_deref().unwrap_or_default().is_empty() => {
                        let why = "its credentials name no user".to_owned();
                        NodeAuthenticationStep::Refuse(AuthenticationRefusal::Invalid(why))
                    }
                    ServerStep::Done(_) => {
                        *self = Self::Over;
                        NodeAuthenticationStep::Accept(login)
                    }
                    ServerStep::Continue(more) => {
                        *self = Self::Pending(exchange, login);
                        NodeAuthenticationStep::Send(more)
                    }
                    ServerStep::Later => {
                        let why = "its credentials cannot be checked now".to_owned();
                        NodeAuthenticationStep::Refuse(AuthenticationRefusal::Invalid(why))
                    }
                    ServerStep::Refused(refused) => {
                        let why = base::shown(refused.reason()).to_string();
                        NodeAuthenticationStep::Refuse(AuthenticationRefusal::Invalid(why))
                    }
                }
            }
            // Frames of a peer that is done are not passed to this function.
            Self::Over | Self::Failed => NodeAuthenticationStep::Refuse(AuthenticationRefusal::NoLogin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::{Entity, EntityNames, RefusedLogin, StepCost};
    use std::time::UNIX_EPOCH;
    use wire::cms::NodeLogin;
    use wire::cms::flags::StatusModifier;
    use wire::cms::message::Status;

    /// An exchange that accepts the credentials `sss`, NUL, `key` after the number of further steps.
    struct Exchange(usize);

    impl ServerLogin for Exchange {
        fn cost(&self) -> StepCost {
            StepCost::Cheap
        }

        fn step(&mut self, credentials: &[u8], _: SystemTime) -> ServerStep {
            match (credentials, self.0) {
                (b"sss\0key", 0) => {
                    let names = EntityNames { name: Some("cms".into()), ..EntityNames::default() };
                    ServerStep::Done(Entity::of_host("h").renamed(names))
                }
                (b"sss\0nameless", _) => ServerStep::Done(Entity::of_host("h")),
                (b"sss\0later", _) => ServerStep::Later,
                (b"sss\0key", _) => {
                    self.0 -= 1;
                    ServerStep::Continue(b"more".to_vec())
                }
                _ => ServerStep::Refused(RefusedLogin::new(SSS, "no such key\n")),
            }
        }
    }

    fn required(steps: usize) -> NodeAuthentication {
        NodeAuthentication::Required(Box::new(Exchange(steps)))
    }

    fn login() -> Wire<'static> {
        Wire::Login(NodeLogin { sid: Some(b"s-1@h c"), ..NodeLogin::default() })
    }

    fn said(authentication: &mut NodeAuthentication, message: &Wire<'_>) -> String {
        match authentication.step(Some(message), UNIX_EPOCH) {
            NodeAuthenticationStep::Ask => "ask".to_owned(),
            NodeAuthenticationStep::Send(more) => format!("send {}", String::from_utf8_lossy(&more)),
            NodeAuthenticationStep::Accept(login) => format!("accept {}", login.id),
            NodeAuthenticationStep::Refuse(why) => format!("refuse: {why}"),
        }
    }

    #[test]
    fn a_login_passes_only_after_its_credentials() {
        let mut peer = required(0);
        assert!(peer.is_required() && !peer.is_pending());
        assert_eq!(said(&mut peer, &login()), "ask");
        assert!(peer.is_required() && peer.is_pending());
        assert_eq!(said(&mut peer, &Wire::Xauth(b"sss\0key")), "accept s-1@h c");
        assert!(!peer.is_required() && !peer.is_pending());
    }

    #[test]
    fn an_exchange_can_have_several_steps() {
        let mut peer = required(1);
        assert_eq!(said(&mut peer, &login()), "ask");
        assert_eq!(said(&mut peer, &Wire::Xauth(b"sss\0key")), "send more");
        assert!(peer.is_pending());
        assert_eq!(said(&mut peer, &Wire::Xauth(b"sss\0key")), "accept s-1@h c");
    }

    #[test]
    fn nothing_but_a_login_begins_an_exchange() {
        let status = Wire::Status(Status { modifier: StatusModifier::RESUME, port: Some(1) });
        for first in [status, Wire::Ping, Wire::Xauth(b"sss\0key"), Wire::Update] {
            let answer = said(&mut required(0), &first);
            assert_eq!(answer, "refuse: its first message is not a login", "{first:?}");
        }
        assert!(matches!(required(0).step(None, UNIX_EPOCH), NodeAuthenticationStep::Refuse(_)));
    }

    #[test]
    fn nothing_but_credentials_continues_it() {
        for next in [Wire::Ping, login(), Wire::Update] {
            let mut peer = required(0);
            assert_eq!(said(&mut peer, &login()), "ask");
            let expected = format!("refuse: {}", AuthenticationRefusal::NoCredentials);
            assert_eq!(said(&mut peer, &next), expected, "{next:?}");
        }
    }

    #[test]
    fn the_reason_of_a_refusal_is_one_line_without_control_characters() {
        let refused = |credentials: &[u8]| {
            let mut peer = required(0);
            assert_eq!(said(&mut peer, &login()), "ask");
            let answer = said(&mut peer, &Wire::Xauth(credentials));
            assert!(!peer.is_pending(), "the login is dropped");
            assert!(peer.is_required(), "its next frames do not pass");
            assert_eq!(
                said(&mut peer, &Wire::Xauth(b"sss\0key")),
                format!("refuse: {}", AuthenticationRefusal::NoLogin)
            );
            answer
        };
        assert_eq!(refused(b"sss\0nameless"), "refuse: its credentials name no user");
        assert_eq!(refused(b"sss\0later"), "refuse: its credentials cannot be checked now");
        assert_eq!(refused(b"sss\0other"), "refuse: no such key\\n");
        assert_eq!(refused(b"sss"), "refuse: no such key\\n");
        for (credentials, named) in [(&b"unix\0root"[..], "unix"), (b"", ""), (b"\0\0", ""), (b"a\n", "a\\n")]
        {
            let expected = format!("refuse: its credentials are for '{named}', not for 'sss'");
            assert_eq!(refused(credentials), expected);
        }
    }
}
