"""What all explorations of a run have in common, and whether the run can explore at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jaxtyping import Int64

from omrl.algorithm import Algorithm
from omrl.data import collected
from omrl.data.buffers import Buffers
from omrl.data.device import free_memory
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.exploration import Room, most_chosen, rooms
from omrl.explorers import abstract_batch
from omrl.layout import Layout


@dataclass(frozen=True)
class Setting:
    """What all explorations of a run have in common."""

    algorithm: Algorithm
    env: TaskEnv
    layout: Layout
    seeds: Int64[np.ndarray, " seed"]
    """Run seeds."""
    task_ids: Int64[np.ndarray, " task"]
    """Numbers of the training tasks."""
    discount: float
    """Of Monte-Carlo returns."""


def check(setting: Setting) -> None:
    """`InputError` where the run could not explore."""
    env = setting.env
    if jax.process_count() > 1:
        raise InputError(
            f"exploration: runs in one process, not in {jax.process_count()}; leave out "
            "--coordinator, seeds can be on several devices of one host"
        )
    try:
        env.physics(1).close()
    except NotImplementedError:  # as `TaskEnv.physics` says of an MDP known by its logs alone
        raise InputError(
            f"{env.spec.id}: has no simulator to explore; learn from logged data alone, "
            f"{_without_exploring(setting.algorithm)}"
        ) from None
    _check_labels(setting)
    _check_physics(setting)
    # Where too much is collected by far, drawing all tasks to count them would take for ever.
    _check_memory(setting, buffer_shapes(setting, least=True))
    _check_memory(setting, buffer_shapes(setting))


def _check_memory(setting: Setting, of_one: Buffers) -> None:
    needed = collected.num_bytes(of_one) * len(setting.seeds)
    devices = setting.layout.mesh.devices.ravel().tolist()
    free = sum(map(free_memory, devices))
    if needed > free:
        raise InputError(
            f"exploration: its buffers take {needed:,} bytes on {len(devices)} device(s), which "
            f"have {free:,} free; train fewer seeds at once, or explore less"
        )


def _without_exploring(algorithm: Algorithm) -> str:
    """How a run of the algorithm does not explore."""
    exploring = [stage for stage in algorithm.stages() if stage.exploration is not None]
    if all(stage.left_out_by for stage in exploring):
        options = " ".join(dict.fromkeys(stage.left_out_by for stage in exploring))
        return f"without stage {', '.join(stage.name for stage in exploring)}: {options}"
    return "with a preset that does not explore, such as pearl-cheetah-vel"


def _check_labels(setting: Setting) -> None:
    algorithm = setting.algorithm
    for stage in algorithm.stages():
        if stage.exploration is None or not stage.exploration.label_context:
            continue
        key = jax.random.PRNGKey(0)
        state = jax.eval_shape(algorithm.init, key)
        task = jax.eval_shape(algorithm.begin, state, key)
        step = abstract_batch(algorithm.spec)
        predict = partial(jax.eval_shape, algorithm.predict_reward, state, task)
        try:
            predict(step.obs, step.action, step.next_obs)
        except InputError as error:
            raise InputError(f"exploration.label_context: {error}; leave it 0") from None


def _check_physics(setting: Setting) -> None:
    env = setting.env
    for stage in setting.algorithm.stages():
        if stage.exploration is None or stage.exploration.physics == "own":
            continue
        if not env.splits.get("test"):
            raise InputError(
                f"exploration.physics: {env.spec.id} has no split of test tasks; leave it own"
            )
        if not env.task_changes_physics:
            raise InputError(
                f"exploration.physics: all tasks of {env.spec.id} have the same physics, so test "
                "tasks are explored without their rewards as it is; leave it own"
            )


def buffer_shapes(setting: Setting, *, least: bool = False) -> Buffers:
    """Of one seed, with room for all that its run will collect; `least`: or less, quickly told."""
    spec = setting.env.spec
    ends_early = spec.termination != "never"
    main, encoder, start, tasks = Room(0, 0), Room(0, 0), 0, len(setting.task_ids)
    for stage in setting.algorithm.stages():
        exploration = stage.exploration
        if exploration is not None:
            times = (
                exploration.least_chosen(stage.steps, tasks)
                if least
                else most_chosen(exploration, setting.seeds, start, stage.steps, tasks)
            )
            of_stage = rooms(exploration, spec.horizon, ends_early, times)
            main, encoder = main + of_stage[0], encoder + of_stage[1]
        start += stage.steps
    shapes = partial(collected.shapes, tasks, obs_dim=spec.obs_dim, act_dim=spec.act_dim)
    return Buffers(shapes(main), shapes(encoder))


def disk_bytes(setting: Setting) -> int:
    """About how much a run will write of what it collects."""
    spec, tasks = setting.env.spec, len(setting.task_ids)
    steps = sum(
        stage.exploration.env_steps(stage.steps, tasks)
        for stage in setting.algorithm.stages()
        if stage.exploration is not None
    )
    row = 4 * (spec.obs_dim + spec.act_dim + len(spec.term_names) + 1)
    return steps * row * len(setting.seeds)
