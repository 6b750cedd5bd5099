"""Layouts of the golden files of PEARL and SMAC as ours, and back; see `smac/GOLDEN.md`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from golden_file import GoldenFile, Group

from omrl.algos import latent_context
from omrl.nets.latent_mlp import LatentMlp
from omrl.nets.mlp import Dense
from omrl.types import Batch

Arrays = dict[str, Any]

QUICK_COMPILE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def group(prefix: str, arrays: Arrays) -> Group:
    return Group(prefix.rstrip("/"), prefix, under(prefix, arrays))


def under(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}


# --- Networks ---


def read_policy(file: GoldenFile) -> LatentMlp:
    *hidden, mean = read_layers(file, "param/policy/")
    log_std = _read_layer(file, "param/policy/last_fc_log_std")
    return LatentMlp((*hidden, Dense(jnp.concatenate([mean.affine, log_std.affine], axis=1))))


def write_policy(policy: LatentMlp) -> Arrays:
    *hidden, last = policy.layers
    act_dim = last.affine.shape[1] // 2
    mean, log_std = Dense(last.affine[:, :act_dim]), Dense(last.affine[:, act_dim:])
    return under("policy/", write_layers((*hidden, mean))) | {
        "policy/last_fc_log_std.weight": log_std.weight.T,
        "policy/last_fc_log_std.bias": log_std.bias,
    }


def read_critics(file: GoldenFile, name: str = "qf") -> LatentMlp:
    numbers = range(1, latent_context.NUM_CRITICS + 1)
    critics = [LatentMlp(read_layers(file, f"param/{name}{number}/")) for number in numbers]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *critics)


def write_critics(critics: LatentMlp, name: str = "qf") -> Arrays:
    arrays: Arrays = {}
    for number in range(latent_context.NUM_CRITICS):
        layers = jax.tree.map(lambda leaf, number=number: leaf[number], critics.layers)
        arrays |= under(f"{name}{number + 1}/", write_layers(layers))
    return arrays


def read_layers(file: GoldenFile, prefix: str) -> tuple[Dense, ...]:
    names = sorted(
        {name.split(".")[0] for name in file.folders(prefix) if name.startswith("fc")},
        key=lambda name: int(name[2:]),
    )
    return tuple(_read_layer(file, prefix + name) for name in (*names, "last_fc"))


def _read_layer(file: GoldenFile, name: str) -> Dense:
    return Dense.of(jnp.asarray(file[f"{name}.weight"].T), jnp.asarray(file[f"{name}.bias"]))


def write_layers(layers: tuple[Dense, ...]) -> Arrays:
    names = [*(f"fc{number}" for number in range(len(layers) - 1)), "last_fc"]
    return {
        f"{name}.{leaf}": array
        for name, layer in zip(names, layers, strict=True)
        for leaf, array in (("weight", layer.weight.T), ("bias", layer.bias))
    }


# --- Data ---


def read_batches(file: GoldenFile, prefix: str) -> tuple[Batch, Batch]:
    """The reinforcement-learning batch and the context, leaves [task, sample, ...]."""
    read = {name: jnp.asarray(file[prefix + name]) for name in file.folders(prefix)}
    obs_dim, act_dim = (read[name].shape[-1] for name in ("observations", "actions"))
    seen = read["context"]
    return (
        _batch(
            read["observations"],
            read["actions"],
            read["rewards"],
            read["next_observations"],
            read["terminals"],
        ),
        read_context(seen, obs_dim, act_dim),
    )


def read_context(seen: Any, obs_dim: int, act_dim: int) -> Batch:
    """Rows [obs, action, reward]."""
    obs, action, reward = jnp.split(seen, (obs_dim, obs_dim + act_dim), axis=-1)
    return _batch(obs, action, reward)


def _batch(obs: Any, action: Any, reward: Any, next_obs: Any = None, ends: Any = None) -> Batch:
    none = jnp.zeros_like(reward[..., 0])
    return Batch(
        obs=obs,
        action=action,
        reward=reward[..., 0],
        next_obs=jnp.zeros_like(obs) if next_obs is None else next_obs,
        terminated=none > 0 if ends is None else ends[..., 0] > 0,
        mc_return=none,
        terminal_obs=obs,
        terminal_discount=none,
    )
