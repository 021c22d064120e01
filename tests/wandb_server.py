"""A stand-in for the W&B server on a port of this machine, for wandb's own client and commands.

Takes GraphQL, file_stream and uploads, and can be made to fail: answers of 500, delays, dropped
connections, a stop in the middle. Loaded by path in `conftest`: test folders are no packages.
"""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from wandb_answers import Answers

KEY = "k" * 40


class Server(Answers):
    """Start, stop and fail at will; what came is in `Answers`.

    Faults hold for requests to come: `errors` and `drops` are numbers of requests that get a 500 or
    a closed connection (infinity: all), `delay` is the seconds before each answer.
    """

    def __init__(self):
        super().__init__()
        self.errors = self.drops = self.delay = 0
        self._http, self.port = None, 0
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Listen, after a stop on the same port."""
        self._http = _Http(("127.0.0.1", self.port), _Handler)
        self._http.owner = self
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """Refuse connections; what came is kept."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def fails(self):
        """What becomes of the request that has just come: `drop`, `error` or None."""
        time.sleep(self.delay)
        if self._http is None:  # a connection that outlives the stop
            return "drop"
        with self._lock:
            for fault, number in (("drop", self.drops), ("error", self.errors)):
                if number > 0:
                    setattr(self, f"{fault}s", number - 1)
                    return fault
        return None

    def wait_for(self, happened, seconds=30):
        """Until `happened(self)` is true."""
        end = time.monotonic() + seconds
        while not happened(self):
            assert time.monotonic() < end, f"W&B stand-in: waited {seconds} s in vain"
            time.sleep(0.05)


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that has gone away is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self, answer):
        body = self._body()
        fault = self.server.owner.fails()
        if fault == "drop":
            self.close_connection = True
        elif fault == "error":
            self._send({"errors": [{"message": "out of order"}]}, 500)
        else:
            self._send(answer(body))

    def do_POST(self):
        parts = urlsplit(self.path).path.strip("/").split("/")
        expected = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
        if parts[0] != "graphql" and parts[-1] != "file_stream":
            self._body()
            self._send({}, 404)
        elif self.headers.get("Authorization") != expected:
            self._body()
            self._send({"errors": [{"message": "who are you?"}]}, 401)
        else:
            self._handle(self._graphql if parts[0] == "graphql" else self._stream)

    def do_PUT(self):
        self._handle(self._upload)

    def _graphql(self, body):
        asked = json.loads(body)
        operation = asked.get("operationName") or asked["query"].split("(")[0].split()[1]
        return {"data": self.server.owner.answer(operation, asked.get("variables") or {})}

    def _stream(self, body):
        run = self.server.owner.run(unquote(self.path).split("/")[-2])
        sent = json.loads(body)
        for name, part in (sent.get("files") or {}).items():
            for number, text in enumerate(part["content"], part["offset"]):
                run.lines[name][number] = text
        if sent.get("complete"):
            run.exit_codes.append(sent["exitcode"])
        return {"exitcode": None, "limits": {}}

    def _upload(self, body):
        _, kind, name, *rest = unquote(urlsplit(self.path).path).split("/")
        owner = self.server.owner
        place = owner.artifacts[name]["files"] if kind == "artifact" else owner.run(name).uploads
        place["/".join(rest)] = body
        return {}
