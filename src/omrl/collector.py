"""Explores tasks for all seeds at once, between two chunks of updates.

The physics runs on the host, in one batch of environments for all seeds, tasks and trajectories
that do not wait for each other; the policies act on the device. What is random is a function of
(run seed, updates so far, task, number of the trajectory), and no policy sees how many others act
beside it, so that nothing depends on chunks, devices or other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from omrl import explorers
from omrl.data import collected
from omrl.data.buffers import TrainingData
from omrl.data.explored import Explored, ExploredFiles, blocks, concatenated
from omrl.envs.base import Physics, TaskEnv
from omrl.envs.engine import available_cpus, initial_state, play
from omrl.errors import InputError, NonFiniteError
from omrl.exploration import Exploration, played_task, turns
from omrl.exploration_setting import Setting, buffer_shapes, check
from omrl.explorers import Acting, Given, Wave
from omrl.layout import place, place_seeds

_EPISODES = 2**20
"""More than the trajectories of one task in one exploration."""

_SEEDS = 2**63
"""Added to a run seed, for initial states that no evaluation has."""


@dataclass(frozen=True)
class Phase:
    """Whole trajectories of each slot until it has its environment steps."""

    steps: int
    posterior: bool = False
    """They act on the posterior, all but the first if the schedule says so."""
    clears: bool = False
    """The task's encoder buffer is emptied first."""
    in_encoder: bool = True


class Slots(NamedTuple):
    """Who explores what: of each slot that is active its task, which is no other one's."""

    task: Int64[np.ndarray, "seed slot"]
    """Positions among the training tasks."""
    active: Bool[np.ndarray, "seed slot"]


class Played(NamedTuple):
    """Trajectories side by side. What is behind the length of one means nothing."""

    obs: Float32[np.ndarray, "seed slot trajectory time_and_one obs"]
    action: Float32[np.ndarray, "seed slot trajectory time act"]
    reward: Float32[np.ndarray, "seed slot trajectory time"]
    terms: Float32[np.ndarray, "seed slot trajectory time term"]
    length: Int64[np.ndarray, "seed slot trajectory"]
    """0 where there is none."""
    terminated: Bool[np.ndarray, "seed slot trajectory"]


@dataclass
class _Now:
    """One exploration while it goes on."""

    exploration: Exploration
    states: Any
    data: TrainingData | None
    step: int
    physics: Physics
    begun: Int64[np.ndarray, "seed task"]
    """Trajectories of each task so far."""
    parts: list[Explored] = field(default_factory=list)


class Collector:
    """The buffers of a run that explores, and how they are filled."""

    def __init__(self, setting: Setting, run: Path):
        """`run` is the folder of the run. `InputError` where there is no simulator, no room for
        what will be collected, or no model of the rewards that are to be labelled."""
        check(setting)
        self.setting = setting
        self.files = ExploredFiles(run)
        self.buffers = collected.empty(setting.layout, len(setting.seeds), buffer_shapes(setting))

    def restore(self, found: Mapping[str, Any]) -> None:
        """As it was at a checkpoint, of which `found` is the `to_json` of the files."""
        self.files = ExploredFiles.of_checkpoint(self.files.folder, found)
        for part in self.files.read():
            self._fill(part)

    def explore(
        self,
        exploration: Exploration,
        states: Any,
        data: TrainingData | None,
        *,
        step: int,
        first: bool,
    ) -> dict[str, float]:
        """Explores once, fills the buffers and writes what was collected to the disk.

        Args:
            states: after `step` updates of the run, leaves [seed, ...].
            data: logged data of the training tasks, if there is any.
            first: it is the first one of its stage, which has an initial phase.

        Returns:
            Environment steps per seed, and mean returns of the trajectories that acted on the prior
            and on the posterior.
        """
        setting = self.setting
        shape = len(setting.seeds), len(setting.task_ids)
        chosen = np.stack([exploration.chosen(s, step, shape[1]) for s in setting.seeds.tolist()])
        num_threads = min(available_cpus(), chosen.size)
        with closing(setting.env.physics(num_threads)) as physics:
            now = _Now(exploration, states, data, step, physics, np.zeros(shape, np.int64))
            if first and exploration.initial_steps:
                every = Slots(np.tile(np.arange(shape[1]), (shape[0], 1)), np.ones(shape, bool))
                self._explore(now, every, _initial(exploration))
            for active in turns(chosen):
                for phase in _phases(exploration):
                    self._explore(now, Slots(chosen, active), phase)
        whole = concatenated(now.parts)
        self.files.add(whole)
        return _summary(whole, shape[0])

    def _explore(self, now: _Now, slots: Slots, phase: Phase) -> None:
        """One phase. Trajectories are played in waves of one size: as many as are missing at least,
        and where some ended early what is missing still."""
        horizon = self.setting.env.spec.horizon
        wave = np.arange(-(-phase.steps // horizon))
        rows = np.arange(len(slots.task))[:, None]
        steps, begun = np.zeros_like(slots.task), np.zeros_like(slots.task)
        while (missing := -(-np.maximum(phase.steps - steps, 0) // horizon) * slots.active).any():
            number = begun[..., None] + wave
            playing = wave < missing[..., None]
            posterior = np.full(number.shape, phase.posterior)
            if now.exploration.prior_first:
                posterior &= number > 0
            before = now.begun[rows, slots.task][..., None]
            part = self._trajectories(now, Wave(slots.task, before + number, posterior), playing)
            first = number[playing] == 0
            part = part._replace(
                clears=first & phase.clears, in_encoder=np.full(len(first), phase.in_encoder)
            )
            self._fill(part)
            now.parts.append(part)
            lengths = np.zeros(playing.shape, np.int64)
            lengths[playing] = part.length
            steps, begun = steps + lengths.sum(-1), begun + missing
        np.add.at(now.begun, (np.broadcast_to(rows, begun.shape), slots.task), begun)

    def _trajectories(
        self, now: _Now, wave: Wave, playing: Bool[np.ndarray, "seed slot trajectory"]
    ) -> Explored:
        """Those of `wave` that are `playing`."""
        setting, exploration = self.setting, now.exploration
        static = setting.algorithm, exploration, setting.layout
        given = Given(now.states, self.buffers, now.data)
        wave = Wave(*(array.astype(kind) for array, kind in zip(wave, _WAVE, strict=True)))
        acting = explorers.begin(
            *static,
            bool(wave.posterior.any()),
            given,
            place_seeds(setting.layout, setting.seeds),
            wave,
            place(setting.task_ids.astype(np.int32), setting.layout.replicated),
            np.int32(now.step),
        )
        played = self._play(now, wave, acting, playing)
        reward = played.reward
        if exploration.label_context:
            inputs = wave.task, acting, played.obs, played.action
            reward = np.asarray(explorers.label(*static, given, *inputs))
        return _flat(played, wave, playing, reward)

    def _play(
        self,
        now: _Now,
        wave: Wave,
        acting: Acting,
        playing: Bool[np.ndarray, "seed slot trajectory"],
    ) -> Played:
        setting, spec = self.setting, self.setting.env.spec
        static = setting.algorithm, now.exploration, setting.layout
        shape = playing.shape
        parameters = setting.env.tasks[self._played_tasks(now, wave).ravel()]

        def act(obs: Float32[np.ndarray, "row obs"], time: int) -> Float32[np.ndarray, "row act"]:
            by_slot = obs.reshape(*shape, -1)
            action = explorers.act(*static, now.states, acting, by_slot, np.int32(time))
            action = np.asarray(action)
            self._check_actions(action, wave, playing, now.step)
            return action.reshape(len(obs), -1)

        states = setting.env.place(self._starts(now, wave), parameters)
        active = playing.ravel()
        played = _nothing(shape, spec.horizon, spec.obs_dim, spec.act_dim, len(spec.term_names))
        played.obs[..., 0, :] = setting.env.observe(states).reshape(*shape, -1)
        for moment in play(setting.env, now.physics, states, parameters, act, active):
            time, alive = moment.time, moment.alive.reshape(shape)
            played.obs[..., time + 1, :] = moment.after.obs.reshape(*shape, -1)
            action = np.clip(np.asarray(moment.action, np.float32), -1.0, 1.0)
            played.action[..., time, :] = action.reshape(*shape, -1)
            played.reward[..., time] = moment.after.reward.reshape(shape)
            played.terms[..., time, :] = moment.after.terms.reshape(*shape, -1)
            played.length[...] += alive
            played.terminated[...] |= alive & moment.after.terminated.reshape(shape)
        _check_ends(setting.env, played)
        return played

    def _starts(self, now: _Now, wave: Wave) -> Float64[np.ndarray, "row state"]:
        """What resets draw, functions of (run seed, step, task, number)."""
        setting = self.setting
        return np.stack(
            [
                initial_state(
                    setting.env,
                    seed=_SEEDS + int(seed),
                    index=int(setting.task_ids[task]),
                    episode=now.step * _EPISODES + int(number),
                )
                for seed, tasks, numbers in zip(setting.seeds, wave.task, wave.number, strict=True)
                for task, of_task in zip(tasks, numbers, strict=True)
                for number in of_task
            ]
        )

    def _played_tasks(self, now: _Now, wave: Wave) -> Int64[np.ndarray, "seed slot trajectory"]:
        """Numbers of the tasks whose environments the trajectories are played in."""
        setting = self.setting
        explored = setting.task_ids[wave.task][..., None] + np.zeros_like(wave.number)
        if now.exploration.physics == "own":
            return explored
        test_ids = np.array(setting.env.splits["test"])
        given = np.broadcast_arrays(setting.seeds[:, None, None], explored, wave.number)
        drawn = [
            played_task(seed, now.step, task, number, len(test_ids))
            for seed, task, number in zip(*(each.ravel().tolist() for each in given), strict=True)
        ]
        return test_ids[np.array(drawn)].reshape(wave.number.shape)

    def _check_actions(
        self, action: np.ndarray, wave: Wave, playing: np.ndarray, step: int
    ) -> None:
        wrong = playing & ~np.isfinite(action).all(-1)
        if wrong.any():
            seed, slot, _ = np.argwhere(wrong)[0]
            raise NonFiniteError(
                f"exploration after {step} updates: seed {self.setting.seeds[seed]}, task "
                f"{self.setting.task_ids[wave.task[seed, slot]]}: an action is not finite, the "
                "policy has diverged; lower the learning rate"
            )

    def _fill(self, part: Explored) -> None:
        setting = self.setting
        horizon = setting.env.spec.horizon
        for block in blocks(part, len(setting.seeds), horizon, setting.discount):
            placed = jax.device_put(block, setting.layout.by_seed)
            self.buffers = collected.fill(setting.layout, self.buffers, placed)


_WAVE = (np.int32, np.int32, bool)
"""Dtypes of a wave on the device."""


def _initial(exploration: Exploration) -> Phase:
    return Phase(exploration.initial_steps, in_encoder=exploration.into_encoder != "none")


def _phases(exploration: Exploration) -> Iterator[Phase]:
    """Of a task that is explored, in order."""
    into = exploration.into_encoder
    clears = exploration.clear_encoder and into != "none"
    prior, posterior = exploration.prior_steps, exploration.posterior_steps
    if prior:
        yield Phase(prior, clears=clears, in_encoder=into != "none")
    if posterior:
        yield Phase(posterior, True, clears=clears and not prior, in_encoder=into == "all")


def _nothing(
    shape: tuple[int, ...], horizon: int, obs_dim: int, act_dim: int, num_terms: int
) -> Played:
    def floats(*lead: int) -> np.ndarray:
        return np.zeros((*shape, *lead), np.float32)

    return Played(
        floats(horizon + 1, obs_dim),
        floats(horizon, act_dim),
        floats(horizon),
        floats(horizon, num_terms),
        np.zeros(shape, np.int64),
        np.zeros(shape, bool),
    )


def _flat(
    played: Played,
    wave: Wave,
    playing: Bool[np.ndarray, "seed slot trajectory"],
    reward: Float32[np.ndarray, "seed slot trajectory time"],
) -> Explored:
    """What was really played, with `reward` to be learned from."""
    seed, slot, _ = np.nonzero(playing)
    length = played.length[playing]
    horizon = played.reward.shape[-1]
    there = (np.arange(horizon) < played.length[..., None]) & playing[..., None]
    seen = (np.arange(horizon + 1) <= played.length[..., None]) & playing[..., None]
    none = np.zeros(len(seed), bool)
    return Explored(
        seed=seed.astype(np.int64),
        task=wave.task[seed, slot].astype(np.int64),
        length=length,
        terminated=played.terminated[playing],
        posterior=wave.posterior[playing],
        clears=none,
        in_encoder=none,
        obs=played.obs[seen],
        action=played.action[there],
        reward=reward[there],
        terms=played.terms[there],
        returned=(played.reward * there).sum(-1)[playing],
    )


def _summary(whole: Explored, num_seeds: int) -> dict[str, float]:
    values = {"env_steps": int(whole.length.sum()) / num_seeds}
    for name, chosen in (("prior", ~whole.posterior), ("posterior", whole.posterior)):
        if chosen.any():
            values[f"{name}_return"] = float(whole.returned[chosen].mean(dtype=np.float64))
    return values


def _check_ends(env: TaskEnv, played: Played) -> None:
    if env.spec.termination == "never" and played.terminated.any():
        raise InputError(
            f"{env.spec.id}: its spec.termination says never, but an episode ended before the "
            "horizon; say there when episodes end"
        )
