"""How expressive is one inner step? The rank of what it adds to a layer's weights.

    python benchmarks/expressiveness.py --out DIR

MACAW's appendix B says: on plain layers a gradient step adds a matrix of rank one per sample, on
weight-transform layers one of higher rank. Here a policy takes one inner step (Eq. 3) on batches of
random transitions, in float64, and W' - W of the layer between its first two hidden layers is
decomposed, W being the weight matrix of the forward pass. DIR gets `expressiveness.json`, with all
singular values, and `expressiveness.svg`.

Three measures:

* the rank of W' - W against the number of samples,
* the same on one sample against the length of z, where z alone is adapted,
* how many of the updates on different single samples are linearly independent: what z bounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from omrl.algos import macaw_losses, maml
from omrl.algos.macaw_config import MacawConfig
from omrl.drawing import WIDTH, image
from omrl.nets.heads import PolicyNet
from omrl.ops import inner_loop
from omrl.ops.inner_loop import Rates
from omrl.types import Batch, Key

LAYER = 1
"""Of the policy's trunk: from the first to the second hidden layer."""
NEGLIGIBLE = 1e-9
"""Singular values below this share of the largest are rounding."""

LINES = (("#999999", "-"), ("#E69F00", "--"), ("#0072B2", "-"), ("#009E73", "--"))
"""Colour and style of the kinds of layers, those of a pair on top of each other."""


@dataclass(frozen=True)
class Settings:
    """What is measured; the defaults are MACAW's sizes on half-cheetah."""

    width: int = 100
    latent: int = 100
    obs_dim: int = 20
    act_dim: int = 6
    samples: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200)
    latents: tuple[int, ...] = (1, 10, 100)
    span_latent: int = 10
    """Length of z where independent updates are counted."""
    span_updates: int = 40
    seed: int = 0


def layer_kinds(settings: Settings) -> dict[str, MacawConfig]:
    """The layers of appendix B by name. Rates are large, so that rounding of W is small beside."""
    plain = MacawConfig(
        layer="linear",
        hidden=(settings.width,) * 3,
        latent=settings.latent,
        offset=True,
        normalize_advantage=False,
        inner_lr=0.1,
        learn_inner_lr=False,
    )
    return {
        "plain": plain,
        "bias transform": replace(plain, layer="bias_transform"),
        "weight transform": replace(plain, layer="weight_transform"),
        "weight transform, z alone": replace(plain, layer="weight_transform", adapt="z"),
    }


class Problem:
    """A new policy, and the gradient of L_pi (Eq. 3) at it for each of some random transitions."""

    def __init__(self, config: MacawConfig, settings: Settings) -> None:
        net_key, data_key = jax.random.split(jax.random.PRNGKey(settings.seed))
        self.net, self.rates, dense = policy(config, settings, net_key)
        self.gradients = gradient_of_each(dense, *transitions(settings, data_key))

    def batch_update(self, num_samples: int) -> Float[Array, "in out"]:
        """Of one inner step on the first so many transitions, whose losses are averaged."""
        gradient = jax.tree.map(lambda each: each[:num_samples].mean(0), self.gradients)
        return update(self.net, self.rates, gradient)

    def single_updates(self, number: int) -> Float[Array, "*n in out"]:
        """Of one inner step on each of the first so many transitions alone."""
        of_each = jax.vmap(update, in_axes=(None, None, 0))
        return of_each(self.net, self.rates, jax.tree.map(lambda x: x[:number], self.gradients))


@partial(jax.jit, static_argnames=("config", "settings"))
def policy(config: MacawConfig, settings: Settings, key: Key) -> tuple[PolicyNet, Rates, PolicyNet]:
    """A new policy of adaptive layers, its inner rates, and the dense policy that it makes."""
    make = maml.layer_maker(config)
    sizes = settings.obs_dim, settings.act_dim, config.hidden, config.head_hidden
    net = PolicyNet.init(key, *sizes, make, relu_action=config.relu_action)
    rates = maml.rates(config, maml.raw_rates(config, net), net)
    return net, rates, inner_loop.generate(net)


@jax.jit
def update(net: PolicyNet, rates: Rates, gradient: PolicyNet) -> Float[Array, "in out"]:
    """W' - W of one step down `gradient`, which is that of the dense policy."""
    before = inner_loop.start(net)
    after = inner_loop.descend(net, rates, before, gradient)
    old, new = (inner_loop.read(net, traces).trunk[LAYER] for traces in (before, after))
    return new.weight - old.weight


@jax.jit
def gradient_of_each(net: PolicyNet, batch: Batch, advantage: Float[Array, " sample"]) -> PolicyNet:
    """The gradient of a dense policy's inner loss for every sample as a batch of its own."""
    config = MacawConfig(normalize_advantage=False)
    coef = jnp.full((), config.adv_coef, advantage.dtype)

    def gradient(one: Batch, advantage: Float[Array, ""]) -> PolicyNet:
        alone = jax.tree.map(lambda x: x[None], one)
        loss = jax.grad(macaw_losses.policy_inner_loss, has_aux=True)
        return loss(net, config, alone, advantage[None], coef)[0]

    return jax.vmap(gradient)(batch, advantage)


@partial(jax.jit, static_argnames="settings")
def transitions(settings: Settings, key: Key) -> tuple[Batch, Float[Array, " sample"]]:
    """Random observations and actions, and random advantages of them."""
    number = max(*settings.samples, settings.span_updates)
    obs_key, action_key, advantage_key = jax.random.split(key, 3)
    obs = jax.random.normal(obs_key, (number, settings.obs_dim))
    zeros = jnp.zeros(number)
    batch = Batch(
        obs=obs,
        action=jax.random.uniform(action_key, (number, settings.act_dim), minval=-1.0),
        reward=zeros,
        next_obs=obs,
        terminated=jnp.zeros(number, bool),
        mc_return=zeros,
        terminal_obs=obs,
        terminal_discount=zeros,
    )
    return batch, jax.random.normal(advantage_key, (number,))


def singular_values(matrix: Float[Array, "row column"]) -> list[float]:
    """In float64, the largest first."""
    return np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False).tolist()


def rank(values: list[float]) -> int:
    """How many singular values are not negligible."""
    return sum(value > NEGLIGIBLE * values[0] for value in values)


def measure(settings: Settings) -> dict[str, Any]:
    """All that the JSON has."""
    kinds = layer_kinds(settings)
    spectra: dict[str, list[list[float]]] = {}
    for name, config in kinds.items():
        problem = Problem(config, settings)
        spectra[name] = [singular_values(problem.batch_update(n)) for n in settings.samples]
    z_alone = kinds["weight transform, z alone"]
    by_latent = {
        str(latent): rank_on_one_sample(replace(z_alone, latent=latent), settings)
        for latent in settings.latents
    }
    return {
        "settings": asdict(settings),
        "singular_values": spectra,
        "rank": {name: [rank(values) for values in rows] for name, rows in spectra.items()},
        "rank_by_length_of_z": by_latent,
        "independent_updates": {
            name: independent_updates(replace(config, latent=settings.span_latent), settings)
            for name, config in kinds.items()
        },
    }


def rank_on_one_sample(config: MacawConfig, settings: Settings) -> int:
    """The rank of the update on the first transition."""
    return rank(singular_values(Problem(config, settings).batch_update(1)))


def independent_updates(config: MacawConfig, settings: Settings) -> int:
    """The rank of the updates on many single samples, each as one vector."""
    updates = Problem(config, settings).single_updates(settings.span_updates)
    return rank(singular_values(updates.reshape(settings.span_updates, -1)))


@image
def picture(measured: Mapping[str, Any]) -> Figure:
    """Ranks against the samples of the step, and the singular values for about ten samples."""
    figure = Figure(figsize=(WIDTH, 2.3), layout="constrained")
    ranks, spectra = figure.subplots(1, 2)
    samples = measured["settings"]["samples"]
    shown = int(np.argmin(np.abs(np.array(samples) - 10)))
    for name, (colour, style) in zip(measured["rank"], LINES, strict=True):
        line = {"color": colour, "linestyle": style, "label": name}
        ranks.plot(samples, measured["rank"][name], marker=".", **line)
        spectrum = np.array(measured["singular_values"][name][shown])
        spectra.plot(np.arange(1, len(spectrum) + 1), spectrum / spectrum[0], **line)
    ranks.set(xlabel="samples of the step", ylabel="rank of W' - W", xscale="log", yscale="log")
    for axis in (ranks.xaxis, ranks.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    ranks.minorticks_off()
    spectra.set(ylabel="value / largest", yscale="log", ylim=(1e-6, 2))
    spectra.set_xlabel(f"number of the singular value, {samples[shown]} samples")
    spectra.minorticks_off()
    handles, labels = ranks.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    with jax.enable_x64(True):
        measured = measure(Settings())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "expressiveness.json").write_text(json.dumps(measured, indent=1))
    (folder / "expressiveness.svg").write_bytes(picture(measured))
    for name in ("rank", "rank_by_length_of_z", "independent_updates"):
        print(f"{name}: {measured[name]}")


if __name__ == "__main__":
    main()
