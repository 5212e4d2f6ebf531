//! The inputs of the decision on orders ([`cluster::OrderPermit`]): the class of a login, and the
//! changes that `ofs.forward` allows.

use super::connection::ConnectionStage;
use cluster::tree::ConnectionId;
use cluster::{LoginClass, NameChange, NameChangeSet, OrderPermit};
use config::{ForwardWay, Forwarding};
use vfs::Operation;

/// Returns the class of the peer of a connection.
pub(super) const fn login_class(link: ConnectionId, stage: ConnectionStage) -> LoginClass {
    match stage {
        ConnectionStage::Anonymous | ConnectionStage::Asking => LoginClass::Visitor,
        ConnectionStage::Redirector => LoginClass::Redirector,
        ConnectionStage::Node if link.is_outward() => LoginClass::Parent,
        ConnectionStage::Node => LoginClass::Child,
    }
}

/// Returns the permission for an operation requested by a client of this process; `None` if the
/// client must be redirected to a server instead.
pub(crate) fn client_permit(forwarding: &Forwarding, operation: &Operation) -> Option<OrderPermit> {
    let change = match operation {
        Operation::CancelPrepare { .. } => None,
        operation => Some(name_change(operation)?),
    };
    OrderPermit::for_client(change, forwarded(forwarding))
}

fn name_change(operation: &Operation) -> Option<NameChange> {
    Some(match operation {
        Operation::ChangeMode { .. } => NameChange::Chmod,
        Operation::MakeDirectory { .. } => NameChange::Mkdir,
        Operation::Rename { .. } => NameChange::Mv,
        Operation::Remove(_) => NameChange::Rm,
        Operation::RemoveDirectory(_) => NameChange::Rmdir,
        Operation::Truncate { .. } => NameChange::Trunc,
        _ => return None,
    })
}

/// Returns the changes that are forwarded.
pub(super) fn forwarded(forwarding: &Forwarding) -> NameChangeSet {
    let way = |change| match change {
        NameChange::Chmod => forwarding.chmod,
        NameChange::Mkdir => forwarding.mkdir,
        NameChange::Mv => forwarding.mv,
        NameChange::Rm => forwarding.rm,
        NameChange::Rmdir => forwarding.rmdir,
        NameChange::Trunc => forwarding.trunc,
    };
    NameChange::ALL.into_iter().filter(|change| way(*change) != ForwardWay::Off).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_own_way() {
        assert_eq!(forwarded(&Forwarding::default()), NameChangeSet::NONE);
        let way = ForwardWay::TwoWay;
        let mkdir = Forwarding { mkdir: way, ..Forwarding::default() };
        assert_eq!(forwarded(&mkdir), NameChangeSet::NONE | NameChange::Mkdir);
        let all = Forwarding { chmod: way, mkdir: way, mv: way, rm: way, rmdir: way, trunc: way };
        assert_eq!(forwarded(&all), NameChange::ALL.into_iter().collect());
    }

    #[test]
    fn the_class_is_that_of_the_login() {
        let (accepted, outward) = (ConnectionId::accepted(1), ConnectionId::outward(1));
        assert_eq!(login_class(accepted, ConnectionStage::Node), LoginClass::Child);
        assert_eq!(login_class(outward, ConnectionStage::Node), LoginClass::Parent);
        assert_eq!(login_class(outward, ConnectionStage::Asking), LoginClass::Visitor);
        assert_eq!(login_class(accepted, ConnectionStage::Redirector), LoginClass::Redirector);
    }
}
