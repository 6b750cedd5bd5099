"""Worker processes: rows in order, failures told, nothing left over."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from omrl.envs.base import SimulationError
from omrl.envs.processes import ProcessPhysics, Workers, step_somewhere
from omrl.errors import InputError, WorkerLost

ADDS = "test_processes:Adds"


class Adds:
    """The sum of the actions is added; some states mean a failure."""

    def step(self, states, actions):
        print("not an answer")
        for kind, value in ((SimulationError, 77.0), (InputError, 78.0), (KeyError, 79.0)):
            if (states == value).any():
                raise kind(f"met {value:g}")
        if (states == 99.0).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return states + actions.sum(axis=1, keepdims=True)


@pytest.fixture
def workers(monkeypatch):
    folder = os.path.dirname(__file__)
    monkeypatch.syspath_prepend(folder)
    made = Workers(ADDS, 3)
    yield made
    made.close()
    assert all(worker.returncode is not None for worker in made._workers)


def rows(num):
    return 200 + np.arange(2.0 * num).reshape(num, 2), np.linspace(0, 1, 3 * num).reshape(num, 3)


@pytest.mark.parametrize("num", [1, 2, 3, 7, 5000])
def test_rows_come_back_in_order(workers, num):
    states, actions = rows(num)
    np.testing.assert_array_equal(workers.step(states, actions), Adds().step(states, actions))


def test_failures_are_those_of_the_simulator_and_the_workers_go_on(workers):
    states, actions = rows(6)
    for value, kind, message in (
        (77.0, SimulationError, "met 77"),
        (78.0, InputError, "met 78"),
        (79.0, RuntimeError, "KeyError: 'met 79'"),
    ):
        bad = states.copy()
        bad[2, 0] = value
        with pytest.raises(kind, match=message):
            workers.step(bad, actions)
        np.testing.assert_array_equal(workers.step(states, actions)[:, 0] > 0, [True] * 6)


def test_a_worker_that_is_killed_is_told_and_the_others_end(workers):
    states, actions = rows(6)
    states[5] = 99.0
    with pytest.raises(WorkerLost, match=r"ended by itself \(exit code -9; .*fewer --threads"):
        workers.step(states, actions)
    assert not workers.alive
    with pytest.raises(RuntimeError, match="have ended"):
        workers.step(states, actions)


def test_a_worker_ends_when_its_parent_forgets_it(workers, monkeypatch):
    other = Workers(ADDS, 2)
    processes = other._workers
    other.step(*rows(2))
    del other
    assert all(worker.returncode is not None for worker in processes)


def test_physics_steps_the_active_rows_alone(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    states, actions = rows(4)
    active = np.array([True, False, True, True])
    states[1] = 77.0
    expected = np.where(active[:, None], states + actions.sum(axis=1, keepdims=True), states)
    for num in (1, 2):
        physics = ProcessPhysics(ADDS, num)
        found = physics.step(states, actions, np.zeros((4, 1)), active)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(step_somewhere(ADDS, states[2:], actions[2:]), expected[2:])
        physics.close()
        physics.close()
    np.testing.assert_array_equal(step_somewhere(ADDS, states[2:], actions[2:]), expected[2:])


def test_workers_outlive_no_interrupt(workers):
    """Ctrl-C reaches the whole group; what ends workers is the end of their input."""
    workers.step(*rows(3))
    for worker in workers._workers:
        os.kill(worker.pid, signal.SIGINT)
    time.sleep(0.1)
    assert workers.step(*rows(3)).shape == (3, 2)
