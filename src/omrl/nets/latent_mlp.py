"""Perceptrons that are told the task by a latent z, and how to run them on many transitions.

The first layer of [x, z] is two products, x W_x and z W_z. All transitions of a task share the
second, so it is computed once per task, `shift`, and what is left for every transition is `x`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from omrl.nets.mlp import Dense, init_layers
from omrl.types import Key

Tree = TypeVar("Tree")


class LatentMlp(eqx.Module):
    """y = f(x, z), ReLU between the layers, none at the end."""

    layers: tuple[Dense, ...]
    """The rows of the first one are those of x, then those of z."""

    @classmethod
    def init(
        cls,
        key: Key,
        in_dim: int,
        latent: int,
        hidden: tuple[int, ...],
        out_dim: int,
        last_bound: float | None,
        hidden_bias: float = 0.1,
    ) -> LatentMlp:
        """`last_bound` and `hidden_bias`: see `init_layers`."""
        sizes = (in_dim + latent, *hidden, out_dim)
        return cls(init_layers(key, sizes, last_bound, hidden_bias))

    def shift(self, z: Float[Array, " latent"]) -> Float[Array, " hidden"]:
        """z W_z + b of the first layer."""
        first = self.layers[0]
        return z @ first.weight[-len(z) :] + first.bias

    def seen(self, x: Float[Array, " in"]) -> Float[Array, " hidden"]:
        """x W_x of the first layer."""
        return x @ self.layers[0].weight[: len(x)]

    def rest(self, first: Float[Array, " hidden"]) -> Float[Array, " out"]:
        """y of what the first layer puts out, before its ReLU."""
        for layer in self.layers[1:]:
            first = jax.nn.relu(first) @ layer.weight + layer.bias
        return first

    def __call__(
        self, x: Float[Array, " in"], shift: Float[Array, " hidden"]
    ) -> Float[Array, " out"]:
        return self.rest(self.seen(x) + shift)

    def told(self, z: Float[Array, " latent"]) -> tuple[Dense, ...]:
        """The dense layers of x -> f(x, z)."""
        first, *rest = self.layers
        return (Dense.of(first.weight[: -len(z)], self.shift(z)), *rest)


def over_samples(function: Callable[..., Tree], *columns: Shaped[Array, "task sample ..."]) -> Tree:
    """`function` of every transition, results [task, sample, ...].

    One `vmap` over all of them and not one per axis: a weight's gradient is then one product of two
    matrices. With two axes it takes a third longer on a CPU, and these products are the update.
    """
    lead = columns[0].shape[:2]
    num_rows = lead[0] * lead[1]
    rows = (column.reshape(num_rows, *column.shape[2:]) for column in columns)
    return jax.tree.map(
        lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), jax.vmap(function)(*rows)
    )


def every_sample(
    per_task: Float[Array, "task feature"], num_samples: int
) -> Float[Array, "task sample feature"]:
    """The same for all transitions of a task."""
    num_tasks, num_features = per_task.shape
    return jnp.broadcast_to(per_task[:, None], (num_tasks, num_samples, num_features))
