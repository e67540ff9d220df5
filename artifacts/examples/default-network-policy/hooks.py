#!/usr/bin/env python3
"""The hooks of the default-network-policy example. It needs nothing but Python's standard library.

Usage: hooks.py [PORT]    Default: the environment variable PORT, else 8080. Port 0 takes a free one.
The environment variable HOST is the address to listen on; by default it is every address of the machine.
"""

import json
import os
import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ISOLATED = "isolation.example.com/enforced"


def sync(request):
    """Answers with a NetworkPolicy that lets a Namespace's Pods be reached from the Namespace itself only."""
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "default", "namespace": request["object"]["metadata"]["name"]},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]},
    }
    return {"annotations": {ISOLATED: "true"}, "attachments": [policy]}


def finalize(request):
    """Takes everything away again, when the Namespace loses its label or is deleted."""
    left = request["attachments"]["NetworkPolicy.networking.k8s.io/v1"]
    return {"annotations": {ISOLATED: None}, "attachments": [], "finalized": not left}


HOOKS = {"/sync": sync, "/finalize": finalize}


class Hook(BaseHTTPRequestHandler):
    """Serves the functions of HOOKS as JSON webhooks, each at the path of its name."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # Headers and a small body leave together,
    disable_nagle_algorithm = True  # and what a large one leaves behind is not held back.

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        hook = HOOKS.get(self.path)
        self.answer(200, hook(request)) if hook else self.answer(404, {"error": "no hook at this path"})

    def do_GET(self):
        self.answer(200, {"ready": True})

    def log_message(self, format, *args):
        """Stays silent: the server's own log tells about calls that went wrong."""

    def answer(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PORT", "8080"))
    host = os.environ.get("HOST", "")
    if not host and socket.has_dualstack_ipv6():
        ThreadingHTTPServer.address_family = socket.AF_INET6  # The addresses of IPv4 are among those.
    ThreadingHTTPServer.request_queue_size = 128  # A controller that starts opens many connections at once.
    server = ThreadingHTTPServer((host, port), Hook)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("hook listens on port %d" % server.server_address[1], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
