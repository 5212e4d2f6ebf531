//! Which orders are passed on or executed, by who gives them. A peer is what its login claims to be; `cms.allow` decides
//! which hosts may log in at all, and without it every host may log in as anything.
//!
//! | login | locations, `stats`, space, prepare | its own files | changes of names at all servers |
//! |---|---|---|---|
//! | none yet | - | - | - |
//! | redirector | requests | - | where `ofs.forward` of this node allows the operation |
//! | child | - | reports | - |
//! | parent, chosen by this node | requests | - | orders, unless it is a meta manager |
//! | client of this process | requests | - | where `ofs.forward` allows the operation; else it is sent to a server |
//!
//! An order can only be carried out with a [`Permit`], and only this file makes one.

use super::line::Stage;
use super::settings::Role;
use cluster::tree::LinkId;
use config::{ForwardWay, Forwarding};
use vfs::Operation;
use wire::cms::Message;

/// What the peer of a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoginClass {
    /// It has not logged in.
    Visitor,
    /// It asks where files are.
    Redirector,
    /// A node below.
    Child,
    /// A node above.
    Parent,
}

impl LoginClass {
    pub(super) const fn of(link: LinkId, stage: Stage) -> Self {
        match stage {
            Stage::Anonymous | Stage::Asking => Self::Visitor,
            Stage::Redirector => Self::Redirector,
            Stage::Node if link.is_outward() => Self::Parent,
            Stage::Node => Self::Child,
        }
    }
}

/// Permission to carry out one order.
#[derive(Debug)]
pub(crate) struct Permit(());

impl Permit {
    /// Returns the permission for an order of a peer. `own` is the role of this node.
    pub(super) fn for_peer(
        class: LoginClass,
        own: Role,
        forwarding: &Forwarding,
        message: &Message<'_>,
    ) -> Option<Self> {
        let order = PeerOrder::of(message)?;
        let allowed = match class {
            LoginClass::Visitor | LoginClass::Child => false,
            // What is not relayed only makes this node forget where a path was.
            LoginClass::Redirector => match order.change {
                Some(change) => !order.is_relayed || change.is_forwarded(forwarding),
                None => true,
            },
            // The parents of a manager are meta managers.
            LoginClass::Parent => own != Role::Manager || order.change.is_none(),
        };
        allowed.then_some(Self(()))
    }

    /// Returns the permission for an operation that a client of this process asked for; `None` when the client is to be sent
    /// to a server instead.
    pub(crate) fn for_client(forwarding: &Forwarding, operation: &Operation) -> Option<Self> {
        let allowed = match operation {
            // There is no server in particular to ask.
            Operation::CancelPrepare { .. } => true,
            operation => NameChange::of_operation(operation)?.is_forwarded(forwarding),
        };
        allowed.then_some(Self(()))
    }
}

#[cfg(test)]
impl Permit {
    /// Returns a permission for a test of what carries orders out.
    pub(super) const fn granted() -> Self {
        Self(())
    }
}

/// An operation that changes names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum NameChange {
    Chmod,
    Mkdir,
    Mv,
    Rm,
    Rmdir,
    Trunc,
}

impl NameChange {
    fn of_operation(operation: &Operation) -> Option<Self> {
        Some(match operation {
            Operation::ChangeMode { .. } => Self::Chmod,
            Operation::MakeDirectory { .. } => Self::Mkdir,
            Operation::Rename { .. } => Self::Mv,
            Operation::Remove(_) => Self::Rm,
            Operation::RemoveDirectory(_) => Self::Rmdir,
            Operation::Truncate { .. } => Self::Trunc,
            _ => return None,
        })
    }

    fn is_forwarded(self, forwarding: &Forwarding) -> bool {
        let way = match self {
            Self::Chmod => forwarding.chmod,
            Self::Mkdir => forwarding.mkdir,
            Self::Mv => forwarding.mv,
            Self::Rm => forwarding.rm,
            Self::Rmdir => forwarding.rmdir,
            Self::Trunc => forwarding.trunc,
        };
        way != ForwardWay::Off
    }

    /// The operation's name in `ofs.forward`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Chmod => "chmod",
            Self::Mkdir => "mkdir",
            Self::Mv => "mv",
            Self::Rm => "rm",
            Self::Rmdir => "rmdir",
            Self::Trunc => "trunc",
        }
    }
}

/// Returns the names of the operations that are forwarded.
pub(super) fn forwarded(forwarding: &Forwarding) -> Vec<&'static str> {
    let all = [
        NameChange::Chmod,
        NameChange::Mkdir,
        NameChange::Mv,
        NameChange::Rm,
        NameChange::Rmdir,
        NameChange::Trunc,
    ];
    all.into_iter().filter(|change| change.is_forwarded(forwarding)).map(NameChange::name).collect()
}

/// An order of a peer, for the decision and for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerOrder<'a> {
    /// What changes; `None` for requests about prepared files.
    pub(super) change: Option<NameChange>,
    /// Whether nodes below receive it.
    pub(super) is_relayed: bool,
    pub(super) path: &'a [u8],
    /// The client, as the peer names it.
    pub(super) ident: &'a [u8],
}

impl<'a> PeerOrder<'a> {
    /// Returns what a message orders; `None` for messages that are no orders.
    pub(super) fn of(message: &Message<'a>) -> Option<Self> {
        let (change, modifier, path, ident) = match message {
            Message::Chmod(m) => (Some(NameChange::Chmod), m.modifier, m.path, m.ident),
            Message::Mkdir(m) | Message::Mkpath(m) => (Some(NameChange::Mkdir), m.modifier, m.path, m.ident),
            Message::Mv(m) => (Some(NameChange::Mv), m.modifier, m.old, m.ident),
            Message::Rm(m) => (Some(NameChange::Rm), m.modifier, m.path, m.ident),
            Message::Rmdir(m) => (Some(NameChange::Rmdir), m.modifier, m.path, m.ident),
            Message::Trunc(m) => (Some(NameChange::Trunc), m.modifier, m.path, m.ident),
            Message::Prepdel(m) => (None, m.modifier, m.reqid, m.ident),
            Message::Prepadd(m) => {
                return Some(Self { change: None, is_relayed: true, path: m.path, ident: m.ident });
            }
            _ => return None,
        };
        Some(Self { change, is_relayed: modifier.relayed().is_some(), path, ident })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::cms::flags::RelayModifier;
    use wire::cms::message::{ModeChange, Mv, Prepdel, Removal, Trunc};

    fn orders(modifier: RelayModifier) -> [Message<'static>; 7] {
        let (ident, path, opaque) = (&b"user.1:2@host"[..], &b"/f"[..], None);
        let removal = Removal { modifier, ident, path, opaque };
        let change = ModeChange { modifier, ident, mode: b"755", path, opaque };
        let mv = Mv { modifier, ident, old: path, new: b"/g", old_opaque: None, new_opaque: None };
        [
            Message::Chmod(change),
            Message::Mkdir(change),
            Message::Mkpath(change),
            Message::Mv(mv),
            Message::Rm(removal),
            Message::Rmdir(removal),
            Message::Trunc(Trunc { modifier, ident, size: b"0", path, opaque }),
        ]
    }

    fn all() -> Forwarding {
        let way = ForwardWay::OneWay;
        Forwarding { chmod: way, mkdir: way, mv: way, rm: way, rmdir: way, trunc: way }
    }

    /// How many of all orders are permitted.
    fn permitted(class: LoginClass, own: Role, forwarding: &Forwarding, modifier: RelayModifier) -> usize {
        let permits =
            orders(modifier).map(|order| Permit::for_peer(class, own, forwarding, &order).is_some());
        permits.into_iter().filter(|permitted| *permitted).count()
    }

    #[test]
    fn redirectors_change_only_the_names_that_are_forwarded() {
        let redirector = |forwarding: &Forwarding| {
            permitted(LoginClass::Redirector, Role::Manager, forwarding, RelayModifier::NONE)
        };
        assert_eq!(redirector(&Forwarding::default()), 0);
        assert_eq!(redirector(&all()), 7);
        assert_eq!(forwarded(&all()), ["chmod", "mkdir", "mv", "rm", "rmdir", "trunc"]);
        assert!(forwarded(&Forwarding::default()).is_empty());
        assert_eq!(redirector(&Forwarding { mkdir: ForwardWay::TwoWay, ..Forwarding::default() }), 2);
        assert_eq!(redirector(&Forwarding { rm: ForwardWay::Off, ..all() }), 6);
        // Another manager relays it: this one only forgets.
        let forgets = RelayModifier::NO_FORWARD;
        assert_eq!(permitted(LoginClass::Redirector, Role::Manager, &Forwarding::default(), forgets), 7);
    }

    #[test]
    fn parents_order_and_others_do_not() {
        let of = |class, own| permitted(class, own, &all(), RelayModifier::NONE);
        assert_eq!(of(LoginClass::Parent, Role::Supervisor), 7);
        assert_eq!(of(LoginClass::Parent, Role::Server), 7);
        assert_eq!(of(LoginClass::Parent, Role::Manager), 0, "names are a manager's own");
        assert_eq!(of(LoginClass::Child, Role::Manager), 0);
        assert_eq!(of(LoginClass::Visitor, Role::Manager), 0);
    }

    #[test]
    fn prepared_files_are_nobodys_names() {
        let cancel = Message::Prepdel(Prepdel { modifier: RelayModifier::NONE, ident: b"", reqid: b"id" });
        let may = |class| Permit::for_peer(class, Role::Manager, &Forwarding::default(), &cancel).is_some();
        assert!(may(LoginClass::Redirector) && may(LoginClass::Parent));
        assert!(!may(LoginClass::Child) && !may(LoginClass::Visitor));
        assert!(PeerOrder::of(&Message::Ping).is_none());
    }

    #[test]
    fn the_class_is_that_of_the_login() {
        let (accepted, outward) = (LinkId::accepted(1), LinkId::outward(1));
        assert_eq!(LoginClass::of(accepted, Stage::Node), LoginClass::Child);
        assert_eq!(LoginClass::of(outward, Stage::Node), LoginClass::Parent);
        assert_eq!(LoginClass::of(outward, Stage::Asking), LoginClass::Visitor);
        assert_eq!(LoginClass::of(accepted, Stage::Redirector), LoginClass::Redirector);
    }
}
