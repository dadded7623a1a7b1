"""Simulated time, and what simulated jobs wait for."""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Clock:
    """Simulated time and the actions that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, time: float, action: Action) -> None:
        """Schedule an action."""
        heapq.heappush(self._due, (time, next(self._order), action))

    def run(self) -> None:
        """Run until nothing is due."""
        while self._due:
            self.now, _, action = heapq.heappop(self._due)
            action()


class Cores:
    """Cores that threads share. Those with priority are served first, the others equally."""

    def __init__(self, clock: Clock, number: float) -> None:
        self._clock, self._number = clock, number
        self._jobs: dict[int, tuple[float, bool, Action]] = {}  # remaining seconds
        self._ids, self._version, self._last = count(), 0, 0.0

    def run(self, seconds: float, done: Action, priority: bool) -> None:
        """Run a job that takes some seconds of one core."""
        self._advance()
        self._jobs[next(self._ids)] = seconds, priority, done
        self._schedule()

    def _rate(self, priority: bool) -> float:
        first = sum(job[1] for job in self._jobs.values())
        if priority:
            return min(1.0, self._number / first)
        left = max(self._number - first, 0.02)  # no thread starves entirely
        return min(1.0, left / (len(self._jobs) - first))

    def _advance(self) -> None:
        passed, self._last = self._clock.now - self._last, self._clock.now
        if passed:
            rates = {p: self._rate(p) for p in {job[1] for job in self._jobs.values()}}
            for key, (left, priority, done) in self._jobs.items():
                self._jobs[key] = left - passed * rates[priority], priority, done

    def _schedule(self) -> None:
        self._version += 1
        if self._jobs:
            rates = {p: self._rate(p) for p in {job[1] for job in self._jobs.values()}}
            ends = {key: left / rates[p] for key, (left, p, _) in self._jobs.items()}
            first = min(ends, key=ends.__getitem__)
            version = self._version
            end = self._clock.now + max(0.0, ends[first])
            self._clock.at(end, lambda: self._finish(first, version))

    def _finish(self, key: int, version: int) -> None:
        if version == self._version:
            self._advance()
            _, _, done = self._jobs.pop(key)
            self._schedule()
            done()


class Lane:
    """Runs jobs one after the other on cores."""

    def __init__(self, cores: Cores, priority: bool = True) -> None:
        self.busy = 0.0  # seconds of work
        self._cores, self._priority = cores, priority
        self._jobs: deque[tuple[float, Action]] = deque()

    def run(self, seconds: float, done: Action) -> None:
        """Append a job."""
        self.busy += seconds
        self._jobs.append((seconds, done))
        if len(self._jobs) == 1:
            self._start()

    def _start(self) -> None:
        self._cores.run(self._jobs[0][0], self._end, self._priority)

    def _end(self) -> None:
        _, done = self._jobs.popleft()
        if self._jobs:
            self._start()
        done()
