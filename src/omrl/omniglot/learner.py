"""MAML with cross-entropy on a perceptron of adaptive layers (Finn et al. 2017, arXiv:1703.03400).

    theta'     = theta - alpha grad L(theta, support)     one drawing of each class
    outer loss   L(theta', query)                         other drawings of the same classes

L is the cross-entropy, averaged over classes and drawings. Layers and inner step are those that
MACAW adapts by (`nets/adaptive.py`, `ops/inner_loop.py`), in the low-rank form.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, UInt8

from omrl.nets.adaptive import make_layer
from omrl.nets.mlp import Dense, forward
from omrl.omniglot.settings import Learner
from omrl.omniglot.split import SIDES
from omrl.ops import inner_loop
from omrl.ops.descent import move
from omrl.ops.inner_loop import Rates, TapsOfNet, Traces
from omrl.types import Key, Scalar

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes

_EVALUATION = 2**31 - 1
"""Seed of the evaluations' episodes: of no training."""
_TOGETHER = 20
"""Episodes that are evaluated side by side: wide networks adapted to all would fill a GPU."""


class Meta(NamedTuple):
    """All that is meta-learned."""

    net: tuple[Any, ...]
    """Adaptive layers."""
    log_rates: Float[Array, "layer 1"]
    """Logarithms of the inner rates."""


class _OfNet(NamedTuple):
    """Taps or traces, by the name of what they are of."""

    net: Any


class State(NamedTuple):
    """Of one learner."""

    step: Int[Array, ""]
    """Meta-steps so far."""
    meta: Meta
    opt: optax.OptState
    outer_lr: Scalar
    """Constant; here so that learners with several rates run side by side."""
    accuracy: Float[Array, "point side episode"]
    """Shares of correct answers at the evaluations so far, NaN at later ones."""


class Data(NamedTuple):
    """`split.Classes` on the device."""

    pixels: UInt8[Array, "class drawing pixel"]
    on_side: Bool[Array, "side class"]


class Episode(NamedTuple):
    """Ink from 0 to 1; a class's label is its position."""

    support: Float[Array, "way shot pixel"]
    query: Float[Array, "way shot pixel"]


def init(learner: Learner, num_points: int, key: Key, inner_lr: Scalar, outer_lr: Scalar) -> State:
    """Before any step, with room for `num_points` evaluations."""
    pairs = list(pairwise(learner.sizes))
    make = partial(make_layer, learner.layer, latent=learner.latent, offset=False)
    net = tuple(
        make(layer_key, *pair)
        for layer_key, pair in zip(jax.random.split(key, len(pairs)), pairs, strict=True)
    )
    meta = Meta(net, jnp.full((len(net), 1), jnp.log(inner_lr)))
    unknown = jnp.full((num_points, len(SIDES), learner.eval_episodes), jnp.nan)
    return State(jnp.zeros((), jnp.int32), meta, ADAM.init(meta), outer_lr, unknown)


# --- Episodes ---


def draw_episode(learner: Learner, data: Data, allowed: Bool[Array, " class"], key: Key) -> Episode:
    """Distinct classes out of those allowed, and distinct drawings of each."""
    class_key, drawing_key = jax.random.split(key)
    lots = jnp.where(allowed, jax.random.uniform(class_key, allowed.shape), -1.0)
    classes = jax.lax.top_k(lots, learner.ways)[1]
    of_class = partial(jax.random.permutation, x=data.pixels.shape[1])
    drawings = jax.vmap(of_class)(jax.random.split(drawing_key, learner.ways))
    drawings = drawings[:, : 1 + learner.queries]
    images = data.pixels[classes[:, None], drawings].astype(jnp.float32) / 255
    return Episode(images[:, :1], images[:, 1:])


# --- One episode ---


def class_loss(net: tuple[Dense, ...], images: Float[Array, "way shot pixel"]) -> Scalar:
    """Mean cross-entropy of the true classes."""
    scores = jax.nn.log_softmax(_logits(net, images))
    return -jnp.mean(jnp.diagonal(scores, axis1=0, axis2=2))


def accuracy(net: tuple[Dense, ...], images: Float[Array, "way shot pixel"]) -> Scalar:
    """The share of images whose class has the highest score."""
    answers = jnp.argmax(_logits(net, images), axis=-1)
    return jnp.mean(answers == jnp.arange(len(images))[:, None])


def adapt(
    learner: Learner,
    meta: Meta,
    support: Float[Array, "way shot pixel"],
    taps: TapsOfNet | None = None,
) -> Traces:
    """The traces of the network after its steps on the support."""
    rates = inner_rates(meta)
    traces = inner_loop.start(meta.net, taps)
    for _ in range(learner.inner_steps):
        grads = jax.grad(class_loss)(inner_loop.read(meta.net, traces), support)
        traces = inner_loop.descend(
            meta.net, rates, traces, grads, first_order=learner.first_order, taps=taps
        )
    return traces


def inner_rates(meta: Meta) -> Rates:
    """One rate per layer, the same for all its tensors."""
    per_layer = len(jax.tree.leaves(meta.net[0]))
    return jnp.broadcast_to(jnp.exp(meta.log_rates), (len(meta.net), per_layer))


def _logits(
    net: tuple[Dense, ...], images: Float[Array, "way shot pixel"]
) -> Float[Array, "way shot score"]:
    return jax.vmap(jax.vmap(partial(forward, net)))(images)


# --- All episodes of a meta-step ---


def update(learner: Learner, state: State, data: Data, key: Key) -> tuple[State, Scalar]:
    """The state after a meta-step on training classes, and the outer loss before it."""
    draw = partial(draw_episode, learner, data, data.on_side[0])
    episodes = jax.vmap(draw)(jax.random.split(key, learner.meta_batch))
    grads, losses = meta_gradient(learner, state.meta, episodes)
    directions, opt = ADAM.update(grads, state.opt)
    lr_lr = learner.lr_lr if learner.learn_inner_lr else 0.0
    meta = move(state.meta, directions, (state.outer_lr, lr_lr))
    after = state._replace(step=state.step + 1, meta=meta, opt=opt)
    return after, jnp.mean(losses)


def meta_gradient(
    learner: Learner, meta: Meta, episodes: Episode
) -> tuple[Meta, Float[Array, " episode"]]:
    """The gradient of the mean outer loss over episodes [episode, ...], and each one's loss."""

    def of_episode(meta: Meta, taps: _OfNet, episode: Episode) -> tuple[Scalar, _OfNet]:
        traces = adapt(learner, meta, episode.support, taps.net)
        loss = class_loss(inner_loop.read(meta.net, traces), episode.query)
        return loss, _OfNet(traces)

    def loss(meta: Meta, taps: _OfNet) -> Any:
        axes = (None, inner_loop.tap_axes(taps), 0)
        losses, traces = jax.vmap(of_episode, in_axes=axes)(meta, taps, episodes)
        return jnp.mean(losses), (losses, traces)

    return inner_loop.meta_gradient(
        loss, meta, _OfNet(None), learner.meta_batch, learner.inner_steps, plain=False
    )


# --- Evaluation ---


def evaluate(learner: Learner, state: State, data: Data, point: Int[Array, ""]) -> State:
    """The state with the accuracies of evaluation number `point` in it."""

    def of_episode(allowed: Bool[Array, " class"], key: Key) -> Scalar:
        episode = draw_episode(learner, data, allowed, key)
        traces = adapt(learner, state.meta, episode.support)
        return accuracy(inner_loop.read(state.meta.net, traces), episode.query)

    def of_side(side: tuple[Array, Array]) -> Float[Array, " episode"]:
        allowed, key = side
        keys = jax.random.split(key, learner.eval_episodes)
        together = math.gcd(learner.eval_episodes, _TOGETHER)
        return jax.lax.map(partial(of_episode, allowed), keys, batch_size=together)

    keys = jax.random.split(jax.random.PRNGKey(_EVALUATION), len(SIDES))
    shares = jax.lax.map(of_side, (data.on_side, keys))
    return state._replace(accuracy=state.accuracy.at[point].set(shares))


def chance(learner: Learner) -> float:
    """Accuracy of a network that knows nothing."""
    return 1 / learner.ways


def num_parameters(learner: Learner) -> int:
    """All numbers in the network."""
    from omrl.nets.mlp import num_parameters as count

    key, one = jax.random.PRNGKey(0), jnp.ones(())
    return count(jax.eval_shape(partial(init, learner, 1), key, one, one).meta.net)
