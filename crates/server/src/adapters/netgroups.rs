//! Netgroups of the system, for [`auth::access::NetgroupDatabase`]. They are read with `getent`,
//! which expands nested netgroups and asks all services of `/etc/nsswitch.conf`.

use auth::access::{NetgroupDatabase, NetgroupMember};
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The program. Its absolute path does not depend on the environment of the server.
const GETENT: &str = "/usr/bin/getent";
/// Maximum time for one netgroup.
const LOOKUP_MAX: Duration = Duration::from_secs(20);
/// Maximum size of the list of members in bytes.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Exit status of `getent` for a name that does not exist.
const NO_SUCH_KEY: i32 = 2;

/// The netgroups of this machine.
pub struct SystemNetgroups;

impl NetgroupDatabase for SystemNetgroups {
    fn members(&self, netgroup: &str) -> io::Result<Vec<NetgroupMember>> {
        let mut command = Command::new(GETENT);
        // Variables of the server must not change what is looked up.
        command.env_clear().env("LC_ALL", "C").current_dir("/").args(["--", "netgroup", netgroup]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take();
        let (sender, received) = mpsc::channel();
        let read = move || {
            let mut text = Vec::new();
            let limited = output.map(|output| output.take(LIST_BYTES_MAX + 1));
            let result = limited.map_or(Ok(0), |mut limited| limited.read_to_end(&mut text));
            // The receiver is gone after a timeout.
            let _ = sender.send(result.map(|_| text));
        };
        let reader = std::thread::Builder::new().name("netgroup".into()).spawn(read);
        let text = reader.and_then(|_| {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "the look-up of a netgroup takes too long");
            received.recv_timeout(LOOKUP_MAX).map_err(|_| late())?
        });
        if text.is_err() {
            let _ = child.kill();
        }
        let status = child.wait()?;
        let text = text?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > LIST_BYTES_MAX {
            return Err(io::Error::other(format!("netgroup {netgroup} has too many members")));
        }
        match status.code() {
            Some(0) => Ok(parse(&String::from_utf8_lossy(&text))),
            Some(NO_SUCH_KEY) => {
                let what = format!("netgroup {netgroup} does not exist");
                Err(io::Error::new(io::ErrorKind::NotFound, what))
            }
            _ => Err(io::Error::other(format!("getent netgroup {netgroup} failed: {status}"))),
        }
    }
}

/// Parses `name (host,user,domain) …`. An empty field stands for any value.
fn parse(text: &str) -> Vec<NetgroupMember> {
    let triples = text.split('(').skip(1).filter_map(|rest| rest.split_once(')'));
    let field = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    triples
        .filter_map(|(triple, _)| {
            let mut fields = triple.splitn(3, ',');
            let (host, user, domain) = (fields.next(), fields.next()?, fields.next()?);
            Some(NetgroupMember { host: field(host), user: field(Some(user)), domain: field(Some(domain)) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_triples() {
        let found = parse("staff                 (h1,ann,) ( ,bob, here ) (h2,,) (broken)\n");
        let member = |host: &str, user: &str, domain: &str| {
            let field = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            NetgroupMember { host: field(host), user: field(user), domain: field(domain) }
        };
        assert_eq!(found, [member("h1", "ann", ""), member("", "bob", "here"), member("h2", "", "")]);
    }

    #[test]
    fn an_unknown_netgroup_is_an_error() {
        let error = SystemNetgroups.members("scalla-no-such-netgroup").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
