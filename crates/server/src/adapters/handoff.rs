//! Third-party copies handed to another server (`ofs.tpc redirect`), before any file system.

use config::CopyRedirect;
use std::sync::Arc;
use vfs::{Answer, Caller, FileSystem, Operation, Redirect, ReplyTo, Started, Target};

/// The key of copies whose client has delegated credentials to the destination, by which servers hand them on.
const DELEGATED_KEY: &str = "delegate";

/// A file system whose third-party copies are made elsewhere.
pub(crate) struct Handoff {
    behind: Arc<dyn FileSystem>,
    rules: Vec<CopyRedirect>,
}

impl Handoff {
    /// `behind` itself where there are no rules.
    pub(crate) fn before(behind: Arc<dyn FileSystem>, rules: Vec<CopyRedirect>) -> Arc<dyn FileSystem> {
        if rules.is_empty() { behind } else { Arc::new(Self { behind, rules }) }
    }

    fn redirect(&self, target: &Target) -> Option<Redirect> {
        let key = target.cgi.text("tpc.key").filter(|key| !key.is_empty())?;
        let delegated = key == DELEGATED_KEY || target.cgi.text("tpc.dlgon") == Some("1");
        let rule =
            self.rules.iter().find(|rule| if delegated { rule.delegated } else { rule.undelegated })?;
        Some(Redirect {
            host: rule.target.host.clone(),
            port: rule.target.port.into(),
            cgi: rule.cgi.clone(),
        })
    }
}

impl FileSystem for Handoff {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        if let Operation::Open(target, _) = &operation
            && let Some(redirect) = self.redirect(target)
        {
            return Started::Done(Answer::Redirect(redirect));
        }
        self.behind.start(caller, operation, reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Cgi, LogicalPath};
    use config::Target as Address;

    struct Nothing;
    impl FileSystem for Nothing {
        fn start(&self, _: &Arc<Caller>, _: Operation, _: &ReplyTo) -> Started {
            Started::Pending
        }
    }

    #[test]
    fn copies_go_where_the_first_rule_for_them_says() {
        let rule = |delegated, undelegated, host: &str| CopyRedirect {
            delegated,
            undelegated,
            target: Address { host: host.to_owned(), port: 1094 },
            cgi: "a=1".to_owned(),
        };
        let rules = vec![rule(true, false, "with"), rule(false, true, "without")];
        let handoff = Handoff { behind: Arc::new(Nothing), rules };
        let goes = |cgi: &str| {
            let path = LogicalPath::parse(b"/f").unwrap();
            handoff.redirect(&Target { path, cgi: Cgi::new(cgi.as_bytes()) }).map(|to| (to.host, to.cgi))
        };
        let to = |host: &str| Some((host.to_owned(), "a=1".to_owned()));
        assert_eq!(goes("tpc.key=k&tpc.dst=d"), to("without"));
        assert_eq!(goes("tpc.key=k&tpc.src=s&tpc.dlgon=1"), to("with"));
        assert_eq!(goes("tpc.key=delegate"), to("with"));
        assert_eq!(goes("tpc.stage=placement"), None);
        assert_eq!(goes(""), None);
    }
}
