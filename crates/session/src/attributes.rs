//! kXR_fattr: user attributes of a file, by path or by handle.
//!
//! It has its own file because one request code covers four operations on both kinds of targets.

use crate::call::CallKind;
use crate::handles::FileRequest;
use crate::ordering::access_of_attributes;
use crate::step::DriverTask;
use crate::target::{Verb, target};
use vfs::{AttributeWork, FileOperation, Operation};
use wire::error::WireError;
use wire::xroot::codes::{ErrorCode, FattrSubcode};
use wire::xroot::flags::FattrOptions;
use wire::xroot::limits::{FATTR_ATTRIBUTES_MAX, FATTR_NAME_BYTES_MAX, FATTR_VALUE_BYTES_MAX};
use wire::xroot::request::Fattr;

impl FileRequest<'_> {
    pub(crate) fn attributes(&mut self, m: &Fattr<'_>) -> DriverTask {
        let mut refuse = |code, text: &str| self.reply.refuse(code, text);
        let known = [FattrSubcode::DEL, FattrSubcode::GET, FattrSubcode::LIST, FattrSubcode::SET];
        if !known.contains(&m.subcode) {
            return refuse(ErrorCode::ARG_INVALID, "fattr subcode is invalid");
        }
        let count = usize::from(m.numattr);
        let lists = m.subcode == FattrSubcode::LIST;
        if (lists && count != 0) || (!lists && (count == 0 || count > FATTR_ATTRIBUTES_MAX)) {
            return refuse(ErrorCode::ARG_INVALID, "fattr numattr is invalid");
        }
        let arguments = match m.arguments() {
            Ok(arguments) => arguments,
            Err(error) => {
                let index = if let WireError::BadItem { index, .. } = error { index + 1 } else { 1 };
                let text = format!("Invalid payload format processing fattr name argument #{index}");
                return refuse(ErrorCode::BAD_PAYLOAD, &text);
            }
        };
        for (index, name) in arguments.names.enumerate() {
            let place = format!("processing fattr name argument #{}", index + 1);
            if name.is_empty() {
                return refuse(ErrorCode::ARG_MISSING, &format!("Missing argument {place}"));
            }
            if name.len() > FATTR_NAME_BYTES_MAX {
                return refuse(ErrorCode::ARG_TOO_LONG, &format!("Argument is too long {place}"));
            }
        }
        for (index, value) in arguments.values.enumerate() {
            if value.len() > FATTR_VALUE_BYTES_MAX {
                let text = format!("Argument is too long processing fattr data argument #{}", index + 1);
                return refuse(ErrorCode::ARG_TOO_LONG, &text);
            }
        }
        let names: Vec<Vec<u8>> = arguments.names.map(<[u8]>::to_vec).collect();
        let values = m.options.contains(FattrOptions::ADATA);
        let work = match m.subcode {
            FattrSubcode::GET => AttributeWork::Get(names),
            FattrSubcode::DEL => AttributeWork::Remove(names),
            FattrSubcode::LIST => AttributeWork::List { values },
            _ => AttributeWork::Set {
                pairs: names.into_iter().zip(arguments.values.map(<[u8]>::to_vec)).collect(),
                new: m.options.contains(FattrOptions::IS_NEW),
            },
        };
        if !arguments.target.is_empty() {
            let changes = matches!(m.subcode, FattrSubcode::SET | FattrSubcode::DEL);
            let verb = if changes { Verb::MODIFY_ATTRIBUTES } else { Verb::INSPECT_ATTRIBUTES };
            return match target(arguments.target, verb) {
                Ok(place) => {
                    let kind = CallKind::Attributes { on_file: false, subcode: m.subcode, values };
                    let call = self.call(kind);
                    self.work.start_on_names(call, Operation::Attributes(place, work), None)
                }
                Err(error) => self.reply.fail(&error),
            };
        }
        let Some((index, file)) = self.work.open_file(m.fhandle) else { return self.not_open("fattr") };
        let file = file.clone();
        let kind = CallKind::Attributes { on_file: true, subcode: m.subcode, values };
        let access = access_of_attributes(&work);
        self.work.start_on_file(self.reply.id, kind, (index, access), (file, FileOperation::Attributes(work)))
    }
}
