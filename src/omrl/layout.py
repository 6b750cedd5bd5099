"""Where the seeds of a run are: a share on every device, one after the other or side by side.

On a CPU they run one after the other (`lax.map`: faster, and bit-equal to a seed run alone), and
side by side elsewhere (`vmap`: within rounding of a seed run alone). Over several devices they are
split by `shard_map`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, Int32

from omrl.errors import InputError


@dataclass(frozen=True)
class Layout:
    """Where the seeds run. Hashable, so that a jitted function can take it as a static argument."""

    mesh: Mesh
    """One axis, "seed"."""
    side_by_side: bool
    """The seeds of one device by `vmap` instead of `lax.map`."""

    @classmethod
    def of(cls, devices: Sequence[Any], num_seeds: int) -> Layout:
        """Equal shares of `num_seeds` for JAX `devices`; `InputError` if they cannot be equal."""
        if num_seeds % len(devices):
            raise InputError(
                f"seeds: {num_seeds} do not divide evenly over {len(devices)} devices; "
                f"use a multiple of {len(devices)} seeds or fewer devices"
            )
        mesh = Mesh(np.asarray(devices), ("seed",))
        return cls(mesh, side_by_side=devices[0].platform != "cpu")

    @property
    def by_seed(self) -> NamedSharding:
        """The leading axis split over the devices."""
        return NamedSharding(self.mesh, P("seed"))

    @property
    def replicated(self) -> NamedSharding:
        """A whole copy on every device."""
        return NamedSharding(self.mesh, P())


def place(tree: Any, sharding: NamedSharding) -> Any:
    """`tree` on the devices of `sharding`, given whole on every process.

    With several processes each one hands over only what its own devices hold.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def leaf(value: Any) -> Array:
        whole = np.asarray(value)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(leaf, tree)


def each_seed(
    function: Callable[..., Any], layout: Layout, by_seed: tuple[Any, ...], shared: tuple[Any, ...]
) -> Any:
    """`function(*of one seed, *shared)` for all seeds, split over the devices of `layout`."""

    def on_device(by_seed, shared):
        if layout.side_by_side:
            return jax.vmap(lambda one: function(*one, *shared))(by_seed)
        return jax.lax.map(lambda one: function(*one, *shared), by_seed)

    return jax.shard_map(
        on_device,
        mesh=layout.mesh,
        in_specs=(P("seed"), P()),
        out_specs=P("seed"),
        check_vma=False,
    )(by_seed, shared)


def place_seeds(layout: Layout, seeds: Int[np.ndarray, " seed"]) -> Int32[Array, " seed"]:
    """Their numbers on the devices of `layout`."""
    return place(np.asarray(seeds, np.int32), layout.by_seed)


def on_all_seeds(function: Callable[..., Any], layout: Layout, by_seed: tuple[Any, ...]) -> Any:
    """`function(*of one seed)` for all seeds, side by side on each device: for what moves numbers
    and computes none, which has the same bits in any order."""
    return jax.shard_map(
        lambda by_seed: jax.vmap(function)(*by_seed),
        mesh=layout.mesh,
        in_specs=(P("seed"),),
        out_specs=P("seed"),
        check_vma=False,
    )(by_seed)
