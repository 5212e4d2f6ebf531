"""Random authorization databases, asked by the real `xrdacctest` and by ours.

As a program: `authdb.py QUESTIONS [SEED]`. Files that one program refuses must be refused by the
other. Of accepted files, the privileges of random clients on random paths must be equal. Ours runs
with `acc.pathmatch prefix`, because it otherwise compares paths by component.

Not generated are names in capital letters of hosts, which ours ignores, and questions of clients
without any attribute to files with `s` and `x` records, which 5.5.3 does not apply to them."""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

import peers

REAL = peers.real("xrdacctest")
USERS = ("ann", "bob", "bobby", "eve", "a-b")
GROUPS = ("g1", "g2", "/cms/uscms", "g3")
ORGANIZATIONS = ("cms", "atlas", "bob")
ROLES = ("prod", "user", "g1")
HOSTS = ("h1.a.org", "h2.b.a.org", "a.org", "h1.b.org", "localhost")
DOMAINS = (".b.a.org", ".a.org", ".org", ".h1.a.org")
PARTS = ("a", "ab", "b", "store", "bob", "@=")
LETTERS = "adiklnrw"
CLIENTS_PER_FILE = 6
PATHS_PER_CLIENT = 8
# Exit status of ours for a file that it refuses as a whole. Each failure of theirs is a refusal.
OUR_REFUSED = 2


def a_path(rng, rule):
    depth = rng.choice((0, 1, 1, 2, 2, 3))
    path = "/" + "/".join(rng.choice(PARTS) for _ in range(depth))
    if rule and depth and rng.random() < 0.3:
        path += rng.choice(("/", "b", "@=", "/@=/"))
    return path


def privileges(rng):
    letters = lambda most: "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, most)))
    if rng.random() < 0.3:
        return letters(4) + "-" + letters(3)
    return letters(4) or "r"


def pairs(rng, templates):
    words = []
    for _ in range(rng.randint(1, 4)):
        if templates and rng.random() < 0.15:
            words.append(rng.choice(templates))
        else:
            words += [a_path(rng, True), privileges(rng)]
    return words


def compound(rng):
    kinds = rng.sample("ughor", rng.choice((1, 1, 2, 2, 3)))
    values = {"u": USERS, "g": GROUPS, "h": HOSTS + DOMAINS, "o": ORGANIZATIONS, "r": ROLES}
    return [word for kind in kinds for word in (kind + ":", rng.choice(values[kind]))]


def a_database(rng):
    """Returns the text of a file and whether it has compound rules. Some files have an error."""
    lines, templates, compounds, used = [], [], [], set()
    for number in range(rng.randint(1, 9)):
        kind = rng.choice("tuuuughhors==sx")
        if kind == "t":
            templates.append(f"t{number}")
            lines.append(["t", templates[-1], *pairs(rng, templates[:-1])])
        elif kind == "=":
            compounds.append(f"c{number}")
            lines.append(["=", compounds[-1], *compound(rng)])
        elif kind in "sx":
            if compounds:
                name = compounds.pop(rng.randrange(len(compounds)))
                lines.append([kind, name, *pairs(rng, templates)])
        else:
            names = {"u": USERS + ("*", "="), "g": GROUPS, "h": HOSTS + DOMAINS, "o": ORGANIZATIONS, "r": ROLES}
            name = rng.choice(names[kind])
            if (kind, name) not in used or rng.random() < 0.02:
                used.add((kind, name))
                lines.append([kind, name, *pairs(rng, templates)])
    if lines and rng.random() < 0.1:
        spoil(rng, rng.choice(lines))
    text = ""
    for line in lines:
        for word in line:
            text += word + rng.choice((" ", " ", " ", "  ", "\t", " \\\n ", " \\\n# comment\n"))
        text = text.rstrip(" \t") + rng.choice(("\n", "\n", "\n\n", "\n# comment\n")) if not text.endswith("\n") else text + "\n\n"
    return text, any(line[0] in "sx" for line in lines)


def spoil(rng, line):
    """Puts an error into a record, except for those of compounds, which end 5.5.3 by a signal."""
    if line[0] == "=":
        return
    change = rng.randrange(4)
    if change == 0:
        line[0] = rng.choice(("q", "uu", "U"))
    elif change == 1:
        line.append(rng.choice(("/end", "nosuch")))
    elif change == 2:
        line[-1] = rng.choice(("R", "r-w-d", "z"))
    else:
        del line[2:]


def a_client(rng, needs_attribute):
    """Returns the options that describe a client."""
    options = ["-h", rng.choice(HOSTS)]
    if rng.random() < 0.8:
        options += ["-u", rng.choice(USERS)]
    column_count = rng.choice((1, 1, 2, 3))
    some = lambda names, count: " ".join(rng.choice(names) for _ in range(count))
    lists = {"-g": GROUPS, "-o": ORGANIZATIONS, "-r": ROLES}
    chosen = [option for option in lists if rng.random() < 0.5] or (["-g"] if needs_attribute else [])
    for option in chosen:
        options += [option, some(lists[option], rng.choice((1, column_count, column_count)))]
    return options


class AccessPrograms:
    """Both programs with one file."""

    def __init__(self, directory):
        self.rules = directory / "authdb"
        self.theirs = directory / "theirs.cf"
        self.ours = directory / "ours.cf"
        self.theirs.write_text(f"acc.authdb {self.rules}\n")
        self.ours.write_text(f"acc.authdb {self.rules}\nacc.pathmatch prefix\n")
        self.program = peers.link("xrdacctest")

    def ask(self, client, paths):
        """Returns the answers of both, `refused` for a refused file."""
        questions = [*client, "?", *paths]
        return [
            self.run([REAL, "-c", self.theirs, *questions], lambda status: status != 0),
            self.run([self.program, "-c", self.ours, *questions], lambda status: status == OUR_REFUSED),
        ]

    def run(self, command, is_refusal):
        done = subprocess.run(command, capture_output=True, timeout=60 * peers.SLOWNESS, check=False)
        if is_refusal(done.returncode):
            return "refused"
        return done.stdout.decode() if done.returncode == 0 else f"status {done.returncode}: {done.stderr.decode()}"


def compare(questions, seed):
    """Asks at least that many questions. Returns the differences as texts."""
    differences, asked = [], 0
    with tempfile.TemporaryDirectory(prefix="authdb-") as directory:
        programs = AccessPrograms(Path(directory))
        while asked < questions and len(differences) < 5:
            rng = random.Random(seed)
            text, has_compounds = a_database(rng)
            programs.rules.write_text(text)
            for _ in range(CLIENTS_PER_FILE):
                client = a_client(rng, has_compounds)
                paths = [a_path(rng, False) for _ in range(PATHS_PER_CLIENT)]
                theirs, ours = programs.ask(client, paths)
                asked += len(paths)
                if theirs != ours:
                    differences.append(f"seed {seed}: {client} {paths}\n{text}\ntheirs:\n{theirs}\nours:\n{ours}")
                    break
                if theirs == "refused":
                    break
            seed += 1
    return differences, asked


if __name__ == "__main__":
    found, count = compare(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("\n\n".join(found) or f"{count} questions, no difference")
    sys.exit(bool(found))
