#!/usr/bin/env python3
"""The sync hook of the ImmortalContainer example. It needs nothing but Python's standard library.

Usage: sync.py [PORT]    Default: the environment variable PORT, else 8080. Port 0 takes a free one.
The environment variable HOST is the address to listen on; by default it is every address of the machine.
"""

import json
import os
import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sync(parent, children):
    """Answers with the one Pod that shall run, unless the present one has ended and must go first."""
    observed = list(children["Pod.v1"].values())
    ended = [pod for pod in observed if pod.get("status", {}).get("phase") in ("Succeeded", "Failed")]
    alive = [pod for pod in observed if pod not in ended and "deletionTimestamp" not in pod["metadata"]]
    status = {"currentPod": alive[0]["metadata"]["name"] if alive else ""}
    if ended:
        # What is not in the answer is deleted. When it is gone the hook is asked again, and wants a new one.
        return {"status": status, "children": []}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": parent["metadata"]["name"] + "-immortalpod"},
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "acontainer", "image": parent["spec"]["image"]}],
        },
    }
    return {"status": status, "children": [pod]}


class Hook(BaseHTTPRequestHandler):
    """Serves sync as a JSON webhook."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # Headers and a small body leave together,
    disable_nagle_algorithm = True  # and what a large one leaves behind is not held back.

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.answer(sync(request["parent"], request["children"]))

    def do_GET(self):
        self.answer({"ready": True})

    def log_message(self, format, *args):
        """Stays silent: the server's own log tells about calls that went wrong."""

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
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
