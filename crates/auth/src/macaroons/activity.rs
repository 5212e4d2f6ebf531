//! Activities, and the operations that they allow.

use crate::access::AccessOperation as Op;
use crate::tokens::OperationSet;

/// A group of operations that an `activity` caveat allows, by its name in macaroons of storage systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Look at the status of objects. Every other activity implies it.
    ReadMetadata,
    /// Change permissions and owners.
    UpdateMetadata,
    /// List directories.
    List,
    /// Read files.
    Download,
    /// Create new files, and rename to new names.
    Upload,
    /// Change the name space and files: everything of `Upload`, directories, replacement, updates.
    Manage,
    /// Remove objects.
    Delete,
}

const STAT: OperationSet = OperationSet::of(&[Op::Stat]);
const UPLOAD: OperationSet = OperationSet::of(&[Op::Rename, Op::ExclusiveCreate, Op::ExclusiveInsert]);
const MANAGE: OperationSet =
    OperationSet::of(&[Op::Insert, Op::Lock, Op::MakeDirectory, Op::Update, Op::Create]);

impl Activity {
    /// All activities with their names, in the order in which servers name them.
    pub const ALL: [(&'static str, Self); 7] = [
        ("READ_METADATA", Self::ReadMetadata),
        ("UPLOAD", Self::Upload),
        ("DOWNLOAD", Self::Download),
        ("DELETE", Self::Delete),
        ("MANAGE", Self::Manage),
        ("UPDATE_METADATA", Self::UpdateMetadata),
        ("LIST", Self::List),
    ];

    /// Returns the activity with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, activity)| *activity)
    }

    /// Returns the text of some activities, as in a caveat.
    #[must_use]
    pub fn list(activities: &[Self]) -> String {
        let names = Self::ALL.iter().filter(|(_, activity)| activities.contains(activity));
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
    }

    /// Returns the operations that the activity allows.
    #[must_use]
    pub const fn operations(self) -> OperationSet {
        let own = match self {
            Self::ReadMetadata => STAT,
            Self::UpdateMetadata => OperationSet::of(&[Op::ChangeMode, Op::ChangeOwner]),
            Self::List => OperationSet::of(&[Op::ReadDirectory]),
            Self::Download => OperationSet::of(&[Op::Read]),
            Self::Upload => UPLOAD,
            Self::Manage => UPLOAD.with(MANAGE),
            Self::Delete => OperationSet::of(&[Op::Delete]),
        };
        own.with(STAT)
    }

    /// Returns the operations that a list of activities allows. Unknown activities are those of other
    /// storage systems and allow nothing here.
    pub(super) fn operations_of(list: &str) -> OperationSet {
        let known = list.split(',').filter_map(|name| Self::of_name(name.trim()));
        known.fold(OperationSet::default(), |all, activity| all.with(activity.operations()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_allow_their_operations() {
        let allowed = |list: &str| {
            let set = Activity::operations_of(list);
            let names = Op::ALL.into_iter().filter(|op| set.contains(*op)).map(Op::name);
            names.collect::<Vec<_>>().join(" ")
        };
        for (list, expected) in [
            ("READ_METADATA", "any stat"),
            ("UPDATE_METADATA", "any chmod chown stat"),
            ("LIST", "any readdir stat"),
            ("DOWNLOAD", "any read stat"),
            ("UPLOAD", "any rename stat excl_create excl_insert"),
            ("MANAGE", "any create insert lock mkdir rename stat update excl_create excl_insert"),
            ("DELETE", "any delete stat"),
            ("LIST,DOWNLOAD", "any read readdir stat"),
            ("LIST, FUTURE,DELETE", "any delete readdir stat"),
            ("", ""),
            ("FUTURE", ""),
            ("download", ""),
            ("STAGE,POLL", ""),
        ] {
            assert_eq!(allowed(list), expected, "{list}");
        }
    }
}
