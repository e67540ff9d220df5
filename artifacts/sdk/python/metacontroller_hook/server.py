"""Serves hooks over HTTP."""

import json
import os
import signal
import socket
import socketserver
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

Hooks = Mapping[str, Callable[[Any], Any]]

GRACE = 10.0  # How long calls in flight may take after the program was told to end, in seconds.


def respond(hooks: Hooks, path: str, body: bytes) -> Tuple[int, str, bytes]:
    """Calls the hook at a path and returns the status, the content type and the body of the response.

    An exception of the hook is status 500 with its last line, which the server shows in an event; the traceback is printed.
    """
    hook = hooks.get(path.split("?")[0])
    if hook is None:
        return 404, "text/plain", ("there is no hook at %s, only at %s\n" % (path, ", ".join(sorted(hooks)))).encode()
    try:
        request = json.loads(body)
    except ValueError as error:
        return 400, "text/plain", ("the request is not JSON: %s\n" % error).encode()
    try:
        response = hook(request)
        if response is None:
            raise TypeError("the hook returned nothing: does it lack a return?")
        return 200, "application/json", json.dumps(response, allow_nan=False).encode()
    except Exception as error:  # Whatever a hook raises, the next request is answered.
        traceback.print_exc()
        return 500, "text/plain", ("%s: %s\n" % (type(error).__name__, error)).encode()


class HookServer(ThreadingHTTPServer):
    """A server of hooks, which knows how many calls are in flight."""

    request_queue_size = 128  # A controller that starts opens many connections at once.
    ending = False  # Whether connections are closed after the call in flight.

    def __init__(self, *args: Any) -> None:
        self._calls = 0
        self._changed = threading.Condition()
        super().__init__(*args)

    def count(self, change: int) -> None:
        """Counts a call that begins (1) or ends (-1)."""
        with self._changed:
            self._calls += change
            self._changed.notify_all()

    def finish(self, seconds: float) -> bool:
        """Waits until no call is in flight, for some seconds at most, and returns whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls == 0, seconds)


def make_server(hooks: Hooks, host: str = "", port: int = 0) -> HookServer:
    """Returns a server that listens, for hooks by path. Its serve_forever() serves, each request in a thread of its own.

    Without a host it listens at every address, of IPv4 and IPv6. GET of any path is answered with status 200, for readiness probes.
    """
    family, address = _place(host, port)

    class Server(HookServer):
        address_family = family

        def server_bind(self) -> None:
            if not host and family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]  # Nobody is asked for a name.

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # Headers and a small body leave together,
        disable_nagle_algorithm = True  # and what a large one leaves behind is not held back.

        def do_POST(self) -> None:
            server.count(1)
            try:
                self.answer(*respond(hooks, self.path, self.body()))
                self.wfile.flush()
            finally:
                server.count(-1)

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass  # Trailers say nothing about JSON.
            return b"".join(chunks)

        def do_GET(self) -> None:
            self.answer(200, "application/json", b'{"ready": true}')

        def answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if server.ending:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stays silent: the status of the controller tells about calls that went wrong."""

    server = Server(address, Handler)
    return server


def _place(host: str, port: int) -> Tuple[socket.AddressFamily, Tuple[str, int]]:
    """Returns the family and the address to listen at. A name that has addresses of both families is taken as one of IPv4."""
    if not host:
        return (socket.AF_INET6, ("::", port)) if socket.has_dualstack_ipv6() else (socket.AF_INET, ("", port))
    found = {family: address for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    family = socket.AF_INET if socket.AF_INET in found else socket.AF_INET6
    return family, found[family]


def serve(hooks: Hooks, environment: Optional[Dict[str, str]] = None) -> None:
    """Serves hooks by path, such as {"/sync": sync}, until the program gets SIGTERM or Ctrl-C.

    Calls in flight are answered then, if they take no longer than ten seconds; a second signal ends them. The environment variables PORT (8080; 0 takes a free one) and HOST (every address) say where.
    """
    values = os.environ if environment is None else environment
    server = make_server(hooks, values.get("HOST", ""), int(values.get("PORT") or "8080"))
    said = threading.Event()

    def take_connections() -> None:
        said.wait()  # What a hook prints follows the line that it listens, and so does what its caller prints.
        server.serve_forever(0.1)

    # A signal raises in this thread, wherever it is; in the thread that takes connections it would cut the one just taken.
    serving = threading.Thread(target=take_connections, daemon=True)
    serving.start()
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # Before anybody is told that the hook runs.
        print("hook listens on port %d" % server.server_address[1], flush=True)
        said.set()
        while serving.is_alive():
            serving.join(0.5)  # On Windows, Ctrl-C waits for a join to return.
    except KeyboardInterrupt:
        pass
    finally:
        server.ending = True
        said.set()  # Otherwise shutdown would wait for ever, if a signal came before the line.
        server.shutdown()
        server.server_close()
        server.finish(GRACE)
