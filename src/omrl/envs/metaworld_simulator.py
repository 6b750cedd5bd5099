"""Meta-World's own environments as pure functions of a state, one process at a time.

One object of Meta-World's classes for each of the 50 serves all states of that environment: before
a step it gets the attributes and model arrays that a reset with the state's start vector leaves,
then what the state holds. Nothing of Meta-World is copied or computed again here, so a step has
the bits of a fresh Meta-World environment that was reset with that start vector.
"""

# MuJoCo and Meta-World have no type stubs.
# pyright: reportAttributeAccessIssue=false, reportMissingImports=false

from __future__ import annotations

import copy
import hashlib
import importlib.util
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64

from omrl.envs.base import SimulationError
from omrl.envs.metaworld_state import (
    COLUMNS,
    ENVIRONMENT,
    GOAL,
    INFO,
    MEMORY,
    OBS,
    QPOS,
    QVEL,
    START,
    STATE_DIM,
    TIME,
    UNSET,
)
from omrl.envs.metaworld_tasks import KINDS, SOURCE_SHA256
from omrl.envs.optional import check_installed, install_line
from omrl.errors import InputError

MAX_STARTS = 4096
"""Resets whose outcome a process remembers, a few kilobytes each."""
_SMALL = 5000
"""Entries of the model arrays that a reset may edit; meshes and textures have more."""


@cache
def source_digest() -> str:
    """sha256 of Meta-World's Python sources, models and meshes. `InputError` if any are missing."""
    spec = importlib.util.find_spec("metaworld")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    kinds = (".py", ".xml", ".stl")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in kinds)
    if not any(path.suffix == ".xml" for path in paths):
        raise InputError(
            f"{folder / 'assets'}: the models of Meta-World are missing: "
            f"{install_line('metaworld')} --force-reinstall"
        )
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def check_source() -> None:
    """`InputError` unless metaworld is installed, whole and as the MDPs are defined."""
    check_installed("metaworld", "Meta-World")
    if source_digest() != SOURCE_SHA256:
        raise InputError(
            "Meta-World: its installed files are not those of metaworld 3.0.0 (changed or "
            f"missing): {install_line('metaworld')} --force-reinstall"
        )


@dataclass(frozen=True)
class _Start:
    """What a reset leaves behind."""

    state: Float64[np.ndarray, " state"]
    attributes: dict[str, Any]
    """Of the environment; arrays that show MuJoCo's memory stay such views, as in Meta-World."""
    model: dict[str, np.ndarray]
    """Arrays of the model that differ from those of a new one."""


class _Machine:
    """The object of one environment."""

    def __init__(self, number: int):
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        self.number = number
        self.env: Any = ALL_V3_ENVIRONMENTS[f"{KINDS[number].name}-v3"](
            reward_function_version="v2"
        )
        self.env._set_task_called = True
        self.env._freeze_rand_vec = True
        self._new = dict(self.env.__dict__)
        self._arrays = _small_arrays(self.env.model)
        self._new_model = {name: getattr(self.env.model, name).copy() for name in self._arrays}
        self._edited: set[str] = set()

    def reset(self, start: Float64[np.ndarray, " 6"]) -> _Start:
        """As of a new object, whatever this one did before."""
        env = self.env
        self._load({name: _own(value) for name, value in self._new.items()}, {})
        mujoco.mj_resetData(env.model, env.data)
        env._last_rand_vec = start[: KINDS[self.number].size].copy()
        env.reward_function_version = "v1"  # whose resets leave all that both versions read
        obs, _ = env.reset()
        env.reward_function_version = "v2"
        edited = {
            name: getattr(env.model, name).copy()
            for name in self._arrays
            if not np.array_equal(getattr(env.model, name), self._new_model[name])
        }
        self._edited |= edited.keys()
        state = np.zeros(STATE_DIM)
        state[ENVIRONMENT], state[START] = self.number, start
        self._write(state, obs)
        state[COLUMNS["memory"]] = [
            UNSET if getattr(env, name, None) is None else float(getattr(env, name))
            for name in MEMORY
        ]
        return _Start(state, dict(env.__dict__), edited)

    def step(
        self, begun: _Start, state: Float64[np.ndarray, " state"], action: np.ndarray
    ) -> Float64[np.ndarray, " state"]:
        """One step, whose rewards are of both versions."""
        env = self.env
        self._load(begun.attributes, begun.model)
        self._read(state)
        time = env.data.time
        obs, reward, _, _, info = env.step(action)
        if abs(env.data.time - time - env.dt) > 0.5 * env.model.opt.timestep:
            raise SimulationError(
                f"MuJoCo diverged in {KINDS[self.number].name} at {time:.3f} s: its state before "
                f"the step had entries up to {np.abs(state[QPOS.start :]).max():.3g}"
            )
        env.reward_function_version = "v1"
        first, _ = env.evaluate_state(obs, action)
        after = state.copy()
        self._write(after, obs)
        after[COLUMNS["rewards"]] = float(first), float(reward)
        after[COLUMNS["info"]] = [float(info[name]) for name in INFO]
        for column, name in enumerate(MEMORY):
            value = env.__dict__.get(name)
            after[COLUMNS["memory"].start + column] = UNSET if value is None else float(value)
        return after

    def _load(self, attributes: dict[str, Any], model: dict[str, np.ndarray]) -> None:
        self.env.__dict__.clear()
        self.env.__dict__.update(attributes)
        for name in self._edited:
            getattr(self.env.model, name)[...] = model.get(name, self._new_model[name])

    def _read(self, state: Float64[np.ndarray, " state"]) -> None:
        """What the state holds, into MuJoCo and the attributes."""
        env, data, model = self.env, self.env.data, self.env.model
        data.time = state[TIME]
        data.qpos[:] = state[QPOS][: model.nq]
        data.qvel[:] = state[QVEL][: model.nv]
        data.qacc_warmstart[:] = state[COLUMNS["warmstart"]][: model.nv]
        mocap = state[COLUMNS["mocap"]]
        data.mocap_pos[0], data.mocap_quat[0] = mocap[:3], mocap[3:]
        env._prev_obs = state[COLUMNS["frame"]].copy()
        env.curr_path_length = 0  # the horizon is counted elsewhere
        for name, value in zip(MEMORY, state[COLUMNS["memory"]].tolist(), strict=True):
            if value != UNSET:
                setattr(env, name, value if name == "_target_to_obj_init" else bool(value))

    def _write(self, state: Float64[np.ndarray, " state"], obs: Float64[np.ndarray, " 39"]) -> None:
        """The inverse; what the environment has less of stays 0."""
        env, data, model = self.env, self.env.data, self.env.model
        state[TIME] = data.time
        state[QPOS.start : QPOS.start + model.nq] = data.qpos
        state[QVEL.start : QVEL.start + model.nv] = data.qvel
        warmstart = COLUMNS["warmstart"].start
        state[warmstart : warmstart + model.nv] = data.qacc_warmstart
        state[COLUMNS["mocap"]] = [*data.mocap_pos[0], *data.mocap_quat[0]]
        state[OBS], state[GOAL] = obs[: OBS.stop - OBS.start], env._target_pos
        state[COLUMNS["frame"]] = env._prev_obs


class Simulator:
    """All environments, made when they are first met."""

    def __init__(self) -> None:
        check_source()
        self._machines: dict[int, _Machine] = {}
        self._starts: OrderedDict[tuple[int, bytes], _Start] = OrderedDict()

    def step(
        self, states: Float64[np.ndarray, "row state"], actions: Float64[np.ndarray, "row act"]
    ) -> Float64[np.ndarray, "row state"]:
        """States one step later.

        Rows without actions (of width 0) are initial states instead, of which environment and
        start vector are given.
        """
        if not actions.shape[1]:
            return np.stack([self._begin(state).state for state in states])
        stepped = []
        for state, action in zip(states, actions, strict=True):
            begun = self._begin(state)
            stepped.append(self._machine(int(state[ENVIRONMENT])).step(begun, state, action))
        return np.stack(stepped)

    def _machine(self, number: int) -> _Machine:
        if number not in self._machines:
            self._machines[number] = _Machine(number)
        return self._machines[number]

    def _begin(self, state: Float64[np.ndarray, " state"]) -> _Start:
        number, start = int(state[ENVIRONMENT]), state[START]
        key = (number, start.tobytes())
        begun = self._starts.get(key)
        if begun is None:
            # Meta-World would draw for ever where its goal is too near.
            if KINDS[number].problem(start):
                raise ValueError("states of Meta-World have to be placed: TaskEnv.place")
            begun = self._starts[key] = self._machine(number).reset(start)
            if len(self._starts) > MAX_STARTS:
                self._starts.popitem(last=False)
        self._starts.move_to_end(key)
        return begun


def _small_arrays(model: Any) -> tuple[str, ...]:
    """Names of the float arrays of a model that a reset may edit."""

    def is_one(value: Any) -> bool:
        return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size <= _SMALL

    names = (name for name in dir(model) if not name.startswith("_"))
    return tuple(name for name in names if is_one(getattr(model, name)))


def _own(value: Any) -> Any:
    """A copy of plain values, so that a reset cannot change those of a new object."""
    if isinstance(value, np.ndarray):
        return value.copy() if _owns(value) else value
    return copy.deepcopy(value) if isinstance(value, dict | list) else value


def _owns(array: np.ndarray) -> bool:
    """False of a view of MuJoCo's memory, which has to stay one."""
    base: Any = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(base, np.ndarray)
