"""The reference's evaluation of a test task, trajectory by trajectory, against protocol `explore`.

`protocol/eval_*` of `golden_smac_*.npz` were made by the authors' MetaRLAlgorithm.collect_paths on
a toy environment with given noise (GOLDEN.md). Here `omrl.explore.explore` plays them on the same
environment. Its keys are numbers of draws, and the method reads their noise from the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_file import GoldenFile
from latent_format import read_layers, read_policy

from omrl.algorithm import Algorithm
from omrl.algos.pearl import Pearl, PearlState
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_learner import Evaluation, Improvement, Learner
from omrl.data.online import Trajectories, transitions
from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.envs.engine import Moment
from omrl.explore import USES, Agents, explore
from omrl.finetune import Setting
from omrl.nets.encoder import Encoder
from omrl.ops import latent
from omrl.protocol import EvalConfig, ExploreConfig
from omrl.simulate import Labels, Recorder
from omrl.types import Spec

FILES = sorted((Path(__file__).parent / "smac").glob("golden_smac_*.npz"))
TASK = 4
BAR = 1e-6
"""That of float64, although environments are seen in float32."""

assert FILES, "tests/golden/smac has no golden file"


# --- The toy environment ---


@dataclass(frozen=True)
class ToyPhysics(Physics):
    kernel: np.ndarray

    def step(self, states, actions, tasks, active):
        return np.where(active[:, None], 0.9 * states + actions @ self.kernel, states)

    def close(self):
        pass


@dataclass(frozen=True)
class ToyEnv(TaskEnv):
    """s' = .9 s + a W and r = -sum |s' - goal|, from one state."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    start: np.ndarray
    kernel: np.ndarray

    def sample_tasks(self, rng, num):
        raise AssertionError("its tasks are those of the file")

    def reset(self, rng):
        return self.start.copy()

    def observe(self, state):
        return state.astype(np.float32)

    def terms(self, state, action, next_state):
        return next_state

    def reward(self, terms, action, task):
        return -np.abs(terms - task).sum(-1)

    def terminated(self, state):
        return np.zeros(state.shape[:-1], bool)

    def physics(self, num_threads):
        return ToyPhysics(self.kernel)


def make_env(file: GoldenFile) -> ToyEnv:
    kernel, goals = file["protocol/env_W"], file["protocol/env_goals"]
    names = tuple(f"s{number}" for number in range(kernel.shape[1]))
    spec = EnvSpec(
        id="toy/golden-v1",
        obs_dim=kernel.shape[1],
        act_dim=kernel.shape[0],
        horizon=int(file["protocol/horizon"]),
        dt=1.0,
        term_names=names,
        task_names=tuple(f"goal_{name}" for name in names),
    )
    table = tuple(map(tuple, goals.tolist()))
    return ToyEnv(spec, table, (("test", (TASK,)),), file["protocol/env_s0"], kernel)


# --- The authors' nets, with noise from the file ---


class Given(NamedTuple):
    step: Any
    inner: PearlState
    noise: Any
    """Of z, in the order of the draws."""


@dataclass(frozen=True)
class GivenNoise(Algorithm):
    """PEARL whose draw number n, which is what a key says, has noise n."""

    config: PearlConfig
    spec: Spec
    online_context: ClassVar = Pearl.online_context

    @property
    def inner(self) -> Pearl:
        return Pearl(self.config, self.spec)

    def init(self, key):
        raise AssertionError("its networks are those of the file")

    def stages(self):
        return ()

    def begin(self, state, key):
        return self.inner.begin(state.inner, key)

    def adapt(self, state, task, support, key):
        return self.inner.adapt(state.inner, task, support, key)

    def observe(self, state, task, step, key):
        return self.inner.observe(state.inner, task, step, key)

    def resample(self, state, task, key):
        mean, variance = latent.posterior(task.evidence)
        return task._replace(z=latent.sample(mean, variance, state.noise[key[0]]))

    def act(self, state, task, obs, key, deterministic):
        return self.inner.act(state.inner, task, obs, key, deterministic)

    def policy_layers(self, state, task):
        return self.inner.policy_layers(state.inner, task)


def read_state(file: GoldenFile, noise: np.ndarray) -> Given:
    """The file's encoder and policy; there are no critics in it, which acting does not need."""

    policy = read_policy(file)
    encoder = Encoder(read_layers(file, "param/encoder/"), next_obs=False)
    nets = Evaluation(encoder, policy)
    learner = Learner(nets, Improvement(policy, policy), policy, (), ())
    state = Given(jnp.int32(0), PearlState(jnp.int32(0), learner), jnp.asarray(noise))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf))[None], state)


# --- The comparison ---


def play(file: GoldenFile, case: str, period: int) -> tuple[list[Trajectories], np.ndarray]:
    """The trajectories, leaves [1, 1, 1, ...], and z at every step [trajectory, time, latent]."""
    env, noise = make_env(file), file[f"protocol/{case}/eps_z"]
    horizon, spec = env.spec.horizon, env.spec
    every = "step" if period else "trajectory"
    config = EvalConfig(
        protocol="explore",
        tasks=(TASK,),
        episodes=1,
        shots=(0, 1, 2),
        explore=ExploreConfig(resample_every=every),
    )
    dims = dict(zip("OAZ", file["meta/dims_O_A_Z_T_B_C"].tolist()[:3], strict=True))
    algorithm = GivenNoise(
        PearlConfig(latent=dims["Z"]),
        Spec(dims["O"], dims["A"], num_train_tasks=4, horizon=horizon),
    )
    setting = Setting(algorithm, read_state(file, noise), env, config, 0.99, num_threads=1)

    def numbers(trajectory: int) -> Any:
        """Of the draws. With period 1 the first of a trajectory is not used."""
        draws = trajectory * (horizon + 1) + 1 + np.arange(horizon) if period else trajectory
        keys = np.zeros((horizon, len(USES), 1, 1, 1, 2), np.uint32)
        keys[..., 0] = np.broadcast_to(draws, horizon).reshape(horizon, 1, 1, 1, 1)
        return jnp.asarray(keys)

    recorders, latents = [Recorder(env, (1, 1, 1)) for _ in config.points], []
    labels = Labels((0,), (TASK,), config.points, 1)

    def watch(agents: Agents, moment: Moment) -> None:
        recorders[agents.labels.shots[0]](moment)
        latents.append(np.asarray(agents.acting.z)[0, 0, 0])

    outcome, _ = explore(setting, labels, numbers, watch)
    seen = [recorder.trajectories() for recorder in recorders]
    for number, one in enumerate(seen):
        assert outcome.returns[0, 0, number, 0] == pytest.approx(one.reward.sum(), rel=1e-6)
    assert spec.horizon == len(latents) // len(seen)
    return seen, np.array(latents).reshape(len(seen), horizon, -1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(("case", "period"), [("eval_smac_period1", 1), ("eval_pearl_period0", 0)])
def test_trajectories_are_those_of_the_reference(path, case, period):
    file = GoldenFile(path)
    trajectories, latents = play(file, case, period)
    batch = jax.tree.map(
        lambda *leaves: np.concatenate(leaves)[:, 0, 0],
        *(transitions(one, 0.99) for one in trajectories),
    )
    found = {
        "observations": batch.obs,
        "actions": batch.action,
        "rewards": batch.reward[..., None],
        "next_observations": batch.next_obs,
        "latents": latents,
        "final_context": np.concatenate([batch.obs, batch.action, batch.reward[..., None]], -1),
    }
    found["final_context"] = found["final_context"].reshape(1, -1, found["final_context"].shape[-1])
    stored = {name: file[f"protocol/{case}/{name}"] for name in file.folders(f"protocol/{case}/")}
    assert stored.keys() == {*found, "eps_z"}
    for name, ours in found.items():
        assert ours.shape == stored[name].shape, name
        error = np.abs(ours - stored[name]).max() / (1 + np.abs(stored[name]).max())
        assert error < BAR, name
        assert np.abs(stored[name] * (1 + 2e-5) - ours).max() > BAR, name
