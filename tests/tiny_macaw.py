"""MACAW and its baselines at the smallest sizes, random batches, and how to compare states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from omrl.algos.borel import Borel
from omrl.algos.borel_config import BeliefSacConfig, BorelConfig, VaeConfig
from omrl.algos.dqn import DqnConfig
from omrl.algos.macaw import Macaw
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_self_supervised import (
    EXPLORATION,
    MacawSelfSupervised,
    MacawSelfSupervisedConfig,
    RewardModelConfig,
)
from omrl.algos.meta_bc import MetaBc, MetaBcConfig
from omrl.algos.mt_awr import MtAwr, MtAwrConfig
from omrl.algos.pearl import Pearl
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.smac import Smac
from omrl.algos.smac_config import SmacConfig
from omrl.data.sample import BatchSpec
from omrl.types import Batch, Spec

SPEC = Spec(
    obs_dim=3,
    act_dim=2,
    num_train_tasks=6,
    horizon=10,
    obs_mean=(0.5, -1.0, 0.0),
    obs_std=(2.0, 0.5, 1.0),
    return_std=4.0,
)
SIZES: dict[str, Any] = {
    "hidden": (4,),
    "head_hidden": (3,),
    "latent": 3,
    "task_batch": 3,
    "inner_batch": BatchSpec("inner", 8, "contiguous"),
    "outer_batch": BatchSpec("outer", 8, disjoint_from="inner"),
}


def make(spec: Spec = SPEC, **changes: Any) -> Macaw:
    """The algorithm with the paper's settings but for its sizes and `changes`."""
    return Macaw(MacawConfig(**SIZES | changes), spec)


def make_meta_bc(spec: Spec = SPEC, **changes: Any) -> MetaBc:
    """The same of meta behaviour cloning."""
    own = {name: size for name, size in SIZES.items() if name != "head_hidden"}
    return MetaBc(MetaBcConfig(**own | changes), spec)


def make_mt_awr(spec: Spec = SPEC, **changes: Any) -> MtAwr:
    """The same of multi-task AWR."""
    own = {"hidden": (4,), "task_batch": 3, "batch": BatchSpec("batch", 8)}
    return MtAwr(MtAwrConfig(**own | changes), spec)


LATENT_SIZES: dict[str, Any] = {
    "hidden": (4,),
    "encoder_hidden": (4,),
    "latent": 2,
    "task_batch": 3,
    "batch": BatchSpec("batch", 8),
    "context": BatchSpec("context", 5, buffer="encoder"),
}


def make_pearl(spec: Spec = SPEC, **changes: Any) -> Pearl:
    """The same of PEARL."""
    return Pearl(PearlConfig(**LATENT_SIZES | changes), spec)


def make_smac(spec: Spec = SPEC, **changes: Any) -> Smac:
    """The same of SMAC."""
    return Smac(SmacConfig(**LATENT_SIZES | {"decoder_hidden": (4,)} | changes), spec)


def make_borel(spec: Spec = SPEC, **changes: Any) -> Borel:
    """The same of BOReL, with a state decoder."""
    features = {"obs_features": 3, "action_features": 2, "reward_features": 2}
    hidden = {"reward_hidden": (4,), "state_hidden": (4,), "state_head": "squared"}
    config: dict[str, Any] = {
        "vae": VaeConfig(latent=2, gru=4, **features, **hidden),
        "policy": BeliefSacConfig(hidden=(4,)),
        "vae_task_batch": 3,
        "rollouts": 2,
        "task_batch": 3,
        "batch": BatchSpec("batch", 8),
    }
    return Borel(BorelConfig(**config | changes), spec)


def make_borel_grid() -> Borel:
    """BOReL for a grid: DQN, rewards decoded by cells, which all networks see one-hot."""
    features = {"obs_features": 3, "action_features": 0, "reward_features": 2}
    head = {"reward_sees": (), "reward_head": "bernoulli", "reward_cells": (2, 3)}
    vae: Any = VaeConfig(latent=2, gru=4, reward_hidden=(4,), **features, **head)
    policy = DqnConfig(hidden=(4,), double=True)
    return make_borel(vae=vae, policy=policy, normalize_obs=True, one_hot_cells=True)


SELF_SUPERVISED_SIZES: dict[str, Any] = {
    "hidden": (4,),
    "head_hidden": (3,),
    "latent": 3,
    "task_batch": 3,
    "inner_batch": BatchSpec("inner", 8, "without_replacement", buffer="encoder"),
    "outer_batch": BatchSpec("outer", 8),
    "rewards": RewardModelConfig(encoder_hidden=(4,), decoder_hidden=(4,), latent=2),
    "batch": BatchSpec("batch", 8),
    "context": BatchSpec("context", 5, buffer="encoder"),
    "exploration": replace(
        EXPLORATION, every=4, explored_tasks=3, initial_steps=20, prior_steps=20,
        posterior_steps=20, context_size=6, label_context=4,
    ),
}  # fmt: skip


def make_self_supervised(spec: Spec = SPEC, **changes: Any) -> MacawSelfSupervised:
    """The same of MACAW with self-supervision."""
    return MacawSelfSupervised(MacawSelfSupervisedConfig(**SELF_SUPERVISED_SIZES | changes), spec)


def make_batch(key: jax.Array, *lead: int, spec: Spec = SPEC) -> Batch:
    """Random transitions, leaves [*lead, ...]; advantages differ, so weights do too."""
    keys = iter(jax.random.split(key, 6))
    discounts = 0.99 ** jax.random.randint(next(keys), lead, 1, spec.horizon)
    return Batch(
        obs=jax.random.normal(next(keys), (*lead, spec.obs_dim)),
        action=jax.random.uniform(next(keys), (*lead, spec.act_dim), minval=-1.0),
        reward=jnp.zeros(lead),
        next_obs=jnp.zeros((*lead, spec.obs_dim)),
        terminated=jnp.zeros(lead, bool),
        mc_return=3 * jax.random.normal(next(keys), lead),
        terminal_obs=jax.random.normal(next(keys), (*lead, spec.obs_dim)),
        terminal_discount=discounts,
    )


def make_batches(key: jax.Array, num_tasks: int = 3) -> dict[str, Batch]:
    """What `update` receives."""
    inner_key, outer_key = jax.random.split(key)
    return {
        "inner": make_batch(inner_key, num_tasks, 8),
        "outer": make_batch(outer_key, num_tasks, 8),
    }


def assert_close(one: Any, other: Any, rtol: float = 1e-9) -> None:
    """Leaf by leaf, relative to the largest number of the leaf."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = np.max(np.abs(right))
        np.testing.assert_allclose(left, right, rtol=0, atol=rtol * scale)
