#!/usr/bin/env python3
"""The hooks of the ConfigMonitor example. It needs nothing but Python's standard library.

Usage: hooks.py [PORT]    Default: the environment variable PORT, else 8080. Port 0 takes a free one.
The environment variable HOST is the address to listen on; by default it is every address of the machine.
"""

import hashlib
import json
import os
import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What a Pod was started with: a JSON object of ConfigMap names and digests of their data.
SEEN = "magalix.com/config-seen"


def customize(request):
    """Answers which objects decide about a Pod: the monitors of its namespace, and the ConfigMaps that they name."""
    pod = request["parent"]["metadata"]
    rules = [{"apiVersion": "magalix.com/v1", "resource": "configmonitors", "namespace": pod["namespace"]}]
    names = sorted(json.loads(pod.get("annotations", {}).get(SEEN, "{}")))
    if names:
        rules.append({"apiVersion": "v1", "resource": "configmaps", "namespace": pod["namespace"], "names": names})
    return {"relatedResources": rules}


def sync(request):
    """Notes what a Pod was started with, and deletes the Pod once that has changed."""
    pod = request["object"]["metadata"]
    labels = pod.get("labels", {}).items()
    monitors = request["related"]["ConfigMonitor.magalix.com/v1"].values()
    config_maps = request["related"].get("ConfigMap.v1", {})
    seen = json.loads(pod.get("annotations", {}).get(SEEN, "{}"))

    now = {}
    for name in {m["spec"]["configmap"] for m in monitors if m["spec"]["podSelector"].items() <= labels}:
        config_map = config_maps.get("%s/%s" % (pod["namespace"], name))
        # "" stands for a ConfigMap that this Pod has not met: the note makes customize ask for it.
        now[name] = digest(config_map) if config_map else seen.get(name, "")
    if any(seen.get(name) and seen[name] != now[name] for name in now):
        return {"delete": True}
    return {"annotations": {SEEN: json.dumps(now, sort_keys=True) if now else None}}


def digest(config_map):
    data = [config_map.get("data"), config_map.get("binaryData")]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


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
