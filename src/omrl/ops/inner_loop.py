"""Gradient descent on a network of adaptive layers, differentiating the dense network only.

A network is any pytree with `AdaptiveLayer`s in it. What descent changes is a tuple of traces, one
per layer in tree order: `LowRank` for weight-transform layers, a full copy of the layer for all
others, and for all layers in the plain form, with which the low-rank form must agree. Rates are an
array [layer, tensor].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
from jaxtyping import Array, Float

from omrl.nets.adaptive import AdaptiveLayer, WeightTransform
from omrl.nets.mlp import Dense
from omrl.ops import low_rank
from omrl.ops.low_rank import LowRank, Taps

Net = Any
Trace = AdaptiveLayer | LowRank
Traces = tuple[Trace, ...]
TapsOfNet = tuple[Taps | None, ...]
Rates = Float[Array, "layer tensor"]
Meta = TypeVar("Meta")


def layers(net: Net) -> list[AdaptiveLayer]:
    """The adaptive layers of a network in tree order."""
    return jax.tree.leaves(net, is_leaf=_is_layer)


def generate(net: Net) -> Net:
    """The network with every adaptive layer replaced by the dense layer that it makes."""
    return jax.tree.map(lambda layer: layer.dense(), net, is_leaf=_is_layer)


def taps(net: Net, num_tasks: int, num_steps: int) -> tuple[Taps | None, ...]:
    """Taps for a training pass (`low_rank.Taps`), None for layers whose traces are copies."""
    return tuple(
        low_rank.taps(layer, num_tasks, num_steps) if isinstance(layer, WeightTransform) else None
        for layer in layers(net)
    )


def start(net: Net, taps: TapsOfNet | None = None, *, plain: bool = False) -> Traces:
    """Traces before any step."""
    return tuple(
        low_rank.start(layer, tap) if isinstance(layer, WeightTransform) and not plain else layer
        for layer, tap in zip(layers(net), taps or _no_taps(net), strict=True)
    )


def read(net: Net, traces: Traces) -> Net:
    """The dense network that the traces stand for."""
    return _with_layers(net, map(_read, layers(net), traces))


def descend(
    net: Net,
    rates: Rates,
    traces: Traces,
    grads: Net,
    *,
    first_order: bool = False,
    taps: TapsOfNet | None = None,
) -> Traces:
    """One step on every tensor; `grads` is the gradient with respect to `read(net, traces)`.

    `first_order` makes the gradient of every tensor a constant.
    """
    dense_grads = jax.tree.leaves(grads, is_leaf=lambda node: isinstance(node, Dense))

    def one(layer: Any, rate: Array, trace: Trace, grad: Dense, tap: Taps | None) -> Trace:
        if isinstance(trace, LowRank):
            return low_rank.descend(layer, rate, trace, grad, first_order=first_order, taps=tap)
        return _descend_copy(rate, trace, grad, first_order)

    return tuple(map(one, layers(net), rates, traces, dense_grads, taps or _no_taps(net)))


def own_gradient(layer: AdaptiveLayer, grad: Dense) -> AdaptiveLayer:
    """The gradient of the layer's own tensors, by the chain rule from that of its dense layer."""
    _, pull_back = jax.vjp(lambda own: own.dense(), layer)
    return pull_back(grad)[0]


def materialize(net: Net, rates: Rates, traces: Traces) -> Net:
    """The adaptive network that the traces stand for, with every kernel written out."""

    def one(layer: Any, rate: Array, trace: Trace) -> AdaptiveLayer:
        return low_rank.materialize(layer, rate, trace) if isinstance(trace, LowRank) else trace

    return _with_layers(net, map(one, layers(net), rates, traces))


def with_kernel_gradients(net: Net, grads: Net, traces: Traces, cotangents: TapsOfNet) -> Net:
    """`grads` of a pass with taps, with the kernels' gradients filled in (`kernel_gradient`)."""

    def one(layer: Any, grad: Any, trace: Any, cotangent: Taps | None) -> AdaptiveLayer:
        if cotangent is None:
            return grad
        return replace(grad, kernel=low_rank.kernel_gradient(layer, trace, cotangent))

    return _with_layers(net, map(one, layers(net), layers(grads), traces, cotangents))


def meta_gradient(
    loss: Callable[[Meta, Any], tuple[Any, tuple[Any, Any]]],
    meta: Meta,
    no_taps: Any,
    num_tasks: int,
    num_steps: int,
    *,
    plain: bool,
) -> tuple[Meta, Any]:
    """The gradient of `loss` with respect to everything meta-learned, and what it tells beside.

    Args:
        loss: `(meta, taps) -> (total, (aux, last traces of the tasks))`.
        meta: a NamedTuple; those of its fields that are networks are named as in `no_taps`.
        no_taps: a NamedTuple of None for the networks; taps and traces come as such a tuple.
        plain: traces are copies of the layers, which need no taps.
    """
    if plain:
        grads, (aux, _) = jax.grad(loss, has_aux=True)(meta, no_taps)
        return grads, aux
    names = no_taps._fields
    tapped = no_taps._make(taps(getattr(meta, name), num_tasks, num_steps) for name in names)
    (grads, cotangents), (aux, traces) = jax.grad(loss, argnums=(0, 1), has_aux=True)(meta, tapped)
    whole = {
        name: with_kernel_gradients(*(getattr(x, name) for x in (meta, grads, traces, cotangents)))
        for name in names
    }
    return grads._replace(**whole), aux


def tap_axes(taps: Any) -> Any:
    """`vmap` axes of taps over the tasks; the start is shared."""
    return jax.tree.map(lambda x: None if x.ndim == 1 else 0, taps)


def mean(net: Net, rates: Rates, history: Sequence[Traces], weights: Sequence[float]) -> Net:
    """The dense network of the parameters' weighted mean over the traces of steps 0..K."""

    def one(layer: Any, rate: Array, *traces: Any) -> Dense:
        if isinstance(traces[0], LowRank):
            return low_rank.mean(layer, rate, traces, weights)
        mixed = jax.tree.map(lambda *xs: sum(w * x for w, x in zip(weights, xs)), *traces)  # noqa: B905
        return mixed.dense()

    return _with_layers(net, map(one, layers(net), rates, *history))


def pad(traces: Traces, capacity: int) -> Traces:
    """Traces whose shapes do not depend on how many of `capacity` steps were taken."""
    return tuple(
        low_rank.pad(trace, capacity) if isinstance(trace, LowRank) else trace for trace in traces
    )


def _is_layer(node: object) -> bool:
    return isinstance(node, AdaptiveLayer)


def _with_layers(net: Net, new: Any) -> Net:
    return jax.tree.structure(net, is_leaf=_is_layer).unflatten(list(new))


def _read(layer: Any, trace: Trace) -> Dense:
    return layer.split(trace.theta) if isinstance(trace, LowRank) else trace.dense()


def _no_taps(net: Net) -> TapsOfNet:
    return (None,) * len(layers(net))


def _descend_copy(
    rates: Array, layer: AdaptiveLayer, grad: Dense, first_order: bool
) -> AdaptiveLayer:
    tensors, tree = jax.tree.flatten(layer)
    moves = jax.tree.leaves(own_gradient(layer, grad))
    if first_order:
        moves = jax.lax.stop_gradient(moves)
    return tree.unflatten([x - rates[i] * g for i, (x, g) in enumerate(zip(tensors, moves))])  # noqa: B905
