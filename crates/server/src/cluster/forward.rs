//! Operations on names that are forwarded down the tree, from a client of this redirector, another
//! redirector, or a parent, to all children that may write the path.
//!
//! All three origins share this form, so that they have the same limits and effects. Source: cms
//! protocol 3, section forwarded namespace operations.

use auth::tokens::TOKEN_KEY;
use base::LogicalPath;
use vfs::{Operation, Target};
use wire::cms::flags::RelayModifier;
use wire::cms::message::{Message, ModeChange, Mv, Prepdel, Removal, Trunc};
use wire::cms::{Extensions, StreamId};

/// An operation in the form in which it is forwarded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Forward {
    /// Children that may write this path get the frame; `None` for all children.
    pub(crate) path: Option<Vec<u8>>,
    /// The frame; `None` if the limit of relays is reached, or the operation is only recorded.
    pub(crate) frame: Option<Vec<u8>>,
    /// Set if only scalla nodes get it, because XRootD nodes fail on this message.
    pub(crate) own_only: bool,
    /// Paths to be removed from the location cache.
    pub(crate) forget: Vec<Vec<u8>>,
    /// The path that must be free before a rename to it.
    pub(crate) must_be_free: Option<Vec<u8>>,
}

impl Forward {
    /// Decodes the operation of a redirector or a parent; `None` for any other message.
    pub(crate) fn of_message(message: &Message<'_>) -> Option<Self> {
        let path = match message {
            Message::Chmod(m) | Message::Mkdir(m) | Message::Mkpath(m) => Some(m.path),
            Message::Mv(m) => Some(m.old),
            Message::Rm(m) | Message::Rmdir(m) => Some(m.path),
            Message::Trunc(m) => Some(m.path),
            Message::Prepdel(_) => None,
            _ => return None,
        };
        let (forget, must_be_free) = match message {
            Message::Rm(m) | Message::Rmdir(m) => (vec![m.path.to_vec()], None),
            Message::Mv(m) => {
                let relayed = m.modifier.relayed().is_some();
                (vec![m.old.to_vec(), m.new.to_vec()], relayed.then(|| m.new.to_vec()))
            }
            // A directory that was missing at all nodes is being created, so later requests must
            // query again.
            Message::Mkdir(m) | Message::Mkpath(m) => (vec![m.path.to_vec()], None),
            _ => (Vec::new(), None),
        };
        let own_only = matches!(message, Message::Prepdel(_));
        let frame = relayed(message).and_then(|message| encoded(&message));
        Some(Self { path: path.map(<[u8]>::to_vec), frame, own_only, forget, must_be_free })
    }

    /// Encodes the operation of a client of this redirector; `None` for operations that are not
    /// forwarded. `ident` is the client, for logs.
    pub(crate) fn of_operation(operation: &Operation, ident: &str) -> Option<Self> {
        let ident = ident.as_bytes();
        let modifier = RelayModifier::NONE;
        let octal = |mode: &u32| format!("{:o}", mode & 0o7777).into_bytes();
        match operation {
            Operation::ChangeMode { target, mode } => {
                let mode = octal(mode);
                let (path, opaque) = parts(target);
                let opaque = opaque.as_deref();
                let change = ModeChange { modifier, ident, mode: &mode, path: &path, opaque };
                Self::of_message(&Message::Chmod(change))
            }
            Operation::MakeDirectory { target, mode, parents, .. } => {
                let mode = octal(mode);
                let (path, opaque) = parts(target);
                let opaque = opaque.as_deref();
                let change = ModeChange { modifier, ident, mode: &mode, path: &path, opaque };
                Self::of_message(&if *parents { Message::Mkpath(change) } else { Message::Mkdir(change) })
            }
            Operation::Remove(target) => {
                let (path, opaque) = parts(target);
                let opaque = opaque.as_deref();
                Self::of_message(&Message::Rm(Removal { modifier, ident, path: &path, opaque }))
            }
            Operation::RemoveDirectory(target) => {
                let (path, opaque) = parts(target);
                let opaque = opaque.as_deref();
                Self::of_message(&Message::Rmdir(Removal { modifier, ident, path: &path, opaque }))
            }
            Operation::Rename { from, to, .. } => {
                let ((old, old_opaque), (new, new_opaque)) = (parts(from), parts(to));
                let (old_opaque, new_opaque) = (old_opaque.as_deref(), new_opaque.as_deref());
                let mv = Mv { modifier, ident, old: &old, new: &new, old_opaque, new_opaque };
                Self::of_message(&Message::Mv(mv))
            }
            Operation::Truncate { target, size } => {
                let size = size.to_string().into_bytes();
                let (path, opaque) = parts(target);
                let opaque = opaque.as_deref();
                Self::of_message(&Message::Trunc(Trunc { modifier, ident, size: &size, path: &path, opaque }))
            }
            Operation::CancelPrepare { id } => {
                Self::of_message(&Message::Prepdel(Prepdel { modifier, ident, reqid: id }))
            }
            _ => None,
        }
    }
}

/// Returns the path and the opaque text, without the token of the client: it is for this server only.
pub(super) fn parts(target: &Target) -> (Vec<u8>, Option<Vec<u8>>) {
    let path: LogicalPath = target.path.without_slash();
    let opaque = target.cgi.without(TOKEN_KEY);
    (path.as_bytes().to_vec(), (!opaque.is_empty()).then(|| opaque.as_bytes().to_vec()))
}

/// Returns the message with its relay count advanced; `None` at the limit.
fn relayed<'a>(message: &Message<'a>) -> Option<Message<'a>> {
    Some(match *message {
        Message::Chmod(m) => Message::Chmod(ModeChange { modifier: m.modifier.relayed()?, ..m }),
        Message::Mkdir(m) => Message::Mkdir(ModeChange { modifier: m.modifier.relayed()?, ..m }),
        Message::Mkpath(m) => Message::Mkpath(ModeChange { modifier: m.modifier.relayed()?, ..m }),
        Message::Mv(m) => Message::Mv(Mv { modifier: m.modifier.relayed()?, ..m }),
        Message::Rm(m) => Message::Rm(Removal { modifier: m.modifier.relayed()?, ..m }),
        Message::Rmdir(m) => Message::Rmdir(Removal { modifier: m.modifier.relayed()?, ..m }),
        Message::Trunc(m) => Message::Trunc(Trunc { modifier: m.modifier.relayed()?, ..m }),
        Message::Prepdel(m) => Message::Prepdel(Prepdel { modifier: m.modifier.relayed()?, ..m }),
        _ => return None,
    })
}

fn encoded(message: &Message<'_>) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    match message.encode(StreamId([0; 4]), Extensions::ALL, &mut frame) {
        Ok(()) => Some(frame),
        Err(error) => {
            tracing::warn!(%error, "an operation cannot be passed on to the servers");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Cgi;
    use wire::FixedLayout;
    use wire::cms::Header;

    fn target(text: &str) -> Target {
        let (path, cgi) = Cgi::split(text.as_bytes());
        Target { path: LogicalPath::parse(path).unwrap(), cgi }
    }

    /// Decodes the frame repeatedly, as each relay would.
    fn hops(forward: Forward) -> Vec<u8> {
        let mut modifiers = Vec::new();
        let mut frame = forward.frame;
        while let Some(bytes) = frame {
            let (head, payload) = bytes.split_at(8);
            let header = Header::from_bytes(head.try_into().unwrap());
            assert_eq!(header.streamid, StreamId([0; 4]), "nobody answers");
            modifiers.push(header.modifier);
            let message = Message::decode(&header, payload).unwrap();
            frame = Forward::of_message(&message).unwrap().frame;
        }
        modifiers
    }

    #[test]
    fn each_operation_goes_down_three_levels() {
        let operations = [
            Operation::ChangeMode { target: target("/f"), mode: 0o100_644 },
            Operation::make_directory(target("/f"), 0o755, false),
            Operation::make_directory(target("/f"), 0o755, true),
            Operation::Remove(target("/f")),
            Operation::RemoveDirectory(target("/f/")),
            Operation::rename(target("/f"), target("/g?x=1")),
            Operation::Truncate { target: target("/f?y=2"), size: 1 << 40 },
        ];
        for operation in operations {
            let forward = Forward::of_operation(&operation, "user.1:2@host").unwrap();
            assert_eq!(forward.path.as_deref(), Some(&b"/f"[..]));
            assert!(!forward.own_only);
            assert_eq!(hops(forward), [0x40, 0x80, 0xc0]);
        }
        assert!(Forward::of_operation(&Operation::Stat(target("/f")), "").is_none());
    }

    #[test]
    fn paths_to_forget_and_paths_that_must_be_free() {
        let of = |operation| Forward::of_operation(&operation, "").unwrap();
        let gone = of(Operation::Remove(target("/f")));
        assert_eq!((gone.forget, gone.must_be_free), (vec![b"/f".to_vec()], None));
        let mv = of(Operation::rename(target("/f"), target("/g")));
        assert_eq!(mv.forget, [b"/f".to_vec(), b"/g".to_vec()]);
        assert_eq!(mv.must_be_free.as_deref(), Some(&b"/g"[..]));
        let mode = of(Operation::ChangeMode { target: target("/f"), mode: 0o644 });
        assert!(mode.forget.is_empty());
    }

    #[test]
    fn recorded_operations_are_not_forwarded() {
        let modifier = RelayModifier::NO_FORWARD;
        let removal = Removal { modifier, ident: b"", path: b"/f", opaque: None };
        let forward = Forward::of_message(&Message::Rm(removal)).unwrap();
        assert_eq!((forward.frame, forward.forget), (None, vec![b"/f".to_vec()]));
        let mv = Mv { modifier, ident: b"", old: b"/f", new: b"/g", old_opaque: None, new_opaque: None };
        let forward = Forward::of_message(&Message::Mv(mv)).unwrap();
        assert_eq!((forward.frame, forward.must_be_free), (None, None), "another manager has looked");
    }

    #[test]
    fn a_cancel_goes_to_scalla_nodes_only() {
        let forward = Forward::of_operation(&Operation::CancelPrepare { id: b"id".to_vec() }, "").unwrap();
        assert!(forward.own_only && forward.path.is_none() && forward.frame.is_some());
    }
}
