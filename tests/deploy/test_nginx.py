"""nginx's configuration: its bounds, its errors, and what it must agree on with the service."""

import contextlib
import http.client
import inspect
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uvicorn

from app.errors import ERRORS
from app.observe.middleware import _REQUEST_ID
from tests.deploy.conftest import check, require

TEMPLATE = (check.ROOT / check.NGINX).read_text(encoding="utf-8")
HEADER_SECONDS, BODY_SECONDS = 1, 1
BODY_BYTES = 4_000_000  # the default limit


def directive(name: str) -> str:
    (value,) = set(re.findall(rf"(?m)^\s*{name} ([^;]+);", TEMPLATE))
    return str(value)


class Upstream(BaseHTTPRequestHandler):
    """Answers every request with 200; POST waits until it is released."""

    protocol_version = "HTTP/1.1"
    requests: list[str] = []  # noqa: RUF012  # shared by all connections; cleared by the fixture
    waiting, release = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        self.requests.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.waiting.set()
        self.release.wait(10)
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a running nginx with short timeouts and one request per address at a time."""
    require("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    configuration = check.render_nginx(folder)
    text = configuration.read_text(encoding="utf-8")
    for old, new in {
        "listen 8080 backlog=2048;": f"listen 127.0.0.1:{port};",
        "server api:8000 resolve ": f"server 127.0.0.1:{upstream.server_port} ",
        "client_header_timeout 10s;": f"client_header_timeout {HEADER_SECONDS}s;",
        "client_body_timeout 15s;": f"client_body_timeout {BODY_SECONDS}s;",
        "limit_conn addresses 2048;": "limit_conn addresses 1;",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    configuration.write_text(text, encoding="utf-8")
    command = ["nginx", "-e", "stderr", "-c", str(configuration)]
    options = ["-g", "daemon off; master_process off;"]  # as this user, also if that is root
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.01)
        assert process.poll() is None, (folder / "log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait()
        upstream.shutdown()


@pytest.fixture(autouse=True)
def reset_upstream() -> None:
    Upstream.requests.clear()
    Upstream.release.set()


def send(port: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(content)
    return connection


def get(
    port: int, path: str = "/health", headers: dict[str, str] | None = None
) -> tuple[int, str, http.client.HTTPMessage]:
    """Status, body and headers of a GET request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers


def seconds_until_closed(connection: socket.socket) -> float:
    start = time.monotonic()
    with connection, contextlib.suppress(ConnectionResetError):
        assert connection.recv(1024) == b""
    return time.monotonic() - start


def test_proxies_requests_with_the_clients_id(port: int) -> None:
    status, body, headers = get(port, headers={"x-request-id": "my-id"})
    assert (status, body, headers["x-request-id"]) == (200, "{}", "my-id")
    assert Upstream.requests == ["/health"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", path) for path in ("/", "/embed", "/rank", "/tokenize", "/v1/embeddings")),
        *(("POST", path) for path in ("/v1/rerank", "/v2/rerank", "/v1/score")),
        *(
            ("GET", path)
            for path in ("/", "/v1/models", "/v1/models/tiny:int8", "/v1/models/a%2Fb")
        ),
    ],
)
def test_proxies_every_endpoint_with_its_path_unchanged(port: int, method: str, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body="{}" if method == "POST" else None)
        assert connection.getresponse().status == 200
    assert Upstream.requests == [path]


def test_closes_a_connection_whose_header_is_too_slow(port: int) -> None:
    connection = send(port, b"GET /health HTTP/1.1\r\nhost: a\r\n")
    stop = time.monotonic() + HEADER_SECONDS
    with contextlib.suppress(OSError):
        while time.monotonic() < stop + 5:  # the limit is for the whole header, not for a pause
            connection.sendall(b"x: y\r\n")
            time.sleep(0.1)
    assert time.monotonic() < stop + 5
    connection.close()
    assert Upstream.requests == []


def test_closes_a_connection_that_sends_no_header(port: int) -> None:
    assert seconds_until_closed(send(port, b"")) < HEADER_SECONDS + 5
    assert Upstream.requests == []


def test_closes_a_connection_whose_body_stalls(port: int) -> None:
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n"
    with send(port, head + b"{") as connection:
        response = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(1024):
                response += chunk
    assert response == b"" or response.startswith(b"HTTP/1.1 408 ")
    assert Upstream.requests == []


@pytest.mark.parametrize(
    "headers",
    [{"x": "y" * 17_000}, {f"x{number}": "y" * 15_000 for number in range(5)}],
    ids=["one", "all"],
)
def test_rejects_large_headers_with_431(port: int, headers: dict[str, str]) -> None:
    status, body, _ = get(port, headers=headers)
    assert status == 431
    assert json.loads(body)["error_type"] == "TooLarge"
    assert Upstream.requests == []


def test_rejects_a_large_request_line_with_431(port: int) -> None:
    status, body, _ = get(port, "/" + "y" * 17_000)
    assert status == 431
    assert json.loads(body)["error"] == "The request line is larger than 16384 bytes."


def test_rejects_a_large_body_with_413_before_it_is_sent(port: int) -> None:
    head = f"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY_BYTES + 1}\r\n\r\n"
    with send(port, head.encode()) as connection:
        assert connection.recv(1024).startswith(b"HTTP/1.1 413 ")
    assert Upstream.requests == []


def test_rejects_invalid_http_with_400(port: int) -> None:
    with send(port, b"What?\r\n\r\n") as connection:
        response = connection.recv(4096)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b'"error_type":"Validation"' in response


def test_limits_concurrent_requests_per_address_with_429(port: int) -> None:
    Upstream.waiting.clear()
    Upstream.release.clear()
    with send(port, b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n{") as first:
        assert Upstream.waiting.wait(10)
        status, body, headers = get(port)
        Upstream.release.set()
        assert first.recv(1024).startswith(b"HTTP/1.1 200 ")
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(body)["error_type"] == "Overloaded"


def test_hides_the_metrics(port: int) -> None:
    status, body, _ = get(port, "/metrics")
    assert (status, json.loads(body)["error_type"]) == (404, "NotFound")
    assert Upstream.requests == []


def test_closes_idle_upstream_connections_before_the_service_does() -> None:
    (idle,) = re.findall(r"keepalive 64;.*?keepalive_timeout (\d+)s;", TEMPLATE, re.DOTALL)
    service = inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default
    assert int(idle) < service


def test_accepts_the_same_request_ids_as_the_service() -> None:
    (pattern,) = re.findall(r'"~\^(.+)\$"\s+\$http_x_request_id;', TEMPLATE)
    assert pattern.encode() == _REQUEST_ID.pattern


def test_limits_connections_per_address_to_a_quarter() -> None:
    zone, limit = directive("limit_conn").split()
    assert f"zone={zone}:" in directive("limit_conn_zone")
    workers, connections = directive("worker_processes"), directive("worker_connections")
    assert 4 * int(limit) == int(workers) * int(connections)
    assert f"already has {limit} requests in progress" in TEMPLATE


def test_logs_neither_query_strings_nor_bodies() -> None:
    (logged,) = re.findall(r"log_format json escape=json(.*?);", TEMPLATE, re.DOTALL)
    assert not re.search(r"\$(request|request_uri|args|query_string|request_body)\b", logged)
    line = re.sub(r"\$\w+", "1", "".join(re.findall(r"'(.*?)'", logged)))
    assert json.loads(line).keys() >= {"id", "path", "status", "replica", "replica_status"}
    assert directive("error_log").endswith("crit"), "other levels log the query string"


def test_errors_have_the_services_format() -> None:
    errors = re.findall(r"return (\d+) '(.*)';", TEMPLATE)
    assert len(errors) == 9
    known = {(kind.status, error_type) for error_type, kind in ERRORS.items()}
    known |= {(431, "TooLarge"), (400, "Validation")}
    for status, body in errors:
        error = json.loads(body)
        assert error.keys() == {"error", "error_type"}
        assert (int(status), error["error_type"]) in known
