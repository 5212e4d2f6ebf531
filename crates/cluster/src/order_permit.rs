//! Permissions for orders, by the peer that sends them (decision 030).
//!
//! The role of a peer is the one that its login claims; `cms.allow` decides which hosts may log in
//! at all, and without it every host may log in in any role.
//!
//! | login | locations, `stats`, space, prepare | its own files | changes of names at all servers |
//! |---|---|---|---|
//! | none yet | - | - | - |
//! | redirector | requests | - | where `ofs.forward` of this node allows the operation |
//! | child | - | reports | - |
//! | parent, chosen by this node | requests | - | orders, unless it is a meta manager |
//! | client of this process | requests | - | where `ofs.forward` allows the operation; else it is sent to a server |
//!
//! An order can only be carried out with an [`OrderPermit`], which only this file creates.

use std::ops::BitOr;

use wire::cms::Message;

use crate::tree::AcceptorRole;

/// The role of the peer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginClass {
    /// It has not logged in.
    Visitor,
    /// It queries the locations of files for clients.
    Redirector,
    /// It is a node below.
    Child,
    /// It is a node above.
    Parent,
}

/// Permission to carry out one order.
#[derive(Debug)]
pub struct OrderPermit(());

impl OrderPermit {
    /// Returns the permission for an order of a peer. `own` is the role of this node; it forwards
    /// the changes in `forwarded`.
    pub fn for_peer(
        class: LoginClass,
        own: AcceptorRole,
        forwarded: NameChangeSet,
        order: &PeerOrder<'_>,
    ) -> Option<Self> {
        let allowed = match class {
            LoginClass::Visitor | LoginClass::Child => false,
            // An order that is not relayed only makes this node forget the location of a path.
            LoginClass::Redirector => match order.change {
                Some(change) => !order.is_relayed || forwarded.contains(change),
                None => true,
            },
            // The parents of a manager are meta managers.
            LoginClass::Parent => !own.is_root_of_names() || order.change.is_none(),
        };
        allowed.then_some(Self(()))
    }

    /// Returns the permission for an operation of a client of this process; `None` if the client
    /// has to be redirected to a server instead. `change` is `None` for the end of a request to
    /// prepare files, which names no particular server.
    pub fn for_client(change: Option<NameChange>, forwarded: NameChangeSet) -> Option<Self> {
        change.is_none_or(|change| forwarded.contains(change)).then_some(Self(()))
    }
}

/// An operation that changes names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NameChange {
    /// The mode of a name.
    Chmod,
    /// A new directory.
    Mkdir,
    /// Another name for a file or directory.
    Mv,
    /// The end of a file.
    Rm,
    /// The end of a directory.
    Rmdir,
    /// Another size of a file.
    Trunc,
}

impl NameChange {
    /// All changes.
    pub const ALL: [Self; 6] = [Self::Chmod, Self::Mkdir, Self::Mv, Self::Rm, Self::Rmdir, Self::Trunc];

    /// The operation's name in `ofs.forward`.
    pub const fn name(self) -> &'static str {
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

/// A set of changes: those that a node forwards to all servers (`ofs.forward`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NameChangeSet(u8);

impl NameChangeSet {
    /// No change.
    pub const NONE: Self = Self(0);

    /// Reports whether a change is in the set.
    pub const fn contains(self, change: NameChange) -> bool {
        self.0 & (1 << change as u8) != 0
    }
}

impl FromIterator<NameChange> for NameChangeSet {
    fn from_iter<I: IntoIterator<Item = NameChange>>(changes: I) -> Self {
        changes.into_iter().fold(Self::NONE, |set, change| set | change)
    }
}

impl BitOr<NameChange> for NameChangeSet {
    type Output = Self;

    fn bitor(self, change: NameChange) -> Self {
        Self(self.0 | 1 << change as u8)
    }
}

/// An order of a peer, for the decision and for the log.
#[derive(Clone, Copy, Debug)]
pub struct PeerOrder<'a> {
    /// The change; `None` for requests about prepared files.
    pub change: Option<NameChange>,
    /// Nodes below receive the order.
    pub is_relayed: bool,
    /// The path, or the number of a prepare request.
    pub path: &'a [u8],
    /// The client, as named by the peer.
    pub ident: &'a [u8],
}

impl<'a> PeerOrder<'a> {
    /// Returns the order of a message; `None` for messages without an order.
    pub fn of(message: &Message<'a>) -> Option<Self> {
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

    fn all() -> NameChangeSet {
        NameChange::ALL.into_iter().collect()
    }

    /// Returns the number of permitted orders among all orders.
    fn permitted(
        class: LoginClass,
        own: AcceptorRole,
        forwarded: NameChangeSet,
        modifier: RelayModifier,
    ) -> usize {
        let all = orders(modifier);
        let orders = all.iter().filter_map(PeerOrder::of);
        orders.filter(|order| OrderPermit::for_peer(class, own, forwarded, order).is_some()).count()
    }

    #[test]
    fn redirectors_change_only_the_names_that_are_forwarded() {
        let redirector = |forwarded| {
            permitted(LoginClass::Redirector, AcceptorRole::Manager, forwarded, RelayModifier::NONE)
        };
        assert_eq!(redirector(NameChangeSet::NONE), 0);
        assert_eq!(redirector(all()), 7);
        assert_eq!(redirector(NameChangeSet::NONE | NameChange::Mkdir), 2);
        let but_rm = NameChange::ALL.into_iter().filter(|change| *change != NameChange::Rm).collect();
        assert_eq!(redirector(but_rm), 6);
        // Another manager relays the order: this one only forgets.
        let forgets = RelayModifier::NO_FORWARD;
        assert_eq!(permitted(LoginClass::Redirector, AcceptorRole::Manager, NameChangeSet::NONE, forgets), 7);
    }

    #[test]
    fn parents_order_and_others_do_not() {
        let of = |class, own| permitted(class, own, all(), RelayModifier::NONE);
        assert_eq!(of(LoginClass::Parent, AcceptorRole::Supervisor), 7);
        assert_eq!(of(LoginClass::Parent, AcceptorRole::ProxySupervisor), 7);
        assert_eq!(of(LoginClass::Parent, AcceptorRole::Server), 7);
        for own in [AcceptorRole::Manager, AcceptorRole::ProxyManager] {
            assert_eq!(of(LoginClass::Parent, own), 0, "names are a manager's own");
        }
        assert_eq!(of(LoginClass::Child, AcceptorRole::Manager), 0);
        assert_eq!(of(LoginClass::Visitor, AcceptorRole::Manager), 0);
    }

    #[test]
    fn a_client_orders_the_changes_that_are_forwarded() {
        let forwarded = NameChangeSet::NONE | NameChange::Rm;
        let may = |change| OrderPermit::for_client(Some(change), forwarded).is_some();
        assert!(NameChange::ALL.into_iter().all(|change| may(change) == (change == NameChange::Rm)));
        assert!(OrderPermit::for_client(None, NameChangeSet::NONE).is_some());
    }

    #[test]
    fn prepared_files_are_nobodys_names() {
        let cancel = Message::Prepdel(Prepdel { modifier: RelayModifier::NONE, ident: b"", reqid: b"id" });
        let cancel = PeerOrder::of(&cancel).unwrap();
        let may = |class| {
            OrderPermit::for_peer(class, AcceptorRole::Manager, NameChangeSet::NONE, &cancel).is_some()
        };
        assert!(may(LoginClass::Redirector) && may(LoginClass::Parent));
        assert!(!may(LoginClass::Child) && !may(LoginClass::Visitor));
        assert!(PeerOrder::of(&Message::Ping).is_none());
    }
}
