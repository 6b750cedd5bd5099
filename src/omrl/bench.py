"""How fast meta-training is: the program that training runs, on data of the usual size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from omrl.algorithm import Stage
from omrl.algos.macaw import Macaw
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import Meta
from omrl.algos.registry import AlgoConfig, build
from omrl.chunk import Layout, init_states, place, place_seeds, program, train_chunk
from omrl.data.device import DeviceData
from omrl.data.sample import BatchSpec
from omrl.nets.mlp import num_parameters
from omrl.presets import preset
from omrl.types import Spec

NUM_TASKS, NUM_ROWS, EPISODE = 35, 20_000, 200
SPEC = Spec(
    obs_dim=20,
    act_dim=6,
    num_train_tasks=NUM_TASKS,
    horizon=EPISODE,
    obs_mean=(0.0,) * 20,
    obs_std=(1.0,) * 20,
)
CONFIG = MacawConfig(
    offset=True,
    inner_lr_per="tensor",
    learn_adv_coef=True,
    inner_batch=BatchSpec("inner", 256, "contiguous"),
    outer_batch=BatchSpec("outer", 256),
)
"""3 layers of 100, latent 100, 5 tasks of 256 + 256 transitions, second order, learned rates."""

AGREEMENT_STEPS = 10


@dataclass(frozen=True)
class MacawBench:
    """Speed of the MACAW meta-step."""

    device: str
    seeds: int
    parameters: int
    """Of one seed's networks."""
    meta_steps_per_s: float
    """Summed over the seeds; the median of the repeats."""
    repeats: list[float]
    compile_s: float
    plain_form_difference: float
    """Distance of the networks from the plain form's after 10 meta-steps, relative to how far the
    plain form's moved (Euclidean, over all parameters)."""


def bench_macaw(
    devices: Sequence[Any], *, seeds: int = 1, seconds: float = 2.0, repeats: int = 5
) -> MacawBench:
    """Times chunks of at least `seconds` each, after one to warm up."""
    compile_s, speeds = _speeds(Chunks(CONFIG, devices, seeds), seeds, seconds, repeats)
    shapes = jax.eval_shape(Macaw(CONFIG, SPEC).init, jax.random.PRNGKey(0)).meta
    return MacawBench(
        device=f"{len(devices)} x {devices[0].device_kind}",
        seeds=seeds,
        parameters=num_parameters((shapes.value, shapes.policy)),
        meta_steps_per_s=float(np.median(speeds)),
        repeats=speeds,
        compile_s=compile_s,
        plain_form_difference=_plain_form_difference(devices[:1]),
    )


UPDATES = {
    "mt_awr": "mt-awr-cheetah-vel",
    "meta_bc": "meta-bc-cheetah-vel",
    "borel": "borel-cheetah-vel-code",
}
"""By the name of an algorithm the preset whose updates are timed, those of its first stage. BOReL's
is its VAE: 8 trajectories of 400 steps of each of 4 tasks, decoded from all of their beliefs."""


@dataclass(frozen=True)
class UpdatesBench:
    """Speed of the updates of an algorithm."""

    algorithm: str
    preset: str
    device: str
    seeds: int
    parameters: int
    """Of one seed: all that its state holds beside that of the optimiser."""
    updates_per_s: float
    """Summed over the seeds; the median of the repeats."""
    repeats: list[float]
    compile_s: float
    temporary_bytes: int
    """Memory that the program takes beside data, states and metrics, of all seeds together."""


def bench_updates(
    name: str,
    devices: Sequence[Any],
    *,
    seeds: int = 1,
    seconds: float = 2.0,
    repeats: int = 5,
) -> UpdatesBench:
    """Times the updates of the algorithm `name` of `UPDATES`, at the sizes of its preset, as
    `bench_macaw` does."""
    config = preset(UPDATES[name]).config.algo
    run = Chunks(config, devices, seeds)
    compile_s, speeds = _speeds(run, seeds, seconds, repeats)
    state = jax.eval_shape(build(config, SPEC).init, jax.random.PRNGKey(0))
    return UpdatesBench(
        algorithm=name,
        preset=UPDATES[name],
        device=f"{len(devices)} x {devices[0].device_kind}",
        seeds=seeds,
        parameters=num_parameters(_learned(state)),
        updates_per_s=float(np.median(speeds)),
        repeats=speeds,
        compile_s=compile_s,
        temporary_bytes=run.temporary_bytes(),
    )


def _learned(state: Any) -> Any:
    """The state without its count of steps and what optimisers keep."""
    if not hasattr(state, "_fields"):
        return state
    kept = [name for name in state._fields if name not in ("step", "opt")]
    return [_learned(getattr(state, name)) for name in kept if not name.endswith("_opt")]


def _speeds(run: Chunks, seeds: int, seconds: float, repeats: int) -> tuple[float, list[float]]:
    """Seconds to compile, and updates per second of all seeds in every repeat."""
    compile_s = run.measure(0)
    length = max(1, int(4 / run.measure(4) * seconds))
    length = min(4096, max(1, int(length / run.measure(length) * seconds)))
    return compile_s, [length * seeds / run.measure(length) for _ in range(repeats)]


class Chunks:
    """A training program with its state."""

    def __init__(
        self, config: AlgoConfig, devices: Sequence[Any], seeds: int, stage: Stage | None = None
    ):
        """`stage`: of the algorithm of `config`; by default its first."""
        self.algorithm = build(config, SPEC)
        self.stage = stage or self.algorithm.stages()[0]
        self.layout = Layout.of(devices, seeds)
        self.seeds = np.arange(seeds)
        self.data = place(_synthetic_data(), self.layout.replicated)
        self.states = init_states(self.algorithm, self.layout, self.seeds)

    def measure(self, num_updates: int) -> float:
        """Seconds that so many updates took; of the first call, to compile as well."""
        jax.block_until_ready(self.states)
        begin = time.perf_counter()
        self.states, _, _ = train_chunk(
            self.stage,
            self.layout,
            self.states,
            self.data,
            self.seeds,
            np.arange(NUM_TASKS),
            num_updates,
        )
        jax.block_until_ready(self.states)
        return time.perf_counter() - begin

    def temporary_bytes(self) -> int:
        """What the program needs beside its arguments and results."""
        tasks = place(np.arange(NUM_TASKS, dtype=np.int32), self.layout.replicated)
        seeds = place_seeds(self.layout, self.seeds)
        own = (None, None)
        lowered = program(self.stage, self.layout).lower(
            self.states, self.data, own, seeds, tasks, np.int32(1)
        )
        return int(lowered.compile().memory_analysis().temp_size_in_bytes)


def _plain_form_difference(devices: Sequence[Any]) -> float:
    after = []
    for form in ("low_rank", "plain"):
        run = Chunks(replace(CONFIG, inner_form=form), devices, 1)
        before = run.states.meta
        run.measure(AGREEMENT_STEPS)
        after.append(run.states.meta)
    return _distance(*after) / _distance(after[1], before)


def _distance(one: Meta, other: Meta) -> float:
    apart = jax.tree.map(jnp.subtract, (one.value, one.policy), (other.value, other.policy))
    return float(optax.tree.norm(apart))


@jax.jit
def _synthetic_data() -> DeviceData:
    """Normal observations and returns, uniform actions, episodes of `EPISODE` steps."""
    obs_key, action_key, return_key = jax.random.split(jax.random.PRNGKey(0), 3)
    lead = (NUM_TASKS, NUM_ROWS)
    row = jnp.broadcast_to(jnp.arange(NUM_ROWS, dtype=jnp.int32), lead)
    episode = row // EPISODE
    num_obs = NUM_ROWS + NUM_ROWS // EPISODE
    returns = jax.random.normal(return_key, lead)
    return DeviceData(
        obs=jax.random.normal(obs_key, (NUM_TASKS, num_obs, SPEC.obs_dim)),
        action=jax.random.uniform(action_key, (*lead, SPEC.act_dim), minval=-1.0),
        reward=returns,
        terminated=jnp.zeros(lead, bool),
        mc_return=returns,
        terminal_discount=jnp.full(lead, jnp.float32(0.99)),
        obs_index=row + episode,
        terminal_index=(episode + 1) * (EPISODE + 1) - 1,
        num_rows=jnp.full((NUM_TASKS,), NUM_ROWS, jnp.int32),
    )
