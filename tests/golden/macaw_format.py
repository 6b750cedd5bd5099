"""The names and layouts of MACAW's golden files as our modules, and back.

Layers are `L0, L1, ...` (trunk) and `H0, H1, ...` (advantage head), each with the leaves of its
layer type; see macaw/GOLDEN.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from golden_file import GoldenFile

from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import Meta
from omrl.algos.meta_bc import MetaBcConfig
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.adaptive import AdaptiveLayer, BiasTransform, Linear, WeightTransform
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.ops import inner_loop
from omrl.types import Batch

Arrays = dict[str, Any]

# Per layer type the reference's leaves in the order of our fields: our field, and whether it is the
# reference's array transposed.
LEAVES: dict[type, dict[str, tuple[str, bool]]] = {
    WeightTransform: {"z": ("z", False), "W": ("kernel", True), "c": ("offset", False)},
    BiasTransform: {
        "W": ("weight", True),
        "b": ("bias", False),
        "bz": ("z", False),
        "Wb": ("kernel", False),
    },
    Linear: {"W": ("weight", True), "b": ("bias", False)},
}
LAYER_NAMES = {
    WeightTransform: "weight_transform",
    BiasTransform: "bias_transform",
    Linear: "linear",
}
RELU_ACTION = True
"""As the reference code's advantage head."""


# --- Layers and networks ---


def read_layer(file: GoldenFile, prefix: str, in_dim: int) -> AdaptiveLayer:
    """The layer whose leaves are `prefix` + name; its type follows from the names."""
    there = {name for name in file.folders(prefix) if prefix + name in file.arrays}
    for kind, leaves in LEAVES.items():
        if leaves.keys() <= there:
            arrays = {
                field: jnp.asarray(file[prefix + leaf].T if transposed else file[prefix + leaf])
                for leaf, (field, transposed) in leaves.items()
            }
            return kind(**arrays, **({"in_dim": in_dim} if kind is WeightTransform else {}))
    raise InputError(f"{file.path}: {prefix} has the leaves of no layer: {sorted(there)}")


def write_layer(layer: AdaptiveLayer) -> Arrays:
    """Leaves by the reference's names."""
    return {
        leaf: getattr(layer, field).T if transposed else getattr(layer, field)
        for leaf, (field, transposed) in LEAVES[type(layer)].items()
    }


def read_value(file: GoldenFile, prefix: str, obs_dim: int) -> ValueNet:
    return ValueNet(_read_chain(file, prefix, "L", obs_dim))


def read_policy(file: GoldenFile, prefix: str, obs_dim: int) -> PolicyNet:
    """The policy, without a head where the file has none."""
    trunk = _read_chain(file, prefix, "L", obs_dim)
    widths = sum(_shapes(trunk[-1])[0])
    return PolicyNet(trunk, _read_chain(file, prefix, "H", widths), RELU_ACTION)


def _read_chain(file: GoldenFile, prefix: str, letter: str, in_dim: int) -> tuple[Any, ...]:
    names = [name for name in file.folders(prefix) if name[0] == letter]
    layers = []
    for name in sorted(names, key=lambda name: int(name[1:])):
        layers.append(read_layer(file, f"{prefix}{name}/", in_dim))
        (in_dim,) = _shapes(layers[-1])[1]
    return tuple(layers)


def _shapes(layer: AdaptiveLayer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of weight and bias, without computing these."""

    def leaves() -> Any:
        dense = layer.dense()
        return dense.weight, dense.bias

    weight, bias = jax.eval_shape(leaves)
    return weight.shape, bias.shape


def layer_names(net: ValueNet | PolicyNet) -> list[str]:
    """Names of the layers in the order of `inner_loop.layers`."""
    if isinstance(net, ValueNet):
        return [f"L{i}" for i in range(len(net.layers))]
    return [f"L{i}" for i in range(len(net.trunk))] + [f"H{i}" for i in range(len(net.head))]


def write_net(net: ValueNet | PolicyNet) -> Arrays:
    """All leaves as `L0/z`, ..."""
    return {
        f"{name}/{leaf}": array
        for name, layer in zip(layer_names(net), inner_loop.layers(net), strict=True)
        for leaf, array in write_layer(layer).items()
    }


# --- Meta-parameters ---


def read_meta(file: GoldenFile) -> Meta:
    obs_dim = file["task0/inner/obs"].shape[1]
    value = read_value(file, "init/value/", obs_dim)
    policy = read_policy(file, "init/policy/", obs_dim)
    # Problems without an advantage head have no coefficient.
    coefficient = file.arrays.get("adv_coef_raw", np.zeros(()))
    return Meta(
        value,
        policy,
        _read_rates(file, "lr_raw/value", value),
        _read_rates(file, "lr_raw/policy", policy),
        jnp.asarray(coefficient),
    )


def _read_rates(file: GoldenFile, prefix: str, net: ValueNet | PolicyNet) -> Any:
    leaves = LEAVES[type(inner_loop.layers(net)[0])]
    return jnp.asarray(
        [[file[f"{prefix}/{name}/{leaf}"] for leaf in leaves] for name in layer_names(net)]
    )


def write_meta(meta: Meta) -> dict[str, Arrays]:
    """Arrays by group, as the files group meta-gradients and new parameters."""
    return {
        "value": write_net(meta.value),
        "policy": write_net(meta.policy),
        "lr_raw_value": _write_rates(meta.value_rates, meta.value),
        "lr_raw_policy": _write_rates(meta.policy_rates, meta.policy),
        "adv_coef_raw": {"": meta.adv_coef},
    }


def _write_rates(rates: Any, net: ValueNet | PolicyNet) -> Arrays:
    leaves = LEAVES[type(inner_loop.layers(net)[0])]
    return {
        f"{name}/{leaf}": rates[i, j]
        for i, name in enumerate(layer_names(net))
        for j, leaf in enumerate(leaves)
    }


# --- Batches and settings ---


def read_batch(file: GoldenFile, prefix: str) -> Batch:
    def column(name: str) -> Any:
        return jnp.asarray(file[prefix + name][:, 0])

    return Batch(
        obs=jnp.asarray(file[prefix + "obs"]),
        action=jnp.asarray(file[prefix + "actions"]),
        reward=column("rewards"),
        next_obs=jnp.asarray(file[prefix + "next_obs"]),
        terminated=jnp.asarray(file[prefix + "dones"][:, 0] != 0),
        mc_return=column("mc_rewards"),
        terminal_obs=jnp.asarray(file[prefix + "terminal_obs"]),
        terminal_discount=column("terminal_discounts"),
    )


def read_imitation_config(file: GoldenFile, meta: Meta, form: Any) -> MetaBcConfig:
    """The same of its imitation, which takes one inner step."""
    settings = read_config(file, meta, {"inner_form": form})
    shared = (field.name for field in dataclasses.fields(MetaBcConfig))
    return MetaBcConfig(**{name: getattr(settings, name) for name in shared})


def read_config(file: GoldenFile, meta: Meta, changes: Mapping[str, Any]) -> MacawConfig:
    """The settings of the reference code, with the constants of the file and `changes`."""
    for name, value in {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8}.items():
        if file[f"const/{name}"] != value:
            raise InputError(f"{file.path}: const/{name} must be {value}, as training has it")
    layer = inner_loop.layers(meta.value)[0]
    settings = MacawConfig(
        layer=LAYER_NAMES[type(layer)],  # pyright: ignore[reportArgumentType]
        hidden=tuple(_shapes(layer)[1][0] for layer in meta.value.layers[:-1]),
        head_hidden=tuple(_shapes(layer)[1][0] for layer in meta.policy.head[:-1]),
        latent=layer.z.shape[0] if isinstance(layer, WeightTransform) else 1,
        offset=True,
        relu_action=RELU_ACTION,
        inner_lr_per="tensor",
        split_inner_batch=True,
        advantage_head=bool(meta.policy.head),
        learn_adv_coef=True,
        max_adapt_steps=max(1, changes.get("inner_steps", 1)),
        sigma=float(file["const/action_sigma"]),
        temperature=float(file["const/adaptation_temp"]),
        max_weight=float(file["const/exp_advantage_clip"]),
        bootstrap_advantage=True,
        bootstrap_outer_value=True,
        target_decay=float(file["const/target_vf_alpha"]),
        value_lr=float(file["const/outer_value_lr"]),
        policy_lr=float(file["const/outer_policy_lr"]),
        lr_lr=float(file["const/lrlr"]),
        divide_by_train_tasks=True,
        inner_batch=BatchSpec("inner", len(file["task0/inner/obs"])),
        outer_batch=BatchSpec("outer", len(file["task0/outer/obs"])),
    )
    return dataclasses.replace(settings, **changes)
