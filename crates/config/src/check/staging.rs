//! Exports whose files are in mass storage, and the programs that stage them.

use super::DiskCheck;
use crate::effective::StageForm;

impl DiskCheck<'_> {
    /// A program that reads lines needs their text, with the name at which it writes.
    fn stage_lines(&mut self) {
        let values = &self.effective.residency;
        let (command, message) = (&values.stage_program, &values.stage_message);
        let names_file = |text: &String| text.contains("$DST") || text.contains("$PFN");
        let has_word = |text: &String| text.contains("$RID");
        if !values.stage_form.reads_lines() {
            if message.is_some() {
                let what = "oss.stagemsg: no program reads lines".to_owned();
                self.warn(&message.origin, what, "it has no effect; set oss.stagecmd async |PROGRAM");
            }
        } else if !message.as_ref().is_some_and(names_file) {
            let origin = if message.is_some() { &message.origin } else { &command.origin };
            let what = "oss.stagemsg: the line has no name at which the program writes the file".to_owned();
            self.wrong(origin, what, "set oss.stagemsg with $DST, for example $RID $LFN $SRC $DST");
        } else if values.stage_form == StageForm::Reporting && !message.as_ref().is_some_and(has_word) {
            let what = "oss.stagemsg: the line has no word with which the program reports the end".to_owned();
            self.wrong(&message.origin, what, "set oss.stagemsg with $RID, for example $RID $LFN $SRC $DST");
        }
    }

    /// Exports that stage need a program that copies.
    pub(super) fn staging(&mut self) {
        let effective = self.effective;
        if effective.cluster.role.redirects() || *effective.proxy.enabled {
            return;
        }
        self.stage_lines();
        let mut exports =
            effective.storage.exports.iter().filter(|export| export.attributes.stage).peekable();
        if let Some(fault) = effective.stage_fault().filter(|_| exports.peek().is_some()) {
            self.wrong(&fault.origin, fault.what.to_owned(), fault.remedy);
        }
        for export in exports {
            let name = &export.prefix;
            if !effective.residency.has_copy_program() {
                let what = format!("all.export {name} stage: there is no program that copies files");
                self.warn(&export.origin, what, "nothing is staged; set frm.xfr.copycmd");
            } else if effective.residency.stage_program.is_some() && effective.residency.has_copy_command_in()
            {
                let what = format!("all.export {name} stage: two programs stage files");
                self.warn(&export.origin, what, "oss.stagecmd is used; remove it, or frm.xfr.copycmd in");
            } else if effective.process.admin_path.origin.is_default()
                && effective.residency.directory.is_none()
            {
                let what = format!("all.export {name} stage: the queue of transfers would be in /tmp/frm");
                self.wrong(&export.origin, what, "a reboot loses it; set all.adminpath or frm.xfr.qcheck");
            }
        }
    }

    /// Exports whose names in mass storage are asked for need a program that knows them.
    pub(super) fn checking(&mut self) {
        let effective = self.effective;
        if effective.cluster.role.redirects() || *effective.proxy.enabled {
            return;
        }
        for export in &effective.storage.exports {
            let (name, attributes) = (&export.prefix, &export.attributes);
            let options = [
                ("check", attributes.check),
                ("dread", attributes.remote_directories),
                ("rcreate", attributes.remote_create),
            ];
            for (option, _) in options.into_iter().filter(|(_, is_set)| *is_set) {
                if effective.residency.catalog.is_none() {
                    let what = format!(
                        "all.export {name} {option}: there is no program that knows the files in mass storage"
                    );
                    self.wrong(&export.origin, what, &format!("set oss.rsscmd, or remove {option}"));
                } else if !attributes.stage && !attributes.migrate {
                    let what =
                        format!("all.export {name} {option}: its files are neither staged nor migrated");
                    let remedy = format!("it has no effect; add stage or mig, or remove {option}");
                    self.warn(&export.origin, what, &remedy);
                }
            }
            if attributes.remote_create && attributes.check && effective.residency.catalog.is_some() {
                let what = format!(
                    "all.export {name} check rcreate: a client that repeats an open would find the file that it has created itself"
                );
                self.wrong(&export.origin, what, "remove check or rcreate");
            }
            if attributes.remote_create && *effective.multi_user.enabled {
                let what = format!(
                    "all.export {name} rcreate: with multi-user, only the disk knows who may create a file"
                );
                self.wrong(&export.origin, what, "remove rcreate, or multi-user");
            } else if attributes.remote_create
                && attributes.stage
                && !attributes.migrate
                && effective.residency.catalog.is_some()
            {
                let what =
                    format!("all.export {name} rcreate: mass storage keeps an empty file for each new one");
                self.warn(
                    &export.origin,
                    what,
                    "nothing copies its content there; add mig, or remove rcreate",
                );
            }
        }
    }
}
