"""Start-up time and memory of the int8 server, when ready and after many mixed requests."""

import time

from benchmarks.load_generator import TOO_MANY_REQUESTS
from benchmarks.processes import Server
from benchmarks.report import Table, spread_cell
from benchmarks.rounds import Plan, Series
from benchmarks.systems import Systems, serve
from benchmarks.traffic import mixed_requests

SERVER = "server int8"
STARTS = 5
CLIENTS = 16  # few enough that hardly any request is rejected
REQUESTS, QUICK_REQUESTS = 20_000, 2000
_CHUNK = 5000  # requests prepared at a time
_SETTLE_SECONDS = 2.0


def run(plan: Plan, systems: Systems) -> Series:
    """Start the server a few times; send requests to the last one."""
    starts: list[float] = []
    for _ in range(STARTS - 1):
        server = serve("default:int8")
        starts.append(server.start_seconds)
        server.close()
    server = serve("default:int8")
    try:
        start = {f"start/{SERVER}/s": [*starts, server.start_seconds]}
        return start | _send(QUICK_REQUESTS if plan.quick else REQUESTS, server)
    finally:
        server.close()


def _send(total: int, server: Server) -> Series:
    time.sleep(_SETTLE_SECONDS)
    idle, rejected = server.sample().megabytes, 0
    for first in range(0, total, _CHUNK):
        count = min(_CHUNK, total - first)
        requests = list(mixed_requests(f"memory {first}", count))
        responses = server.closed_loop(requests, CLIENTS)
        rejected += responses.check(TOO_MANY_REQUESTS).count(TOO_MANY_REQUESTS)
        print(f"  {first + count:,} requests: {server.sample().megabytes:.0f} MB", flush=True)
    time.sleep(_SETTLE_SECONDS)
    after = server.sample().megabytes
    return {
        f"idle/{SERVER}/MB": [idle],
        f"after/{SERVER}/MB": [after],
        f"after/{SERVER}/growth %": [100 * (after / idle - 1)],
        f"after/{SERVER}/requests": [float(total)],
        f"after/{SERVER}/rejected": [float(rejected)],
    }


def tables(series: Series) -> list[Table]:
    """One table."""
    requests = spread_cell(series, f"after/{SERVER}/requests")
    measures = {
        "start to ready, s": (f"start/{SERVER}/s", ".2f"),
        "resident when ready, MB": (f"idle/{SERVER}/MB", ".0f"),
        f"resident after {requests} mixed requests, MB": (f"after/{SERVER}/MB", ".0f"),
        "requests rejected with 429": (f"after/{SERVER}/rejected", ",.0f"),
        "growth, %": (f"after/{SERVER}/growth %", ".1f"),
    }
    rows = [[label, spread_cell(series, key, spec)] for label, (key, spec) in measures.items()]
    return [Table(f"Start-up and memory, {SERVER}", ["", ""], rows)]
