//! Redirection of third-party copies to another server (`ofs.tpc redirect`).
//!
//! It wraps the complete file system, because a copy is redirected before any file is opened here.

use config::CopyRedirect;
use logical::is_third_party_copy;
use std::sync::Arc;
use vfs::{Answer, Caller, FileSystem, OpenFile, Operation, RedirectAnswer, ReplyTo, Started, Target};

/// The key of copies with credentials that the client has delegated to the destination. Servers
/// redirect such copies by this key.
const DELEGATED_KEY: &str = "delegate";

/// A file system whose third-party copies are redirected.
pub(crate) struct Handoff {
    behind: Arc<dyn FileSystem>,
    rules: Vec<CopyRedirect>,
}

impl Handoff {
    /// Returns `behind` itself without rules.
    pub(crate) fn before(behind: Arc<dyn FileSystem>, rules: Vec<CopyRedirect>) -> Arc<dyn FileSystem> {
        if rules.is_empty() { behind } else { Arc::new(Self { behind, rules }) }
    }

    fn redirect(&self, target: &Target) -> Option<RedirectAnswer> {
        if !is_third_party_copy(&target.cgi) {
            return None;
        }
        let has = |key: &str, value: &str| target.cgi.text(key) == Some(value);
        let delegated = has("tpc.key", DELEGATED_KEY) || has("tpc.dlgon", "1");
        let rule =
            self.rules.iter().find(|rule| if delegated { rule.delegated } else { rule.undelegated })?;
        Some(RedirectAnswer {
            host: rule.target.host.as_str().into(),
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

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.behind.read_redirect(caller, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Cgi, Identity, LogicalPath, LoginNames};
    use config::RedirectServer as Address;
    use vfs::FileOperation;

    /// A file system that redirects readers.
    struct Draining;
    impl FileSystem for Draining {
        fn start(&self, _: &Arc<Caller>, _: Operation, _: &ReplyTo) -> Started {
            Started::Pending
        }

        fn read_redirect(&self, _: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
            Some(RedirectAnswer { host: file.path().text().into(), port: 1094, cgi: String::new() })
        }
    }

    struct Nothing(LogicalPath);
    impl OpenFile for Nothing {
        fn path(&self) -> &LogicalPath {
            &self.0
        }

        fn is_writable(&self) -> bool {
            false
        }

        fn start(&self, _: FileOperation, _: &ReplyTo) -> Started {
            Started::Pending
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    #[test]
    fn redirects_of_readers_are_passed_on() {
        let rule = CopyRedirect {
            delegated: true,
            undelegated: true,
            target: Address { host: "h".to_owned(), port: 1094 },
            cgi: String::new(),
        };
        let files = Handoff::before(Arc::new(Draining), vec![rule]);
        let caller = Caller::new(Identity::new(&LoginNames::default(), 1, None, "host"), true, true);
        let to = files.read_redirect(&caller, &Nothing(LogicalPath::parse(b"/f").unwrap()));
        assert_eq!(to.map(|to| to.host).as_deref(), Some("/f"));
    }

    #[test]
    fn copies_are_redirected_by_the_first_rule_that_applies() {
        let rule = |delegated, undelegated, host: &str| CopyRedirect {
            delegated,
            undelegated,
            target: Address { host: host.to_owned(), port: 1094 },
            cgi: "a=1".to_owned(),
        };
        let rules = vec![rule(true, false, "with"), rule(false, true, "without")];
        let handoff = Handoff { behind: Arc::new(Draining), rules };
        let goes = |cgi: &str| {
            let path = LogicalPath::parse(b"/f").unwrap();
            handoff
                .redirect(&Target { path, cgi: Cgi::new(cgi.as_bytes()) })
                .map(|to| (to.host.to_string(), to.cgi))
        };
        let to = |host: &str| Some((host.to_owned(), "a=1".to_owned()));
        assert_eq!(goes("tpc.key=k&tpc.dst=d"), to("without"));
        assert_eq!(goes("tpc.key=k&tpc.src=s&tpc.dlgon=1"), to("with"));
        assert_eq!(goes("tpc.key=delegate"), to("with"));
        assert_eq!(goes("tpc.src=s&tpc.dlgon=1"), to("with"), "it has no key");
        assert_eq!(goes("tpc.stage=placement"), None);
        assert_eq!(goes(""), None);
    }
}
