"""What PEARL and SMAC have in common: a task is a latent z, inferred from a context by an encoder,
and told to the policy and to whatever judges its actions.

Here axes are [task, sample, feature], because whatever a network computes for all transitions has
to be one product of matrices, see `nets.latent_mlp.over_samples`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from omrl.algos.sac import LOG_STD_RANGE
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, every_sample, over_samples
from omrl.ops import latent
from omrl.ops.gaussian import LogSlope, squash, tanh_log_slope
from omrl.ops.latent import Evidence
from omrl.types import Batch, Key

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes

NUM_CRITICS = 2
LAST_BOUND, POLICY_LAST_BOUND = 3e-3, 1e-3
"""Of the last layers' weights at first, in the reference code of both."""

PerSample: TypeAlias = Float[Array, "task sample"]
PerTask: TypeAlias = Float[Array, " task"]
Z: TypeAlias = Float[Array, "task latent"]


class Inferred(NamedTuple):
    """What is known of z."""

    evidence: Evidence
    z: Z
    kl: PerTask
    """To the prior, in nats."""


class Acted(NamedTuple):
    """Actions of the policy and what they come from."""

    action: Float[Array, "task sample act"]
    log_prob: PerSample
    mean: Float[Array, "task sample act"]
    """Before tanh, as `log_std`."""
    log_std: Float[Array, "task sample act"]


def init_critics(
    key: Key,
    in_dim: int,
    latent_dim: int,
    hidden: tuple[int, ...],
    last_bound: float | None,
    hidden_bias: float = 0.1,
) -> LatentMlp:
    """Both Qs as one, leaves [critic, ...]; `last_bound` and `hidden_bias`: see `init_layers`."""

    def one(key: Key) -> LatentMlp:
        return LatentMlp.init(key, in_dim, latent_dim, hidden, 1, last_bound, hidden_bias)

    return jax.vmap(one)(jax.random.split(key, NUM_CRITICS))


# --- z of a context ---


def evidence(encoder: Encoder, context: Batch) -> Evidence:
    """The product of the factors of all transitions of each task, leaves [task, latent]."""
    columns = (context.obs, context.action, context.reward, context.next_obs)
    return jax.vmap(latent.product)(latent.factor(*over_samples(encoder, *columns)))


def infer(encoder: Encoder, context: Batch, noise: Z) -> Inferred:
    """z ~ q(z|c), differentiable in the encoder."""
    product = evidence(encoder, context)
    mean, variance = latent.posterior(product)
    kl = jax.vmap(latent.kl_to_prior)(mean, variance)
    return Inferred(product, latent.sample(mean, variance, noise), kl)


# --- What the networks say of every transition ---


def outputs(
    net: LatentMlp, x: Float[Array, "task sample in"], z: Z
) -> Float[Array, "task sample out"]:
    return over_samples(net, x, every_sample(jax.vmap(net.shift)(z), x.shape[1]))


def action_values(
    critics: LatentMlp,
    obs: Float[Array, "task sample obs"],
    action: Float[Array, "task sample act"],
    z: Z,
) -> Float[Array, "task sample critic"]:
    """Q_i(s, a, z). One network after the other: a batched product is slower on a CPU."""
    x = jnp.concatenate([obs, action], axis=-1)
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], critics) for i in range(NUM_CRITICS)]
    return jnp.concatenate([outputs(critic, x, z) for critic in each], axis=-1)


def distribution(
    policy: LatentMlp, obs: Float[Array, " obs"], shift: Float[Array, " hidden"]
) -> tuple[Float[Array, " act"], Float[Array, " act"]]:
    """(mean, log_std) of the Gaussian before tanh."""
    mean, log_std = jnp.split(policy(obs, shift), 2)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def act(
    policy: LatentMlp,
    obs: Float[Array, "task sample obs"],
    z: Z,
    noise: Float[Array, "task sample act"],
    log_slope: LogSlope = tanh_log_slope,
) -> Acted:
    """One action of the policy for every observation, differentiable in the policy."""

    def one(obs: Array, shift: Array, noise: Array) -> Acted:
        mean, log_std = distribution(policy, obs, shift)
        return Acted(*squash(noise, mean, log_std, log_slope), mean, log_std)

    return over_samples(one, obs, every_sample(jax.vmap(policy.shift)(z), obs.shape[1]), noise)
