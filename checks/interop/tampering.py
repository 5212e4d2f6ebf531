"""An attacker between a client and a server, who changes the messages in clear text and sees all
bytes."""

import socket
import ssl
import struct
import threading

import raw
from between import PIECE, Between, shut_down

# Flags of kXR_protocol requests and of replies to them.
ABLE_TLS, WANT_TLS, SECREQS = 0x02, 0x04, 0x01
HAVE_TLS, GOTO_TLS, TLS_DATA, TLS_LOGIN, TLS_SESSION, TLS_TPC = (0x80000000, 0x40000000, 0x01000000, 0x04000000, 0x08000000, 0x10000000)
ALL_TLS = 0xff000000

# Records of TLS.
CHANGE_CIPHER, ALERT, HANDSHAKE, DATA = 20, 21, 22, 23
KINDS = (CHANGE_CIPHER, ALERT, HANDSHAKE, DATA)

# Names of replies, in the order of a login.
GREETING, PROTOCOL, LOGIN = range(3)


class Tampering(Between):
    """Forwards connections, message by message until they are encrypted, then record by record.

    * `request(code, message)` and `reply(number, message)` return the bytes to forward instead of a
      request, and of the reply with a number on its connection.
    * `record(way, number, record)` returns the bytes to forward instead of a record of TLS.

    `seen` has all bytes of each way, `codes` the codes of requests in clear text, and `records` the
    kinds of records of each way."""

    def __init__(self, server, request=None, reply=None, record=None):
        super().__init__(server)
        self.request = request or (lambda _code, message: message)
        self.reply = reply or (lambda _number, message: message)
        self.record = record or (lambda _way, _number, record: record)
        self.seen = {"up": bytearray(), "down": bytearray()}
        self.codes = []
        self.records = {"up": [], "down": []}

    @property
    def host(self):
        return f"localhost:{self.port}"

    def move(self, way, source, target):
        try:
            self.forward(way, source, target)
        except OSError:
            pass
        shut_down(source, target)

    def forward(self, way, source, target):
        pending, requests, replies, records = b"", 0, 0, 0
        while piece := source.recv(PIECE):
            self.seen[way] += piece
            pending += piece
            out = b""
            while pending:
                if len(pending) >= 5 and pending[0] in KINDS and pending[1] == 3:
                    size = 5 + struct.unpack(">H", pending[3:5])[0]
                    if len(pending) < size:
                        break
                    self.records[way].append(pending[0])
                    out += self.record(way, records, pending[:size])
                    records += 1
                elif way == "up":
                    size = 20 if requests == 0 else 24
                    if len(pending) < size:
                        break
                    if requests > 0:
                        code, length = struct.unpack(">2xH16xi", pending[:24])
                        size += length
                        if len(pending) < size:
                            break
                        self.codes.append(code)
                        out += self.request(code, pending[:size])
                    else:
                        out += pending[:size]
                    requests += 1
                else:
                    if len(pending) < 8:
                        break
                    size = 8 + struct.unpack(">4xi", pending[:8])[0]
                    if len(pending) < size:
                        break
                    out += self.reply(replies, pending[:size])
                    replies += 1
                pending = pending[size:]
            if out:
                target.sendall(out)


def framed(message, body):
    """Returns a reply with another body."""
    return message[:4] + struct.pack(">i", len(body)) + body


def without_flags(flags):
    """Removes flags from replies to kXR_protocol."""

    def reply(number, message):
        if number != PROTOCOL:
            return message
        version, old = struct.unpack(">II", message[8:16])
        return message[:8] + struct.pack(">II", version, old & ~flags) + message[16:]

    return reply


def requests_without(flags):
    """Removes flags from kXR_protocol requests."""

    def request(code, message):
        if code != raw.PROTOCOL:
            return message
        return message[:8] + bytes([message[8] & ~flags]) + message[9:]

    return request


def offering(token):
    """Replaces the list of security protocols."""
    return lambda number, message: framed(message, message[8:24] + token) if number == LOGIN else message


def signing(body):
    """Replaces the signing requirements of replies to kXR_protocol."""
    return lambda number, message: framed(message, message[8:16] + body) if number == PROTOCOL else message


class Terminating(Between):
    """Ends the encryption of clients with a context of its own and forwards the decrypted bytes: an
    attacker with another certificate, or a server with another implementation of TLS. It announces
    TLS in place of the server. `sessions` has the version of each connection and whether its TLS session was resumed."""

    def __init__(self, server, context, announced=HAVE_TLS | GOTO_TLS | TLS_LOGIN):
        super().__init__(server)
        self.context = context
        self.announced = announced
        self.sessions = []
        self.failures = []
        self.decrypted = bytearray()

    @property
    def host(self):
        return f"localhost:{self.port}"

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(client)
            threading.Thread(target=self.terminate, args=[client], daemon=True).start()

    def terminate(self, client):
        """Answers the greeting of a client, performs the handshake, and connects to the server."""
        try:
            greeting = client.recv(44, socket.MSG_WAITALL)
            # A probe of the port sends none.
            if len(greeting) < 44:
                return client.close()
            server = socket.create_connection(("localhost", self.server.port))
            self.sockets.append(server)
            # The server has no TLS, so it must not be asked for it.
            server.sendall(greeting[:28] + bytes([greeting[28] & ~(ABLE_TLS | WANT_TLS)]) + greeting[29:])
            replies = server.recv(16 + 16, socket.MSG_WAITALL)
            flags = struct.unpack(">I", replies[28:32])[0]
            client.sendall(replies[:28] + struct.pack(">I", flags | self.announced))
            encrypted = self.context.wrap_socket(client, server_side=True)
        except (OSError, ssl.SSLError) as failure:
            self.failures.append(str(failure))
            return shut_down(client)
        self.sessions.append((encrypted.version(), encrypted.session_reused))
        self.sockets.append(encrypted)
        threading.Thread(target=self.copy, args=(server, encrypted, None), daemon=True).start()
        self.copy(encrypted, server, self.decrypted)

    @staticmethod
    def copy(source, target, seen):
        try:
            while piece := source.recv(PIECE):
                if seen is not None:
                    seen += piece
                target.sendall(piece)
        except (OSError, ssl.SSLError):
            pass
        shut_down(source, target)
