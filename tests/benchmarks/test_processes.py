"""Objects in worker processes."""

import pytest

from benchmarks.processes import Worker, memory_bytes


def test_worker_keeps_its_object_and_raises_its_errors() -> None:
    worker = Worker(dict, [("a", 1)])
    try:
        assert worker.call("get", "a") == 1
        worker.call("update", {"b": 2})
        assert worker.call("__len__") == 2
        assert worker.peak_bytes() > 1e6
        with pytest.raises(KeyError):
            worker.call("pop", "c")
    finally:
        worker.close()


def test_reads_memory_of_a_process() -> None:
    assert 1e6 < memory_bytes("self", "VmRSS") <= memory_bytes("self", "VmHWM")
