"""The oracle of `histories.py`: derives the permitted changes of `cp`, `sync` and `rm` from the
trees alone.

A `World` is a snapshot of two trees, one on this machine and one at the server. `expect` derives an
`Expectation` from a world and a command: the final state of each path that the command must change,
and the reasons for which it must fail. The model does not use the protocol, the requests or the
implementation of the client. Its source is `docs/client.md`."""

import os
import re
import stat
from collections import namedtuple

HERE, THERE = "here", "there"
# States without a content to compare: a directory, no entry, a part of a file.
DIRECTORY, ABSENT, PART = "directory", "absent", "part"
LINKS_MAX = 40

# An entry of a tree. `kind` is f, d, l or p (file, directory, link, pipe); `data` is the content of a
# file or the target of a link.
Node = namedtuple("Node", "kind data mode modified")
Found = namedtuple("Found", "state path node")


def state(node):
    """Returns the state of a node that comparisons use."""
    if node is None:
        return ABSENT
    return DIRECTORY if node.kind == "d" else (node.kind, node.data)


def carries(name):
    """Reports whether a request can carry a name."""
    return b"?" not in name and b"\n" not in name


def is_between(state, old, wanted):
    """Reports whether each byte of a file is from one of its states, or is a zero that is still to
    be filled."""
    files = [one[1] for one in (old, *wanted) if isinstance(one, tuple) and one[0] == "f"]
    if not isinstance(state, tuple) or state[0] != "f" or len(state[1]) > max(map(len, files), default=0):
        return False
    return all(byte == 0 or any(at < len(file) and file[at] == byte for file in files) for at, byte in enumerate(state[1]))


def is_part_name(name):
    """Reports whether a name is that of a part or of its note."""
    return re.fullmatch(rb"\..+\.part(\.note)?", name, re.DOTALL) is not None


def is_text(name):
    try:
        name.decode()
        return True
    except UnicodeDecodeError:
        return False


class Tree:
    """A snapshot of a directory tree: paths below its root, as bytes, to nodes."""

    def __init__(self, side, nodes):
        self.side = side
        self.nodes = nodes
        self.children = {}
        for path in sorted(nodes):
            if path:
                self.children.setdefault(os.path.dirname(path), []).append(os.path.basename(path))

    @classmethod
    def read(cls, side, root):
        nodes = {}
        pending = [(os.fsencode(root), b"")]
        while pending:
            place, path = pending.pop()
            meta = os.lstat(place)
            kind, data = "f", None
            if stat.S_ISDIR(meta.st_mode):
                kind = "d"
                pending += [(place + b"/" + name, path + b"/" + name if path else name) for name in os.listdir(place)]
            elif stat.S_ISLNK(meta.st_mode):
                kind, data = "l", os.readlink(place)
            elif stat.S_ISFIFO(meta.st_mode):
                kind = "p"
            else:
                with open(place, "rb") as file:
                    data = file.read()
            # The time of a directory changes with its entries, that of a link never matters.
            modified = meta.st_mtime_ns if kind == "f" else 0
            nodes[path] = Node(kind, data, stat.S_IMODE(meta.st_mode) if kind != "l" else 0, modified)
        return cls(side, nodes)

    def copy(self):
        return Tree(self.side, dict(self.nodes))

    def add_directory(self, path):
        """Adds a directory that the command creates."""
        self.nodes[path] = Node("d", None, 0o755, 0)
        self.children.setdefault(os.path.dirname(path), []).append(os.path.basename(path))

    def find(self, path, follow=True):
        """Resolves a path. The state is `ok`, `missing` (only its last name), `lost` (a parent directory
        is missing), `denied` or `loop`."""
        done, rest, links = b"", [part for part in path.split(b"/") if part], 0
        while rest:
            name = rest.pop(0)
            above = self.nodes[done]
            if above.kind != "d":
                return Found("lost", None, None)
            if not above.mode & stat.S_IXUSR:
                return Found("denied", None, None)
            if name == b".":
                continue
            if name == b"..":
                done = os.path.dirname(done)
                continue
            next_path = done + b"/" + name if done else name
            node = self.nodes.get(next_path)
            if node is None:
                return Found("lost" if rest else "missing", None if rest else next_path, None)
            if node.kind == "l" and (rest or follow):
                links += 1
                if links > LINKS_MAX:
                    return Found("loop", None, None)
                if node.data.startswith(b"/"):
                    return Found("lost", None, None)
                rest = [part for part in node.data.split(b"/") if part] + rest
                continue
            done = next_path
        return Found("ok", done, self.nodes[done])

    def is_writable(self, path):
        """Reports whether entries of a directory can be created and removed."""
        return self.nodes[path].mode & 0o300 == 0o300


class World:
    """The two trees."""

    def __init__(self, here, there):
        self.trees = {HERE: Tree.read(HERE, here), THERE: Tree.read(THERE, there)}

    def __getitem__(self, side):
        return self.trees[side]

    def nodes(self):
        return {(side, path): node for side, tree in self.trees.items() for path, node in tree.nodes.items()}


# An entry in a walk. `kind` is file, directory or unknown; `node` is the file after all links.
Seen = namedtuple("Seen", "name kind path node")


class Walker:
    """A tree as the client walks through it, for a copy to or from `other`."""

    def __init__(self, tree, other):
        # A copy, so that entries that the command creates are not walked.
        self.tree = tree.copy()
        self.is_here = tree.side == HERE
        self.stays_here = self.is_here and other == HERE

    def list(self, path):
        """Returns the entries of a directory; None if they cannot be read."""
        node = self.tree.nodes[path]
        if not node.mode & stat.S_IRUSR:
            return None
        return [self.look(path, name) for name in self.tree.children.get(path, ()) if self.is_here or b"\n" not in name]

    def look(self, directory, name):
        unknown = Seen(name, "unknown", None, None)
        if not (self.stays_here or carries(name)):
            return unknown
        path = directory + b"/" + name if directory else name
        found = self.tree.find(path)
        if found.state != "ok":
            return unknown
        if found.node.kind == "f":
            return Seen(name, "file", found.path, found.node)
        is_link = self.tree.nodes[path].kind == "l"
        if found.node.kind == "d" and not (self.is_here and is_link):
            return Seen(name, "directory", found.path, found.node)
        return unknown


class Expectation:
    """The permitted effects of a command.

    * `want`: the sets of final states of the paths that it must change.
    * `soft`: directories that are created only for their content.
    * `may`: other states that are permitted after a failure.
    * `problems`: reasons for which it must fail.
    * `is_vague`: the documentation does not define whether it succeeds.
    * `is_free`: the documentation does not define the final states of `want` either."""

    def __init__(self, world, options):
        self.world = world
        self.options = options
        self.want = {}
        self.soft = set()
        self.may = {}
        self.problems = []
        # Links at a server whose targets are in `want`.
        self.links = {}
        self.is_vague = False
        self.is_free = False
        # Entries that are not removed because they are unknown, each with the entry of the command
        # or of the surplus above it.
        self.protected = []
        self.top = None
        # A target is a pipe: the command waits for its reader.
        self.waits = False
        # Directories of local targets, where parts may stay.
        self.workplaces = set()

    def fail(self, reason):
        self.problems.append(reason)

    def set(self, side, path, state):
        states = self.want.setdefault((side, path), set())
        # Two copies may have one target, which gets the content of one of them. The other one may
        # fail, because the target exists then.
        is_second = bool(states) and state != DIRECTORY
        self.is_vague |= is_second and (state not in states or not self.options.force)
        states.add(state)

    def allow_new_targets(self):
        """Allows the removal of links whose missing targets the command creates: later they are
        entries like others."""
        for side, path, top in self.protected:
            found = self.world[side].find(path)
            if found.state == "missing" and (side, found.path) in self.want:
                self.is_vague = True
                while len(path) >= len(top):
                    self.may.setdefault((side, path), set()).add(ABSENT)
                    path = os.path.dirname(path)

    def make_directory(self, side, path):
        """Creates a directory if it is missing. Returns its resolved path, or None on a failure."""
        tree = self.world[side]
        found = tree.find(path)
        if found.state == "ok":
            if found.node.kind == "d":
                return found.path
            return self.fail(f"{path} is a file")
        if found.state == "lost":
            above = self.make_directory(side, os.path.dirname(path)) if path else None
            if above is None:
                return None
            found = tree.find(path)
        if found.state != "missing":
            return self.fail(f"{path} cannot be made: {found.state}")
        if any(state != DIRECTORY for state in self.want.get((side, found.path), ())):
            # Another source is a file that has this target. The first of the two wins.
            self.is_vague = self.is_free = True
            return self.fail(f"{path} is a file of another source")
        if tree.find(path, follow=False).state == "ok":
            # A dangling link.
            self.is_vague = True
            self.may.setdefault((side, found.path), set()).add(DIRECTORY)
            return None
        if not tree.is_writable(os.path.dirname(found.path)):
            return self.fail(f"{path} cannot be made there")
        self.set(side, found.path, DIRECTORY)
        self.soft.add((side, found.path))
        tree.add_directory(found.path)
        return found.path

    def copy(self, node, side, path):
        """Copies one file. `node` is None if the source is missing."""
        tree, options = self.world[side], self.options
        if node is None or not node.mode & stat.S_IRUSR:
            return self.fail("the source cannot be read")
        found = tree.find(path)
        if found.state == "lost" and side == THERE and path:
            if self.make_directory(side, os.path.dirname(path)) is None:
                return self.fail("no directory for it")
            found = tree.find(path)
        if found.state not in ("ok", "missing"):
            return self.fail(f"the target is {found.state}")
        directory = os.path.dirname(found.path)
        if side == HERE and options.resume and is_part_name(os.path.basename(found.path)):
            return self.fail("the target has the name of a part")
        # A file at a server is overwritten, a local one is replaced.
        is_written = side == THERE or options.in_place
        if side == HERE:
            self.workplaces.add(directory)
        if found.state == "missing":
            if tree.find(path, follow=False).state == "ok":
                # A dangling link: its target is created, or nothing.
                self.is_vague = self.is_free = True
            if not tree.is_writable(directory):
                return self.fail("the target cannot be made")
        elif found.node.kind != "f":
            self.waits |= found.node.kind == "p"
            return self.fail("the target is a directory")
        elif options.resume and not found.node.mode & stat.S_IWUSR:
            return self.fail("the target cannot be written")
        elif options.resume:
            self.is_vague |= found.node.data != node.data
            self.is_free = True
            # It is completed in its place.
            self.may.setdefault((side, found.path), set()).add(PART)
        elif not options.force:
            return self.fail("the target exists")
        elif not (found.node.mode & stat.S_IWUSR if is_written else tree.is_writable(directory)):
            return self.fail("the target cannot be written")
        self.set(side, found.path, ("f", node.data))
        entry = tree.find(path, follow=False)
        if side == THERE and entry.state == "ok" and entry.node.kind == "l":
            # The client cannot distinguish it from a file: a copy that fails removes it, and may then
            # create a file of its name.
            self.links[side, found.path] = (side, entry.path)
            self.may.setdefault((side, entry.path), set()).update((ABSENT, PART, ("f", node.data)))
        if is_written:
            self.may.setdefault((side, found.path), set()).update((PART, ABSENT))

    def remove(self, side, path, walker):
        """Removes a file, or a directory with its content. Reports whether the entry will be gone."""
        tree = self.world[side]
        directory, name = os.path.split(path)
        seen = walker.look(directory, name)
        if seen.kind == "unknown":
            self.protected.append((side, path, self.top or path))
            return self.fail(f"{path} is not removed")
        if seen.kind == "directory":
            if tree.nodes[path].kind == "l":
                return self.fail(f"{path} is a link to a directory")
            return self.remove_directory(side, path, walker)
        if not tree.is_writable(directory):
            return self.fail(f"{path} cannot be removed")
        if seen.path != path:
            # A link: its target may change while other entries are removed.
            self.is_vague = self.is_free = True
        self.set(side, path, ABSENT)
        return True

    def remove_directory(self, side, path, walker):
        tree = self.world[side]
        is_removable = tree.is_writable(os.path.dirname(path))
        if side == THERE:
            # The client first asks the server to remove it as an empty directory.
            if not is_removable:
                return self.fail(f"{path} cannot be removed")
            if not tree.children.get(path):
                self.set(side, path, ABSENT)
                return True
        if self.remove_entries(side, path, walker) and is_removable:
            self.set(side, path, ABSENT)
            return True
        return self.fail(f"{path} stays")

    def remove_entries(self, side, path, walker):
        entries = walker.list(path)
        if entries is None:
            return self.fail(f"{path} cannot be read")
        gone = [self.remove(side, path + b"/" + entry.name if path else entry.name, walker) for entry in entries]
        return all(gone) and len(gone) == len(self.world[side].children.get(path, ()))


# A command. `kind` is cp, sync or rm; `sources` and `target` are pairs of a side and a path (rm has
# no target).
Command = namedtuple("Command", "kind sources target options")


class Options:
    """Options of a command; the default is off."""

    NAMES = ("recursive", "force", "resume", "in_place", "posc", "delete", "dry_run", "allow_empty", "max_delete", "equal", "pattern",
             "retry", "parallel", "sync")

    def __init__(self, **given):
        for name in self.NAMES:
            setattr(self, name, given.pop(name, None))
        assert not given

    def __repr__(self):
        return " ".join(f"{name}={value}" for name in self.NAMES if (value := getattr(self, name)) not in (None, False))


def expect(world, command):
    """Returns the expectation of a command in a world. The world is modified."""
    expectation = Expectation(world, command.options)
    {"cp": _copy, "sync": _sync, "rm": _remove}[command.kind](expectation, command)
    if command.options.dry_run:
        # A dry run detects only some of the failures.
        expectation.want, expectation.may, expectation.workplaces = {}, {}, set()
        expectation.is_vague = True
    return expectation


def _join(directory, name):
    return directory + b"/" + name if directory else name


# cp


def _copy(expectation, command):
    world, (side, target) = expectation.world, command.target
    found = world[side].find(target)
    into = found.state == "ok" and found.node.kind == "d"
    several = len(command.sources) > 1
    if several and not into:
        return expectation.fail("several, and no directory")
    for source_side, path in command.sources:
        source = world[source_side].find(path)
        to = _join(target, os.path.basename(path)) if into else target
        if source.state != "ok":
            expectation.fail(f"{path} is not there: {source.state}")
        elif source.node.kind == "d":
            if not expectation.options.recursive:
                expectation.fail(f"{path} is a directory")
            elif _is_nested(expectation, source_side, source.path, side, to):
                expectation.fail("inside itself")
            else:
                walker = Walker(world[source_side], side)
                _copy_directory(expectation, walker, source.path, side, to, [source.path])
        elif source.node.kind == "f":
            if (source_side, source.path) == (side, world[side].find(to).path):
                expectation.fail("source and target are one file")
                expectation.is_vague = True
            else:
                expectation.copy(source.node, side, to)
        else:
            expectation.waits = True
            expectation.fail("a pipe")


def _is_nested(expectation, source_side, source, side, target):
    """Reports whether a target is a directory or is inside it."""
    if source_side != side:
        return False
    tree, part = expectation.world[side], target
    while True:
        found = tree.find(part)
        if found.state == "ok":
            return found.path == source or found.path.startswith(source + b"/") or not source
        if not part:
            return False
        part = os.path.dirname(part)


def _copy_directory(expectation, walker, path, side, target, chain):
    entries = walker.list(path)
    if entries is None:
        return expectation.fail(f"{path} cannot be read")
    if expectation.make_directory(side, target) is None:
        expectation.fail("no directory for it")
        if side == HERE or not any(entry.kind != "unknown" for entry in entries):
            return None
    for entry in entries:
        to = _join(target, entry.name)
        if entry.kind == "unknown":
            expectation.fail(f"{entry.name} cannot be copied")
        elif entry.kind == "file":
            expectation.copy(entry.node, side, to)
        elif entry.path in chain:
            expectation.fail(f"{entry.name} leads back")
        elif _is_nested(expectation, walker.tree.side, entry.path, side, to):
            expectation.fail(f"{entry.name} leads into the target")
        else:
            _copy_directory(expectation, walker, entry.path, side, to, [*chain, entry.path])
    return None


# sync


def _sync(expectation, command):
    world, options = expectation.world, expectation.options
    (source_side, source), (side, target) = command.sources[0], command.target
    here, there = world[source_side].find(source), world[side].find(target)
    if here.state != "ok" or here.node.kind != "d":
        return expectation.fail("the source is no directory")
    if there.state == "ok" and there.node.kind != "d":
        return expectation.fail("the target is no directory")
    if there.state in ("denied", "loop"):
        return expectation.fail("the target cannot be reached")
    if _is_nested(expectation, source_side, here.path, side, target):
        return expectation.fail("inside itself")
    if options.delete and there.state == "ok" and _is_nested(expectation, side, there.path, source_side, source):
        return expectation.fail("inside itself")
    reader, writer = Walker(world[source_side], side), Walker(world[side], source_side)
    entries = reader.list(here.path)
    present = writer.list(there.path) if there.state == "ok" else []
    if entries is None or present is None:
        return expectation.fail("it cannot be read")
    known = [[entry for entry in some if entry.kind != "unknown"] for some in (entries, present)]
    if options.delete and not options.allow_empty and not known[0] and known[1]:
        return expectation.fail("the source is empty")
    sync = _Sync(expectation, reader, writer, side)
    options.force = True
    sync.directory(here.path, target, there.path if there.state == "ok" else None, [here.path], [there.path])
    sync.allow_all_sources()
    if options.delete:
        sync.delete()
        expectation.allow_new_targets()
    return None


class _Sync:
    def __init__(self, expectation, reader, writer, side):
        self.expectation = expectation
        self.reader = reader
        self.writer = writer
        self.side = side
        self.surplus = []
        self.is_complete = True
        # The contents of the sources of each target that links lead to, or that exists.
        self.sources = {}

    def directory(self, path, target, real, above, above_there, is_own=True):
        """Compares a directory with the entry in its place: `target`, or `real` if it exists. `is_own`:
        each directory of the path is a directory and not a link, which a server reports when the
        client asks it to remove it as an empty one."""
        expectation, options = self.expectation, self.expectation.options
        entries = self.reader.list(path)
        present = self.writer.list(real) if real is not None else []
        if entries is None or present is None:
            self.is_complete = False
            return expectation.fail("it cannot be read")
        unknown = {entry.name for entry in entries if entry.kind == "unknown"}
        names = {entry.name for entry in entries}
        for name in unknown:
            expectation.fail(f"{name} cannot be compared")
        others = {entry.name: entry for entry in present}
        for name, other in others.items():
            if other.kind == "unknown" and (options.delete or name in names):
                expectation.fail(f"{name} of the target cannot be compared")
                if name not in names:
                    expectation.protected.append((self.side, _join(real, name), _join(real, name)))
        if real is None and expectation.make_directory(self.side, target) is None:
            return expectation.fail("no directory for it")
        for entry in entries:
            other = others.get(entry.name)
            if entry.kind == "unknown":
                continue
            if other and other.kind == "unknown":
                # A dangling link is a target when another copy has created the file that it names.
                named = self.writer.tree.find(_join(real, entry.name))
                if entry.kind == "file" and named.state == "missing":
                    self.sources.setdefault(named.path, set()).add(("f", entry.node.data))
                continue
            if other and other.kind != entry.kind:
                expectation.fail("it is a directory on one side")
            elif entry.kind == "file":
                if other:
                    self.sources.setdefault(other.path, set()).add(("f", entry.node.data))
                if self.differs(entry.node, other and other.node):
                    expectation.copy(entry.node, self.side, _join(target, entry.name))
            elif entry.path in above or (other and other.path in above_there):
                expectation.fail("it leads back")
            elif _is_nested(expectation, self.reader.tree.side, entry.path, self.side, _join(target, entry.name)):
                expectation.fail("it leads into the target")
            else:
                tree = self.writer.tree
                still_own = is_own and (other is None or tree.nodes[_join(real, entry.name)].kind != "l" and tree.is_writable(real))
                self.directory(entry.path, _join(target, entry.name), other and other.path, [*above, entry.path],
                               [*above_there, other and other.path], still_own)
        self.surplus += [(is_own, real, name) for name, other in others.items() if other.kind != "unknown" and name not in names]
        return None

    def allow_all_sources(self):
        """Allows each source of a target that is written. A later comparison finds a file that an
        earlier copy has written."""
        for path, states in self.sources.items():
            want = self.expectation.want.get((self.side, path))
            if want is not None and not states <= want:
                want |= states
                self.expectation.is_vague = True

    def differs(self, node, other):
        if other is None or len(node.data) != len(other.data):
            return True
        equal = self.expectation.options.equal
        if equal == "size":
            return False
        if equal == "checksum":
            if not (node.mode & other.mode & stat.S_IRUSR):
                self.expectation.fail("its checksum cannot be computed")
                return False
            return node.data != other.data
        return other.modified // 10**9 < node.modified // 10**9

    def delete(self):
        expectation, options, tree = self.expectation, self.expectation.options, self.writer.tree
        if not self.is_complete:
            return expectation.fail("not everything was seen")
        if options.max_delete is not None:
            count, is_complete = 0, True
            for _, real, name in self.surplus:
                if tree.nodes[_join(real, name)].kind == "l":
                    expectation.is_vague = expectation.is_free = True
                counted, could = self.count(self.writer.look(real, name), [real])
                count, is_complete = count + counted, is_complete and could
            if count > options.max_delete or not is_complete:
                return expectation.fail("too many to remove")
        for is_own, real, name in self.surplus:
            if self.side == THERE and not is_own:
                expectation.fail("it is behind a link")
            else:
                expectation.top = _join(real, name)
                expectation.remove(self.side, expectation.top, self.writer)
        return None

    def count(self, entry, chain):
        """Returns the number of entries in a surplus entry, and whether all were readable."""
        if entry.kind != "directory" or entry.path in chain:
            return 1, True
        entries = self.writer.list(entry.path)
        if entries is None:
            return 1, False
        count, is_complete = 1, True
        for one in entries:
            if one.kind == "directory" and self.writer.tree.nodes[_join(entry.path, one.name)].kind == "l":
                # The target of the link is counted but not removed.
                self.expectation.is_vague = self.expectation.is_free = True
            if one.kind != "unknown":
                counted, could = self.count(one, [*chain, entry.path])
                count, is_complete = count + counted, is_complete and could
        return count, is_complete


# rm


def _remove(expectation, command):
    options, tree = expectation.options, expectation.world[THERE]
    walker = Walker(tree, HERE)
    paths = [path for _, path in command.sources]
    if options.pattern is not None:
        directory, prefix = paths[0], options.pattern
        paths = []
        found = tree.find(directory)
        entries = None
        if found.state == "ok" and found.node.kind == "d":
            entries = tree.children.get(found.path, []) if found.node.mode & stat.S_IRUSR else None
        if entries is None:
            expectation.fail("no such directory")
            expectation.is_vague = bool(options.force)
            return
        for name in entries:
            if b"\n" in name or not name.startswith(prefix) or (name.startswith(b".") and not prefix.startswith(b".")):
                continue
            if carries(name):
                paths.append(_join(directory, name))
            else:
                expectation.fail(f"{name} cannot be named")
        if not paths and not expectation.problems:
            expectation.fail("nothing matches")
            expectation.is_vague = bool(options.force)
    for path in paths:
        _remove_one(expectation, walker, path)


def _remove_one(expectation, walker, path):
    options, tree = expectation.options, expectation.world[THERE]
    found, entry = tree.find(path), tree.find(path, follow=False)
    if found.state != "ok":
        # With force a missing path is not a failure.
        if options.force and found.state in ("missing", "lost"):
            expectation.is_vague = entry.state == "ok"
        else:
            expectation.fail(f"{path} is {found.state}")
        return
    if found.node.kind == "d":
        if not options.recursive:
            expectation.fail(f"{path} is a directory")
        elif entry.node.kind == "l":
            # An earlier path of the command may be its target. With force a link to nothing is no failure.
            expectation.is_vague |= bool(options.force) and (THERE, found.path) in expectation.want
            expectation.fail(f"{path} is a link")
        else:
            expectation.remove_directory(THERE, entry.path, walker)
    elif found.node.kind == "f":
        expectation.remove(THERE, entry.path, walker)
    else:
        expectation.fail("a pipe")
        expectation.is_vague = expectation.is_free = True
