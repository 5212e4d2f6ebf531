//! Command lines of copy programs: a template with variables, as in `frm.xfr.copycmd`.

use crate::ports::IncomingCopy;
use base::Cgi;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
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
}

/// The values of variables.
pub(crate) struct CommandVariables<'a> {
    copy: &'a IncomingCopy<'a>,
    cgi: Cgi,
    instance: &'a str,
}

impl<'a> CommandVariables<'a> {
    pub(crate) fn new(copy: &'a IncomingCopy<'a>, instance: &'a str) -> Self {
        Self { copy, cgi: Cgi::new(copy.entry.cgi.as_bytes()), instance }
    }

    /// Returns the value of a variable; `None` if it is not defined. Names that are not those of
    /// this program are looked up in the opaque data of the request.
    fn value(&self, name: &str) -> Option<OsString> {
        let entry = self.copy.entry;
        Some(match name {
            "LFN" => entry.key.path.as_os_str().to_owned(),
            "PFN" => self.copy.target.clone().into_os_string(),
            "RFN" | "SRC" => self.copy.remote.clone(),
            "DST" => self.copy.destination.clone().into_os_string(),
            "CGI" => OsString::from(&*entry.cgi),
            "OFLAG" => "w".into(),
            "PRTY" | "FMODE" => entry.priority.number().to_string().into(),
            "MDP" => "0".into(),
            "NOTIFY" => "-".into(),
            "RID" => OsString::from(&*entry.id),
            "TID" => OsString::from(&*entry.client),
            "HOST" => entry.client.rsplit_once('@').map_or("", |(_, host)| host).into(),
            "INS" => self.instance.into(),
            _ => self.cgi.text(name)?.into(),
        })
    }

    /// Replaces the variables of an argument. A variable that is not defined stays as it is, and
    /// `\$` is a dollar sign.
    ///
    /// # Errors
    /// The name of a variable that would turn the argument into an option. Its value may come from
    /// a client.
    pub(crate) fn expand(&self, template: &str) -> Result<OsString, String> {
        let mut text = Vec::new();
        let mut rest = template;
        while let Some(at) = rest.find(['$', '\\']) {
            let (before, after) = rest.split_at(at);
            text.extend_from_slice(before.as_bytes());
            if let Some(behind) = after.strip_prefix("\\$") {
                text.push(b'$');
                rest = behind;
                continue;
            }
            let name = after.strip_prefix('$').unwrap_or_default();
            let length = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            let (name, behind) = name.split_at(length);
            match self.value(name).filter(|_| length > 0) {
                Some(value) => {
                    if text.is_empty() && value.as_bytes().starts_with(b"-") && value != *OsStr::new("-") {
                        return Err(name.to_owned());
                    }
                    text.extend_from_slice(value.as_bytes());
                    rest = behind;
                }
                None => {
                    let (sign, behind) = after.split_at(1);
                    text.extend_from_slice(sign.as_bytes());
                    rest = behind;
                }
            }
        }
        text.extend_from_slice(rest.as_bytes());
        Ok(OsString::from_vec(text))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::{EntryKey, EntryState, Priority, TransferDirection, TransferEntry};
    use base::LogicalPath;

    fn entry(cgi: &str) -> TransferEntry {
        let path = LogicalPath::parse(b"/store/t1").unwrap();
        TransferEntry {
            key: EntryKey { direction: TransferDirection::In, path },
            priority: Priority::new(1),
            source: "".into(),
            id: "00007D07:6b005fc5.1".into(),
            client: "root.32681:26@[::ffff:127.0.0.1]".into(),
            cgi: cgi.into(),
            added: 0,
            tries: 1,
            is_anonymous: true,
            state: EntryState::Active,
        }
    }

    fn expand(template: &str, cgi: &str) -> Result<String, String> {
        let entry = entry(cgi);
        let copy = IncomingCopy {
            entry: &entry,
            remote: "/mss/store/t1".into(),
            destination: "/data/store/t1.new".into(),
            target: "/data/store/t1".into(),
            lock: std::fs::File::open("/dev/null").unwrap().into(),
        };
        let expanded = CommandVariables::new(&copy, "frm").expand(template);
        expanded.map(|text| text.into_string().unwrap())
    }

    #[test]
    fn variables_have_the_values_of_the_real_programs() {
        let template =
            "LFN=$LFN,USER=$USER,PRTY=$PRTY,RID=$RID,TID=$TID,INS=$INS,OFLAG=$OFLAG,MDP=$MDP,CGI=$CGI";
        let wanted = "LFN=/store/t1,USER=$USER,PRTY=1,RID=00007D07:6b005fc5.1,\
            TID=root.32681:26@[::ffff:127.0.0.1],INS=frm,OFLAG=w,MDP=0,CGI=";
        assert_eq!(expand(template, "").unwrap(), wanted);
        assert_eq!(expand("$SRC $DST", "").unwrap(), "/mss/store/t1 /data/store/t1.new");
        assert_eq!(expand("$RFN:$PFN", "").unwrap(), "/mss/store/t1:/data/store/t1");
        assert_eq!(expand("$HOST", "").unwrap(), "[::ffff:127.0.0.1]");
    }

    #[test]
    fn opaque_data_defines_other_variables_and_undefined_ones_stay() {
        assert_eq!(expand("-c=$class/$other", "class=gold&x=1").unwrap(), "-c=gold/$other");
        assert_eq!(expand("$CGI", "class=gold&x=1").unwrap(), "class=gold&x=1");
        assert_eq!(expand(r"\$LFN $ \n $", "").unwrap(), r"$LFN $ \n $");
        // The value of a variable is not expanded again.
        assert_eq!(expand("a$class", "class=$LFN").unwrap(), "a$LFN");
    }

    #[test]
    fn a_client_cannot_add_an_option() {
        assert_eq!(expand("$class", "class=--delete"), Err("class".to_owned()));
        assert_eq!(expand("$CGI", "-rf"), Err("CGI".to_owned()));
        assert_eq!(expand("x$class", "class=-r").unwrap(), "x-r");
        assert_eq!(expand("$NOTIFY", "").unwrap(), "-");
    }
}
