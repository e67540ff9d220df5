#!/usr/bin/env python3
"""The hooks of the job-per-node example. It needs nothing but Python's standard library.

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


def customize(request):
    """Answers which objects decide about a NodeJob: the Nodes that it selects."""
    labels = request["parent"]["spec"].get("nodeSelector", {})
    return {"relatedResources": [{"apiVersion": "v1", "resource": "nodes", "labelSelector": {"matchLabels": labels}}]}


def sync(request):
    """Answers with a Job for each Node, and counts what has become of them."""
    parent = request["parent"]
    nodes = sorted(request["related"]["Node.v1"])
    jobs = request["children"]["Job.batch/v1"].values()
    results = [result(job) for job in jobs if "deletionTimestamp" not in job["metadata"]]
    status = {
        "nodes": len(nodes),
        "active": results.count("Active"),
        "succeeded": results.count("Complete"),
        "failed": results.count("Failed"),
    }
    return {"status": status, "children": [job_for(parent, node) for node in nodes]}


def job_for(parent, node):
    """Returns the Job of a Node: the parent's template, pinned in the way in which DaemonSets pin their Pods."""
    template = parent["spec"]["jobTemplate"]
    spec = json.loads(json.dumps(template["spec"]))  # The template is used once for each Node.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    pinned = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec["template"]["spec"].setdefault("affinity", {})["nodeAffinity"] = pinned
    metadata = {
        "name": job_name(parent["metadata"]["name"], node),
        "labels": template.get("metadata", {}).get("labels", {}),
        "annotations": {"example.com/node": node},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def job_name(parent, node):
    """Returns a name that fits into the label that Jobs put on their Pods, which Node names may exceed."""
    name = "%s-%s" % (parent, node)
    if len(name) <= 63 and "." not in name:
        return name
    return "%s-%s" % (name.replace(".", "-")[:54], hashlib.sha256(name.encode()).hexdigest()[:8])


def result(job):
    """Returns the condition with which a Job has ended, and "Active" before."""
    conditions = job.get("status", {}).get("conditions", [])
    ended = [c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"]
    return ended[0] if ended else "Active"


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
