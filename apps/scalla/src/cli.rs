//! The command line of `scalla` and its subcommands.
//!
//! Only this module knows all commands, so no command may import it. Commands that need the
//! definition of the whole command line get it as an argument.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

use crate::printer::{Printer, err, out};
use crate::usage_error::UsageError;
use crate::{
    admin, auth, bench, cache, cluster, command_groups, completion, config, copy, examples, exit_status,
    files, json_failures, links, man, map, residency, serve, shell, version,
};

/// Serve files to many clients at once, with XRootD's protocol and configuration.
#[derive(Parser, Debug)]
#[command(name = "scalla", version = server::VERSION, propagate_version = true, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: TopLevelCommand,
}

#[derive(Subcommand, Debug)]
enum TopLevelCommand {
    Serve(serve::ServeCommand),
    Manager(serve::ManagerCommand),
    Supervisor(serve::SupervisorCommand),
    Meta(serve::MetaCommand),
    Config(config::ConfigCommand),
    Admin(admin::AdminCommand),
    Residency(residency::ResidencyCommand),
    Auth(auth::AuthCommand),
    Cluster(cluster::ClusterCommand),
    Cache(cache::CacheCommand),
    Map(map::MapCommand),
    Shell(shell::ShellCommand),
    Cp(copy::CpCommand),
    Sync(copy::SyncCommand),
    #[command(flatten)]
    Files(files::FileCommand),
    Bench(bench::BenchCommand),
    Links(links::LinksCommand),
    Completions(completion::CompletionsCommand),
    #[command(hide = true)]
    Complete(completion::CompleteCommand),
    Man(man::ManCommand),
    Version(version::VersionCommand),
}

/// Returns the definition of the command line, for manual pages and completion.
pub(crate) fn definition() -> clap::Command {
    command_groups::add_to(examples::add_to(CommandLine::command()), out().width_now())
}

/// Runs a command line that begins with the program name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let parsed = definition().try_get_matches_from(&arguments);
    let parsed = parsed.and_then(|matches| CommandLine::from_arg_matches(&matches));
    let CommandLine { command } = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are reported as errors too, with status 0.
            let status = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            match error.use_stderr() && wants_json(&arguments) {
                true => out().json(
                    &json_failures::failure(&one_line_error(&error), Some(json_failures::USAGE)).into(),
                ),
                false => Printer::command_line(error, &arguments),
            }
            return status;
        }
    };
    let result = match command {
        TopLevelCommand::Serve(serve) => serve.run(),
        TopLevelCommand::Manager(manager) => manager.run(),
        TopLevelCommand::Supervisor(supervisor) => supervisor.run(),
        TopLevelCommand::Meta(meta) => meta.run(),
        TopLevelCommand::Config(config) => config.run(),
        TopLevelCommand::Admin(admin) => admin.run(),
        TopLevelCommand::Residency(residency) => residency.run(),
        TopLevelCommand::Auth(auth) => auth.run(),
        TopLevelCommand::Cluster(cluster) => cluster.run(),
        TopLevelCommand::Cache(cache) => cache.run(),
        TopLevelCommand::Map(map) => map.run(),
        TopLevelCommand::Shell(shell) => shell.run(),
        TopLevelCommand::Cp(cp) => cp.run(),
        TopLevelCommand::Sync(sync) => sync.run(),
        TopLevelCommand::Files(files) => files.start(),
        TopLevelCommand::Bench(bench) => bench.run(),
        TopLevelCommand::Links(links) => links.run(),
        TopLevelCommand::Completions(completions) => completions.run(definition()),
        TopLevelCommand::Complete(complete) => complete.run(definition()),
        TopLevelCommand::Man(man) => man.run(definition()),
        TopLevelCommand::Version(version) => version.run(),
    };
    result.unwrap_or_else(|error| {
        let is_usage = error.is::<UsageError>();
        if wants_json(&arguments) {
            let code = is_usage.then_some(json_failures::USAGE);
            out().json(&json_failures::failure(&format!("{error:#}"), code).into());
        } else {
            err().error(format_args!("{error:#}"));
        }
        if is_usage { ExitCode::from(exit_status::USAGE) } else { ExitCode::FAILURE }
    })
}

/// Reports whether a command line requests JSON output.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Formats a command line error as one line, without the usage.
fn one_line_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<TopLevelCommand, ErrorKind> {
        let arguments = CommandLine::try_parse_from(line.split_whitespace());
        arguments.map(|arguments| arguments.command).map_err(|error| error.kind())
    }

    #[test]
    fn the_definitions_hold_together() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn command_lines_of_copies() {
        let good = [
            "scalla cp root://h//a b",
            "scalla cp -rfpP -S 4 a b root://h//c/ --checksum adler32 --checksum md5:print --parallel 8 --json",
            "scalla cp -x root://h1,h2:7//a b",
            "scalla cp --tpc only root://h1//a root://h2//a",
            "scalla sync a root://h//b --delete -n --checksum md5",
            "scalla cp --from list -c target --retry 3 -q",
        ];
        for line in good {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        let bad = [
            ("scalla cp", ErrorKind::MissingRequiredArgument),
            ("scalla cp a b -c -f", ErrorKind::ArgumentConflict),
            ("scalla cp a b --checksum foo", ErrorKind::ValueValidation),
            ("scalla cp a b -S 16", ErrorKind::ValueValidation),
            ("scalla cp a b --sources 33", ErrorKind::ValueValidation),
            ("scalla cp a b --tpc maybe", ErrorKind::InvalidValue),
            ("scalla sync a", ErrorKind::MissingRequiredArgument),
            ("scalla cp gopher://h//a b", ErrorKind::ValueValidation),
        ];
        for (line, expected) in bad {
            assert_eq!(parse(line).err(), Some(expected), "{line}");
        }
    }

    #[test]
    fn command_lines_of_files() {
        let good = [
            "scalla ls root://h//a -laR1hBtr",
            "scalla ls -S --json root://h//a root://h//b",
            "scalla ls",
            "scalla stat --checksum=md5 root://h//a",
            "scalla stat --checksum root://h//a",
            "scalla cat root://h//a root://h//b",
            "scalla head -n 3 root://h//a",
            "scalla tail -c 2k -f root://h//a",
            "scalla mkdir -p -m rwxr-x--- root://h//a",
            "scalla mv -n root://h//a root://h//b root://h//c/",
            "scalla rm -rfv root://h//a",
            "scalla rmdir root://h//a",
            "scalla chmod -R u+w,go-rwx root://h//a",
            "scalla chmod -x root://h//a",
            "scalla truncate -s 1k root://h//a",
            "scalla locate -ar root://h//a --json",
            "scalla checksum -t md5 --read root://h//a",
            "scalla checksum --check list root://h//a -q",
            "scalla xattr set root://h//a a=1 b=2 --new",
            "scalla xattr get root://h//a n --raw",
            "scalla xattr list root://h//a --json",
            "scalla xattr rm root://h//a n",
            "scalla prepare stage -p 3 -w --wait --timeout 9 root://h//a",
            "scalla prepare evict root://h//a",
            "scalla prepare cancel root://h ID",
            "scalla prepare status root://h ID root://h//a",
            "scalla query config root://h version role --json",
            "scalla query stats root://h ai",
            "scalla query opaque root://h what",
            "scalla space -B root://h",
            "scalla du -d 2 -h root://h//a",
            "scalla find root://h//a --name *.root -t f,d --size +1M --size -2G --mtime -7 -0",
            "scalla find root://h//a --newer 2026-11-20 --maxdepth 3",
            "scalla tree -L 2 -h root://h//a",
        ];
        for line in good {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        let bad = [
            ("scalla ls -tS root://h//a", ErrorKind::ArgumentConflict),
            ("scalla ls --help", ErrorKind::DisplayHelp),
            ("scalla stat", ErrorKind::MissingRequiredArgument),
            ("scalla head -n x root://h//a", ErrorKind::ValueValidation),
            ("scalla tail -n 1 -c 1 root://h//a", ErrorKind::ArgumentConflict),
            ("scalla mkdir -m 999 root://h//a", ErrorKind::ValueValidation),
            ("scalla mv root://h//a", ErrorKind::TooFewValues),
            ("scalla chmod u~w root://h//a", ErrorKind::ValueValidation),
            ("scalla truncate root://h//a", ErrorKind::MissingRequiredArgument),
            ("scalla checksum", ErrorKind::MissingRequiredArgument),
            ("scalla checksum --read root://h//a", ErrorKind::MissingRequiredArgument),
            ("scalla xattr", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("scalla xattr get root://h//a", ErrorKind::MissingRequiredArgument),
            ("scalla prepare stage -p 4 root://h//a", ErrorKind::ValueValidation),
            ("scalla prepare stage --timeout 1 root://h//a", ErrorKind::MissingRequiredArgument),
            ("scalla find root://h//a -t x", ErrorKind::InvalidValue),
            ("scalla find root://h//a --size 1x", ErrorKind::ValueValidation),
            ("scalla find root://h//a -0 --json", ErrorKind::ArgumentConflict),
            ("scalla tree -L 0 root://h//a", ErrorKind::ValueValidation),
        ];
        for (line, expected) in bad {
            assert_eq!(parse(line).err(), Some(expected), "{line}");
        }
    }

    #[test]
    fn command_lines_of_those_who_type() {
        let good = [
            "scalla completions bash",
            "scalla man",
            "scalla man /usr/share/man/man1",
            "scalla shell",
            "scalla shell -e h:1094",
            "scalla map h:1094 --path /a --verify -r -l s --json -t 9",
            "scalla map root://h --list m --versions -n",
        ];
        for line in good {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        let bad = [
            ("scalla completions tcsh", ErrorKind::InvalidValue),
            ("scalla map h --verify", ErrorKind::MissingRequiredArgument),
            ("scalla map h --list x", ErrorKind::InvalidValue),
        ];
        for (line, expected) in bad {
            assert_eq!(parse(line).err(), Some(expected), "{line}");
        }
    }

    #[test]
    fn command_lines() {
        let good = [
            "scalla serve /data",
            "scalla serve /data --port 0 --read-only --user nobody -vv",
            "scalla serve --config x.cfg --log-format json --admin-path /adm --log x.log --keep 7",
            "scalla serve /data --manager m1 --manager [::1]:99 --port 0",
            "scalla serve /data --manager m1 --min-free 1.5g",
            "scalla manager",
            "scalla manager --meta top --replica m2:1213 --cluster-port 0 --port 0 --instance a",
            "scalla supervisor --manager m1:1213",
            "scalla supervisor --config x.cfg",
            "scalla meta",
            "scalla meta --replica top2:1213 --cluster-port 0 --port 0",
            "scalla config check a.cfg b.cfg --program xrootd --instance x --json",
            "scalla config show --config x.cfg",
            "scalla config show /data --json",
            "scalla config manual",
            "scalla config manual xrd.allow all.export",
            "scalla admin status",
            "scalla admin --admin-path /adm --instance foo log-level info,net=debug",
            "scalla admin log-level",
            "scalla admin reload --json",
            "scalla admin drain",
            "scalla cluster status --json --admin-path /adm",
            "scalla cluster --instance m status --here",
            "scalla cluster drain disk7:1094",
            "scalla cluster resume",
            "scalla bench gen /data/f%d --size 4k --files 100",
            "scalla bench read root://h//f -c 64 -d 8 -s 24,2k --align 4k -t 500ms --verify --json",
            "scalla bench stream root://h//f --size 1m --discard --server-pid 1 --server-pid 2",
            "scalla bench readv root://h//f --segments 1024 --gap 1k",
            "scalla bench pgwrite root://h//f --size 64k --file-size 1g --keep",
            "scalla bench open root://h//f%d --files 10000 --operations 5",
            "scalla bench idle root://h -c 10000",
            "scalla links /usr/local/bin",
            "scalla version --json",
        ];
        for line in good {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        let bad = [
            ("scalla", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("scalla dance", ErrorKind::InvalidSubcommand),
            ("scalla serve", ErrorKind::MissingRequiredArgument),
            ("scalla serve /data --port 65536", ErrorKind::ValueValidation),
            ("scalla serve /data --log-format xml", ErrorKind::InvalidValue),
            ("scalla serve /data --manager h:0", ErrorKind::ValueValidation),
            ("scalla serve /data --manager h --min-free 5%", ErrorKind::ValueValidation),
            ("scalla serve /data --manager h --min-free 0", ErrorKind::ValueValidation),
            ("scalla manager --min-free 1g", ErrorKind::UnknownArgument),
            ("scalla supervisor", ErrorKind::MissingRequiredArgument),
            ("scalla serve /data --keep 7", ErrorKind::MissingRequiredArgument),
            ("scalla cluster", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("scalla bench", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("scalla bench read", ErrorKind::MissingRequiredArgument),
            ("scalla bench read root://h//f --size 2x", ErrorKind::ValueValidation),
            ("scalla bench read root://h//f -c 0", ErrorKind::ValueValidation),
            ("scalla bench read root://h//f --verify --discard", ErrorKind::ArgumentConflict),
            ("scalla bench readv root://h//f --segments 1025", ErrorKind::ValueValidation),
            ("scalla config check", ErrorKind::MissingRequiredArgument),
            ("scalla config show --config x /data extra", ErrorKind::UnknownArgument),
            ("scalla --version", ErrorKind::DisplayVersion),
        ];
        for (line, expected) in bad {
            assert_eq!(parse(line).err(), Some(expected), "{line}");
        }
    }
}
