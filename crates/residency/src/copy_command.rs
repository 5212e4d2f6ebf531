//! Command lines of copy programs: a template with variables, as in `frm.xfr.copycmd`.

use crate::entry::{CopyFailure, FailureReason, TransferEntry};
use crate::ports::{IncomingCopy, OutgoingCopy};
use crate::stage_agent_process::PIPE;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
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
        let mut names = self.arguments.iter().flat_map(|template| variables(template));
        // Parameters of a shell, such as $1, are no variables.
        names.find(|name| !VARIABLES.contains(name) && !name.starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// Returns the names of the variables of a template.
fn variables(template: &str) -> impl Iterator<Item = &str> {
    TemplateParts(template).filter_map(|part| match part {
        TemplatePart::Variable(name) => Some(name),
        TemplatePart::Text(_) => None,
    })
}

/// The line with which a file is asked for (`oss.stagemsg`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageMessage {
    template: String,
    /// The name of the pipe for reports, for `$NOTIFY`.
    pipe: PathBuf,
}

impl StageMessage {
    /// Creates a message from its template, for a program of the queue in a directory. A program that reports the ends of
    /// files needs a word for that.
    ///
    /// # Errors
    /// The reason for which no program can use it.
    pub fn new(template: &str, directory: &Path, has_reports: bool) -> Result<Self, String> {
        if let Some(name) = variables(template).find(|name| !VARIABLES.contains(name)) {
            return Err(format!("${name} has no value here; remove it, or write \\${name} for the text"));
        }
        if !variables(template).any(|name| name == "DST" || name == "PFN") {
            return Err("$DST is missing, the temporary name at which the program writes the file".to_owned());
        }
        if has_reports && !variables(template).any(|name| name == "RID") {
            return Err(
                "$RID is missing, the word with which the program reports the end of the file".to_owned()
            );
        }
        Ok(Self { template: template.to_owned(), pipe: directory.join(PIPE) })
    }

    /// Returns the line for a file, with its end, as the parts between its words (`$RID`).
    ///
    /// # Errors
    /// The failure of a file with a name that would be read as several words or lines.
    pub(crate) fn line(&self, copy: &IncomingCopy<'_>, instance: &str) -> Result<Vec<Vec<u8>>, CopyFailure> {
        // Whatever the program calls it, it writes at the temporary name.
        let variables =
            CommandVariables { local: &copy.destination, ..CommandVariables::incoming(copy, instance) };
        let (mut parts, mut line) = (Vec::new(), Vec::new());
        for part in TemplateParts(&self.template) {
            let name = match part {
                TemplatePart::Text(text) => {
                    line.extend_from_slice(text.as_bytes());
                    continue;
                }
                TemplatePart::Variable("RID") => {
                    parts.push(std::mem::take(&mut line));
                    continue;
                }
                TemplatePart::Variable(name) => name,
            };
            let value = match name {
                "NOTIFY" => [OsStr::new("file:///"), self.pipe.as_os_str()].into_iter().collect(),
                _ => variables.value(name).unwrap_or_default(),
            };
            let is_odd = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
            let is_name = ["LFN", "PFN", "RFN", "SRC", "DST", "NOTIFY"].contains(&name);
            if is_name && value.as_bytes().iter().any(is_odd) {
                let text =
                    "names with blanks or control characters cannot be given to the program of oss.stagecmd";
                return Err(CopyFailure::new(FailureReason::Permanent, text));
            }
            line.extend(value.as_bytes().iter().map(|byte| if is_odd(byte) { b'_' } else { *byte }));
        }
        line.push(b'\n');
        parts.push(line);
        Ok(parts)
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
            status: None,
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
    fn a_message_is_one_line_of_words() {
        let message = |template: &str| StageMessage::new(template, Path::new("/q"), true);
        let line = |entry: &TransferEntry, template: &str| {
            let copy = IncomingCopy {
                entry,
                run: &crate::outlived::QueueRun::of(std::path::Path::new("/")).unwrap(),
                remote: crate::remote_name("/mss", &entry.key.path),
                destination: "/data/store/.new".into(),
                target: "/data/store/t1".into(),
                status: None,
                lock: std::fs::File::open("/dev/null").unwrap().into(),
            };
            let parts = message(template).unwrap().line(&copy, "frm");
            parts.map(|parts| String::from_utf8(parts.join(b"w.1".as_slice())).unwrap())
        };
        let template = "+ $RID $NOTIFY $PRTY wfn $LFN $RFN $DST $PFN \\$x";
        let wanted = "+ w.1 file:////q/ofsEvents 1 wfn /store/t1 /mss/store/t1 /data/store/.new \
            /data/store/.new $x\n";
        assert_eq!(line(&entry(), template).unwrap(), wanted);
        // A client chooses these.
        let odd = TransferEntry { client: "a b\n+ x:1@h".into(), ..entry() };
        assert_eq!(line(&odd, "$TID $RID $DST").unwrap(), "a_b_+_x:1@h w.1 /data/store/.new\n");
        for name in ["/a b", "/a\n+ /b", "/a\tb", "/a\u{7f}"] {
            let path = LogicalPath::parse(name.as_bytes()).unwrap();
            let odd = TransferEntry { key: EntryKey { direction: TransferDirection::In, path }, ..entry() };
            for template in ["$RID $LFN $DST", "$SRC $RID $DST"] {
                assert_eq!(line(&odd, template).unwrap_err().reason, FailureReason::Permanent, "{name:?}");
            }
        }
        assert!(message("$RID $LFN").is_err(), "it names no file to write");
        assert!(message("$LFN $DST").is_err(), "it has no word for the report");
        for variable in ["CGI", "USER", "class", "1"] {
            assert!(message(&format!("$RID $DST ${variable}")).is_err(), "{variable}");
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
