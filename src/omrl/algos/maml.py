"""What the methods that adapt by a few gradient steps share: settings, layers, rates, batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.adaptive import LayerKind, make_layer
from omrl.nets.heads import MakeLayer
from omrl.ops import inner_loop
from omrl.ops.descent import cosine_decay
from omrl.ops.inner_loop import Rates
from omrl.ranges import Count, Positive, Size, check_ranges
from omrl.types import Batch, Scalar

Config = TypeVar("Config", bound="MamlConfig")

INNER_BATCH = BatchSpec("inner", 256, "contiguous")
OUTER_BATCH = BatchSpec("outer", 256, start=0.6, disjoint_from="inner")


@dataclass(frozen=True)
class MamlConfig:
    """Settings of every method with a gradient inner loop. Defaults are those of MACAW's paper."""

    # --- Networks ---
    layer: LayerKind = "weight_transform"
    """What adapts: weights made from a latent, dense weights with an added bias, dense weights."""
    hidden: tuple[Size, ...] = (100, 100, 100)
    """Widths of the hidden layers of every network."""
    latent: Size = 100
    """Length of z in weight-transform layers."""
    offset: bool = False
    """Generated weights are z W + b; False: z W."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""
    sigma: Positive = 0.2
    """Standard deviation of the policy's Gaussian."""

    # --- Inner loop ---
    adapt: Literal["all", "z"] = "all"
    """What an inner step moves in a layer: all its tensors, or the latent z alone."""
    inner_steps: Size = 1
    """K, gradient steps of one adaptation."""
    inner_lr: Positive = 1e-3
    """Initial eta and alpha, of every tensor."""
    learn_inner_lr: bool = True
    """Meta-learn the inner rates."""
    inner_lr_per: Literal["layer", "tensor"] = "layer"
    """What shares one inner rate."""
    split_inner_batch: bool = False
    """With K steps: give each one K-th of the batch; False: the whole batch each time."""
    first_order: bool = False
    """Treat inner gradients as constants in the meta-gradient."""
    inner_form: Literal["low_rank", "plain"] = "low_rank"
    """How weight-transform layers step; both give the same numbers, plain copies every kernel."""
    max_adapt_steps: Size = 1
    """Gradient steps that an adapted task has room for at meta-test; never less than K."""

    # --- Outer loop ---
    steps: Count = 100_000
    """Meta-steps."""
    task_batch: Size = 5
    """Tasks per meta-step."""
    policy_lr: Positive = 1e-4
    """Adam rate of the policy."""
    lr_lr: Positive = 1e-3
    """Adam rate of the inner rates and of lambda."""
    lr_decay: bool = False
    """Let all Adam rates fall to zero over the run along a cosine."""
    divide_by_train_tasks: bool = False
    """Divide the summed losses by the number of training tasks, not of sampled ones."""

    # --- Batches ---
    inner_batch: BatchSpec = INNER_BATCH
    """D_tr: what a task adapts to."""
    outer_batch: BatchSpec = OUTER_BATCH
    """D_ts: what the adapted networks are judged on."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.inner_batch.name, self.outer_batch.name) != ("inner", "outer"):
            raise InputError("the batches of an inner and outer loop are named 'inner' and 'outer'")
        if self.split_inner_batch and self.inner_batch.size % max(1, self.inner_steps):
            raise InputError(
                f"split_inner_batch: inner_batch.size ({self.inner_batch.size}) must be a multiple "
                f"of inner_steps ({self.inner_steps})"
            )
        if self.adapt == "z" and self.layer == "linear":
            raise InputError(
                "adapt: linear layers have no z to adapt alone; take all, or another layer"
            )

    @property
    def plain(self) -> bool:
        """Whether traces are copies of the layers; without steps the low-rank form has no use."""
        return self.inner_form == "plain" or self.inner_steps == 0

    @property
    def capacity(self) -> int:
        """Gradient steps that an adapted task has room for."""
        return max(self.max_adapt_steps, self.inner_steps)

    @property
    def gradient_steps(self) -> int:
        """Of one adaptation round."""
        return self.inner_steps

    def for_rounds(self: Config, rounds: int) -> Config:
        """With room for so many adaptation rounds."""
        return replace(self, max_adapt_steps=max(self.max_adapt_steps, rounds * self.inner_steps))


def layer_maker(config: MamlConfig) -> MakeLayer:
    """Makes the layers that the config says."""
    return partial(make_layer, config.layer, latent=config.latent, offset=config.offset)


def raw_rates(
    config: MamlConfig, net: Any, initial: float | None = None
) -> Float[Array, "layer rate"]:
    """The initial inner rates in their stored form; `initial`: None is `config.inner_lr`."""
    layers = inner_loop.layers(net)
    per_layer = len(jax.tree.leaves(layers[0])) if config.inner_lr_per == "tensor" else 1
    rate = config.inner_lr if initial is None else initial
    return jnp.full((len(layers), per_layer), math.log(rate), jnp.float32)


def rates(
    config: MamlConfig, raw: Float[Array, "layer rate"], net: Any, initial: float | None = None
) -> Rates:
    """The inner rates of every layer's tensors from their stored form; 0 where none adapts.

    Those that are not learned are `initial`, None: `config.inner_lr`.
    """
    layer: Any = inner_loop.layers(net)[0]
    tensors = jax.tree.leaves(layer)
    rate = config.inner_lr if initial is None else initial
    positive = jax.nn.softplus(raw) if config.learn_inner_lr else jnp.full_like(raw, rate)
    rates = jnp.broadcast_to(positive, (raw.shape[0], len(tensors)))
    if config.adapt == "all":
        return rates
    is_z = jnp.array([tensor is layer.z for tensor in tensors])
    return jnp.where(is_z[None], rates, 0.0)


def inner_batches(config: MamlConfig, batch: Batch) -> list[Batch]:
    """The batch of every inner step."""
    steps = config.inner_steps
    if not config.split_inner_batch:
        return [batch] * steps
    size = batch.obs.shape[0] // max(1, steps)
    return [jax.tree.map(lambda x, s=s: x[s * size : (s + 1) * size], batch) for s in range(steps)]


def decay(config: MamlConfig, step: Int[Array, ""]) -> Scalar | float:
    """The factor of all Adam rates at an update."""
    return cosine_decay(step, config.steps) if config.lr_decay else 1.0
