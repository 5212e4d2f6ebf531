"""Random request sequences to the real server and to ours, on empty trees of the same shape.

The first difference between answers ends a sequence and is an error. As a program: `differ.py
SEQUENCES [SEED]`.

Compared are the status, the connection of the answer, the error number, and each body without
times, ids, locations or disk values. A sequence with a difference is reduced until no request can
be omitted. A request without an answer is a difference. Only a checksum that the real server does
not answer ends its sequence and is counted. `docs/conformance.md` lists the requests that are not
generated."""

import itertools
import random
import select
import struct
import sys
import time

import peers
import raw
from codes import ErrorCode
from test_checksum import crc32c

LENGTH = 30
BASE = "/q{}"
NAMES = ("/a", "/b", "/d", "/d/x", "/d/e/y", "", "/nix/z", "/a/under", "/ä b", "/a/", "/d/", "/nix/", "/d/.")
TARGETS = ("/a", "/b", "/c", "/d")
DIRECTORIES = ("/d", "/d/e", "/e")
SLOTS = 3
# Bits of an open that any other may have: async, mkpath, refresh, force, retstat, nowait, seqio,
# compress, posc. Those for replicas and, for new files, refresh apply to directories at 5.5.3.
REFRESH = 0x80
EXTRA = (0x40, raw.O_MKPATH, REFRESH, raw.O_FORCE, raw.O_RETSTAT, 0x2000, 0x4000, 0x1, raw.O_POSC)
# Append with a creating option and without update counts as a reader for 5.5.3 and as a writer for
# 6. A write-only handle can be read in 6.
ACCESS = (
    0, raw.O_READ, raw.O_UPDT, raw.O_NEW, raw.O_DELETE, raw.O_APND, raw.O_APND | raw.O_UPDT, raw.O_NEW | raw.O_UPDT,
    raw.O_DELETE | raw.O_UPDT, raw.O_NEW | raw.O_WRTO, raw.O_DELETE | raw.O_WRTO, raw.O_READ | raw.O_UPDT, raw.O_NEW | raw.O_READ,
    raw.O_DELETE | raw.O_READ | raw.O_UPDT, raw.O_NEW | raw.O_DELETE, raw.O_UPDT | raw.O_WRTO,
)
WRITING = raw.O_UPDT | raw.O_WRTO | raw.O_APND | raw.O_NEW | raw.O_DELETE
OFFSETS = (0, 0, 2, 3, 100, 4095, 4096, 5000, -1)
LENGTHS = (0, 1, 10, 100, 4096, 8192)
KEYS = ("chksum", "readv_ior_max readv_iov_max", "bind_max", "tpc", "role", "nix", "pio_max", "csname", "fattr", "tpcdlg")
UNKNOWN = b"\x63\0\0\0"
# The connection of the data: the control connection, the bound one, an unknown one.
PATHS = (0, 0, 0, 1, 1, 77)
# Error numbers that were changed in 6.
NEWER = {("rmdir", ErrorCode.IT_EXISTS): ErrorCode.FS_ERROR, ("rm", ErrorCode.IT_EXISTS): ErrorCode.FS_ERROR, ("mv", ErrorCode.IT_EXISTS): ErrorCode.FS_ERROR}


# Generation. An operation is a tuple of its kind and arguments. Names are relative to the directory
# of the sequence.


def without_dot(name):
    """Returns the name unless the kernel refuses to remove, rename or create it: ours treats `/d/.`
    as `/d/`."""
    return name.removesuffix(".") if name.endswith("/.") else name


def pick_open(dice, name):
    name = without_dot(name)
    options = dice.choice(ACCESS)
    for bit in EXTRA:
        if dice.random() < 0.1:
            options |= bit
    if options & (raw.O_NEW | raw.O_DELETE):
        options &= ~REFRESH
        if name.endswith("/"):
            # The real server creates the directory, but refuses the open.
            options &= ~(0x40 | raw.O_MKPATH | raw.O_APND)
    if name.rstrip("/") in DIRECTORIES:
        options &= ~raw.O_POSC
    return "open", dice.randrange(SLOTS), name, options, dice.choice((0o644, 0o600, 0, 0o444))


def pick_vector(dice):
    slots = [dice.randrange(SLOTS) for _ in range(dice.choice((1, 1, 2)))]
    return tuple((dice.choice(slots), dice.choice((0, 3, 5000)), dice.choice((0, 1, 8, 100))) for _ in range(dice.randrange(4)))


def pick_executed(dice):
    """Returns a request under a checkpoint."""
    slot, offset = dice.randrange(SLOTS), dice.choice((0, 2, 4096, 5000))
    kind = dice.choice(("write", "pgwrite", "truncate", "writev"))
    return "executed", slot, kind, offset, dice.choice((1, 10, 5000))


def pick(dice):
    """Returns one operation."""
    name, slot, other = dice.choice(NAMES), dice.randrange(SLOTS), dice.choice(NAMES)
    offset, length = dice.choice(OFFSETS), dice.choice(LENGTHS)
    kinds = {
        "open": (8, lambda: pick_open(dice, name or "/a")),
        "read": (2, lambda: ("read", slot, offset, dice.choice((*LENGTHS, -1)), dice.choice(PATHS))),
        "pgread": (2, lambda: ("pgread", slot, offset, dice.choice((*LENGTHS, -1)), dice.choice(PATHS))),
        "write": (4, lambda: ("write", slot, offset, length, dice.choice(PATHS))),
        "pgwrite": (2, lambda: ("pgwrite", slot, offset, dice.choice((1, 5, 4096, 9000)), dice.random() < 0.1, dice.choice(PATHS))),
        "readv": (1, lambda: ("readv", pick_vector(dice))),
        "writev": (1, lambda: ("writev", pick_vector(dice), dice.randrange(2))),
        "close": (3, lambda: ("close", slot)),
        "sync": (1, lambda: ("sync", slot)),
        "truncate a file": (1, lambda: ("truncate", slot, dice.choice((0, 3, 10_000, -1)))),
        "truncate a path": (1, lambda: ("truncate path", name, dice.choice((0, 7, -1)))),
        "stat a file": (1, lambda: ("stat handle", slot)),
        "stat": (3, lambda: ("stat", name)),
        "statvfs": (1, lambda: ("statvfs", name)),
        "statx": (1, lambda: ("statx", name, other)),
        "mkdir": (2, lambda: ("mkdir", dice.choice(DIRECTORIES), dice.choice((0o755, 0o700, 0)), dice.randrange(2))),
        "rm": (1, lambda: ("rm", without_dot(name) or "/a")),
        "rmdir": (1, lambda: ("rmdir", without_dot(name) or "/d")),
        "mv": (1, lambda: ("mv", without_dot(name) or "/a", dice.choice(TARGETS))),
        "chmod": (1, lambda: ("chmod", name, dice.choice((0o755, 0o775, 0o700)))),
        "list": (1, lambda: ("list", name, dice.choice((0, 1, 2)))),
        "checksum": (1, lambda: ("checksum", name, dice.choice(("", "?cks.type=crc32c", "?cks.type=nix")))),
        "locate": (1, lambda: ("locate", name, dice.choice((0, 0x80, 0x1, 0x40)))),
        "fattr": (2, lambda: ("fattr", *dice.choice(((0, None), (1, None), (2, None), (3, None), (0, slot), (1, slot), (2, slot), (3, slot))), name, dice.choice(("foo", "bar")), dice.choice((0, 1, 0x10)))),
        "query": (1, lambda: ("query", dice.choice((2, 4, 5, 6, 16, 32, 64, 99)), name)),
        "config": (1, lambda: ("config", dice.choice(KEYS))),
        "prepare": (1, lambda: ("prepare", dice.choice((0, 4, 8, 16, 32, 64)), name)),
        "checkpoint": (2, lambda: ("checkpoint", slot, dice.choice((0, 0, 1, 2, 3, 5)))),
        "executed": (1, lambda: pick_executed(dice)),
        "endsess": (0.3, lambda: ("endsess", dice.choice(("unknown", "none", "own")))),
        "set": (1, lambda: ("set", dice.choice(("appid x", "monitor off", "nosuch thing", "clttl 5")))),
        "plain": (1, lambda: ("plain", dice.choice((raw.PING, raw.AUTH, raw.GPFILE, raw.SIGVER, 3099)))),
        "empty": (1, lambda: ("plain", dice.choice((raw.CHMOD, raw.DIRLIST, raw.MKDIR, raw.MV, raw.OPEN, raw.RM, raw.RMDIR, raw.SET, raw.STATX, raw.LOCATE, raw.PREPARE)))),
    }
    weights = [weight for weight, _ in kinds.values()]
    return dice.choices([make for _, make in kinds.values()], weights)[0]()


def sequence(seed):
    """Returns the operations of one sequence."""
    dice = random.Random(seed)
    return [pick(dice) for _ in range(LENGTH)]


# Execution.


def pages(offset, length, wrong=False):
    """Returns the data of a pgwrite: pages with correct or wrong checksums."""
    data, payload, at = b"p" * length, b"", 0
    while at < length:
        size = min(4096 - (offset + at) % 4096, length - at)
        page = data[at:at + size]
        payload += struct.pack(">I", crc32c(page) ^ wrong) + page
        at += size
    return payload


class Run:
    """One sequence at one server."""

    def __init__(self, server, number):
        self.base = BASE.format(number)
        self.control = raw.Connection(server, timeout=20)
        self.stream, self.path_id = self.bind(server)
        self.stream.socket.settimeout(20)
        self.slots = [UNKNOWN] * SLOTS
        self.writable = set()
        # Handles that may set attributes at the real server, which excludes an open for both
        # reading and writing.
        self.writers = set()
        # Handles that make a file persist on close. Ours keeps such a file and its mark if a
        # request of any of its handles is refused, or if its mode is changed.
        self.pending = set()
        # Names with which handles were opened.
        self.names = {}
        # Handles under a checkpoint. Ours also rolls back changes by other requests than executed
        # ones; these are omitted.
        self.checkpoints = set()
        # Set if a name may refer to another file than at its open.
        self.renamed = False
        self.control.ask(raw.MKDIR, struct.pack(">14xH", 0o755), self.base.encode())

    def bind(self, server, attempts=20):
        """Opens the bound connection. The real server may not know a session yet whose login it has
        answered."""
        while True:
            attempts -= 1
            try:
                return raw.bind(server, self.control.session)
            except raw.Failed as failed:
                if not attempts or server.kind != "theirs" or "session not logged in" not in failed.text:
                    raise AssertionError(f"{server.kind}: {failed}") from failed

    def close(self):
        self.stream.close_socket()
        self.control.close_socket()

    def path(self, name):
        return (self.base + name).encode()

    def ask(self, code, body=b"", payload=b"", data=None, length=None):
        """Returns the connection of the answer, and the answer. `data` is sent on the other stream."""
        stream = self.control.start(code, body, payload, length)
        if data is not None:
            self.stream.send(data)
        links = {self.control.socket: self.control, self.stream.socket: self.stream}
        whole = b""
        while True:
            readable, _, _ = select.select(list(links), [], [], 20)
            if not readable:
                raise TimeoutError("no answer")
            link = links[readable[0]]
            frame = link.answer()
            if frame.stream != stream:
                return "stream", frame.stream, b""
            if frame.status == raw.WAITRESP:
                continue
            where = "control" if link is self.control else "stream"
            if frame.status == raw.OKSOFAR or frame.status == raw.STATUS and frame.body[7] != 0:
                whole += frame.body if frame.status == raw.OKSOFAR else frame.data
                continue
            if frame.status == raw.ERROR:
                return where, ("error", struct.unpack(">i", frame.body[:4])[0]), b""
            if frame.status == raw.STATUS:
                return where, raw.STATUS, whole + frame.data + frame.body[24:]
            return where, frame.status, whole + frame.body

    def step(self, operation):
        """Returns the part of the answer that must be equal."""
        kind, *what = operation
        try:
            where, status, body = getattr(self, f"do_{kind.replace(' ', '_')}")(*what)
        except (raw.Closed, ConnectionError, BrokenPipeError):
            return "closed",
        except TimeoutError:
            return "silent",
        if isinstance(status, tuple):
            status = "error", NEWER.get((kind, status[1]), status[1])
        keep = getattr(self, f"same_{kind.replace(' ', '_')}", lambda body: body)
        return where, status, keep(body) if status in (raw.OK, raw.STATUS) else None

    # Requests, and the comparable parts of their answers.

    def left_out(self):
        """Replaces a request whose answers differ on purpose."""
        return self.ask(raw.PING)

    def do_open(self, slot, name, options, mode):
        if options & raw.O_DELETE and name in self.names.values():
            # The real server does not persist on close if another handle writes.
            options &= ~raw.O_POSC
        if options & WRITING and name in {self.names[handle] for handle in self.pending}:
            # It does not wait for that handle either.
            return self.left_out()
        where, status, body = self.ask(raw.OPEN, struct.pack(">HH12x", mode, options), self.path(name))
        if status == raw.OK:
            self.names[body[:4]] = name
            (self.pending.add if options & raw.O_POSC else self.pending.discard)(body[:4])
            self.slots[slot] = body[:4]
            self.checkpoints.discard(body[:4])
            updates = options & (raw.O_UPDT | raw.O_WRTO) and not options & raw.O_READ
            (self.writers.add if updates else self.writers.discard)(body[:4])
            if updates or options & (raw.O_NEW | raw.O_DELETE):
                self.writable.add(body[:4])
            else:
                self.writable.discard(body[:4])
        return where, status, body

    def same_open(self, body):
        return body[4:12], len(body) > 12 and body[12:].split()[1]

    def path_of(self, other):
        """Returns the path id for an entry of PATHS."""
        return self.path_id if other == 1 else other

    def do_read(self, slot, offset, length, other):
        extra = struct.pack("B7x", self.path_of(other)) if other else b""
        return self.ask(raw.READ, struct.pack(">4sqi", self.slots[slot], offset, length), extra)

    def do_pgread(self, slot, offset, length, other):
        extra = bytes((self.path_of(other), 0)) if other else b""
        return self.ask(raw.PGREAD, struct.pack(">4sqi", self.slots[slot], offset, length), extra)

    def is_unfinished(self, slot):
        """Reports whether the file of this handle persists on close, even through another handle."""
        return self.names.get(self.slots[slot]) in {self.names[handle] for handle in self.pending}

    def send_data(self, code, slot, offset, data, other):
        """Sends a write. A refused write with announced data on another connection ends the session
        of the real server."""
        if offset < 0 and self.is_unfinished(slot) or self.slots[slot] in self.checkpoints:
            return self.left_out()
        if self.slots[slot] not in self.writable or offset < 0 and code == raw.PGWRITE:
            other = 0
        body = struct.pack(">4sqB", self.slots[slot], offset, self.path_of(other))
        if other == 77 and data:
            return self.ask(code, body, b"", None, len(data))
        return self.ask(code, body, b"" if other else data, data if other and data else None, len(data))

    def do_write(self, slot, offset, length, other):
        data = bytes(number % 251 for number in range(offset + 1, offset + 1 + length))
        return self.send_data(raw.WRITE, slot, offset, data, other)

    def do_pgwrite(self, slot, offset, length, wrong, other):
        # The real server counts wrong pages of a request that it refuses, and keeps a file that
        # persists on close with them.
        is_taken = offset >= 0 and other != 77 and self.slots[slot] in self.writable
        wrong = wrong and is_taken and self.slots[slot] not in self.pending
        return self.send_data(raw.PGWRITE, slot, offset, pages(offset, length, wrong), other)

    def elements(self, elements, usable):
        """Returns elements with their handles. With several handles, all must be usable because
        ours checks them before it moves data."""
        handles = [self.slots[slot] for slot, _, _ in elements]
        if any(handle not in usable for handle in handles):
            handles = handles[:1] * len(handles)
        return b"".join(struct.pack(">4siq", handle, size, at) for handle, (_, at, size) in zip(handles, elements))

    def do_readv(self, elements):
        return self.ask(raw.READV, b"", self.elements(elements, self.names))

    def same_readv(self, body):
        return [body[4:16], len(body)]

    def do_writev(self, elements, sync):
        if any(self.slots[slot] in self.checkpoints for slot, _, _ in elements):
            return self.left_out()
        listed = self.elements(elements, self.writable)
        return self.ask(raw.WRITEV, bytes((sync,)), listed + b"".join(b"v" * size for _, _, size in elements), None, len(listed))

    def do_close(self, slot):
        self.writable.discard(self.slots[slot])
        self.checkpoints.discard(self.slots[slot])
        self.pending.discard(self.slots[slot])
        self.names.pop(self.slots[slot], None)
        return self.ask(raw.CLOSE, self.slots[slot])

    def do_sync(self, slot):
        return self.ask(raw.SYNC, self.slots[slot])

    def do_truncate(self, slot, size):
        if size < 0 and self.is_unfinished(slot) or self.slots[slot] in self.checkpoints:
            return self.left_out()
        return self.ask(raw.TRUNCATE, struct.pack(">4sq", self.slots[slot], size))

    def do_truncate_path(self, name, size):
        if self.checkpoints:
            # Ours does not change a file outside of its checkpoint.
            return self.left_out()
        return self.ask(raw.TRUNCATE, struct.pack(">4xq", size), self.path(name))

    def do_stat_handle(self, slot):
        return self.ask(raw.STAT, struct.pack(">12x4s", self.slots[slot]))

    def do_stat(self, name):
        return self.ask(raw.STAT, b"", self.path(name))

    def same_stat(self, body):
        """Returns flags and mode, and the size of entries that are not directories."""
        words = body.rstrip(b"\0").split()
        if len(words) < 3:
            return body
        return words[2], None if int(words[2]) & 2 else words[1], words[6:7]

    same_stat_handle = same_stat

    def do_statvfs(self, name):
        return self.ask(raw.STAT, b"\1", self.path(name))

    def same_statvfs(self, body):
        return len(body.split())

    def do_statx(self, *names):
        return self.ask(raw.STATX, b"", b"\n".join(map(self.path, names)))

    def do_mkdir(self, name, mode, parents):
        return self.ask(raw.MKDIR, struct.pack(">B13xH", parents, mode), self.path(name))

    def do_rm(self, name):
        self.renamed = True
        return self.ask(raw.RM, b"", self.path(name))

    def do_rmdir(self, name):
        return self.ask(raw.RMDIR, b"", self.path(name))

    def do_mv(self, old, new):
        if self.checkpoints:
            # Ours does not rename a file under a checkpoint.
            return self.left_out()
        self.renamed = True
        return self.ask(raw.MV, struct.pack(">14xH", len(self.path(old))), self.path(old) + b" " + self.path(new))

    def do_chmod(self, name, mode):
        if self.pending:
            return self.left_out()
        return self.ask(raw.CHMOD, struct.pack(">14xH", mode), self.path(name))

    def do_list(self, name, options):
        where, status, body = self.ask(raw.DIRLIST, struct.pack(">15xB", options), self.path(name))
        lines = body.rstrip(b"\0").split(b"\n")
        return where, status, sorted(lines) if options < 2 else sorted(lines[2::2])

    def do_checksum(self, name, options):
        return self.ask(raw.QUERY, struct.pack(">H", 3), self.path(name) + options.encode())

    def do_locate(self, name, options):
        return self.ask(raw.LOCATE, struct.pack(">H", options), self.path(name))

    def same_locate(self, body):
        return body[:2]

    def do_fattr(self, code, slot, name, attribute, options):
        names = b"" if code == 2 else struct.pack(">H", 0) + attribute.encode() + b"\0"
        values = struct.pack(">i", 3) + attribute.encode() if code == 3 else b""
        if slot is not None:
            # The real server uses the name with which the handle was opened, and sets attributes
            # through fewer handles.
            handle = self.slots[slot]
            if self.renamed or code in (0, 3) and handle in self.writable - self.writers:
                return self.left_out()
        if slot is not None:
            where = self.slots[slot], b""
        else:
            where = bytes(4), self.path(name)
        return self.ask(raw.FATTR, struct.pack(">4sBBB", where[0], code, code != 2, options), where[1] + b"\0" + names + values)

    def do_query(self, kind, name):
        return self.ask(raw.QUERY, struct.pack(">H", kind), self.path(name))

    def same_query(self, body):
        return None

    def do_config(self, keys):
        return self.ask(raw.QUERY, struct.pack(">H", 7), keys.encode())

    def do_prepare(self, options, name):
        return self.ask(raw.PREPARE, bytes((options, 0)), self.path(name))

    def same_prepare(self, body):
        return None

    def do_checkpoint(self, slot, code):
        if self.renamed and code == 0:
            # Ours does not begin a checkpoint of a file whose name it cannot find, because it could
            # not recover it.
            return self.left_out()
        others = {self.names[handle] for handle in self.checkpoints if handle != self.slots[slot]}
        if self.names.get(self.slots[slot]) in others and code == 0:
            # Ours keeps one checkpoint per file.
            return self.left_out()
        where, status, body = self.ask(raw.CHKPOINT, struct.pack(">4s11xB", self.slots[slot], code))
        if status == raw.OK and code == 0:
            self.checkpoints.add(self.slots[slot])
        elif code in (1, 3):
            self.checkpoints.discard(self.slots[slot])
        return where, status, body

    def do_executed(self, slot, kind, offset, length):
        handle, extra = self.slots[slot], b""
        if handle not in self.checkpoints:
            # The real server interprets the data of a refused request as requests.
            if handle not in self.writable and handle != UNKNOWN:
                return self.left_out()
            kind = "truncate"
        if kind == "write":
            code, body, data = raw.WRITE, struct.pack(">4sq", handle, offset), b"x" * length
        elif kind == "pgwrite":
            code, body, data = raw.PGWRITE, struct.pack(">4sq", handle, offset), pages(offset, length)
        elif kind == "truncate":
            code, body, data = raw.TRUNCATE, struct.pack(">4sq", handle, offset), b""
        else:
            code, body, data = raw.WRITEV, b"", struct.pack(">4siq", handle, length, offset)
            extra = b"x" * length
        inner = raw.header(self.control.stream % 60000 + 1, code, body, len(data))
        return self.ask(raw.CHKPOINT, struct.pack(">4s11xB", handle, 4), inner + data + extra, None, 24)

    def do_endsess(self, which):
        session = {"unknown": b"u" * 16, "own": self.control.session, "none": bytes(16)}[which]
        return self.ask(raw.ENDSESS, session)

    def do_set(self, text):
        return self.ask(raw.SET, b"", text.encode())

    def do_plain(self, code):
        if code == raw.SIGVER:
            self.control.send(raw.request(9, code, struct.pack(">HBBQB", raw.PING, 0, 0, 1, 1), b"s" * 32))
            code = raw.PING
        return self.ask(code)


class Differ:
    """A pair of servers that receive the same requests."""

    def __init__(self, theirs, ours):
        self.servers = theirs, ours
        self.numbers = itertools.count()
        self.compared = 0
        self.silences = 0

    def difference(self, operations):
        """Returns the first operation whose answers differ, with both answers, or None."""
        number = next(self.numbers)
        runs = [Run(server, number) for server in self.servers]
        try:
            for operation in operations:
                answers = [run.step(operation) for run in runs]
                self.compared += 1
                theirs, ours = answers
                if theirs == ("silent",) != ours and operation[0] == "checksum":
                    # The refusal of a deferred checksum may precede the kXR_waitresp, and is then
                    # lost.
                    self.silences += 1
                    return None
                if theirs != ours or ours == ("silent",):
                    return operation, theirs, ours
                if ours == ("closed",):
                    return None
            return None
        finally:
            for run in runs:
                run.close()

    def shrink(self, operations):
        """Returns the operations without those that the difference does not need."""
        at = len(operations) - 1
        while at >= 0:
            fewer = operations[:at] + operations[at + 1:]
            if self.difference(fewer):
                operations = fewer
            at -= 1
        return operations

    def report(self, seed, operations, first):
        """Returns a readable report of a difference."""
        least = self.shrink(operations)
        found = self.difference(least)
        if not found:
            return f"seed {seed}: differed once, in {first}, and not again"
        operation, theirs, ours = found
        return "\n  ".join([f"seed {seed}:", *map(repr, least), f"to {operation[0]} theirs answers {theirs}", f"and ours {ours}"])


def compare(differ, seeds, stop=10):
    """Returns the reports of the sequences that differ. Stops after `stop` of them."""
    wrong = []
    for seed in seeds:
        operations = sequence(seed)
        if found := differ.difference(operations):
            wrong.append(differ.report(seed, operations, found))
            print(wrong[-1], flush=True)
        if len(wrong) >= stop:
            break
    return wrong


def main():
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with peers.Theirs() as theirs, peers.Ours() as ours:
        differ = Differ(theirs, ours)
        began = time.monotonic()
        wrong = compare(differ, range(first, first + count))
        print(f"seeds from {first}: {differ.compared} answers compared in {time.monotonic() - began:.0f} s, {len(wrong)} sequences differ, "
              f"{differ.silences} ended by a checksum without an answer")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
