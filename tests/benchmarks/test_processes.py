"""Worker processes and servers."""

import sys
from contextlib import closing

import pytest

from benchmarks.processes import ForeignWorker, Server, Worker, free_port, monitored


def test_worker_keeps_its_object_and_raises_its_errors() -> None:
    worker = Worker(dict, [("a", 1)])
    try:
        assert worker.call("get", "a") == 1
        worker.call("update", {"b": 2})
        assert worker.call("__len__") == 2
        with pytest.raises(KeyError):
            worker.call("pop", "c")
    finally:
        worker.close()


# Serves calls of a list: JSON lines on standard input and output.
FOREIGN = """
import json, sys
target = [3, 1]
print(json.dumps(None), flush=True)
for line in sys.stdin:
    method, arguments = json.loads(line)
    print(json.dumps(getattr(target, method)(*arguments)), flush=True)
"""


def test_foreign_worker_keeps_its_object_and_reports_its_log_if_it_exits() -> None:
    with closing(ForeignWorker([sys.executable, "-c", FOREIGN], {})) as worker:
        worker.call("append", 2)
        assert worker.call("__len__") == 3
        with pytest.raises(RuntimeError, match=r"exited with 1:[^$]*IndexError"):
            worker.call("pop", 7)


def test_foreign_worker_that_cannot_start_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="exited with 3:\nsome words"):
        ForeignWorker([sys.executable, "-c", "import os; os.write(2, b'some words'); exit(3)"], {})


def test_server_is_started_sampled_and_closed() -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with closing(Server(command, port, "/")) as server:
        assert server.start_seconds > 0
        with monitored(server) as samples:
            pass
        assert samples[0].megabytes > 1
        assert samples[0].files > 2
        assert samples[0].threads >= 1
        assert server.cpu_seconds() >= 0
        server.check()


def test_server_that_exits_is_an_error_with_its_log() -> None:
    with pytest.raises(RuntimeError, match="exited with 3:\nsome words"):
        Server([sys.executable, "-c", "print('some words'); exit(3)"], free_port(), "/")
