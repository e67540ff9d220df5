"""Tests of metacontroller_hook. Run them with: python3 -m unittest, in the folder of pyproject.toml."""

import contextlib
import http.client
import io
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock

import metacontroller_hook
from metacontroller_hook import CompositeRequest, CompositeResponse, child, children, differences, make_server, serve

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT.parent.parent.parent / "docs" / "reference" / "hook-schema"


def sync(request: CompositeRequest) -> CompositeResponse:
    name = request["parent"]["metadata"]["name"]
    return {"status": {"name": name}, "children": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}]}


def has_ipv6():
    """Reports whether this machine has a loopback address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


class Server(unittest.TestCase):
    def setUp(self):
        self.server = make_server({"/sync": sync}, "127.0.0.1")
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def call(self, path, body, server=None):
        request = urllib.request.Request("http://127.0.0.1:%d%s" % ((server or self.server).server_address[1], path), body)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def test_calls_the_hook(self):
        status, body = self.call("/sync", b'{"parent": {"metadata": {"name": "web"}}}')
        self.assertEqual(200, status)
        self.assertEqual(sync({"parent": {"metadata": {"name": "web"}}}), json.loads(body))

    def test_listens_at_addresses_of_both_families(self):
        for host, reached in (("", ["127.0.0.1", "::1"]), ("::1", ["::1"]), ("127.0.0.1", ["127.0.0.1"]), ("localhost", ["127.0.0.1"])):
            if "::1" in reached and not has_ipv6():
                continue
            with self.subTest(host), make_server({"/sync": sync}, host) as server:
                for address in reached:
                    socket.create_connection((address, server.server_address[1]), 10).close()

    def test_is_ready(self):
        self.assertEqual((200, '{"ready": true}'), self.call("/healthz", None))

    def test_names_the_hooks_there_are(self):
        self.assertEqual((404, "there is no hook at /finalize, only at /sync\n"), self.call("/finalize", b"{}"))

    def test_says_what_the_hook_raised_and_goes_on(self):
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self.assertEqual((500, "KeyError: 'parent'\n"), self.call("/sync", b"{}"))
        self.assertIn("Traceback", printed.getvalue())
        self.test_calls_the_hook()

    def test_says_what_is_wrong_with_a_response(self):
        for response, message in (
            ({"status": {"load": float("nan")}}, "ValueError: Out of range float values"),
            (None, "TypeError: the hook returned nothing: does it lack a return?"),
        ):
            with self.subTest(message), make_server({"/sync": lambda _: response}, "127.0.0.1") as other:
                thread = threading.Thread(target=other.handle_request)
                thread.start()
                with contextlib.redirect_stderr(io.StringIO()):
                    status, body = self.call("/sync", b"{}", other)
                thread.join()
                self.assertEqual((500, True), (status, body.startswith(message)), body)

    def test_refuses_what_is_no_json(self):
        status, body = self.call("/sync", b"{")
        self.assertEqual(400, status)
        self.assertIn("the request is not JSON", body)


    def test_reads_requests_in_chunks(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_address[1])
        self.addCleanup(connection.close)
        for chunks in [b'{"parent": {"meta', b'data": {"name": "web"}}}'], [b'{"parent": {"metadata": {"name": "db"}}}']:
            connection.request("POST", "/sync", iter(chunks), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
            response = connection.getresponse()
            self.assertEqual((200, json.loads(b"".join(chunks))["parent"]["metadata"]), (response.status, json.load(response)["status"]))

    def test_takes_many_connections_at_once(self):
        # As many as the API server calls hooks at a time, before the first one is accepted.
        with make_server({"/sync": sync}, "127.0.0.1") as other:
            for _ in range(20):
                self.addCleanup(socket.create_connection(other.server_address[:2], timeout=10).close)

    def test_sends_a_large_response_without_waiting_for_what_was_sent_before(self):
        options, finish = queue.Queue(), self.server.finish_request

        def finish_request(connection, address):
            finish(connection, address)
            options.put(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        with mock.patch.object(self.server, "finish_request", finish_request):
            self.call("/sync", b'{"parent": {"metadata": {"name": "web"}}}')
            self.assertNotEqual(0, options.get(timeout=60))


class Serve(unittest.TestCase):
    def test_ends_with_sigterm(self):
        program = "from metacontroller_hook import serve; serve({})"
        environment = dict(os.environ, PORT="0", HOST="127.0.0.1", PYTHONPATH=str(ROOT))
        with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) as process:
            self.assertRegex(process.stdout.readline(), r"^hook listens on port [1-9][0-9]*$")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(0, process.wait(60))

    def test_says_that_it_listens_before_it_answers(self):
        program = (
            "import os\n"
            "from metacontroller_hook import serve, server\n"
            "forever = server.HookServer.serve_forever\n"
            "def serve_forever(*arguments):\n"
            "    os.write(1, b'it answers\\n')\n"
            "    forever(*arguments)\n"
            "server.HookServer.serve_forever = serve_forever\n"
            "serve({})\n"
        )
        # Every write is one of its own, as in a program that the plugin starts.
        environment = dict(os.environ, PORT="0", HOST="127.0.0.1", PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1")
        with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline(), process.stdout.readline()]
            process.send_signal(signal.SIGTERM)
            self.assertEqual(0, process.wait(60))
        self.assertRegex(lines[0], r"^hook listens on port [1-9][0-9]*$")
        self.assertEqual("it answers\n", lines[1])

    def test_answers_calls_in_flight_when_it_ends(self):
        program = (
            "import os, signal, time\n"
            "from metacontroller_hook import serve\n"
            "def sync(request):\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "    time.sleep(0.2)\n"
            "    return {'status': {'late': True}}\n"
            "serve({'/sync': sync})\n"
        )
        self.answers_and_ends(program)

    def test_answers_a_call_that_is_taken_while_the_signal_comes(self):
        program = (
            "import os, signal, threading, time\n"
            "from metacontroller_hook import serve, server\n"
            "taken, called = server.HookServer.process_request, threading.Event()\n"
            "def process_request(*arguments):\n"
            "    taken(*arguments)\n"
            "    called.wait()\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "    time.sleep(0.1)\n"
            "server.HookServer.process_request = process_request\n"
            "def sync(request):\n"
            "    called.set()\n"
            "    time.sleep(0.4)\n"
            "    return {'status': {'late': True}}\n"
            "serve({'/sync': sync})\n"
        )
        self.answers_and_ends(program)

    def test_lets_connections_go_when_it_ends(self):
        with make_server({"/sync": sync}, "127.0.0.1") as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
            self.addCleanup(connection.close)
            for ending in False, True:
                server.ending = ending
                connection.request("POST", "/sync", b'{"parent": {"metadata": {"name": "web"}}}')
                response = connection.getresponse()
                response.read()
                self.assertEqual("close" if ending else None, response.getheader("Connection"))
            server.shutdown()
            thread.join()

    def answers_and_ends(self, program):
        environment = dict(os.environ, PORT="0", HOST="127.0.0.1", PYTHONPATH=str(ROOT))
        with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) as process:
            port = process.stdout.readline().split()[-1]
            with urllib.request.urlopen("http://127.0.0.1:%s/sync" % port, b"{}") as response:
                self.assertEqual({"status": {"late": True}}, json.load(response))
            self.assertEqual(0, process.wait(60))

    def test_takes_an_empty_port_for_none(self):
        with mock.patch("metacontroller_hook.server.make_server", side_effect=KeyboardInterrupt) as make_server:
            for environment in {}, {"PORT": ""}:
                with self.subTest(environment), self.assertRaises(KeyboardInterrupt):
                    serve({}, environment)
                make_server.assert_called_with({}, "", 8080)


class Children(unittest.TestCase):
    def test_are_found_whatever_their_keys(self):
        for what, namespace, key, name, found in [
            ("version v2", "shop", "shop/web", "web", True),
            ("version v2, with the namespace", "shop", "shop/web", "shop/web", True),
            ("version v1", "shop", "web", "web", True),
            ("version v1, with the namespace", "shop", "web", "shop/web", True),
            ("a parent without a namespace", None, "shop/web", "shop/web", True),
            ("a parent without a namespace, and no namespace", None, "shop/web", "web", False),
            ("a child without a namespace", None, "web", "web", True),
            ("another namespace", "shop", "shop/web", "other/web", False),
        ]:
            metadata = {"name": "p", "namespace": namespace} if namespace else {"name": "p"}
            for parent, observed in ("parent", "children"), ("object", "attachments"):
                with self.subTest(what, field=observed):
                    request = {parent: {"metadata": metadata}, observed: {"Deployment.apps/v1": {key: {"kind": "Deployment"}}, "Pod.v1": {}}}
                    self.assertEqual({"kind": "Deployment"} if found else None, child(request, "Deployment.apps/v1", name))
                    self.assertEqual([{"kind": "Deployment"}], children(request, "Deployment.apps/v1"))
                    with self.assertRaisesRegex(LookupError, "has no Deployment.v1, only Deployment.apps/v1, Pod.v1"):
                        child(request, "Deployment.v1", name)


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def record(self, name, request, response):
        (self.folder / (name + ".request.json")).write_text(json.dumps(request))
        (self.folder / (name + ".response.json")).write_text(json.dumps(response))

    def test_is_silent_about_what_did_not_change(self):
        request = {"parent": {"metadata": {"name": "web"}}}
        self.record("sync-web", request, sync(request))
        self.assertEqual([], differences(self.folder, {"/sync": sync}))

    def test_reads_what_record_writes_in_any_locale(self):
        for end in ("request", "response"):
            (self.folder / ("sync.%s.json" % end)).write_bytes('{"status": {"name": "Zürich"}}'.encode())
        program = "import sys; from metacontroller_hook import differences; sys.exit(len(differences(sys.argv[1], {'/sync': lambda r: r})))"
        environment = dict(os.environ, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", PYTHONPATH=str(ROOT))
        ended = subprocess.run([sys.executable, "-c", program, str(self.folder)], env=environment, capture_output=True, text=True)
        self.assertEqual((0, ""), (ended.returncode, ended.stderr))

    def test_shows_what_changed(self):
        request = {"parent": {"metadata": {"name": "web"}}}
        self.record("sync", request, {"status": {"name": "old"}, "children": sync(request)["children"]})
        (text,) = differences(self.folder, {"/sync": sync})
        self.assertIn('-    "name": "old"', text)
        self.assertIn('+    "name": "web"', text)

    def test_compares_numbers_by_their_value(self):
        for recorded, returned, equal in [
            (1, 1.0, True),
            (1.0, 1, True),
            (-0.0, 0, True),
            (1e21, 10**21, True),
            (1.5, 1.5, True),
            (2**53 + 1, 2**53 + 1, True),
            (2**53 + 1, float(2**53), False),
            (1, 1.5, False),
            (1, True, False),
            (1, "1", False),
        ]:
            with self.subTest(recorded=recorded, returned=returned):
                self.record("sync", {}, {"status": {"n": [recorded]}})
                texts = differences(self.folder, {"/sync": lambda _: {"status": {"n": (returned,)}}})
                self.assertEqual(equal, texts == [], texts)

    def test_compares_secrets_with_hidden_values(self):
        def secret(**fields):
            return dict({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, **fields)

        def copied(text):
            return {"apiVersion": "v1", "kind": "Secret", "metadata": {"annotations": {"copy": text}}}

        hidden = "KGhpZGRlbik="
        for what, field, recorded, returned, equal in [
            ("data", "children", secret(data={"k": hidden}), secret(data={"k": "bmV3"}), True),
            ("stringData", "children", secret(stringData={"k": "(hidden)"}), secret(stringData={"k": "new"}), True),
            ("an attachment", "attachments", secret(data={"k": hidden}), secret(data={"k": "bmV3"}), True),
            ("a copy in an annotation", "children", copied("(hidden)"), copied("new"), True),
            ("what is not hidden", "children", secret(data={"k": "YQ=="}), secret(data={"k": "bmV3"}), False),
            ("a key more", "children", secret(data={"k": hidden}), secret(data={"k": "bmV3", "l": "bmV3"}), False),
            ("a key less", "children", secret(data={"k": hidden, "l": hidden}), secret(data={"k": "bmV3"}), False),
            ("another type", "children", secret(data={"k": hidden}, type="Opaque"), secret(data={"k": "bmV3"}), False),
            ("another kind", "children", secret(kind="ConfigMap", data={"k": "(hidden)"}), secret(kind="ConfigMap", data={"k": "new"}), False),
            ("what is no object", "children", None, None, True),
            ("what has no fields", "children", secret(metadata=1, data=[{}]), secret(metadata=1, data=[{}]), True),
        ]:
            with self.subTest(what):
                self.record("sync", {}, {field: [recorded]})
                texts = differences(self.folder, {"/sync": lambda _: {field: [returned]}})
                self.assertEqual(equal, texts == [], texts)

    def test_names_hooks_that_are_missing(self):
        self.record("finalize", {}, {})
        self.assertEqual(["finalize.request.json: there is no hook /finalize, only /sync"], differences(self.folder, {"/sync": sync}))

    def test_needs_a_recorded_request(self):
        with self.assertRaisesRegex(FileNotFoundError, "holds no recorded request"):
            differences(self.folder, {"/sync": sync})


@unittest.skipUnless(SCHEMA.is_dir(), "the schema is not beside a copy of the module")
class Types(unittest.TestCase):
    def test_have_the_keys_of_the_schema(self):
        for name in ["composite-request", "composite-response.v2", "decorator-request", "decorator-response.v2", "customize-request", "customize-response.v2"]:
            with self.subTest(name):
                document = json.loads((SCHEMA / (name + ".json")).read_text())
                declared = getattr(metacontroller_hook, document["title"])
                self.assertEqual(set(document["properties"]), set(declared.__annotations__))
                self.assertEqual(set(document.get("required", [])), set(declared.__required_keys__))


if __name__ == "__main__":
    unittest.main()
