"""Fake servers: redirectors that report arbitrary nodes below them, and servers that never answer."""

import socket
import struct
import threading

import raw
from codes import ErrorCode

IS_SERVER, IS_MANAGER, IS_SUPERVISOR = 0x1, 0x2, 0x402


class Manager:
    """Answers login, version and kXR_locate, and refuses all other requests. `below` is the answer
    to kXR_locate."""

    def __init__(self, flags=IS_MANAGER):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.flags = flags
        self.below = ""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def named(self, kind):
        """Returns its name in the answer of its parent: `Mr` or `Sw` and its address."""
        return f"{kind}[::127.0.0.1]:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A close alone does not wake a thread in accept.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        """Serves one connection to its end. A client may end at any time, also with a reset."""
        with connection, connection.makefile("rb") as requests:
            try:
                requests.read(20)
                connection.sendall(struct.pack(">HHiii", 0, 0, 8, 0x520, 0))
                while len(head := requests.read(24)) == 24:
                    stream, code, body, length = struct.unpack(">HH16si", head)
                    for status, data in self._reply(code, body, requests.read(length)):
                        connection.sendall(struct.pack(">HHi", stream, status, len(data)) + data)
            except OSError:
                pass

    def _reply(self, code, body, argument):
        """Yields the replies to a request, each a status and its data."""
        answer = self._answer(code)
        if answer is not None:
            yield answer

    def _answer(self, code):
        if code == raw.PROTOCOL:
            return raw.OK, struct.pack(">iI", 0x520, self.flags)
        if code == raw.LOGIN:
            return raw.OK, bytes(range(16))
        if code == raw.QUERY:
            # It does not report its role, so the role is known by the flags alone.
            return raw.OK, b"role\nv0-hollow\n\0"
        if code == raw.LOCATE and self.below is not None:
            return raw.OK, self.below.encode() + b"\0"
        return raw.ERROR, struct.pack(">i", ErrorCode.UNSUPPORTED) + b"not here\0"


class Debtor(Manager):
    """A server with one entry, whose status is `stat` as the protocol encodes it (`None`: no
    entry). It answers pings and never anything else. With `later` it announces each time that the
    answer is deferred."""

    def __init__(self, stat=None, later=False):
        super().__init__(flags=IS_SERVER)
        self.stat = stat
        self.later = later

    def _answer(self, code):
        if code in (raw.PROTOCOL, raw.LOGIN):
            return super()._answer(code)
        if code == raw.PING:
            return raw.OK, b""
        if code == raw.STAT:
            return (raw.ERROR, struct.pack(">i", ErrorCode.NOT_FOUND) + b"nothing here\0") if self.stat is None else (raw.OK, self.stat.encode() + b"\0")
        return (raw.WAITRESP, struct.pack(">i", 600)) if self.later else None


class ShortReads(Manager):
    """A server with one file, `content`. Its answers to reads have at most `most` bytes, and not the
    same number each time. It has no data from byte `end` on although it reports another size. Reads
    before byte `whole_until` are answered in full."""

    def __init__(self, content, most, end=None, whole_until=0):
        super().__init__(flags=IS_SERVER)
        self.content = content
        self.most = most
        self.end = len(content) if end is None else end
        self.whole_until = whole_until

    def _reply(self, code, body, argument):
        stat = b"7 %d 48 99 98 97 0644 me us\0" % len(self.content)
        if code == raw.OPEN:
            yield raw.OK, bytes(12) + stat
        elif code == raw.READ:
            offset, count = struct.unpack(">4xqi", body)
            most = count if offset < self.whole_until else min(count, self.most - offset % 7)
            yield raw.OK, self.content[offset:min(offset + most, self.end)]
        elif code == raw.STAT:
            yield raw.OK, stat
        elif code == raw.CLOSE:
            yield raw.OK, b""
        else:
            yield self._answer(code)


class Forger(Manager):
    """A server that puts `text` (bytes without LF, blank and NUL) into each possible field: names,
    owners, groups, checksums, values, contents, addresses. With `refuses` it answers each request
    with an error of that text; with "login" instead of True, even the login."""

    def __init__(self, text, refuses=False, flags=IS_SERVER):
        super().__init__(flags)
        self.text = text
        self.refuses = refuses

    def _stat(self, is_directory=False, size=None):
        return b"7 %d %d 99 98 97 0644 o%s g%s" % (len(self._content()) if size is None else size, 18 if is_directory else 48, self.text, self.text)

    def _content(self):
        return (b"content" + self.text + b"\n") * 3

    def _reply(self, code, body, argument):
        yield self._forged(code, body, argument)

    def _forged(self, code, body, argument):
        is_login = code in (raw.PROTOCOL, raw.LOGIN)
        if self.refuses and (not is_login or self.refuses == "login" and code == raw.LOGIN):
            return raw.ERROR, struct.pack(">i", ErrorCode.FS_ERROR) + b"refused\n" + self.text + b"\0"
        if is_login:
            return self._answer(code)
        name, path = b"n" + self.text, argument.split(b"?")[0].rstrip(b"\0")
        kind = struct.unpack(">H", body[:2])[0]
        if code == raw.STAT:
            is_directory = path.endswith((b"/dir", b"/target")) or path == b"/"
            return raw.OK, self._stat(is_directory) + b"\0"
        if code == raw.DIRLIST:
            named = [(name + b"1", False), (name + b"2", False)] + [(b"dir" + self.text, True)] * (path == b"/dir")
            if body[15] & 2:
                lines = b"".join(b"%s\n%s\n" % (name, self._stat(is_directory)) for name, is_directory in named)
                return raw.OK, b".\n0 0 0 0\n" + lines[:-1] + b"\0"
            return raw.OK, b"\n".join(name for name, _ in named) + b"\0"
        if code == raw.OPEN:
            return raw.OK, bytes(12) + self._stat() + b"\0"
        if code == raw.READ:
            offset, count = struct.unpack(">4xqi", body)
            return raw.OK, self._content()[offset:offset + count]
        if code == raw.QUERY and kind == 3:
            return raw.OK, b"adler32 " + name + b"\0"
        if code == raw.QUERY and kind == 5:
            return raw.OK, b"oss.cgroup=%s&oss.space=9&oss.free=8&oss.maxf=7&oss.used=1&oss.quota=-1\0" % name
        if code == raw.QUERY and kind == 7:
            return raw.OK, b"".join(name + b"\n" for _ in argument.split()) + b"\0"
        if code == raw.LOCATE:
            return raw.OK, b"Sw" + name + b":1094\0"
        if code == raw.FATTR:
            return raw.OK, (b"U." + name + b"\0" + struct.pack(">i", len(name)) + name if body[4] == 2 else
                            b"\0\1\0\0" + b"U.a\0" + struct.pack(">i", len(name)) + name)
        return raw.OK, b"" if code in (raw.CLOSE, raw.PING) else name + b"\0"


class Deaf(Manager):
    """A server that accepts logins and then never answers."""

    def __init__(self):
        super().__init__(flags=IS_SERVER)

    def _answer(self, code):
        return super()._answer(code) if code in (raw.PROTOCOL, raw.LOGIN) else None


def closed_port():
    """Returns a port on which no process listens, and the socket that reserves it."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1], holder


def silent():
    """Returns a socket that accepts connections and never sends a byte."""
    return socket.create_server(("127.0.0.1", 0))
