"""SMAC's golden file, `protocol/collect/`: the reference code's self-supervised collection on a toy
environment, repeated with our collector.

The reference's random numbers are in the file in the order in which it draws them. Ours are
functions of keys; so the policy here looks its noise up by the key that the collector hands it. All
else is what training uses: schedule, trajectories, labels and buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from golden_file import GoldenFile

from omrl.algorithm import Algorithm, Stage
from omrl.collector import Collector
from omrl.data.device import DeviceData
from omrl.data.sample import BatchSpec, gather
from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.exploration import Exploration
from omrl.exploration_setting import Setting
from omrl.explorers import trajectory_key
from omrl.layout import Layout, place
from omrl.ops import latent
from omrl.ops.gaussian import reparametrized
from omrl.types import Spec

PREFIX = "protocol/collect/"
TASK = 1
SEED = 0


def collected(file: GoldenFile, folder: Path) -> dict[str, np.ndarray]:
    """The outputs below `PREFIX`; `folder` is for the files of the collection."""
    trajectories, horizon, _ = file[PREFIX + "eps_z_step"].shape
    env = _env(file)
    context = file[PREFIX + "reward_context"][0]
    exploration = Exploration(
        every=1, explored_tasks=1, initial_steps=0, prior_steps=trajectories * horizon,
        posterior_steps=0, resample_every="step", draw="union", label_context=len(context),
    )  # fmt: skip
    spec = Spec(env.spec.obs_dim, env.spec.act_dim, 1, horizon)
    algorithm = Reference(exploration, spec, file)
    layout = Layout.of(jax.devices("cpu")[:1], 1)
    setting = Setting(algorithm, env, layout, np.array([SEED]), np.array([TASK]), 0.99)
    collector = Collector(setting, folder)
    state = place(jax.tree.map(lambda x: np.asarray(x)[None], _state(file)), layout.by_seed)
    logged = place(_logged(context, env), layout.replicated)
    collector.explore(exploration, state, logged, step=0, first=True)
    buffer = jax.tree.map(lambda leaf: leaf[0], collector.buffers.main)
    assert int(buffer.num_rows[0]) == trajectories * horizon
    held = gather(buffer, 0, jnp.arange(trajectories * horizon))
    return {
        f"{PREFIX}buffer_observations": np.asarray(held.obs),
        f"{PREFIX}buffer_actions": np.asarray(held.action),
        f"{PREFIX}buffer_rewards": np.asarray(held.reward)[:, None],
        f"{PREFIX}buffer_next_observations": np.asarray(held.next_obs),
    }


# --- The reference's agent, told its noise ---


class Table(NamedTuple):
    """Noise by key."""

    keys: Any
    noise: Any

    def at(self, key: Any) -> Any:
        """That of `key`; zero for one of which nothing is told."""
        return jnp.all(self.keys == key[None], axis=-1).astype(jnp.float32) @ self.noise


class State(NamedTuple):
    layers: Mapping[str, Any]
    """By network the layers (weight, bias) of the file."""
    context: Any
    guesses: Table
    actions: Table
    labels: Table
    step: Any


class Known(NamedTuple):
    evidence: latent.Evidence
    z: Any


@dataclass(frozen=True)
class Reference(Algorithm[State, Known]):
    """Acts on a z from the prior; labels from the posterior of the file's context."""

    config: Exploration
    spec: Spec
    file: GoldenFile

    def init(self, key):
        return _state(self.file)

    def stages(self):
        batches = (BatchSpec("batch", 1),)
        return (Stage("online", 1, 1, batches, self._update, exploration=self.config),)

    def _update(self, state, batches, key):
        raise AssertionError("it collects and is not trained")

    def begin(self, state, key):
        nothing = jnp.zeros(state.guesses.noise.shape[-1])
        return Known(latent.Evidence(nothing, nothing), nothing)

    def adapt(self, state, task, support, key):
        rows = jax.vmap(lambda row: _mlp(state.layers["encoder"], row))(state.context)
        means, spreads = jnp.split(rows, 2, axis=-1)
        factors = latent.factor(means, jax.nn.softplus(spreads))
        return task._replace(evidence=latent.product(factors))

    def observe(self, state, task, step, key):
        return task

    def resample(self, state, task, key):
        noise = state.guesses.at(key) + state.labels.at(key)
        return task._replace(z=latent.sample(*latent.posterior(task.evidence), noise))

    def act(self, state, task, obs, key, deterministic):
        hidden = _hidden(state.layers["policy"], jnp.concatenate([obs, task.z]))
        mean, log_std = (w @ hidden + b for w, b in state.layers["policy_heads"])
        log_std = jnp.clip(log_std, -20.0, 2.0)
        return jnp.tanh(reparametrized(state.actions.at(key), mean, log_std))

    def policy_layers(self, state, task):
        raise AssertionError("it is not exported")

    def predict_reward(self, state, task, obs, action, next_obs):
        return _mlp(state.layers["decoder"], jnp.concatenate([obs, action, task.z]))[0]


def _hidden(layers: Any, x: Any) -> Any:
    for weight, bias in layers:
        x = jax.nn.relu(weight @ x + bias)
    return x


def _mlp(layers: Any, x: Any) -> Any:
    *hidden, (weight, bias) = layers
    return weight @ _hidden(hidden, x) + bias


def _state(file: GoldenFile) -> State:
    def layer(name: str) -> tuple[Any, Any]:
        both = (file[f"param/{name}.{part}"] for part in ("weight", "bias"))
        weight, bias = (jnp.asarray(array, jnp.float32) for array in both)
        return weight, bias

    def net(name: str) -> tuple[Any, ...]:
        names = dict.fromkeys(part.split(".")[0] for part in file.folders(f"param/{name}/"))
        return tuple(layer(f"{name}/{part}") for part in names)

    *hidden, mean, log_std = net("policy")
    assert [part.shape for part in mean] == [part.shape for part in log_std]
    layers = {
        "policy": tuple(hidden), "policy_heads": (mean, log_std),
        "encoder": net("encoder"), "decoder": net("decoder"),
    }  # fmt: skip
    names = ("eps_z_step", "eps_a_step", "eps_z_reward")
    guesses, actions, labels = _tables(*(file[PREFIX + name] for name in names))
    context = jnp.asarray(file[PREFIX + "reward_context"][0], jnp.float32)
    return State(layers, context, guesses, actions, labels, jnp.zeros((), jnp.int32))


def _tables(eps_z_step: Any, eps_a_step: Any, eps_z_reward: Any) -> tuple[Table, Table, Table]:
    """The noise of the file under the keys for the same trajectories and times."""
    trajectories, horizon, _ = eps_z_step.shape
    guess_keys, action_keys, label_keys = [], [], []
    for number in range(trajectories):
        key = trajectory_key(*map(jnp.int32, (SEED, 0, TASK, number)))
        _, _, act_key, label_key = jax.random.split(key, 4)
        guess_key = jax.random.split(label_key)[1]
        label_keys.append(jax.random.split(guess_key, 3)[2])
        for time in range(horizon):
            guess_key, action_key = jax.random.split(jax.random.fold_in(act_key, time))
            guess_keys.append(guess_key)
            action_keys.append(action_key)
    given = ((guess_keys, eps_z_step), (action_keys, eps_a_step), (label_keys, eps_z_reward))
    tables = (
        Table(jnp.stack(keys), jnp.asarray(noise.reshape(len(keys), -1), jnp.float32))
        for keys, noise in given
    )
    guesses, actions, labels = tables
    return guesses, actions, labels


def _logged(context: np.ndarray, env: TaskEnv) -> DeviceData:
    """Some rows of the task; the reference's context is told the agent, which must not be drawn."""
    rows, obs_dim, act_dim = len(context), env.spec.obs_dim, env.spec.act_dim
    data = DeviceData(
        obs=np.zeros((1, rows + 1, obs_dim)), action=np.zeros((1, rows, act_dim)),
        reward=np.zeros((1, rows)), terminated=np.zeros((1, rows), bool),
        mc_return=np.zeros((1, rows)), terminal_discount=np.zeros((1, rows)),
        obs_index=np.arange(rows)[None], terminal_index=np.full((1, rows), rows),
        num_rows=np.array([rows]),
    )  # pyright: ignore  # fmt: skip
    kinds = {"f": jnp.float32, "i": jnp.int32, "b": bool}
    return jax.tree.map(lambda x: jnp.asarray(x, kinds[x.dtype.kind]), data)


# --- The toy environment ---


class Pushed(Physics):
    """s' = .9 s + a W."""

    def __init__(self, matrix: np.ndarray):
        self._matrix = matrix

    def step(self, states, actions, tasks, active):
        return np.where(active[:, None], 0.9 * states + actions @ self._matrix, states)

    def close(self):
        pass


@dataclass(frozen=True)
class Toy(TaskEnv):
    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    matrix: tuple[tuple[float, ...], ...]
    start: tuple[float, ...]

    def sample_tasks(self, rng, num):
        raise AssertionError("its tasks are those of the file")

    def reset(self, rng):
        return np.array(self.start)

    def observe(self, state):
        return state.astype(np.float32)

    def terms(self, state, action, next_state):
        return next_state.copy()

    def reward(self, terms, action, task):
        return -np.abs(terms - task).sum(-1)

    def terminated(self, state):
        return np.zeros(state.shape[:-1], bool)

    def physics(self, num_threads):
        return Pushed(np.array(self.matrix))


def _env(file: GoldenFile) -> Toy:
    goals, matrix, start = (file[f"protocol/env_{n}"] for n in ("goals", "W", "s0"))
    act_dim, obs_dim = matrix.shape
    spec = EnvSpec(
        "toy/golden-v1", obs_dim, act_dim, int(file["protocol/horizon"]), 1.0,
        term_names=tuple(f"s{i}" for i in range(obs_dim)),
        task_names=tuple(f"goal{i}" for i in range(obs_dim)), termination="never",
    )  # fmt: skip
    splits = (("train", tuple(range(len(goals)))), ("test", ()))

    def rows(table: np.ndarray) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(map(float, row)) for row in table)

    return Toy(spec, rows(goals), splits, rows(matrix), tuple(map(float, start)))
