//! [`CommandRunner`]: execution of the commands, and the handling of interrupts.

use super::parser::{self, PromptCommand};
use super::resolve::{PathSide, normalized, resolve_place, resolve_source, resolve_transfer};
use crate::completion::remote_names::{RemoteNames, locked};
use crate::files::{Context, Quoted};
use crate::named_servers;
use crate::printer::{Printer, err, out};
use crate::quoting::ShellWord;
use client::copy::{Place, Watch};
use client::{Scheme, Url};
use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The result of a line.
pub(super) enum LineOutcome {
    Status(ExitCode),
    Interrupted,
    /// The shell must end, with this status if there is one.
    Exit(Option<ExitCode>),
}

/// The result of a command: its exit status if it has reported its failures itself, or a failure in
/// one line.
type CommandResult = Result<ExitCode, String>;

/// Runs commands and keeps the current server and directory.
pub(super) struct CommandRunner {
    names: RemoteNames,
    /// The target of `cd -`.
    previous: Option<Url>,
    interrupts: Signal,
    is_script: bool,
}

impl CommandRunner {
    /// Creates a worker. From now on an interrupt ends commands instead of the program. Must be
    /// called on the runtime.
    pub(super) fn new(names: RemoteNames, is_script: bool) -> std::io::Result<Self> {
        Ok(Self { names, previous: None, interrupts: signal(SignalKind::interrupt())?, is_script })
    }

    /// Goes to the initial URL. The location is set even if the server does not reply.
    pub(super) async fn open_initial(&mut self, url: &str) -> LineOutcome {
        if let Ok(url) = named_servers::parse_server(url) {
            locked(&self.names.context).base = Some(normalized(&url));
        }
        self.run(&["open".to_owned(), url.to_owned()]).await
    }

    /// Prints the current location and a hint about the help.
    pub(super) async fn greet(&self) {
        let context = self.context();
        let Some(base) = &context.base else { return };
        let version = context.client.file_system(base).config(&["version"]).await.ok();
        let version = version.and_then(|mut values| values.pop().flatten());
        let version = version.map(|version| format!(" (server {version})")).unwrap_or_default();
        out().line(format_args!(
            "connected to {}{version}; `help` lists the commands, Tab completes, Ctrl-D ends",
            base.authority()
        ));
    }

    /// Runs a command of this machine with the user's shell.
    pub(super) async fn run_here(&mut self, command: &str) -> LineOutcome {
        let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
        report(run_here(&shell, &["-c".to_owned(), command.to_owned()]).await)
    }

    fn context(&self) -> Context {
        locked(&self.names.context).clone()
    }

    pub(super) fn prompt(&self) -> String {
        let Some(base) = self.context().base else { return "scalla> ".to_owned() };
        let authority = base.authority();
        let port = format!(":{}", Scheme::Root.default_port());
        format!("{} {}> ", authority.strip_suffix(&port).unwrap_or(&authority), base.path)
    }

    /// Runs a line as it was typed.
    pub(super) async fn run_typed(&mut self, words: Vec<ShellWord>) -> LineOutcome {
        let (texts, patterns): (Vec<_>, Vec<_>) =
            words.into_iter().map(|word| (word.text, word.pattern)).unzip();
        locked(&self.names.context).quoted = Quoted::new(&texts, &patterns);
        self.run(&texts).await
    }

    /// Runs the words of a line.
    pub(super) async fn run(&mut self, words: &[String]) -> LineOutcome {
        let parser::ParsedLine { command, places } = match parser::parse(words) {
            Ok(parsed) => parsed,
            Err(error) => {
                // Help is reported as an error too, with status 0.
                let status = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
                if error.kind() == clap::error::ErrorKind::InvalidSubcommand {
                    let name = words.first().map_or("", String::as_str);
                    let names = parser::names();
                    let near = base::nearest(name, names.iter().map(String::as_str));
                    let hint = near.map_or("`help` lists all".to_owned(), |near| format!("is it `{near}`?"));
                    err().error(format_args!("no command is called `{name}`; {hint}"));
                    return LineOutcome::Status(status);
                }
                let words: Vec<OsString> = words.iter().map(OsString::from).collect();
                Printer::command_line(error, &words);
                return LineOutcome::Status(status);
            }
        };
        if let PromptCommand::Exit { status } = command {
            return LineOutcome::Exit(status.map(ExitCode::from));
        }
        // Discards interrupts that arrived while no command ran.
        match signal(SignalKind::interrupt()) {
            Ok(interrupts) => self.interrupts = interrupts,
            Err(error) => return report(Err(error.to_string())),
        }
        let context = self.context();
        let watch = Watch::default();
        let is_copy = matches!(
            command,
            PromptCommand::Get(_) | PromptCommand::Put(_) | PromptCommand::Cp(_) | PromptCommand::Sync(_)
        );
        let (before, is_script) = (self.previous.clone(), self.is_script);
        let done = {
            let mut work = pin!(perform(command, places, &context, before, watch.clone(), is_script));
            tokio::select! {
                done = &mut work => Some(done),
                _ = self.interrupts.recv() => {
                    watch.cancel();
                    // A copy cleans up, unless a second interrupt arrives.
                    tokio::select! {
                        _ = &mut work, if is_copy => None,
                        _ = self.interrupts.recv(), if is_copy => None,
                        else => None,
                    }
                }
            }
        };
        // A command may have changed any listing.
        self.names.forget();
        match done {
            None => {
                err().literal("\n");
                LineOutcome::Interrupted
            }
            Some(Ok(CommandOutcome::Status(status))) => LineOutcome::Status(status),
            Some(Ok(CommandOutcome::Moved(url))) => {
                self.previous = locked(&self.names.context).base.replace(url);
                LineOutcome::Status(ExitCode::SUCCESS)
            }
            Some(Err(why)) => report(Err(why)),
        }
    }
}

/// The result of a command.
enum CommandOutcome {
    Status(ExitCode),
    /// The new current location.
    Moved(Url),
}

fn report(ended: CommandResult) -> LineOutcome {
    LineOutcome::Status(ended.unwrap_or_else(|why| {
        err().error(why);
        ExitCode::FAILURE
    }))
}

/// Runs a command. Dropping the future cancels it.
async fn perform(
    command: PromptCommand,
    places: Vec<String>,
    context: &Context,
    before: Option<Url>,
    watch: Watch,
    is_script: bool,
) -> Result<CommandOutcome, String> {
    let status = match command {
        PromptCommand::Exit { .. } => ExitCode::SUCCESS,
        PromptCommand::Clear => {
            // Moves the cursor to the upper left corner and clears the screen after it.
            if out().is_terminal() {
                out().literal("\x1b[H\x1b[2J");
            }
            ExitCode::SUCCESS
        }
        PromptCommand::Lls { words } => run_here("ls", &words).await?,
        PromptCommand::Pwd => {
            let base = context.base.as_ref().ok_or("we are at no server; `open URL` goes to one")?;
            print_line(base)
        }
        PromptCommand::Lpwd => {
            print_line(std::env::current_dir().map_err(|error| error.to_string())?.display())
        }
        PromptCommand::Lcd { dir } => lcd(dir)?,
        PromptCommand::Open { url } => {
            return check_directory(context, named_servers::parse_server(&url)?).await;
        }
        PromptCommand::Cd { path } => {
            let url = match (path.as_str(), before) {
                ("-", Some(before)) => before,
                ("-", None) => return Err("there was no directory before this one".to_owned()),
                (path, _) => context.url(path).map_err(|error| error.to_string())?,
            };
            return check_directory(context, url).await;
        }
        PromptCommand::Files(files) => files.run(context).await,
        PromptCommand::Get(mut cp) => {
            cp.set_places(resolve_transfer(&places, PathSide::Server, context, cp.has_list())?);
            cp.perform(Some(&context.client), watch).await.map_err(error_text)?
        }
        PromptCommand::Put(mut cp) => {
            let places = resolve_transfer(&places, PathSide::Local, context, cp.has_list())?;
            if is_script && places.contains(&Place::Stream) {
                return Err("the standard input is the script, it cannot be copied".to_owned());
            }
            cp.set_places(places);
            cp.perform(Some(&context.client), watch).await.map_err(error_text)?
        }
        PromptCommand::Cp(mut cp) => {
            let places = resolve_copy_places(&places, context)?;
            if is_script && places.first() == Some(&Place::Stream) {
                return Err("the standard input is the script, it cannot be copied".to_owned());
            }
            cp.set_places(places);
            cp.perform(Some(&context.client), watch).await.map_err(error_text)?
        }
        PromptCommand::Sync(mut sync) => {
            if let Ok([source, target]) = <[Place; 2]>::try_from(resolve_all(&places, context)?) {
                sync.set_places(source, target);
            }
            sync.perform(Some(&context.client), watch).await.map_err(error_text)?
        }
        PromptCommand::Map(map) => map.perform(&context.client, context.base.as_ref()).await,
    };
    Ok(CommandOutcome::Status(status))
}

fn error_text(error: anyhow::Error) -> String {
    format!("{error:#}")
}

fn print_line(what: impl std::fmt::Display) -> ExitCode {
    out().line(what);
    ExitCode::SUCCESS
}

/// Resolves the sources of a copy and its target. Paths are at the server unless stated otherwise.
fn resolve_copy_places(texts: &[String], context: &Context) -> Result<Vec<Place>, String> {
    let Some((target, sources)) = texts.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        return resolve_all(texts, context);
    };
    let places = sources.iter().map(|text| resolve_source(text, PathSide::Server, context));
    places.chain([resolve_place(target, PathSide::Server, context)]).collect()
}

/// Resolves places. Paths are at the server unless stated otherwise.
fn resolve_all(texts: &[String], context: &Context) -> Result<Vec<Place>, String> {
    texts.iter().map(|text| resolve_place(text, PathSide::Server, context)).collect()
}

/// Runs a program of this machine on the terminal of the shell.
pub(super) async fn run_here(program: &str, words: &[String]) -> CommandResult {
    let mut child = std::process::Command::new(program)
        .args(words)
        .spawn()
        .map_err(|error| format!("cannot run {program}: {}", base::errno_text(&error)))?;
    let (send, receive) = tokio::sync::oneshot::channel();
    let wait = move || drop(send.send(child.wait()));
    std::thread::Builder::new().name("here".to_owned()).spawn(wait).map_err(|error| error.to_string())?;
    let ended = receive.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let status = ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(status))
}

fn lcd(dir: Option<PathBuf>) -> CommandResult {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let dir = dir.or_else(home).ok_or("HOME is not set")?;
    std::env::set_current_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that a directory exists. The root of a server exists if the server replies.
async fn check_directory(context: &Context, url: Url) -> Result<CommandOutcome, String> {
    let url = normalized(&url);
    let fs = context.client.file_system(&url);
    if url.path == "/" {
        fs.server().await.map_err(|error| error.to_string())?;
    } else if !fs.is_dir(&url.path).await.map_err(|error| error.to_string())? {
        return Err(format!("{url}: no such directory"));
    }
    Ok(CommandOutcome::Moved(url))
}
