"""A network that loses one message at a time, and ends a client or its server at that moment."""

import queue
import socket
import struct
import threading

import raw
from between import PIECE, Between, shut_down

# Faults at a request. It is lost, its reply is lost, or half of either arrives. The client or the
# server is killed, before the request is forwarded or (late) when its reply arrives. The client is
# interrupted. After all of these except an interrupt the connection is closed.
FAULTS = ("request", "reply", "half_request", "half_reply", "client", "client_late", "server", "server_late", "interrupt", "silence")
# Kind of the last kXR_status reply to a request.
FINAL = 0
# The time that a server has to finish the requests of a client that is gone.
DRAIN_SECONDS = 5


class Frames:
    """Splits a stream of bytes into messages. `length` computes the size from `head` bytes."""

    def __init__(self, head, length):
        self.pending = b""
        self.head = head
        self.length = length

    def take(self, piece):
        self.pending += piece
        while len(self.pending) >= self.head:
            length = self.length(self.pending)
            if length is None or len(self.pending) < length:
                return
            frame, self.pending = self.pending[:length], self.pending[length:]
            yield frame


def request_length(pending):
    return 24 + struct.unpack_from(">i", pending, 20)[0]


def reply_length(pending):
    _, status, length = struct.unpack_from(">HHi", pending)
    if status != raw.STATUS:
        return 8 + length
    if len(pending) < 24:
        return None
    return 8 + length + struct.unpack_from(">i", pending, 20)[0]


def is_final(reply):
    status = struct.unpack_from(">H", reply, 2)[0]
    if status == raw.STATUS:
        return reply[15] == FINAL
    return status not in (raw.OKSOFAR, raw.WAITRESP)


class Meddler(Between):
    """Forwards connections and injects faults. `plan` is a list of faults: a kind, and the number of the
    request at which it occurs, counted over all connections since the plan was set. It calls
    `end_client(number)` with a signal, and `restart` to kill and start the server."""

    def __init__(self, server, end_client, restart):
        super().__init__(server)
        self.end_client = end_client
        self.restart = restart
        self.plan = []
        self.count = 0
        # Faults that have occurred.
        self.done = []
        self.open = 0
        self.is_idle = threading.Condition(self.lock)

    def begin(self, plan):
        with self.lock:
            self.plan, self.count, self.done = sorted(plan, key=lambda fault: fault[1]), 0, []

    def settle(self):
        """Waits until no request of a client is in flight."""
        with self.lock:
            assert self.is_idle.wait_for(lambda: self.open == 0, 60), "a connection does not end"
            self.plan = []

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("localhost", self.server.port))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.open += 1
            threading.Thread(target=Connection(self, client, server).run, daemon=True).start()

    def next_fault(self):
        with self.lock:
            self.count += 1
            if self.plan and self.plan[0][1] <= self.count:
                kind = self.plan.pop(0)[0]
                self.done.append(kind)
                return kind
            return None

    def closed(self):
        with self.lock:
            self.open -= 1
            self.is_idle.notify_all()


class Connection:
    """A connection of a client, with its connection to the server."""

    def __init__(self, meddler, client, server):
        self.meddler = meddler
        self.client = client
        self.server = server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lock = threading.Condition()
        self.outstanding = 0
        # The server has closed its connection.
        self.is_over = False
        # The fault at the next reply.
        self.late = None
        self.greeting = 20

    def run(self):
        down = threading.Thread(target=self.down, daemon=True)
        down.start()
        try:
            self.up()
        except OSError:
            pass
        finally:
            # A server that notices the end of its client finishes pending requests nevertheless, at an
            # unknown time. So its connection is closed only after their replies.
            shut_down(self.client)
            with self.lock:
                self.lock.wait_for(lambda: self.is_over or self.outstanding <= 0, DRAIN_SECONDS)
            shut_down(self.server)
            down.join()
            self.client.close()
            self.server.close()
            self.meddler.closed()

    def up(self):
        frames, greeting = Frames(24, request_length), b""
        while piece := self.client.recv(PIECE):
            if len(greeting) < 20:
                rest = 20 - len(greeting)
                greeting, piece = greeting + piece[:rest], piece[rest:]
                if len(greeting) < 20:
                    continue
                self.forward(greeting)
            for request in frames.take(piece):
                fault = self.meddler.next_fault()
                if fault and not self.meddle(fault, request):
                    return
                if not fault:
                    self.forward(request)

    def forward(self, request):
        with self.lock:
            self.outstanding += 1
        self.server.sendall(request)

    def meddle(self, fault, request):
        """Applies a fault to a request. Reports whether the connection continues."""
        meddler = self.meddler
        if fault == "silence":
            return True
        if fault == "half_request":
            self.server.sendall(request[:len(request) // 2])
        elif fault == "client":
            meddler.end_client("KILL")
        elif fault == "server":
            meddler.restart()
        elif fault == "interrupt":
            meddler.end_client("INT")
            self.forward(request)
            return True
        elif fault in ("reply", "half_reply", "client_late", "server_late"):
            self.late = fault
            self.forward(request)
            return True
        return False

    def down(self):
        frames = Frames(8, reply_length)
        try:
            while piece := self.server.recv(PIECE):
                for reply in frames.take(piece):
                    if is_final(reply):
                        with self.lock:
                            self.outstanding -= 1
                            self.lock.notify_all()
                    if self.late:
                        self.lose(reply)
                        continue
                    try:
                        self.client.sendall(reply)
                    except OSError:
                        shut_down(self.client)
        except OSError:
            pass
        with self.lock:
            self.is_over = True
            self.lock.notify_all()
        shut_down(self.client)

    def lose(self, reply):
        late, self.late = self.late, "over"
        if late == "half_reply":
            self.client.sendall(reply[:len(reply) // 2])
        elif late == "client_late":
            self.meddler.end_client("KILL")
        elif late == "server_late":
            self.meddler.restart()
        shut_down(self.client)


class Operator(threading.Thread):
    """Kills and restarts a server on request, on one thread, because a process ends with the thread that
    started it."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = server
        self.orders = queue.Queue()
        self.restarts = 0
        # Held during a start or a kill.
        self.changing = threading.Lock()

    def run(self):
        while order := self.orders.get():
            try:
                order()
            finally:
                self.orders.task_done()

    def revive(self):
        """Starts the server, unless it runs because of another kill."""
        with self.changing:
            if not self.server.alive():
                self.server.start()

    def start_server(self):
        self.orders.put(self.revive)
        self.orders.join()
        assert self.server.alive()

    def restart(self):
        """Kills the server now. It is started again in the background."""
        with self.changing:
            self.server.kill()
        self.restarts += 1
        self.orders.put(self.revive)

    def wait(self):
        self.orders.join()
        assert self.server.alive(), self.server.output()
