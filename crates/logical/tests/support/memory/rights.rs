//! The rights of users: the directories `/data/of-UID` are accessible to one user each.

use super::Memory;
use base::LogicalPath;

impl Memory {
    /// Reports whether a path is below `/data/of-UID` of another user.
    pub(super) fn is_of_another_user(&self, path: &LogicalPath) -> bool {
        let owner =
            path.as_bytes().strip_prefix(b"/data/of-").and_then(|rest| rest.split(|&b| b == b'/').next());
        owner.is_some_and(|owner| self.user.is_none_or(|user| owner != user.to_string().as_bytes()))
    }
}
