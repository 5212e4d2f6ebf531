//! Examples of each command, for `--help` and the manual pages.

use clap::Command;

/// The name of a command, after that of its parent, and its examples. Each is one line with a
/// description after `#`.
const EXAMPLES: [(&str, &[&str]); 110] = [
    (
        "scalla",
        &[
            "scalla serve /data                        # serve a directory on port 1094",
            "scalla ls root://HOST//                   # list its root directory",
            "scalla cp root://HOST//set/run7.root .    # copy a file here",
            "scalla shell root://HOST                  # start an interactive shell",
        ],
    ),
    (
        "serve",
        &[
            "scalla serve /data",
            "scalla serve /data --read-only --port 2094",
            "scalla serve /data --manager manager.example.org",
            "scalla serve --config /etc/xrootd/xrootd.cfg --log /var/log/scalla.log --background",
        ],
    ),
    ("manager", &["scalla manager", "scalla manager --replica manager2.example.org:1213"]),
    ("supervisor", &["scalla supervisor --manager manager.example.org:1213"]),
    ("meta", &["scalla meta"]),
    ("config", &["scalla config check /etc/xrootd/xrootd.cfg"]),
    (
        "config check",
        &["scalla config check site.cfg", "scalla config check site.cfg --instance site1 --json"],
    ),
    ("config show", &["scalla config show --config site.cfg", "scalla config show /data --changed"]),
    ("config manual", &["scalla config manual | less", "scalla config manual xrd.allow"]),
    ("admin", &["scalla admin list", "scalla admin status"]),
    ("residency", &["scalla residency status", "scalla residency purge --dry-run /store/run7"]),
    ("residency status", &["scalla residency status", "scalla residency status --json"]),
    ("residency queue", &["scalla residency queue", "scalla residency queue --json"]),
    ("residency stage", &["scalla residency stage /store/run7/f1 /store/run7/f2"]),
    ("residency migrate", &["scalla residency migrate /store/run7/f1"]),
    ("residency release", &["scalla residency release /store/run7/f1"]),
    ("residency pin", &["scalla residency pin /store/f", "scalla residency pin --for 7d /store/f"]),
    ("residency unpin", &["scalla residency unpin /store/f"]),
    ("residency purge", &["scalla residency purge --dry-run /store", "scalla residency purge --wait"]),
    ("admin list", &["scalla admin list"]),
    ("admin status", &["scalla admin status", "scalla admin --instance site1 status --json"]),
    (
        "admin log-level",
        &[
            "scalla admin log-level                    # print the levels",
            "scalla admin log-level info,net=debug",
        ],
    ),
    ("admin reload", &["scalla admin reload"]),
    (
        "auth",
        &[
            "scalla auth init sss --admin alice   # make the files of a protected server",
            "scalla auth whoami HOST              # show the identity that a server sees",
        ],
    ),
    (
        "auth init",
        &[
            "scalla auth init sss --admin alice",
            "sudo scalla auth init sss --admin alice --dir /etc/xrootd/security --user xrootd",
            "scalla auth init token --admin alice --host data.example.org --dir security",
            "scalla auth init tls --host data.example.org --dir security",
        ],
    ),
    (
        "auth whoami",
        &["scalla auth whoami HOST", "XrdSecSSSKT=my.keytab scalla auth whoami HOST:1095 --json"],
    ),
    (
        "auth check",
        &[
            "scalla auth check bob /store/x read --config site.cfg",
            "scalla auth check ann /vo/cms/x create --vo cms --host n1.example.org --config site.cfg",
            "scalla auth check @/tmp/x509up_u1000 /store/x read --config site.cfg   # the owner of a grid proxy",
            "scalla auth check '/O=Grid/CN=Ann' /store/x read --protocol gsi --config site.cfg   # as sec.entityprogram names her",
            "scalla auth check '*' /pub stat --authdb new-rules      # a client without a name, other rules",
        ],
    ),
    (
        "auth macaroon",
        &[
            "scalla auth macaroon --config site.cfg --activity DOWNLOAD,LIST --path /set --validity 12h",
            "scalla auth macaroon --secretkey /etc/xrootd/macaroon-secret --sitename SITE --activity UPLOAD --path /in",
        ],
    ),
    ("auth token", &["scalla auth token bob --dir security --validity 8h > bob.token"]),
    ("auth proxy", &["scalla auth proxy init --valid 24:00"]),
    (
        "auth proxy init",
        &[
            "scalla auth proxy init                              # from ~/.globus/usercert.pem and userkey.pem",
            "scalla auth proxy init --cert user.pem --key user.key --valid 24:00",
        ],
    ),
    ("auth proxy info", &["scalla auth proxy info", "scalla auth proxy info --file my.proxy --json"]),
    ("auth proxy destroy", &["scalla auth proxy destroy"]),
    ("admin drain", &["scalla admin drain"]),
    ("cluster", &["scalla cluster status", "scalla cluster drain disk7:1094"]),
    ("map", &["scalla map HOST", "scalla map HOST --path /set/run7.root --verify"]),
    ("shell", &["scalla shell root://HOST", "echo 'ls -l /set' | scalla shell root://HOST"]),
    (
        "cp",
        &[
            "scalla cp root://HOST//set/run7.root .             # from a server",
            "scalla cp run7.root root://HOST//set/              # to a server",
            "scalla cp -r root://HOST//set /data                # a directory with everything below it",
            "scalla cp 'root://HOST//set/run[1-9]*.root' /data  # wildcards",
            "scalla cp -c root://HOST//set/big.root .           # resume an interrupted copy",
            "scalla cp -x root://MANAGER//big.root .            # from all servers that have it",
        ],
    ),
    (
        "sync",
        &[
            "scalla sync /data root://HOST//data",
            "scalla sync --delete -n root://HOST//data /data    # only print the planned steps",
            "scalla sync --delete --max-delete 100 root://HOST//data /data",
        ],
    ),
    ("ls", &["scalla ls root://HOST//set", "scalla ls -lt root://HOST//set", "scalla ls HOST:1094"]),
    (
        "stat",
        &["scalla stat root://HOST//set/run7.root", "scalla stat --checksum root://HOST//set/run7.root"],
    ),
    ("cat", &["scalla cat root://HOST//set/readme"]),
    (
        "head",
        &["scalla head -n 3 root://HOST//set/readme", "scalla head -c 1k root://HOST//set/run7.root | xxd"],
    ),
    ("tail", &["scalla tail -f root://HOST//logs/today"]),
    ("mkdir", &["scalla mkdir -p root://HOST//set/2026"]),
    ("mv", &["scalla mv root://HOST//set/a root://HOST//set/b"]),
    (
        "rm",
        &[
            "scalla rm root://HOST//set/old.root",
            "scalla rm -r -n root://HOST//old                   # only print the entries to remove",
            "scalla rm -r root://HOST//old",
        ],
    ),
    ("rmdir", &["scalla rmdir root://HOST//empty"]),
    ("chmod", &["scalla chmod u+w root://HOST//set/run7.root", "scalla chmod -R 640 root://HOST//set"]),
    ("truncate", &["scalla truncate --size 1k root://HOST//set/log"]),
    ("locate", &["scalla locate root://MANAGER//set/run7.root"]),
    (
        "checksum",
        &[
            "scalla checksum root://HOST//set/*.root > list     # save the checksums",
            "scalla checksum --check list                       # compare them later",
        ],
    ),
    (
        "xattr",
        &[
            "scalla xattr list root://HOST//set/run7.root",
            "scalla xattr set root://HOST//set/run7.root site=a",
        ],
    ),
    ("prepare", &["scalla prepare stage --wait root://HOST//set/run7.root"]),
    ("query", &["scalla query config root://HOST version role"]),
    ("space", &["scalla space root://HOST"]),
    ("du", &["scalla du -d 1 root://HOST//set"]),
    ("find", &["scalla find root://HOST//set --name '*.root' --size +1G --mtime -7"]),
    ("tree", &["scalla tree -L 2 root://HOST//set"]),
    (
        "bench",
        &["scalla bench gen /data/f%d --size 1g --files 4", "scalla bench read root://HOST//f0 -c 64 -d 8"],
    ),
    ("admin checkpoint", &["scalla admin checkpoint list"]),
    ("admin checkpoint list", &["scalla admin checkpoint list"]),
    ("admin checkpoint apply", &["scalla admin checkpoint apply /set/run7.root"]),
    ("admin checkpoint discard", &["scalla admin checkpoint discard /set/run7.root"]),
    ("admin unfinished", &["scalla admin unfinished list"]),
    ("admin unfinished list", &["scalla admin unfinished list", "scalla admin unfinished list /set"]),
    ("admin unfinished clear", &["scalla admin unfinished clear /set/run7.root"]),
    ("cache", &["scalla cache status /cache", "scalla cache simulate --sample analysis"]),
    ("cache status", &["scalla cache status /cache", "scalla cache status /cache --json"]),
    ("cache evict", &["scalla cache evict /cache /data/run7.root", "scalla cache evict /cache /data/old"]),
    (
        "cache pin",
        &["scalla cache pin /cache /data/run7", "scalla cache pin /cache /data/run7.root --for 30d"],
    ),
    ("cache unpin", &["scalla cache unpin /cache /data/run7"]),
    ("cache verify", &["scalla cache verify /cache", "scalla cache verify /cache /data/run7.root --json"]),
    (
        "cache simulate",
        &[
            "scalla cache simulate requests.txt --size 10t,50t,100t",
            "scalla cache simulate --sample production --requests 3000000 --json",
        ],
    ),
    ("cluster status", &["scalla cluster status", "scalla cluster status --json"]),
    ("cluster suspend", &["scalla cluster suspend disk7:1094"]),
    ("cluster resume", &["scalla cluster resume disk7:1094"]),
    ("cluster drain", &["scalla cluster drain disk7:1094"]),
    ("cluster undrain", &["scalla cluster undrain disk7:1094"]),
    ("prepare stage", &["scalla prepare stage --wait root://HOST//set/run7.root"]),
    ("prepare evict", &["scalla prepare evict root://HOST//set/run7.root"]),
    ("prepare cancel", &["scalla prepare cancel root://HOST ID"]),
    ("prepare status", &["scalla prepare status root://HOST ID root://HOST//set/run7.root"]),
    ("query server", &["scalla query server root://HOST"]),
    ("query config", &["scalla query config root://HOST", "scalla query config root://HOST chksum --json"]),
    ("query checksums", &["scalla query checksums root://HOST"]),
    ("query stats", &["scalla query stats root://HOST a"]),
    ("query space", &["scalla query space root://HOST//set"]),
    ("query attributes", &["scalla query attributes root://HOST//set/run7.root"]),
    ("query opaque", &["scalla query opaque root://HOST QUESTION"]),
    ("xattr get", &["scalla xattr get root://HOST//set/run7.root site"]),
    ("xattr set", &["scalla xattr set root://HOST//set/run7.root site=a owner=me"]),
    ("xattr list", &["scalla xattr list root://HOST//set/run7.root"]),
    ("xattr rm", &["scalla xattr rm root://HOST//set/run7.root site"]),
    ("bench gen", &["scalla bench gen /data/f%d --size 1g --files 4"]),
    ("bench read", &["scalla bench read root://HOST//f0 -c 64 -d 8"]),
    ("bench stream", &["scalla bench stream root://HOST//f0 --size 1m"]),
    ("bench readv", &["scalla bench readv root://HOST//f0 --segments 1024"]),
    ("bench pgread", &["scalla bench pgread root://HOST//f0 -c 8"]),
    ("bench write", &["scalla bench write root://HOST//w --size 1m --file-size 1g"]),
    ("bench pgwrite", &["scalla bench pgwrite root://HOST//w --size 64k --file-size 1g"]),
    ("bench open", &["scalla bench open root://HOST//f%d --files 4"]),
    ("bench stat", &["scalla bench stat root://HOST//f0 -c 64"]),
    ("bench dirlist", &["scalla bench dirlist root://HOST//set"]),
    ("bench connect", &["scalla bench connect root://HOST"]),
    ("bench idle", &["scalla bench idle root://HOST -c 1000"]),
    ("links", &["scalla links /usr/local/bin"]),
    ("completions", &["source <(scalla completions bash)"]),
    ("man", &["scalla man ~/.local/share/man/man1", "scalla man | man -l -"]),
    ("version", &["scalla version --json"]),
];

/// Returns the examples of a command by its full name (`scalla config check`).
pub(crate) fn of(full: &str) -> Option<&'static [&'static str]> {
    let name = full.strip_prefix("scalla ").unwrap_or(full);
    // Names of manual pages contain dashes instead of blanks.
    let is_it = |command: &str| command == name || command.replace('-', " ") == name;
    EXAMPLES.iter().find(|(command, _)| is_it(command)).map(|(_, lines)| *lines)
}

/// Adds the examples to the help of a command and of its subcommands.
pub(crate) fn add_to(command: Command) -> Command {
    let name = command.get_name().to_owned();
    add(command, &name)
}

fn add(mut command: Command, full: &str) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in below {
        let full = format!("{full} {name}");
        command = command.mut_subcommand(name, |command| add(command, &full));
    }
    match of(full) {
        Some(lines) => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    /// Checks that all subcommands have examples.
    fn has_examples(command: &Command, full: &str) {
        assert!(of(full).is_some(), "{full} has no examples");
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            has_examples(below, &format!("{full} {}", below.get_name()));
        }
    }

    #[test]
    fn every_command_has_examples_that_are_right() {
        let definition = cli::definition();
        for command in definition.get_subcommands().filter(|command| !command.is_hide_set()) {
            has_examples(command, command.get_name());
        }
        for (name, lines) in EXAMPLES {
            for line in lines
                .iter()
                .flat_map(|line| line.split('|'))
                .filter(|line| line.trim().starts_with("scalla "))
            {
                let line =
                    line.split(" #").next().unwrap_or_default().split(" > ").next().unwrap_or_default();
                let words = line.split_whitespace().map(|word| word.trim_matches('\''));
                let parsed = definition.clone().try_get_matches_from(words);
                assert!(
                    parsed.is_ok(),
                    "{name}: {line}: {}",
                    parsed.err().map(|error| error.to_string()).unwrap_or_default()
                );
            }
        }
    }
}
