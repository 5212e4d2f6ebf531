"""Random trees and commands for `histories.py`, on both sides: names with every byte, links, cycles,
unreadable parts."""

import os

import peers
from model import HERE, THERE, Command, Options, carries, is_text

# Names with a meaning in a shell, a URL, a pattern, the protocol, a terminal, or among our temporary
# files.
NAMES = [
    b"a", b"b", b"c", b"data", b"data?old", b"data.tmp", b"data?x=1&y=2", b"A", b"a b", b" ", b"a&b=c", b"%41", b"%", b"#", b"a#b", b"a@b",
    b"a:1094", b"*", b"[a]", b"a*b", b"\\", b"\\*", b"'", b'"', b"$HOME", b"-r", b"--", b"~", b"a;b", b"a|b", b"a,b", b"a+b", b"...", b"..a",
    b".a", b".a.part", b".a.tmp", b".data.part.note", b"\x01", b"\x1b[2J", b"\x7f", b"a\r", b"a\tb", "ä".encode(), "\u202eb".encode(),
    "\ufffd".encode(), "\U0010ffff".encode(), "\U0010ff80".encode(), "a\u0301".encode(), "\U0001f600".encode(), b"bad\xff", b"bad\xfe", b"\x80", b"\xc3", b"line\nend", b"x" * 255,
    "ä".encode() * 127, b"file:", b"root:", b"0", b"-", b"=", b"a=b", b"d", b"e",
]
SIZES = (0, 1, 3, 17, 17, 40, 5000, 20_000)
OLD, NEW = 1_600_000_000, 1_700_000_000
LINKS = (b".", b"..", b"../..", b"../precious", b"/not-mounted/x", b"missing", b"../b", b"../a", b"a", b"../a/a")


class Trees:
    """The two trees of a history, made from a seed. `here` and `there` are their roots."""

    def __init__(self, dice, here, there, is_ours):
        self.dice = dice
        self.roots = {HERE: os.fsencode(here), THERE: os.fsencode(there)}
        self.user = peers.unprivileged()
        # A real server shows the longest names without their last byte.
        names = [name for name in NAMES if is_ours or (b"\n" not in name and len(name) < 255)]
        self.names = dice.sample(names, 9)
        self.is_hostile = dice.random() < 0.4
        self.is_locked = os.geteuid() == 0 and dice.random() < 0.25
        self.contents = [dice.randbytes(dice.choice(SIZES)) for _ in range(5)]
        # As long as another one, and as another one but for its end.
        self.contents += [bytes(len(self.contents[0])), self.contents[1] + b"end", self.contents[2][:9]]
        for root in self.roots.values():
            self.make_directory(root)
            for name in (b"a", b"b", b"precious"):
                self.make_directory(root + b"/" + name)
                self.fill(root + b"/" + name, 0 if name != b"precious" else 2)
            self.make_file(root + b"/single")

    def own(self, path):
        os.chown(path, *self.user, follow_symlinks=False)

    def make_directory(self, path):
        os.mkdir(path, 0o755)
        self.own(path)

    def make_file(self, path, pipe=False):
        if pipe:
            os.mkfifo(path, 0o644)
        else:
            with open(path, "wb") as file:
                file.write(self.dice.choice(self.contents))
            time = self.dice.choice((OLD, OLD, NEW))
            os.utime(path, (time, time))
            os.chmod(path, self.dice.choice((0, 0o400, 0o644)) if self.is_locked and self.dice.random() < 0.1 else 0o644)
        self.own(path)

    def fill(self, directory, depth):
        dice = self.dice
        for name in dice.sample(self.names, dice.choice((0, 1, 2, 3, 4) if depth else (1, 2, 3, 4, 5))):
            path = directory + b"/" + name
            kind = dice.random()
            if kind < 0.28 and depth < 3:
                self.make_directory(path)
                self.fill(path, depth + 1)
                if self.is_locked and dice.random() < 0.15:
                    os.chmod(path, dice.choice((0, 0, 0o500, 0o400, 0o300)))
            elif kind < 0.43 and self.is_hostile:
                links = [link for link in (*LINKS, *self.names) if link.count(b"..") <= self.depth(directory)]
                os.symlink(dice.choice(links), path)
                self.own(path)
            elif kind < 0.45 and self.is_hostile and directory.startswith(self.roots[HERE]):
                # A server that opens a pipe waits for its other end.
                self.make_file(path, pipe=True)
            else:
                self.make_file(path)

    def depth(self, directory):
        """Returns the number of directories between a path and its root."""
        root = next(root for root in self.roots.values() if directory.startswith(root + b"/"))
        return directory.count(b"/") - root.count(b"/")

    def stir(self, nodes):
        """Changes a tree as other programs do between two commands: a new file, another content."""
        side, path = self.dice.choice(sorted(key for key, node in nodes.items() if node.kind == "f") or [(HERE, b"a/new")])
        place = self.roots[side] + b"/" + path
        mode = nodes[side, path].mode if (side, path) in nodes else 0o644
        self.make_file(place)
        os.chmod(place, mode)


class Commands:
    """Random commands for the present trees."""

    def __init__(self, dice, trees):
        self.dice = dice
        self.trees = trees

    def next(self, world):
        kind = self.dice.choice(("cp", "cp", "cp", "sync", "sync", "sync", "rm", "rm"))
        return getattr(self, kind)(world)

    @staticmethod
    def is_plain(path):
        """Reports whether a path is unambiguous in a command line: text that is neither a pattern nor
        has parameters."""
        is_public = is_text(path) and not any(0x10ff80 <= ord(character) for character in path.decode())
        return is_public and all(carries(part) and not set(part) & set(b"*?[]\\") for part in path.split(b"/"))

    def existing(self, world, side, kinds, below=(b"a", b"b", b"single")):
        """Returns a path in a tree that resolves to one of these kinds."""
        paths = [path for path, node in world[side].nodes.items() if path and self.is_plain(path) and path.split(b"/")[0] in below
                 and (node.kind in kinds or node.kind == "l")]
        return self.dice.choice(sorted(paths) or [b"a"])

    def ways(self):
        return self.dice.choice(((HERE, THERE), (HERE, THERE), (THERE, HERE), (THERE, HERE), (HERE, HERE), (THERE, THERE)))

    def new_name(self, world, side):
        """Returns a missing path in an existing directory."""
        above = self.dice.choice((b"", b"", b"b"))
        names = [name for name in self.trees.names if self.is_plain(name)] + [b"new"]
        name = self.dice.choice(names)
        return above + b"/" + name if above else name

    def copying(self):
        dice = self.dice
        return dict(posc=dice.random() < 0.2, parallel=dice.choice((1, 1, 64)), retry=dice.choice((0, 0, 3)), sync=dice.random() < 0.1)

    def cp(self, world):
        dice = self.dice
        source_side, side = self.ways()
        options = Options(recursive=dice.random() < 0.65, **self.copying())
        how = dice.random()
        options.force = how < 0.45
        options.resume = not options.force and how < 0.65
        options.in_place = not options.resume and dice.random() < 0.1
        kinds = "d" if options.recursive else "f"
        count = dice.choice((1, 1, 1, 2))
        # Both ends in one tree are kept apart.
        sources = [self.existing(world, source_side, kinds, (b"a", b"single")) for _ in range(count)]
        sources = list(dict.fromkeys(sources))
        if len(sources) > 1 or dice.random() < 0.4:
            target = dice.choice((b"b", self.existing(world, side, "d", (b"b",))))
        elif dice.random() < 0.5:
            target = self.new_name(world, side)
        else:
            target = self.existing(world, side, kinds, (b"b",))
        return Command("cp", [(source_side, path) for path in sources], (side, target), options)

    def sync(self, world):
        dice = self.dice
        source_side, side = self.ways()
        options = Options(delete=dice.random() < 0.6, dry_run=dice.random() < 0.08, equal=dice.choice((None, None, "size", "checksum")),
                          **self.copying())
        options.posc = options.retry = None
        if options.delete:
            options.allow_empty = dice.random() < 0.2
            options.max_delete = dice.choice((None, None, None, 0, 1, 2, 5))
        source = b"a" if dice.random() < 0.7 else self.existing(world, source_side, "d", (b"a",))
        target = b"b" if source_side == side else b"a"
        if dice.random() < 0.3:
            target = dice.choice((self.existing(world, side, "d", (b"b",)), b"new"))
        return Command("sync", [(source_side, source)], (side, target), options)

    def rm(self, world):
        dice = self.dice
        options = Options(recursive=dice.random() < 0.7, force=dice.random() < 0.3, dry_run=dice.random() < 0.08)
        if dice.random() < 0.3:
            options.pattern = dice.choice((b"", b"d", b"a", b".", b"data"))
            return Command("rm", [(THERE, self.existing(world, THERE, "d", (b"a", b"b")))], None, options)
        paths = list(dict.fromkeys(self.existing(world, THERE, "fd") for _ in range(dice.choice((1, 1, 2)))))
        nested = [path for path in paths if any(path.startswith(other + b"/") for other in paths)]
        return Command("rm", [(THERE, path) for path in paths if path not in nested], None, options)
