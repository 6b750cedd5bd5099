"""Batches of MuJoCo environments on C threads, through `mujoco.rollout`.

An environment step is: warm start of the solver zeroed, then `frame_skip` physics steps with one
action. So it is a pure function of the state, and a Python loop over `mj_step` with a zeroed warm
start gives the same bits, whatever the number of threads, the batch size and the order.

A state is MuJoCo's full physics state: time, qpos, qvel (and activations where a model has them),
then, where a family needs them, columns derived from sensors (contact forces, for instance: they
are no function of the physics state alone).
"""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.util
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float64, Int
from mujoco import rollout

from omrl.envs.base import Physics, SimulationError, check_finite
from omrl.errors import InputError

# MuJoCo's own handler writes MUJOCO_LOG.TXT into the working directory. `_check` raises instead.
mujoco.set_mju_user_warning(logging.getLogger(__name__).info)


@functools.cache
def compile_model(
    file_name: str,
    sha256: str,
    total_mass: float | None = None,
    *,
    timestep: float | None = None,
    edit: Callable[[mujoco.MjSpec], None] | None = None,
) -> mujoco.MjModel:
    """The model `file_name` of gymnasium's assets. Never write to it.

    Scaled to `total_mass` [kg] and with another `timestep` [s], unless None; `edit` changes the
    specification before it is compiled. The file must be the one with hash `sha256`: another file
    is another MDP (InputError).
    """
    spec = mujoco.MjSpec.from_string(_asset(file_name, sha256))
    if edit is not None:
        edit(spec)
    # The file's own `settotalmass` gives the same model and a deprecation warning.
    spec.compiler.settotalmass = -1
    if timestep is not None:
        spec.option.timestep = timestep
    model = spec.compile()
    if total_mass is not None:
        mujoco.mj_setTotalmass(model, total_mass)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def _asset(file_name: str, sha256: str) -> str:
    # Found without importing gymnasium, which takes 0.1 s.
    package = importlib.util.find_spec("gymnasium")
    assert package is not None
    assert package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0], "envs", "mujoco", "assets")
    content = (folder / file_name).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InputError(
            f"{folder / file_name} has sha256 {found[:12]}, the environment is defined by "
            f"{sha256[:12]}: install gymnasium 1.4.0"
        )
    return content.decode()


Derive = Callable[[Float64[np.ndarray, "row sensor"]], Float64[np.ndarray, "row column"]]
ModelOf = Callable[[Float64[np.ndarray, " parameter"]], mujoco.MjModel]

MAX_MODELS = 256
"""Models of tasks that `scaled_models` keeps, each 0.5 MB for a robot of gymnasium."""


def scaled_models(model: mujoco.MjModel, arrays: tuple[str, ...]) -> ModelOf:
    """The model of a task that scales dynamics: a copy of `model`, whose `arrays` are multiplied.

    A task is one factor per element: the arrays one after the other, each row by row. Nothing else
    is recomputed (no `mj_setConst`), as in the papers' code: constants that the compiler derived,
    such as `dof_invweight0`, stay those of `model`.
    """
    shapes = [getattr(model, name).shape for name in arrays]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    @functools.lru_cache(MAX_MODELS)
    def build(task: bytes) -> mujoco.MjModel:
        scaled = copy.copy(model)
        factors = np.split(np.frombuffer(task), ends[:-1])
        for name, shape, factor in zip(arrays, shapes, factors, strict=True):
            getattr(scaled, name)[:] *= factor.reshape(shape)
        return scaled

    return lambda task: build(task.tobytes())


@functools.lru_cache(maxsize=8)
def _thread_data(model: mujoco.MjModel, thread: int) -> mujoco.MjData:
    # Creating it takes as long as a step of a humanoid.
    return mujoco.MjData(model)


def forward(model: mujoco.MjModel, state: Float64[np.ndarray, " state"]) -> mujoco.MjData:
    """All that MuJoCo computes at a full physics state without control, contact forces included.

    The warm start is zeroed. Valid until this thread's next call.
    """
    data = _thread_data(model, threading.get_ident())
    mujoco.mj_resetData(model, data)
    mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    mujoco.mj_forward(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    return data


class MujocoPhysics(Physics):
    """A batch of environments of one model, or of models that differ in their numbers only."""

    def __init__(
        self,
        model: mujoco.MjModel,
        frame_skip: int,
        num_threads: int,
        *,
        derive: Derive | None = None,
        sensing: mujoco.MjModel | None = None,
        model_of: ModelOf | None = None,
    ):
        """
        Args:
            derive: the last columns of a state from sensors.
            sensing: the model with these sensors, which are read at the state after the step with
                the action of the step. None: they are those of `model`, which MuJoCo evaluates at
                the start of a physics step, here of the last one (with RK4: at its first stage).
            model_of: the model of a task, the same object for equal tasks; None: `model` for all.
        """
        self.model = model
        self._frame_skip = frame_skip
        self._derive = derive
        self._sensing = sensing
        self._model_of = model_of
        self._num_physics = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._kept_outputs: dict[mujoco.MjModel, tuple[np.ndarray, np.ndarray]] = {}
        self._last_tasks = np.empty((0, 0))
        self._last_models: list[mujoco.MjModel] = []
        self._full_control = model.actuator_ctrlrange[:, 1].copy()
        # A pool of zero threads runs on the calling one.
        self.pool: Any = rollout.Rollout(nthread=num_threads if num_threads > 1 else 0)
        self._scratch = {
            each: [mujoco.MjData(each) for _ in range(num_threads)]
            for each in (model, sensing)
            if each is not None
        }

    def step(
        self,
        states: Float64[np.ndarray, "env state"],
        actions: Float64[np.ndarray, "env act"],
        tasks: Float64[np.ndarray, "env parameter"],
        active: Bool[np.ndarray, " env"],
    ) -> Float64[np.ndarray, "env state"]:
        """See `Physics.step`. ValueError for wrong shapes and for states that are not finite.

        An action of 1 is the upper end of the actuator's control range, which is symmetric.
        """
        if actions.shape != (len(states), self.model.nu) or len(active) != len(states):
            raise ValueError(
                f"{len(states)} environments need actions of shape ({len(states)}, "
                f"{self.model.nu}), not {actions.shape}"
            )
        check_finite(states, active)
        if not active.any():
            return states.copy()
        # A slice takes views, indices copy.
        rows = slice(None) if active.all() else np.flatnonzero(active)
        next_states = np.empty_like(states) if isinstance(rows, slice) else states.copy()
        start = states[rows, : self._num_physics]
        controls = actions[rows] * self._full_control
        models = self._models(tasks[rows])
        end, sensors = self._simulate(self.model, models, start, controls, self._frame_skip)
        last, num_steps = end, self._frame_skip
        if self._sensing is not None:
            models = [self._sensing] * len(start)
            last, sensors = self._simulate(self._sensing, models, end, controls, 1)
            num_steps += 1
        self._check(np.flatnonzero(active), start, end, last, num_steps)
        next_states[rows, : self._num_physics] = end
        if self._derive is not None:
            next_states[rows, self._num_physics :] = self._derive(sensors)
        return next_states

    def drawn(self, task: Float64[np.ndarray, " parameter"]) -> mujoco.MjModel:
        """The model to draw a task's states with."""
        return self.model

    def simulate(
        self,
        models: list[mujoco.MjModel],
        start: Float64[np.ndarray, "row state"],
        controls: Float64[np.ndarray, "row control"],
        num_steps: int,
        environments: Int[np.ndarray, " row"],
    ) -> Float64[np.ndarray, "row state"]:
        """Full physics states after `num_steps` physics steps; for families with own rules.

        Args:
            models: one per row, each of the sizes of `model`.
            controls: of the actuators, all the time.
            environments: numbers of the rows, for the error where one diverges.
        """
        end, _ = self._simulate(self.model, models, start, controls, num_steps)
        self._check(environments, start, end, end, num_steps)
        return end

    def _models(self, tasks: Float64[np.ndarray, "row parameter"]) -> list[mujoco.MjModel]:
        """One per row; those of the last step if the tasks are the same, as they mostly are."""
        if self._model_of is None:
            return [self.model] * len(tasks)
        if not np.array_equal(tasks, self._last_tasks):
            self._last_tasks = tasks.copy()
            self._last_models = [self._model_of(task) for task in tasks]
        return self._last_models

    def _simulate(
        self,
        kind: mujoco.MjModel,
        models: list[mujoco.MjModel],
        start: Float64[np.ndarray, "row state"],
        controls: Float64[np.ndarray, "row act"],
        num_steps: int,
    ) -> tuple[Float64[np.ndarray, "row state"], Float64[np.ndarray, "row sensor"]]:
        """States after the physics steps, and sensors at the start of the last one.

        `kind`: a model of the sizes of all `models`. Valid until the next call for that kind.
        """
        path, sensors = self._outputs(kind, len(start), num_steps)
        # The checks would take as long as a tenth of the physics of 64 half-cheetahs.
        self.pool.rollout(
            models,
            self._scratch[kind],
            np.ascontiguousarray(start),
            np.repeat(controls[:, None], num_steps, axis=1),
            nstep=num_steps,
            skip_checks=True,
            state=path,
            sensordata=sensors if sensors.size else None,
        )
        return path[:, -1], sensors[:, -1]

    def _outputs(
        self, kind: mujoco.MjModel, num_rows: int, num_steps: int
    ) -> tuple[Float64[np.ndarray, "row step state"], Float64[np.ndarray, "row step sensor"]]:
        # Kept: fresh pages at every step would cost as much as all other work of a step here.
        known = self._kept_outputs.get(kind)
        if known is None or known[0].shape[:2] != (num_rows, num_steps):
            widths = (self._num_physics, kind.nsensordata)
            path, sensors = (np.empty((num_rows, num_steps, width)) for width in widths)
            known = self._kept_outputs[kind] = (path, sensors)
        return known

    def _check(
        self,
        environments: Int[np.ndarray, " row"],
        start: Float64[np.ndarray, "row state"],
        end: Float64[np.ndarray, "row state"],
        last: Float64[np.ndarray, "row state"],
        num_steps: int,
    ) -> None:
        """MuJoCo resets a diverged simulation silently; its clock, column 0, gives it away: after
        `num_steps`, at `last`, which may be `end` or beyond it."""
        timestep = self.model.opt.timestep
        late = np.abs(last[:, 0] - start[:, 0] - num_steps * timestep) > 0.5 * timestep
        if late.any() or not np.isfinite(end).all():
            failed = np.flatnonzero(late | ~np.isfinite(end).all(axis=1))
            row = failed[0]
            raise SimulationError(
                f"MuJoCo diverged in {failed.size} of {len(start)} environments, first in number "
                f"{environments[row]} at {start[row, 0]:.3f} s: its state before the "
                f"step had entries up to {np.abs(start[row]).max():.3g}"
            )

    def close(self) -> None:
        """Stop the threads."""
        self.pool.close()
