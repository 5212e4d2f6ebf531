//! Settings of `oss.stagecmd` with which no file, or a part of one, would be staged.

use super::{Effective, StageForm};
use crate::setting::Origin;

/// A setting with which the server does not stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageFault {
    /// Where it is.
    pub origin: Origin,
    /// What is wrong.
    pub what: &'static str,
    /// What can be done.
    pub remedy: &'static str,
}

impl Effective {
    /// Returns the fault of `oss.stagecmd` for exports with `stage`, if there is one.
    ///
    /// Something has to show that files are complete, and those that clients create must be made in one way, for them.
    #[must_use]
    pub fn stage_fault(&self) -> Option<StageFault> {
        let values = &self.residency;
        let (creates, form) = (values.stage_creates, values.stage_form);
        let fault = |what, remedy| {
            let origin = values.stage_program.origin.clone();
            Some(StageFault { origin, what, remedy })
        };
        if creates && form == StageForm::Silent {
            return fault(
                "oss.stagecmd creates: the program does not report the ends of files, and oss.rsscmd shows no new file",
                "use 'creates async |' with a program that reports them (oss.stagemsg with $RID), or a program that is run for each \
                 file; or remove creates",
            );
        }
        if form == StageForm::Silent && values.catalog.is_none() {
            return fault(
                "oss.stagecmd: the program does not report the ends of files, and nothing else shows them",
                "use 'async |' with a program that reports them (oss.stagemsg with $RID), or a program that is run for each file; or \
                 set oss.rsscmd with a program that returns the checksum of each file",
            );
        }
        if creates && values.catalog.is_some() {
            return fault(
                "oss.stagecmd creates: the program is not asked for files that oss.rsscmd does not know, such as new ones",
                "remove creates, or oss.rsscmd",
            );
        }
        if creates && *self.multi_user.enabled {
            return fault(
                "oss.stagecmd creates: with multi-user, the files would not belong to the clients",
                "remove creates, or multi-user",
            );
        }
        let mut exports = self.storage.exports.iter().map(|export| &export.attributes);
        if creates && exports.any(|attributes| attributes.stage && attributes.remote_create) {
            return fault(
                "oss.stagecmd creates: the option rcreate also makes the files that clients create",
                "remove creates, or rcreate",
            );
        }
        None
    }
}
