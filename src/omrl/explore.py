"""Protocol `explore`: the agent gathers its context itself.

For every run seed, test task and repetition: `explore.episodes` trajectories with what is known
before any data, then one after the other with all that was seen so far. A method that acts on a
guess of the task draws it before every trajectory or every step, from the prior and later from the
posterior (PEARL, arXiv:1903.08254; SMAC, arXiv:2107.03974). One that adapts to batches explores
with its unadapted policy and adapts to all transitions; one that learns within a trajectory carries
what it knows from each to the next. `Algorithm.online_context` says which of these a method is.

Trajectory s of repetition e starts in the state of episode s * 2^32 + e. Keys are a function of
(run seed, task index, repetition, trajectory, time, use), so fewer shots, tasks, seeds or
repetitions are a part of more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int64, UInt32

from omrl.adaptation import adapted, of_rows
from omrl.algorithm import Algorithm
from omrl.compiling import jit_briefly
from omrl.context import seed_task_keys
from omrl.data.online import Trajectories, transitions
from omrl.envs.base import Physics
from omrl.envs.engine import Moment
from omrl.finetune import Setting
from omrl.protocol import EvalConfig
from omrl.simulate import (
    Actor,
    Labels,
    Outcome,
    Recorder,
    checked,
    fold_numbers,
    measure,
    one_step,
)
from omrl.types import Batch, Key, Step

USES = ("begin", "draw", "act", "observe", "adapt")
"""Of randomness. `begin` has what trajectory 0 has at time 0; `adapt`, and `observe` of a whole
trajectory, what the last one has at time 0."""

Keys = UInt32[Array, "time use seed task repetition 2"]
KeysOf = Callable[[int], Keys]
"""Of a trajectory, by its number."""
Watch = Callable[["Agents", Moment], None]
"""Is shown every step of every trajectory before anything is learned from it. Rows are [seed, task,
repetition], of trajectory 0 with those of the baselines behind them."""

NEXT_TRAJECTORY = 2**32
"""From the episode in whose state a trajectory starts to that of the next trajectory."""


def standard_keys(config: EvalConfig, labels: Labels, horizon: int) -> KeysOf:
    """Those of an evaluation."""
    per_task = seed_task_keys("explore", config.episode_seed, labels.seeds, labels.tasks)
    per_repetition = fold_numbers(per_task, jnp.arange(labels.num_episodes))
    return lambda trajectory: _trajectory_keys(horizon, per_repetition, trajectory)


@jit_briefly(static_argnums=0)
def _trajectory_keys(
    horizon: int, keys: UInt32[Array, "seed task repetition 2"], trajectory: int | Int[Array, ""]
) -> Keys:
    def one(key: Key, time: Int[Array, ""], use: Int[Array, ""]) -> Key:
        of_trajectory = jax.random.fold_in(key, trajectory)
        return jax.random.fold_in(jax.random.fold_in(of_trajectory, time), use)

    over_rows = jax.vmap(jax.vmap(jax.vmap(one, (0, None, None)), (0, None, None)), (0, None, None))
    over_uses = jax.vmap(over_rows, (None, None, 0))
    times, uses = jnp.arange(horizon), jnp.arange(len(USES))
    return jax.vmap(over_uses, (None, 0, None))(keys, times, uses)


def explore(
    setting: Setting, labels: Labels, keys_of: KeysOf, watch: Watch | None = None
) -> tuple[Outcome, Int64[np.ndarray, "seed task"]]:
    """Returns of all trajectories, and `Agents.rounds`; the shots of `labels` are the trajectories'
    numbers, from 0.

    `keys_of` is `standard_keys` but where randomness is to be another.
    """
    agents = Agents(setting, labels, keys_of)
    outcomes = []
    with closing(agents.physics()) as physics:
        for number in labels.shots:
            outcome, trajectories = agents.play(number, physics, watch, baselines=number == 0)
            outcomes.append(outcome)
            if number < labels.shots[-1]:
                agents.learn(trajectories)
    successes = [outcome.success for outcome in outcomes if outcome.success is not None]
    outcome = Outcome(
        np.concatenate([outcome.returns for outcome in outcomes], axis=2),
        outcomes[0].baselines,
        {
            name: np.concatenate([outcome.traces[name] for outcome in outcomes], axis=2)
            for name in setting.config.traces
        },
        np.concatenate(successes, axis=2) if successes else None,
    )
    return outcome, agents.rounds


class Agents(Actor):
    """All run seeds on all tasks in all repetitions: they act, and learn between trajectories."""

    def __init__(self, setting: Setting, labels: Labels, keys_of: KeysOf):
        """Nothing of a task is known yet."""
        self.labels = replace(labels, shots=labels.shots[:1])
        """Of the trajectory that is played."""
        self._setting = setting
        self._algorithm = setting.algorithm
        self._states = setting.states
        self._config = setting.config
        self._keys_of = keys_of
        self._unknown = _begin(self._algorithm, self._states, keys_of(0)[0, _use("begin")])
        self._seen: list[Trajectories] = []
        self.known = self._unknown
        """The tasks after all that was seen, leaves [seed, task, repetition, ...]."""
        self.acting = self._unknown
        """The tasks as they are acted on, guesses drawn."""
        shape = len(labels.seeds), len(labels.tasks)
        self.rounds = np.full(shape, self._config.explore.rounds, np.int64)
        """Adaptation rounds that were taken every time and in every repetition: fewer than
        `explore.rounds` where one diverged."""

    @property
    def lead(self) -> tuple[int, int, int]:
        seeds, tasks, _, repetitions = self.labels.shape
        return seeds, tasks, repetitions

    def physics(self) -> Physics:
        """To play in; the caller closes it."""
        return self._setting.env.physics(
            min(self._setting.num_threads, int(np.prod(self.labels.shape)))
        )

    def play(
        self, number: int, physics: Physics, watch: Watch | None = None, *, baselines: bool = False
    ) -> tuple[Outcome, Trajectories]:
        """Trajectory `number`, from 0: what it returned, and it itself [seed, task, repetition]."""
        env = self._setting.env
        self.start(number)
        recorder = Recorder(env, self.lead)

        def see(moment: Moment) -> None:
            recorder(moment)
            if watch is not None:
                watch(self, moment)
            self.see(moment)

        outcome = measure(
            self,
            env,
            self._config,
            physics,
            baselines=baselines,
            first_episode=number * NEXT_TRAJECTORY,
            watch=see,
        )
        return outcome, recorder.trajectories()

    def start(self, number: int) -> None:
        """Trajectory `number` begins."""
        settings = self._config.explore
        self.labels = replace(self.labels, shots=(number,))
        self._keys = np.asarray(self._keys_of(number))  # Every step takes some of them.
        explores = number < settings.episodes
        own = {"by-method": self._algorithm.online_context != "batch"}
        deterministic = own.get(settings.actions, settings.actions == "deterministic")
        self._deterministic = deterministic if explores else self._config.deterministic
        at_once = self._algorithm.online_context == "step"
        self.acting = self._unknown if explores and not at_once else self.known
        if settings.resample_every == "trajectory":
            self._draw(0)

    def __call__(
        self, obs: Float32[np.ndarray, "row obs"], time: int
    ) -> Float[np.ndarray, "row act"]:
        """Rows are [seed, task, repetition] in this order."""
        if self._config.explore.resample_every == "step":
            self._draw(time)
        actions = _act(
            self._algorithm,
            self._deterministic,
            self._states,
            self.acting,
            obs.reshape(*self.lead, -1),
            self._keys[time, _use("act")],
        )
        with_shot = np.asarray(actions)[:, :, None]
        return checked(with_shot, self.labels, self._algorithm.spec.act_dim, time)

    def see(self, moment: Moment) -> None:
        """A step was made: those that learn at once learn from it."""
        if self._algorithm.online_context == "step":
            batch = transitions(one_step(moment, self.lead), self._setting.discount)
            there = moment.alive[: len(batch.reward.ravel())].reshape(batch.reward.shape)
            self.acting = self._observe(self.acting, batch, there, moment.time)
            self.known = self.acting

    def learn(self, trajectories: Trajectories) -> None:
        """The trajectory is over: the others learn from it, [seed, task, repetition]."""
        if self._algorithm.online_context == "trajectory":
            batch = transitions(trajectories, self._setting.discount)
            there = np.arange(batch.reward.shape[-1]) < trajectories.length[..., None]
            self.known = self._observe(self.known, batch, there)
        elif self._algorithm.online_context == "batch":
            self._seen.append(trajectories)
            if len(self._seen) >= self._config.explore.episodes:
                # To all that was seen, from what was known before any of it.
                self.known = self._adapt(joined(self._seen, self._setting.discount))

    def told(self, context: Batch, there: Bool[np.ndarray, "seed task repetition sample"]) -> Any:
        """Tasks of which nothing is known but those transitions of `context` that are `there`,
        which has leaves [seed, task, repetition, sample, ...]."""
        if self._algorithm.online_context != "batch":
            return self._observe(self._unknown, context, there)
        rows = _filled(there)
        return self._adapt(jax.tree.map(partial(gathered, rows), context))

    def guess(self) -> None:
        """Guesses are drawn as the first step of the trajectory that begins will act on them."""
        self._draw(0)

    def _draw(self, time: int) -> None:
        if type(self._algorithm).resample is not Algorithm.resample:
            keys = self._keys[time, _use("draw")]
            self.acting = _resample(self._algorithm, self._states, self.acting, keys)

    def _observe(self, tasks: Any, batch: Batch, there: np.ndarray, time: int = 0) -> Any:
        steps = Step(batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated)
        keys = self._keys[time, _use("observe")]
        return _observe_all(self._algorithm, self._states, tasks, steps, there, keys)

    def _adapt(self, support: Batch) -> Any:
        tasks, keys = self._unknown, self._keys[0, _use("adapt")]
        shots = (self._config.explore.rounds,)
        after, taken = adapted(self._algorithm, self._states, tasks, support, keys, shots)
        self.rounds = np.minimum(self.rounds, taken.min(-1))
        return jax.tree.map(lambda leaf: leaf[:, :, :, 0], after)


def _use(name: str) -> int:
    return USES.index(name)


def joined(seen: list[Trajectories], discount: float) -> Batch:
    """All transitions of some trajectories, leaves [seed, task, repetition, sample, ...]: as many
    samples as the trajectories have room for. Where some ended early what there is is repeated, in
    order."""
    batches = [transitions(one, discount) for one in seen]
    rows = _filled(available(seen))
    return jax.tree.map(
        lambda *leaves: gathered(rows, np.concatenate(leaves, rows.ndim - 1)), *batches
    )


def available(seen: list[Trajectories]) -> Bool[np.ndarray, "seed task repetition sample"]:
    """Where trajectories, one behind the other, have a transition."""
    horizon = seen[0].reward.shape[-1]
    return np.concatenate([np.arange(horizon) < one.length[..., None] for one in seen], -1)


def _filled(
    there: Bool[np.ndarray, "*row sample"],
) -> Int64[np.ndarray, "*row sample"]:
    """Numbers of the samples that are there, in order, and again until there are as many as all."""
    order = np.argsort(~there, axis=-1, kind="stable")
    again = np.arange(there.shape[-1]) % there.sum(-1, keepdims=True)
    return np.take_along_axis(order, again, -1)


def gathered(rows: Int64[np.ndarray, "*row sample"], leaf: Any) -> np.ndarray:
    """The samples `rows` of a leaf [*row, sample, ...]."""
    leaf = np.asarray(leaf)
    at = rows.reshape(*rows.shape, *([1] * (leaf.ndim - rows.ndim)))
    return np.take_along_axis(leaf, at, rows.ndim - 1)


# --- Programs: states have leaves [seed, ...], all others [seed, task, repetition, ...] ---


@jit_briefly(static_argnums=0)
def _begin(algorithm: Algorithm, states: Any, keys: UInt32[Array, "seed task repetition 2"]) -> Any:
    return of_rows(algorithm.begin, states, keys)


@partial(jax.jit, static_argnums=0)
def _resample(
    algorithm: Algorithm, states: Any, tasks: Any, keys: UInt32[Array, "seed task repetition 2"]
) -> Any:
    return of_rows(algorithm.resample, states, tasks, keys)


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    algorithm: Algorithm,
    deterministic: bool,
    states: Any,
    tasks: Any,
    obs: Float32[Array, "seed task repetition obs"],
    keys: UInt32[Array, "seed task repetition 2"],
) -> Float[Array, "seed task repetition act"]:
    def one(state: Any, task: Any, obs: Array, key: Key) -> Array:
        return algorithm.act(state, task, obs, key, deterministic)

    return of_rows(one, states, tasks, obs, keys)


@partial(jax.jit, static_argnums=0)
def _observe_all(
    algorithm: Algorithm,
    states: Any,
    tasks: Any,
    steps: Step,
    there: Bool[Array | np.ndarray, "seed task repetition time"],
    keys: UInt32[Array, "seed task repetition 2"],
) -> Any:
    """Tasks after the steps that are `there`, one after the other; leaves of `steps` are [seed,
    task, repetition, time, ...]."""

    def one(state: Any, task: Any, steps: Step, there: Array, key: Key) -> Any:
        def observe(known: Any, at: tuple[Step, Array, Array]) -> tuple[Any, None]:
            step, is_there, number = at
            after = algorithm.observe(state, known, step, jax.random.fold_in(key, number))
            return jax.tree.map(partial(jnp.where, is_there), after, known), None

        return jax.lax.scan(observe, task, (steps, there, jnp.arange(there.shape[0])))[0]

    return of_rows(one, states, tasks, steps, there, keys)
