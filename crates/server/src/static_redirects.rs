//! Static redirection of requests to another server (`xrootd.redirect`).
//!
//! It wraps the logical file system, because a rule applies before any file is opened. Rules are
//! tried in the order of the configuration file; the first match decides. Rules by path apply to
//! opens and extended attributes only, because the clients of a manager stat, list and change
//! through it. A missing file is redirected only after the request has failed here. A request that
//! was here before is not redirected again: its `tried` contains this server.

use base::{ErrorKind, Identity, is_private};
use config::{ClientClass, RedirectFunction, RedirectRule as Rule, RedirectWhen};
use std::sync::Arc;
use vfs::{Answer, Caller, FileSystem, OpenFile, Operation, RedirectAnswer, ReplyTo, Started, Target};

/// A file system with redirection in front of it.
pub(crate) struct StaticRedirects {
    rules: Vec<Rule>,
    /// The name of this server, for `tried` and for the meaning of "local".
    host: String,
    behind: Arc<dyn FileSystem>,
}

impl StaticRedirects {
    /// Returns `behind` itself without rules.
    pub(crate) fn before(behind: Arc<dyn FileSystem>, rules: Vec<Rule>, host: &str) -> Arc<dyn FileSystem> {
        if rules.is_empty() {
            return behind;
        }
        Arc::new(Self { rules, host: host.to_owned(), behind })
    }

    /// Returns the destination of an operation that is redirected before it is tried here.
    fn at_once(&self, caller: &Caller, operation: &Operation) -> Option<RedirectAnswer> {
        let (function, target) = subject(operation)?;
        let applies = |rule: &&Rule| match &rule.when {
            RedirectWhen::Functions(functions) => {
                function.is_some_and(|function| functions.contains(&function))
            }
            RedirectWhen::Paths(prefixes) => {
                matches!(operation, Operation::Open(..) | Operation::Attributes(..))
                    && lies_in(target, prefixes)
            }
            RedirectWhen::Clients(classes) => {
                classes.iter().any(|class| is_of(class, &caller.identity, &self.host))
            }
            RedirectWhen::Missing(_) => false,
        };
        self.rules.iter().find(applies).map(|rule| destination(rule, &caller.identity, String::new()))
    }

    /// Returns the destination of an operation that is redirected if its file is missing here.
    fn when_missing(&self, caller: &Caller, operation: &Operation) -> Option<RedirectAnswer> {
        let target = needed(operation)?;
        let applies =
            |rule: &&Rule| matches!(&rule.when, RedirectWhen::Missing(prefixes) if lies_in(target, prefixes));
        let rule = self.rules.iter().find(applies)?;
        let tried = target.cgi.text("tried").unwrap_or_default();
        if tried.split(',').any(|host| host == self.host) {
            return None;
        }
        let tried = if tried.is_empty() { self.host.clone() } else { format!("{},{tried}", self.host) };
        Some(destination(rule, &caller.identity, format!("tried={tried}")))
    }
}

impl FileSystem for StaticRedirects {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        if let Some(redirect) = self.at_once(caller, &operation) {
            return Started::Done(Answer::Redirect(redirect));
        }
        let Some(redirect) = self.when_missing(caller, &operation) else {
            return self.behind.start(caller, operation, reply);
        };
        let client = reply.clone();
        let detour = reply.intercept(move |answer| {
            client.defer().send(match answer {
                Answer::Error(error) if error.kind == ErrorKind::NotFound => Answer::Redirect(redirect),
                answer => answer,
            });
        });
        match self.behind.start(caller, operation, &detour) {
            Started::Done(answer) => {
                detour.defer().send(answer);
                Started::Pending
            }
            started => started,
        }
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.behind.read_redirect(caller, file)
    }
}

/// Returns the function of an operation, as the directive names it, and its path.
fn subject(operation: &Operation) -> Option<(Option<RedirectFunction>, &Target)> {
    use RedirectFunction as F;
    Some(match operation {
        Operation::Open(target, request) => (request.write.then_some(F::OpenWrite), target),
        Operation::Stat(target)
        | Operation::StatSpace(target)
        | Operation::QueryAttributes(target)
        | Operation::QuerySpace(target) => (Some(F::Stat), target),
        Operation::StatMany(targets) => (Some(F::Stat), targets.first()),
        Operation::List(target, _) => (Some(F::Dirlist), target),
        Operation::MakeDirectory { target, .. } => (Some(F::Mkdir), target),
        Operation::RemoveDirectory(target) => (Some(F::Rmdir), target),
        Operation::Remove(target) => (Some(F::Rm), target),
        Operation::Rename { from, .. } => (Some(F::Mv), from),
        Operation::ChangeMode { target, .. } => (Some(F::Chmod), target),
        Operation::Truncate { target, .. } => (Some(F::Trunc), target),
        Operation::Locate(Some(target), _) => (Some(F::Locate), target),
        Operation::Checksum(target) | Operation::CancelChecksum(target) => (Some(F::Chksum), target),
        Operation::Prepare(request, targets) => {
            (Some(if request.stage { F::PrepareStage } else { F::Prepare }), targets.first())
        }
        Operation::Attributes(target, _) | Operation::Cache(target, _) => (None, target),
        Operation::Locate(None, _)
        | Operation::ListMore(_)
        | Operation::CancelPrepare { .. }
        | Operation::QueryPrepare { .. }
        | Operation::QueryOpaque { .. }
        | Operation::Tape(_)
        | Operation::IssueMacaroon(..) => return None,
    })
}

/// Returns the path that must exist for an operation to succeed, if another server may have it.
fn needed(operation: &Operation) -> Option<&Target> {
    match operation {
        Operation::Open(target, _)
        | Operation::Stat(target)
        | Operation::List(target, _)
        | Operation::Locate(Some(target), _)
        | Operation::MakeDirectory { target, .. }
        | Operation::Remove(target)
        | Operation::Rename { from: target, .. }
        | Operation::ChangeMode { target, .. }
        | Operation::Truncate { target, .. }
        | Operation::QueryAttributes(target)
        | Operation::Attributes(target, _) => Some(target),
        Operation::StatMany(targets) => Some(targets.first()),
        _ => None,
    }
}

fn lies_in(target: &Target, prefixes: &[String]) -> bool {
    let within = |prefix: &String| {
        base::LogicalPath::parse(prefix.as_bytes()).is_ok_and(|p| target.path.is_within(&p))
    };
    prefixes.iter().any(within)
}

fn is_of(class: &ClientClass, identity: &Identity, own_host: &str) -> bool {
    let named = if identity.named_host().is_empty() { identity.host() } else { identity.named_host() };
    match class {
        ClientClass::Private => identity.address.is_some_and(is_private),
        ClientClass::Local => match (own_host.split_once('.'), named.split_once('.')) {
            (Some((_, own)), Some((_, theirs))) => own.eq_ignore_ascii_case(theirs),
            _ => identity.address.is_some_and(|address| address.is_loopback()),
        },
        ClientClass::Domain(pattern) => pattern.matches(named),
    }
}

fn destination(rule: &Rule, identity: &Identity, cgi: String) -> RedirectAnswer {
    let private = identity.address.is_some_and(is_private);
    let target = rule.private_target.as_ref().filter(|_| private).unwrap_or(&rule.target);
    RedirectAnswer { host: target.host.as_str().into(), port: i32::from(target.port), cgi }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Cgi, Error, LogicalPath, LoginNames};
    use config::RedirectServer as Server;
    use std::sync::Mutex;
    use vfs::{Mailbox, OpenRequest, ReplyToken};

    /// A file system with only `/here`, which defers its answers to opens.
    struct Almost;
    impl FileSystem for Almost {
        fn start(&self, _: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
            match operation {
                Operation::Open(target, _) | Operation::Truncate { target, .. }
                    if target.path.as_bytes() != b"/data/here" =>
                {
                    reply.defer().send(Answer::Error(Error::new(ErrorKind::NotFound, "missing")));
                    Started::Pending
                }
                _ => Started::Done(Answer::DONE),
            }
        }
    }

    #[derive(Default)]
    struct Got(Mutex<Vec<Answer>>);
    impl Mailbox for Got {
        fn deliver(&self, _: ReplyToken, answer: Answer) {
            self.0.lock().unwrap().push(answer);
        }
    }

    fn rule(when: RedirectWhen) -> Rule {
        let server = |host: &str| Server { host: host.to_owned(), port: 2094 };
        Rule { target: server("far"), private_target: Some(server("near")), when }
    }

    fn target(path: &str, cgi: &str) -> Target {
        Target { path: LogicalPath::parse(path.as_bytes()).unwrap(), cgi: Cgi::new(cgi.as_bytes()) }
    }

    /// Returns the reply to the client: a redirect, or the outcome.
    fn told(rules: Vec<Rule>, operation: Operation, address: &str) -> String {
        let told =
            LoginNames { user: "u", host: address, named_host: "c.example.org", ..LoginNames::default() };
        let identity = Identity::new(&told, 1, Some(address.parse().unwrap()), "host");
        let caller = Arc::new(Caller::new(identity, true, false));
        let got = Arc::new(Got::default());
        let reply = ReplyTo::new(got.clone(), ReplyToken { owner: 1, call: 1 });
        let files = StaticRedirects::before(Arc::new(Almost), rules, "vm.example.org");
        let answer = match files.start(&caller, operation, &reply) {
            Started::Done(answer) => answer,
            _ => got.0.lock().unwrap().pop().expect("an answer"),
        };
        assert!(got.0.lock().unwrap().is_empty(), "answered twice");
        match answer {
            Answer::Redirect(to) => format!("{}:{}?{}", to.host, to.port, to.cgi),
            Answer::Error(error) => error.text,
            _ => "done".to_owned(),
        }
    }

    fn open(path: &str, cgi: &str) -> Operation {
        Operation::Open(target(path, cgi), Box::new(OpenRequest { read: true, ..OpenRequest::default() }))
    }

    #[test]
    fn a_missing_file_is_redirected_once() {
        let rules = || vec![rule(RedirectWhen::Missing(vec!["/data".into()]))];
        assert_eq!(told(rules(), open("/data/here", ""), "8.8.8.8"), "done");
        assert_eq!(told(rules(), open("/data/x", ""), "8.8.8.8"), "far:2094?tried=vm.example.org");
        let tried = "far:2094?tried=vm.example.org,foo.bar";
        assert_eq!(told(rules(), open("/data/x", "tried=foo.bar"), "8.8.8.8"), tried);
        assert_eq!(told(rules(), open("/data/x", "tried=vm.example.org"), "8.8.8.8"), "missing");
        assert_eq!(told(rules(), open("/database", ""), "8.8.8.8"), "missing");
        let truncate = Operation::Truncate { target: target("/data/x", ""), size: 0 };
        assert_eq!(told(rules(), truncate, "8.8.8.8"), "far:2094?tried=vm.example.org");
    }

    #[test]
    fn functions_paths_and_clients_are_redirected_immediately() {
        let functions = || vec![rule(RedirectWhen::Functions(vec![RedirectFunction::Rm]))];
        assert_eq!(told(functions(), Operation::Remove(target("/a", "")), "8.8.8.8"), "far:2094?");
        assert_eq!(told(functions(), Operation::Stat(target("/a", "")), "8.8.8.8"), "done");
        let paths = || vec![rule(RedirectWhen::Paths(vec!["/a/".into()]))];
        assert_eq!(told(paths(), open("/a/b", ""), "192.168.1.1"), "near:2094?");
        assert_eq!(told(paths(), open("/ab", ""), "192.168.1.1"), "missing");
        assert_eq!(told(paths(), Operation::Stat(target("/a/b", "")), "192.168.1.1"), "done");
        let stat = || vec![rule(RedirectWhen::Functions(vec![RedirectFunction::Stat]))];
        assert_eq!(told(stat(), Operation::QuerySpace(target("/a", "")), "8.8.8.8"), "far:2094?");
        let domain = config::HostPattern::parse("*.example.org").unwrap();
        for class in [ClientClass::Local, ClientClass::Domain(domain)] {
            let rules = vec![rule(RedirectWhen::Clients(vec![class]))];
            assert_eq!(told(rules, Operation::Stat(target("/a", "")), "8.8.8.8"), "far:2094?");
        }
        let private = || vec![rule(RedirectWhen::Clients(vec![ClientClass::Private]))];
        assert_eq!(told(private(), Operation::Stat(target("/a", "")), "8.8.8.8"), "done");
        assert_eq!(told(private(), Operation::Stat(target("/a", "")), "fd00::1"), "near:2094?");
    }
}
