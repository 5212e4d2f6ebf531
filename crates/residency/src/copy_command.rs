//! Command lines of copy programs: a template with variables, as in `frm.xfr.copycmd`.

use crate::entry::TransferEntry;
use crate::ports::{IncomingCopy, OutgoingCopy};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A copy program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, with variables.
    pub arguments: Vec<String>,
    /// The time after which it is ended.
    pub time_limit: Option<Duration>,
    /// There is no file at its destination before a copy from mass storage.
    pub creates_file: bool,
}

/// The variables that have a value.
const VARIABLES: [&str; 14] = [
    "LFN", "PFN", "RFN", "SRC", "DST", "OFLAG", "PRTY", "FMODE", "MDP", "NOTIFY", "RID", "TID", "HOST", "INS",
];

impl CopyCommand {
    /// Returns the first variable of the arguments that has no value here, if any. All clients of a
    /// file share one copy, so those with values from the opaque data of one request have none.
    #[must_use]
    pub fn variable_without_value(&self) -> Option<&str> {
        let parts = self.arguments.iter().flat_map(|template| TemplateParts(template));
        let names = parts.filter_map(|part| match part {
            TemplatePart::Variable(name) => Some(name),
            TemplatePart::Text(_) => None,
        });
        // Parameters of a shell, such as $1, are no variables.
        let mut names = names.filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
        names.find(|name| !VARIABLES.contains(name))
    }
}

/// A part of a template.
enum TemplatePart<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// The parts of a template. `\$` is a dollar sign.
struct TemplateParts<'a>(&'a str);

impl<'a> Iterator for TemplateParts<'a> {
    type Item = TemplatePart<'a>;

    fn next(&mut self) -> Option<TemplatePart<'a>> {
        let at = match self.0.find(['$', '\\']).unwrap_or(self.0.len()) {
            0 => return self.sign(),
            at => at,
        };
        let (text, rest) = self.0.split_at(at);
        self.0 = rest;
        Some(TemplatePart::Text(text))
    }
}

impl<'a> TemplateParts<'a> {
    /// Returns the part that begins with `$` or `\`; `None` at the end.
    fn sign(&mut self) -> Option<TemplatePart<'a>> {
        let text = self.0;
        if let Some(behind) = text.strip_prefix("\\$") {
            self.0 = behind;
            return Some(TemplatePart::Text("$"));
        }
        let name = text.strip_prefix('$').unwrap_or_default();
        let length = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        if length > 0 {
            let (name, behind) = name.split_at(length);
            self.0 = behind;
            return Some(TemplatePart::Variable(name));
        }
        let (sign, behind) = text.split_at_checked(1)?;
        self.0 = behind;
        Some(TemplatePart::Text(sign))
    }
}

/// The values of variables.
pub(crate) struct CommandVariables<'a> {
    entry: &'a TransferEntry,
    local: &'a Path,
    remote: &'a OsStr,
    source: &'a OsStr,
    destination: &'a OsStr,
    flags: &'static str,
    instance: &'a str,
}

impl<'a> CommandVariables<'a> {
    pub(crate) fn incoming(copy: &'a IncomingCopy<'a>, instance: &'a str) -> Self {
        Self {
            entry: copy.entry,
            local: &copy.target,
            remote: &copy.remote,
            source: &copy.remote,
            destination: copy.destination.as_os_str(),
            flags: "w",
            instance,
        }
    }

    pub(crate) fn outgoing(copy: &'a OutgoingCopy<'a>, instance: &'a str) -> Self {
        Self {
            entry: copy.entry,
            local: &copy.name,
            remote: &copy.remote,
            source: copy.source.as_os_str(),
            destination: &copy.remote,
            flags: "r",
            instance,
        }
    }

    /// Returns the value of a variable of [`VARIABLES`]; `None` for other names.
    fn value(&self, name: &str) -> Option<OsString> {
        let entry = self.entry;
        Some(match name {
            "LFN" => entry.key.path.as_os_str().to_owned(),
            "PFN" => self.local.into(),
            "RFN" => self.remote.into(),
            "SRC" => self.source.into(),
            "DST" => self.destination.into(),
            "OFLAG" => self.flags.into(),
            "PRTY" | "FMODE" => entry.priority.number().to_string().into(),
            "MDP" => "0".into(),
            "NOTIFY" => "-".into(),
            "RID" => no_option(&entry.id),
            "TID" => no_option(&entry.client),
            "HOST" => no_option(entry.client.rsplit_once('@').map_or("", |(_, host)| host)),
            "INS" => self.instance.into(),
            _ => return None,
        })
    }

    /// Replaces the variables of an argument. A name without a value stays as it is.
    pub(crate) fn expand(&self, template: &str) -> OsString {
        let mut text = OsString::new();
        for part in TemplateParts(template) {
            match part {
                TemplatePart::Text(part) => text.push(part),
                TemplatePart::Variable(name) => match self.value(name) {
                    Some(value) => text.push(value),
                    None => text.push(format!("${name}")),
                },
            }
        }
        text
    }
}

/// Returns a name that a client chose, so that it cannot be an option of the program: a `-` at its
/// begin becomes `_`.
fn no_option(name: &str) -> OsString {
    name.strip_prefix('-').map_or_else(|| name.into(), |rest| format!("_{rest}").into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::{EntryKey, EntryState, Priority, TransferDirection, TransferEntry};
    use base::LogicalPath;

    fn entry() -> TransferEntry {
        let path = LogicalPath::parse(b"/store/t1").unwrap();
        TransferEntry {
            key: EntryKey { direction: TransferDirection::In, path },
            priority: Priority::new(1),
            source: "".into(),
            id: "00007D07:6b005fc5.1".into(),
            client: "root.32681:26@[::ffff:127.0.0.1]".into(),
            owner: "".into(),
            added: 0,
            tries: 1,
            is_anonymous: true,
            removes: false,
            state: EntryState::Active,
        }
    }

    fn expand_for(entry: &TransferEntry, template: &str) -> String {
        let copy = IncomingCopy {
            entry,
            run: &crate::outlived::QueueRun::of(std::path::Path::new("/")).unwrap(),
            remote: "/mss/store/t1".into(),
            destination: "/data/store/t1.new".into(),
            target: "/data/store/t1".into(),
            lock: std::fs::File::open("/dev/null").unwrap().into(),
        };
        CommandVariables::incoming(&copy, "frm").expand(template).into_string().unwrap()
    }

    fn expand(template: &str) -> String {
        expand_for(&entry(), template)
    }

    #[test]
    fn variables_have_the_values_of_the_real_programs() {
        let template = "LFN=$LFN,USER=$USER,PRTY=$PRTY,RID=$RID,TID=$TID,INS=$INS,OFLAG=$OFLAG,MDP=$MDP";
        let wanted = "LFN=/store/t1,USER=$USER,PRTY=1,RID=00007D07:6b005fc5.1,\
            TID=root.32681:26@[::ffff:127.0.0.1],INS=frm,OFLAG=w,MDP=0";
        assert_eq!(expand(template), wanted);
        assert_eq!(expand("$SRC $DST"), "/mss/store/t1 /data/store/t1.new");
        assert_eq!(expand("$RFN:$PFN"), "/mss/store/t1:/data/store/t1");
        assert_eq!(expand("$HOST"), "[::ffff:127.0.0.1]");
        assert_eq!(expand(r"\$LFN $ \n $"), r"$LFN $ \n $");
        for name in VARIABLES {
            assert_ne!(expand(&format!("${name}")), format!("${name}"), "it has a value");
        }
    }

    #[test]
    fn a_copy_out_has_its_names_the_other_way_round() {
        let entry = entry();
        let copy = OutgoingCopy {
            entry: &entry,
            run: &crate::outlived::QueueRun::of(std::path::Path::new("/")).unwrap(),
            source: "/disk/01%".into(),
            name: "/data/store/t1".into(),
            remote: "/mss/store/t1".into(),
        };
        let text = CommandVariables::outgoing(&copy, "frm").expand("$SRC $DST $PFN $RFN $OFLAG $MDP");
        assert_eq!(text, "/disk/01% /mss/store/t1 /data/store/t1 /mss/store/t1 r 0");
    }

    #[test]
    fn variables_without_a_value_are_found_before_the_first_copy() {
        let command = |arguments: &[&str]| CopyCommand {
            program: "/bin/cp".into(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            time_limit: None,
            creates_file: false,
        };
        assert_eq!(command(&["-c", r"cp $1 \$x $ $SRC:$DST", "$LFN"]).variable_without_value(), None);
        for name in ["CGI", "USER", "CID", "OPTS", "LFN2", "PFN2", "RFN2", "class"] {
            let command = command(&["$SRC", &format!("--x=${name}")]);
            assert_eq!(command.variable_without_value(), Some(name));
        }
    }

    #[test]
    fn a_client_cannot_add_an_option() {
        let entry = TransferEntry { client: "-rf.1:2@-h".into(), id: "--delete".into(), ..entry() };
        assert_eq!(expand_for(&entry, "$TID $HOST"), "_rf.1:2@-h _h");
        assert_eq!(expand_for(&entry, "$RID"), "_-delete");
        assert_eq!(expand_for(&entry, "$NOTIFY"), "-");
    }
}
