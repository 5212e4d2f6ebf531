"""Web servers as origins: one of Python with ranges, nginx, and the real server with its HTTP protocol."""

import email.utils
import http.server
import ssl
import threading

import peers


HTTP = "xrd.protocol http *\nxrootd.chksum max 2 adler32 md5 crc32c\n"


class OurWebServer(peers.Ours):
    """Our server with HTTP and checksums."""

    def __init__(self, settings="", **how):
        super().__init__(settings=HTTP + settings, **how)

    @property
    def web_port(self):
        return self.port

    @property
    def origin(self):
        return f"http://localhost:{self.port}"


class PythonServer:
    """A server of Python that runs on a thread of its own: `server`."""

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class AnsweringServer(PythonServer):
    """An HTTP server on threads, whose method `answer` gives the replies."""

    # Changes are answered, too.
    takes_changes = False

    def __init__(self):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                owner.answer(self, False)

            def do_GET(self):
                owner.answer(self, True)

            def do_PUT(self):
                if owner.takes_changes:
                    owner.answer(self, True)
                else:
                    self.send_error(501)

            do_POST = do_DELETE = do_MOVE = do_MKCOL = do_PROPFIND = do_PUT

            def log_message(self, *_):
                pass

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.server = Threads(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


class WebServer(AnsweringServer):
    """A web server with files in memory. `read` counts the bytes of files that it has sent, without the first byte that an open requests."""

    def __init__(self, certificate=None):
        super().__init__()
        self.files = {}
        self.requests = []
        self.read = 0
        self.lock = threading.Lock()
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    @property
    def origin(self):
        return f"{self.scheme}://localhost:{self.port}"

    def place(self, path, content, modified=1_700_000_000, tag=True):
        self.files[path] = (content, modified, tag)

    def answer(self, handler, has_body):
        self.requests.append((handler.command, handler.path, dict(handler.headers)))
        path = handler.path.split("?")[0]
        found = self.files.get(path)
        if found is None:
            is_directory = any(name.startswith(path.rstrip("/") + "/") for name in list(self.files))
            handler.send_response(404 if not is_directory else 403 if path.endswith("/") else 301)
            if is_directory:
                handler.send_header("Location", path + "/")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        content, modified, tag = found
        part, status = content, 200
        wanted = handler.headers.get("Range")
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last), len(content) - 1)
            part, status = content[first:last + 1], 206 if first <= last else 416
        handler.send_response(status)
        if wanted:
            sent = f"{first}-{last}" if status == 206 else "*"
            handler.send_header("Content-Range", f"bytes {sent}/{len(content)}")
        handler.send_header("Content-Length", str(len(part)))
        handler.send_header("Last-Modified", email.utils.formatdate(modified, usegmt=True))
        if tag:
            handler.send_header("ETag", f'"{hash(content) & 0xffffffff:x}"')
        handler.end_headers()
        if has_body:
            with self.lock:
                self.read += len(part) if wanted != "bytes=0-0" else 0
            handler.wfile.write(part)


class TheirWebServer(peers.Theirs):
    """The real server, which also speaks HTTP."""

    def __init__(self, settings=""):
        self.web_port = peers.free_port()
        super().__init__(settings=f"xrd.protocol XrdHttp:{self.web_port} libXrdHttp.so\nxrootd.chksum max 2 adler32\n{settings}")

    @property
    def origin(self):
        return f"http://localhost:{self.web_port}"


NGINX = """\
daemon off;
error_log stderr warn;
pid {work}/run/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log {work}/access;
    default_type application/octet-stream;
    client_max_body_size 1g;
    client_body_temp_path {work}/run/body;
    proxy_temp_path {work}/run/proxy;
    fastcgi_temp_path {work}/run/fastcgi;
    scgi_temp_path {work}/run/scgi;
    uwsgi_temp_path {work}/run/uwsgi;
    server {{
        listen 127.0.0.1:{port};
        listen [::1]:{port};
        root {tree};
        {location}
    }}
}}
"""


class Nginx(peers.Server):
    """nginx. `location` has further lines of its server."""

    kind = "nginx"

    def __init__(self, location="", **how):
        self.web_port = peers.free_port()
        self.location = location
        super().__init__(**how)

    @property
    def origin(self):
        return f"http://localhost:{self.web_port}"

    def command(self):
        file = self.work / "nginx.conf"
        file.write_text(NGINX.format(work=self.work, port=self.web_port, tree=self.tree, location=self.location))
        return ["/usr/sbin/nginx", "-e", "stderr", "-p", self.work, "-c", file]

    def find_port(self):
        return self.web_port

    def requests(self):
        """The lines of the requests so far."""
        return (self.work / "access").read_text().splitlines()


class WritableNginx(Nginx):
    """nginx with the methods of WebDAV that it has, which do not include PROPFIND."""

    def __init__(self):
        super().__init__("dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; dav_access user:rw group:r all:r;")
