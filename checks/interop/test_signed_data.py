"""Signatures over the data of writes: `sec.signdata` of our server, with our client and with a socket."""

import hashlib
import stat
import struct

import pytest

import peers
import raw
from test_auth_server import UNIX
from tools import pattern, scalla, wait_until

# The server has no key, so signatures are hashes.
SIGNED = f"{UNIX}sec.level intense force\nsec.signdata on\n"
LEAVES_OUT_DATA = 1


@pytest.mark.parametrize("streams", [1, 4])
def test_our_client_signs_the_data_of_writes(serve, tmp_path, streams):
    server = serve(settings=peers.SETTINGS + SIGNED)
    content = pattern(9_000_001)
    (tmp_path / "up").write_bytes(content)
    variables = {"XRD_SUBSTREAMSPERCHANNEL": str(streams)}
    url = f"root://localhost:{server.port}//f"
    scalla("cp", tmp_path / "up", url, **variables).ok()
    assert (server.tree / "f").read_bytes() == content
    scalla("cp", url, tmp_path / "down", **variables).ok()
    assert (tmp_path / "down").read_bytes() == content


class Signer:
    """A connection whose requests are signed."""

    def __init__(self, server):
        self.client, self.sequence = raw.Connection(server), 0

    def start(self, code, body=b"", payload=b"", signed=None, flags=0):
        """Sends a request with a signature over `signed`, or over its payload."""
        self.sequence += 1
        stream = self.client.stream = self.client.stream + 1
        head = raw.header(stream, code, body, len(payload))
        covered = b"" if flags else (payload if signed is None else signed)
        hashed = hashlib.sha256(struct.pack(">Q", self.sequence) + head + covered).digest()
        signature = struct.pack(">HBBQB", code, 0, flags, self.sequence, 1)
        self.client.send(raw.request(stream, raw.SIGVER, signature, hashed) + head + payload)
        return stream

    def ask(self, *request, **how):
        return self.client.result(self.start(*request, **how))

    def create(self, path, options):
        options |= raw.O_NEW | raw.O_UPDT
        return self.ask(raw.OPEN, struct.pack(">HH", 0o644, options), path)[:4]

    def refused(self):
        frame = self.client.frame()
        assert (frame.status, struct.unpack(">i", frame.body[:4])[0]) == (raw.ERROR, 3022), frame
        assert self.client.closed()


@pytest.mark.parametrize("size", [5, 100_000, 3_000_000])
def test_data_that_was_changed_ends_the_session(serve, size):
    server = serve(settings=peers.SETTINGS + SIGNED)
    data = pattern(size)
    changed = data[:-1] + bytes([data[-1] ^ 1])
    signer = Signer(server)
    handle = signer.create(b"/kept", 0)
    write = struct.pack(">4sq", handle, 0)
    signer.ask(raw.WRITE, write, data)
    signer.ask(raw.CLOSE, handle)
    assert (server.tree / "kept").read_bytes() == data
    handle = signer.create(b"/pending", raw.O_POSC)
    # A close that follows the data does not persist the file.
    signer.start(raw.WRITE, struct.pack(">4sq", handle, 0), changed, signed=data)
    signer.start(raw.CLOSE, handle)
    signer.refused()
    wait_until(lambda: "left after" in server.output())
    # The mark of a file that is not whole.
    assert (server.tree / "pending").stat().st_mode & stat.S_ISVTX
    assert not (server.tree / "kept").stat().st_mode & stat.S_ISVTX
    assert server.alive()


def test_data_that_is_left_out_of_the_signature_is_refused(serve):
    server = serve(settings=peers.SETTINGS + SIGNED)
    signer = Signer(server)
    handle = signer.create(b"/f", 0)
    signer.start(raw.WRITE, struct.pack(">4sq", handle, 0), b"data", flags=LEAVES_OUT_DATA)
    signer.refused()
    assert (server.tree / "f").read_bytes() == b""
