#!/usr/bin/env python3
"""The hooks of the copy-to-namespaces example. It needs nothing but Python's standard library.

Usage: hooks.py [PORT]    Default: the environment variable PORT, else 8080. Port 0 takes a free one.
The environment variable HOST is the address to listen on; by default it is every address of the machine.
"""

import json
import os
import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What of a source is copied. "immutable" is not: a copy has to follow.
CONTENT = {"ConfigMap": ("data", "binaryData"), "Secret": ("type", "data")}


def customize(request):
    """Answers which objects decide about an ObjectCopy: the source, and the Namespaces that it selects."""
    spec = request["parent"]["spec"]
    source = spec["source"]
    return {
        "relatedResources": [
            {
                "apiVersion": "v1",
                "resource": source["kind"].lower() + "s",
                "namespace": source["namespace"],
                "names": [source["name"]],
            },
            {"apiVersion": "v1", "resource": "namespaces", "labelSelector": spec["namespaceSelector"]},
        ]
    }


def sync(request):
    """Answers with a copy of the source for each Namespace, and none at all when there is no source."""
    source = request["parent"]["spec"]["source"]
    kind = source["kind"]
    chosen = sorted(
        name
        for name, namespace in request["related"]["Namespace.v1"].items()
        if name != source["namespace"] and "deletionTimestamp" not in namespace["metadata"]
    )
    found = request["related"][kind + ".v1"].get("%s/%s" % (source["namespace"], source["name"]))
    copies = [copy(found, kind, source["name"], namespace) for namespace in chosen] if found else []

    observed = request["children"][kind + ".v1"]
    current = {c["metadata"]["namespace"] for c in copies if is_current(c, kind, observed)}
    status = {
        "sourceFound": bool(found),
        "namespaces": len(chosen),
        "copies": len(current),
        "missing": [namespace for namespace in chosen if namespace not in current][:10],
    }
    return {"status": status, "children": copies}


def copy(found, kind, name, namespace):
    content = {field: found[field] for field in CONTENT[kind] if field in found}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, **content}


def is_current(wanted, kind, observed):
    there = observed.get("%s/%s" % (wanted["metadata"]["namespace"], wanted["metadata"]["name"]), {})
    return bool(there) and all(there.get(field) == wanted.get(field) for field in CONTENT[kind])


HOOKS = {"/customize": customize, "/sync": sync}


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
