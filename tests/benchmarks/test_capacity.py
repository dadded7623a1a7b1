"""The simulation's arithmetic, against what queueing theory knows."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.capacity import costs, plan
from benchmarks.capacity.mixes import MIXES, Mix
from benchmarks.capacity.resources import Clock, Cores, Lane
from benchmarks.capacity.simulation import Host, HostCost, Model, simulate
from benchmarks.traffic import poisson_arrivals

FREE = HostCost(0.0, 0.0, 0.0)
# One sentence of 8 tokens per batch, which takes 10 ms.
ONE_BY_ONE = Model(token_seconds=1e-3, batch_seconds=2e-3, token_budget=8)


def single(_: int) -> Sequence[int]:
    return [8]


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_mean_wait_of_random_arrivals_is_that_of_m_d_1(load: float) -> None:
    service = ONE_BY_ONE.seconds([8])
    arrivals = poisson_arrivals("m/d/1", load / service, 300.0)
    outcome = simulate(arrivals, single, ONE_BY_ONE, FREE)
    expected = load * service / (2 * (1 - load))  # Pollaczek and Khinchine
    wait = float(outcome.seconds.mean()) - service
    assert wait == pytest.approx(expected, rel=0.1)


def test_event_loop_alone_is_m_d_1_too() -> None:
    """Half of a request's work is before the model, half after it: waits add up to less."""
    cost = HostCost(loop=10e-3, tokenizer=0.0, model=0.0)
    fast = Model(1e-9, 0.0, token_budget=1000)
    arrivals = poisson_arrivals("loop", 50.0, 300.0)
    outcome = simulate(arrivals, single, fast, cost)
    assert outcome.busy["python"] == pytest.approx(0.5, rel=0.05)
    wait = float(outcome.seconds.mean()) - 10e-3
    assert 2.5e-3 < wait < 10e-3  # M/D/1: 5 ms


def test_every_request_is_answered_once_and_work_is_conserved() -> None:
    random = np.random.default_rng(0)
    sizes = random.integers(1, 6, 500)
    texts = [random.integers(3, 60, size).tolist() for size in sizes]
    model = Model(1e-4, 1e-3, token_budget=256, length_multiple=8)
    cost = HostCost(loop=1e-3, tokenizer=1e-3, model=0.5e-3)
    arrivals = poisson_arrivals("conserved", 100.0, 60.0)[:500]
    outcome = simulate(arrivals, texts.__getitem__, model, cost, Host(processes=3))
    assert outcome.completed == 500
    assert outcome.busy["tokenizer"] * 3 * outcome.elapsed == pytest.approx(0.5)
    assert outcome.busy["python"] * 3 * outcome.elapsed == pytest.approx(0.75)
    least = sum(length * model.token_seconds for text in texts for length in text)
    assert outcome.busy["device"] * outcome.elapsed > least
    floor = cost.loop + cost.tokenizer + model.batch_seconds
    assert float(outcome.seconds.min()) > floor


def test_a_lone_request_takes_the_sum_of_its_parts() -> None:
    cost = HostCost(loop=4e-3, tokenizer=3e-3, model=2e-3)
    outcome = simulate(np.array([1.0]), single, ONE_BY_ONE, cost)
    assert outcome.seconds == pytest.approx([4e-3 + 3e-3 + 2e-3 + 10e-3])
    assert outcome.batches == 1


def test_batches_fill_up_to_the_budget_when_saturated() -> None:
    model = Model(1e-4, 1e-3, token_budget=80)  # ten sentences, 9 ms
    outcome = simulate(np.zeros(1000), single, model, FREE)
    assert outcome.batches == pytest.approx(101, abs=1)  # the first has one sentence
    assert outcome.elapsed == pytest.approx(100 * model.seconds([8] * 10), rel=0.02)


def test_rejects_what_would_wait_longer_than_the_limit() -> None:
    arrivals = np.full(1000, 1.0)
    outcome = simulate(arrivals, single, ONE_BY_ONE, FREE, Host(max_wait=0.1))
    # The limit counts the 8 ms of a sentence's tokens.
    assert outcome.completed == pytest.approx(0.1 / 8e-3, abs=3)


def test_cores_are_shared_equally_after_priority() -> None:
    clock, ends = Clock(), {}
    cores = Cores(clock, 2)
    for name, seconds, priority in (("a", 1.0, False), ("b", 1.0, False), ("first", 1.0, True)):
        cores.run(seconds, lambda name=name: ends.setdefault(name, clock.now), priority)
    clock.run()
    # For a second, two threads share the core that is left.
    assert ends == pytest.approx({"first": 1.0, "a": 1.5, "b": 1.5})


def test_lane_runs_jobs_in_order() -> None:
    clock, ends = Clock(), []
    lane = Lane(Cores(clock, math.inf))
    for seconds in (3.0, 1.0):
        lane.run(seconds, lambda: ends.append(clock.now))
    clock.run()
    assert ends == [3.0, 4.0]
    assert lane.busy == 4.0


@pytest.mark.parametrize("mix", [MIXES[0], MIXES[2]], ids=lambda mix: mix.name)
def test_simulated_saturation_is_the_limit_of_the_plan(mix: Mix) -> None:
    """Beyond the limit requests are not answered any faster."""
    gpu, cost = costs.GPUS[0], costs.HOST_COSTS[mix.name]
    limits = plan.gpu_limits(mix, gpu)
    processes = 2
    capacity = min(limits.gpu, processes * limits.process)
    outcome = plan.run(mix, gpu.served(), cost, Host(processes), 1.5 * capacity, 1000 / capacity)
    assert outcome.completed / outcome.elapsed == pytest.approx(capacity, rel=0.12)


def test_limits_name_the_scarcest_resource() -> None:
    mix = MIXES[0]
    cost = HostCost(loop=1e-3, tokenizer=0.0, model=0.0)
    limits = plan.limits(mix, ONE_BY_ONE, cost, response_bytes=100)
    assert limits.process == pytest.approx(1000)
    assert limits.first == "gpu"
    assert limits.processes == 1
    assert limits.host == limits.gpu < limits.cores
    fast = Model(1e-9, 0.0, token_budget=16_384)
    assert plan.limits(mix, fast, cost, response_bytes=100).first == "cores"
    assert plan.limits(mix, fast, cost, response_bytes=1e8).first == "network"
