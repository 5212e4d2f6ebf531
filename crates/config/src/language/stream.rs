//! Evaluates a configuration from its first file to its last line: conditions, `set`, `setenv`,
//! `continue`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::condition::{Facts, decide};
use super::lines::{SourceLine, lines};
use super::variables::{Variables, from_environment, substitute, valid_name};
use super::{DirectiveToken, Evaluation, FILES_MAX, Statement, VALUE_FILE_BYTES_MAX, VARIABLE_NAME_MAX};
use crate::effective::EnvironmentChange;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::{Origin, Position};
use crate::source::{ConfigSource, PathKind, describe};

/// Suffixes of files that `continue DIRECTORY` skips if no suffix is given.
const SKIPPED_SUFFIXES: [&str; 6] = [".cfsaved", ".rpmsave", ".rpmnew", ".dpkg-old", ".dpkg-dist", "~"];

/// Directives with variables of their own, which are not substituted.
const NOT_SUBSTITUTED: [&str; 4] = ["oss.stagemsg", "ofs.notifymsg", "frm.xfr.copycmd", "cms.prepmsg"];

/// The result of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Evaluated {
    /// The directives that apply, in order.
    pub(crate) statements: Vec<Statement>,
    /// Environment changes requested by `setenv`, in order.
    pub(crate) environment: Vec<EnvironmentChange>,
}

/// Evaluates `file` and the files it continues with. Errors go to `report`, and the rest is still
/// evaluated. `takes_condition` reports which directives may end with `if CONDITION`.
pub(crate) fn evaluate(
    file: &str,
    source: &dyn ConfigSource,
    evaluation: &Evaluation,
    takes_condition: &dyn Fn(&str) -> bool,
    report: &mut ConfigReport,
) -> Evaluated {
    let mut stream = StatementStream {
        source,
        evaluation,
        takes_condition,
        report,
        variables: Variables::new(),
        environment: evaluation.environment.clone(),
        branch: Branch::Outside,
        nested: 0,
        pending: VecDeque::new(),
        seen: BTreeSet::new(),
        out: Evaluated::default(),
    };
    stream.pending.push_back((Arc::from(file), None));
    while let Some((file, from)) = stream.pending.pop_front() {
        stream.file(&file, from);
    }
    stream.out
}

/// State of the current line with regard to the last `if`.
#[derive(Clone, PartialEq, Debug)]
enum Branch {
    /// Outside of if-fi.
    Outside,
    /// In the branch that applies.
    Used(Position),
    /// No branch has been true.
    Seeking(Position),
    /// In a plain `else` that applies.
    Else(Position),
    /// A branch has applied; the rest is skipped.
    Passing(Position),
}

struct StatementStream<'a> {
    source: &'a dyn ConfigSource,
    evaluation: &'a Evaluation,
    takes_condition: &'a dyn Fn(&str) -> bool,
    report: &'a mut ConfigReport,
    variables: Variables,
    environment: BTreeMap<String, String>,
    branch: Branch,
    /// Depth of nested `if`s, which are errors. They are counted so that each `fi` matches.
    nested: u32,
    /// Files to read, with the `continue` that named them.
    pending: VecDeque<(Arc<str>, Option<Position>)>,
    seen: BTreeSet<Arc<str>>,
    out: Evaluated,
}

impl StatementStream<'_> {
    fn file(&mut self, file: &Arc<str>, from: Option<Position>) {
        let origin = from.map_or(Origin::CommandLine, Origin::File);
        if self.seen.len() >= FILES_MAX {
            let what = format!("more than {FILES_MAX} configuration files");
            return self.report.add(ProblemKind::Syntax, origin, what, "");
        }
        if !self.seen.insert(Arc::clone(file)) {
            let what = format!("'continue' leads back to {file}, which has been read already");
            return self.report.add(ProblemKind::Syntax, origin, what, "each file can be read once");
        }
        let content = match self.source.read(file) {
            Ok(content) => content,
            Err(error) => {
                let what = format!("Unable to open {file}; {}", describe(&error));
                return self.report.add(ProblemKind::Syntax, origin, what, "");
            }
        };
        let mut left = lines(file, &content).into_iter();
        for line in left.by_ref() {
            match line {
                Err(error) => self.problem(ProblemKind::Syntax, &error.position, error.what),
                Ok(line) => {
                    if self.line(line) {
                        break;
                    }
                }
            }
        }
        if let Some(Ok(line)) = left.next() {
            let what = "lines after 'continue' are not read; this line and the following ones are ignored";
            self.problem(ProblemKind::Ignored, &line.first.position, what);
        }
        self.nested = 0;
        match std::mem::replace(&mut self.branch, Branch::Outside) {
            Branch::Outside => {}
            Branch::Used(at) | Branch::Seeking(at) | Branch::Else(at) | Branch::Passing(at) => {
                self.problem(ProblemKind::Syntax, &at, "Missing 'fi' for last 'if'.");
            }
        }
    }

    /// Processes a line. Returns `true` if the rest of the file is not read.
    fn line(&mut self, line: SourceLine) -> bool {
        match line.first.text.as_str() {
            "if" => self.begin(&line),
            "else" => self.otherwise(&line),
            "fi" => self.end(&line),
            _ if matches!(self.branch, Branch::Seeking(_) | Branch::Passing(_)) => {}
            "set" => self.set(&line),
            "setenv" => self.setenv(&line),
            "continue" => return self.follow(&line),
            _ => self.directive(line),
        }
        false
    }

    fn begin(&mut self, line: &SourceLine) {
        let at = line.first.position.clone();
        if self.branch != Branch::Outside {
            self.nested += 1;
            return self.problem(ProblemKind::Syntax, &at, "Missing 'fi' for last 'if'.");
        }
        self.branch =
            if self.condition(&line.first, &line.rest) { Branch::Used(at) } else { Branch::Seeking(at) };
    }

    fn otherwise(&mut self, line: &SourceLine) {
        if self.nested > 0 {
            return;
        }
        let next = match (self.branch.clone(), line.rest.split_first()) {
            (Branch::Outside | Branch::Else(_), _) => {
                let what = "No preceding 'if' for 'else'.";
                return self.problem(ProblemKind::Syntax, &line.first.position, what);
            }
            (Branch::Used(at) | Branch::Passing(at), _) => Branch::Passing(at),
            (Branch::Seeking(at), None) => Branch::Else(at),
            (Branch::Seeking(at), Some((keyword, condition))) if keyword.text == "if" => {
                if self.condition(keyword, condition) { Branch::Used(at) } else { Branch::Seeking(at) }
            }
            (Branch::Seeking(at), Some((token, _))) => {
                let what = format!("'{}' is invalid after 'else'", token.text);
                self.report.add(ProblemKind::Syntax, token.origin(), what, "'else' or 'else if CONDITION'");
                Branch::Seeking(at)
            }
        };
        self.branch = next;
    }

    fn end(&mut self, line: &SourceLine) {
        if self.nested > 0 {
            self.nested -= 1;
        } else if self.branch == Branch::Outside {
            self.problem(ProblemKind::Syntax, &line.first.position, "No preceding 'if' for 'fi'.");
        } else {
            self.branch = Branch::Outside;
        }
    }

    /// Evaluates a condition. An invalid one is reported and counts as false.
    fn condition(&mut self, keyword: &DirectiveToken, tokens: &[DirectiveToken]) -> bool {
        let tokens = self.substituted(tokens);
        let facts =
            Facts { evaluation: self.evaluation, variables: &self.variables, environment: &self.environment };
        decide(keyword, &tokens, &facts).unwrap_or_else(|error| {
            self.problem(ProblemKind::Syntax, &error.position, error.what);
            false
        })
    }

    fn substituted(&mut self, tokens: &[DirectiveToken]) -> Vec<DirectiveToken> {
        let mut out = Vec::with_capacity(tokens.len());
        for token in tokens {
            match substitute(&token.text, &|name| self.variables.get(name).cloned()) {
                Ok(Some(text)) => out.push(DirectiveToken { text, position: token.position.clone() }),
                Ok(None) => {}
                Err(what) => self.problem(ProblemKind::Syntax, &token.position, what),
            }
        }
        out
    }

    fn directive(&mut self, line: SourceLine) {
        let SourceLine { first: name, rest } = line;
        if NOT_SUBSTITUTED.contains(&name.text.as_str()) {
            self.out.statements.push(Statement { name, arguments: rest });
            return;
        }
        let problems = self.report.problems().len();
        let mut arguments = self.substituted(&rest);
        if self.report.problems().len() > problems {
            return; // The remaining arguments would only cause misleading errors.
        }
        if (self.takes_condition)(&name.text)
            && let Some(at) = arguments.iter().position(|token| token.text == "if")
        {
            let condition = arguments.split_off(at);
            let applies = match condition.split_first() {
                Some((keyword, condition)) => self.condition(keyword, condition),
                None => true,
            };
            if !applies {
                return;
            }
        }
        self.out.statements.push(Statement { name, arguments });
    }

    /// `set [-q|-v|-V] NAME = VALUE`, `set NAME < FILE`.
    fn set(&mut self, line: &SourceLine) {
        let Some(assignment) = self.assignment(line) else { return };
        let environment = |name: &str| self.environment.get(name).cloned();
        let value = match from_environment(&assignment.value, &environment) {
            Ok(value) => value,
            Err(what) => return self.problem(ProblemKind::Syntax, &assignment.position, what),
        };
        if !assignment.value.starts_with('$') && value.contains('$') {
            let what = "'$' is literal here: 'set' substitutes only a '$' at the beginning of the value";
            self.problem(ProblemKind::Ignored, &assignment.position, what);
        }
        let value = if assignment.from_file {
            match self.value_of_file(&value) {
                Ok(value) => value,
                Err(why) => {
                    let what =
                        format!("Set variable {} cannot be set via path {value}; {why}", assignment.name);
                    return self.problem(ProblemKind::Syntax, &assignment.position, what);
                }
            }
        } else {
            value
        };
        self.variables.insert(assignment.name, value);
    }

    fn value_of_file(&self, path: &str) -> Result<String, String> {
        let content = self.source.read(path).map_err(|error| describe(&error).to_string())?;
        if content.len() >= VALUE_FILE_BYTES_MAX {
            return Err(format!(
                "it has {} bytes; fewer than {VALUE_FILE_BYTES_MAX} are allowed",
                content.len()
            ));
        }
        let mut text = String::from_utf8(content).map_err(|_| "it is not UTF-8 text".to_owned())?;
        if text.ends_with('\n') {
            text.pop();
        }
        Ok(text)
    }

    /// `setenv NAME = VALUE`.
    fn setenv(&mut self, line: &SourceLine) {
        let Some(assignment) = self.assignment(line) else { return };
        let at = &assignment.position;
        if assignment.from_file {
            return self.problem(ProblemKind::Syntax, at, "setenv takes no value from a file");
        }
        if assignment.name.starts_with("XRD") && !assignment.name.starts_with("XRDCLS3_") {
            let what = format!("Setenv variable {} may not start with 'XRD'.", assignment.name);
            return self.problem(ProblemKind::Syntax, at, what);
        }
        match substitute(&assignment.value, &|name| self.variables.get(name).cloned()) {
            Err(what) => self.problem(ProblemKind::Syntax, at, what),
            Ok(value) => {
                let (name, value) = (assignment.name, value.unwrap_or_default());
                self.environment.insert(name.clone(), value.clone());
                let position = line.first.position.clone();
                self.out.environment.push(EnvironmentChange { name, value, position });
            }
        }
    }

    fn assignment(&mut self, line: &SourceLine) -> Option<Assignment> {
        let directive = &line.first.text;
        let mut tokens = line.rest.iter().peekable();
        while tokens.next_if(|token| matches!(token.text.as_str(), "-q" | "-v" | "-V")).is_some() {}
        let Some(first) = tokens.next() else {
            let what = format!("Missing variable name after '{directive}'.");
            self.problem(ProblemKind::Syntax, &line.first.position, what);
            return None;
        };
        // NAME=VALUE, NAME= VALUE, NAME =VALUE and NAME = VALUE are equivalent.
        let (name, mut rest) = first.text.split_at(first.text.find(['=', '<']).unwrap_or(first.text.len()));
        let mut position = &first.position;
        if rest.is_empty()
            && let Some(next) = tokens.next()
        {
            (rest, position) = (&next.text, &next.position);
        }
        let from_file = rest.starts_with('<');
        let Some(mut value) = rest.strip_prefix(['=', '<']) else {
            let what = format!("Missing '=' after {directive} {name}");
            self.problem(ProblemKind::Syntax, position, what);
            return None;
        };
        if value.is_empty()
            && let Some(next) = tokens.next()
        {
            (value, position) = (&next.text, &next.position);
        }
        if !valid_name(name) {
            let what = format!("Variable name '{name}' of {directive} is invalid");
            let allowed = format!("1 to {VARIABLE_NAME_MAX} letters, digits and '_'");
            self.report.add(ProblemKind::Syntax, first.origin(), what, allowed);
            return None;
        }
        if let Some(extra) = tokens.next() {
            let what = format!("'{}' is ignored: a variable holds one word", extra.text);
            self.problem(ProblemKind::Ignored, &extra.position, what);
        }
        Some(Assignment {
            name: name.to_owned(),
            value: value.to_owned(),
            from_file,
            position: position.clone(),
        })
    }

    /// `continue [?]PATH [*suffix…] [if CONDITION]`. Returns `true` if it applies.
    fn follow(&mut self, line: &SourceLine) -> bool {
        let at = &line.first.position;
        if self.branch != Branch::Outside {
            self.problem(ProblemKind::Syntax, at, "'continue' invalid within 'if-fi'.");
            return false;
        }
        let mut tokens = self.substituted(&line.rest);
        if let Some(index) = tokens.iter().position(|token| token.text == "if") {
            let condition = tokens.split_off(index);
            if let Some((keyword, condition)) = condition.split_first()
                && !self.condition(keyword, condition)
            {
                return false;
            }
        }
        let Some((path, suffixes)) = tokens.split_first() else {
            self.problem(ProblemKind::Syntax, at, "Path missing after 'continue'");
            return false;
        };
        let mut wanted = Vec::new();
        for suffix in suffixes {
            match suffix.text.strip_prefix('*') {
                Some(suffix) => wanted.push(suffix),
                None => {
                    let what = format!("'{}' is invalid in continue directive", suffix.text);
                    self.report.add(ProblemKind::Syntax, suffix.origin(), what, "suffixes begin with '*'");
                }
            }
        }
        let (name, optional) = match path.text.strip_prefix('?') {
            Some(name) => (name, true),
            None => (path.text.as_str(), false),
        };
        match self.files_of(name, &wanted) {
            Ok(files) => {
                for file in files.into_iter().rev() {
                    self.pending.push_front((Arc::from(file), Some(path.position.clone())));
                }
                true
            }
            Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => {
                let what = format!("Unable to open {name}; {}", describe(&error));
                self.problem(ProblemKind::Syntax, &path.position, what);
                true
            }
        }
    }

    /// Returns the file itself, or the selected files of a directory in lexical order.
    fn files_of(&self, name: &str, suffixes: &[&str]) -> std::io::Result<Vec<String>> {
        if self.source.kind(name)? != PathKind::Directory {
            return Ok(vec![name.to_owned()]);
        }
        let mut names = self.source.list(name)?;
        names.retain(|name| {
            !name.starts_with('.')
                && if suffixes.is_empty() {
                    !SKIPPED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
                } else {
                    suffixes.iter().any(|suffix| name.ends_with(suffix))
                }
        });
        names.sort_unstable();
        let directory = name.trim_end_matches('/');
        let mut files = Vec::new();
        for name in names {
            let file = format!("{directory}/{name}");
            // A file that was removed or is inaccessible is reported when it is read.
            match self.source.kind(&file) {
                Ok(PathKind::File { executable: true } | PathKind::Directory | PathKind::Other) => {}
                Ok(PathKind::File { executable: false }) | Err(_) => files.push(file),
            }
        }
        Ok(files)
    }

    fn problem(&mut self, kind: ProblemKind, at: &Position, what: impl Into<String>) {
        self.report.add(kind, Origin::File(at.clone()), what, "");
    }
}

struct Assignment {
    name: String,
    value: String,
    from_file: bool,
    position: Position,
}
