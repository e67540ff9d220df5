#!/usr/bin/env python3
"""The sync hook of the PythonLambda example. It needs nothing but Python's standard library.

Usage: sync.py [PORT]    Default: the environment variable PORT, else 8080. Port 0 takes a free one.
The environment variable HOST is the address to listen on; by default it is every address of the machine.
"""

import hashlib
import json
import os
import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What every Pod runs: a web server around the user's code.
SERVER = '''from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlparse


class Lambda(BaseHTTPRequestHandler):
    def do_GET(self):
        query_params = parse_qs(urlparse(self.path).query)
        output = ""
        # Begin lambda
%s
        # End lambda
        body = (output or "Lambda output was empty").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("", 80), Lambda).serve_forever()
'''


def sync(parent, children):
    """Answers with everything that serves the parent's code."""
    spec = parent["spec"]
    name = parent["metadata"]["name"]
    script = SERVER % "\n".join("        " + line for line in spec["code"].splitlines())
    desired = [config_map(name, script), service(name), ingress(name, spec.get("host", "localhost"))]
    desired += [pod(name, number, script) for number in range(spec.get("replicas", 1))]
    status = {
        "configmaps": len(children["ConfigMap.v1"]),
        "services": len(children["Service.v1"]),
        "ingress": len(children["Ingress.networking.k8s.io/v1"]),
        "pods": len(children["Pod.v1"]),
    }
    return {"status": status, "children": desired}


def config_map(name, script):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"script.py": script}}


def service(name):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]},
    }


def ingress(name, host):
    backend = {"service": {"name": name, "port": {"name": "http"}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name},
        "spec": {"rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
    }


def pod(name, number, script):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "%s-%d" % (name, number),
            "labels": {"app": name},
            # A Pod reads the script when it starts: with another script it must be another Pod.
            "annotations": {"example.com/script": hashlib.sha256(script.encode()).hexdigest()},
        },
        "spec": {
            "restartPolicy": "Always",
            "containers": [
                {
                    "name": "lambda",
                    "image": "python:3",
                    "command": ["python3", "/scripts/script.py"],
                    "volumeMounts": [{"name": "script", "mountPath": "/scripts"}],
                }
            ],
            "volumes": [{"name": "script", "configMap": {"name": name}}],
        },
    }


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
