"""The recurrent encoder of VariBAD (arXiv:1910.08348) and BOReL (arXiv:2008.02598), and what it is
trained through: a decoder of transitions.

Both see numbers of a transition as features, ReLU of a dense layer each.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.gru import Gru
from omrl.nets.latent_mlp import LatentMlp
from omrl.nets.mlp import Dense
from omrl.types import Key

Part: TypeAlias = Literal["next_obs", "action", "obs"]
"""Of a transition, what a decoder may see."""


class FeatureSizes(NamedTuple):
    """Features of each part of a transition; 0: it is not seen at all."""

    obs: int
    action: int
    reward: int


class Belief(NamedTuple):
    """What is known of the task after some transitions."""

    hidden: Float[Array, "*b hidden"]
    """State of the GRU."""
    mean: Float[Array, "*b latent"]
    log_variance: Float[Array, "*b latent"]


def _features(layer: Dense | None, x: Float[Array, " in"]) -> Float[Array, " feature"]:
    return x[:0] if layer is None else jax.nn.relu(layer(x))


def _init_features(key: Key, in_dim: int, size: int) -> Dense | None:
    return Dense.init(key, in_dim, size) if size else None


class BeliefEncoder(eqx.Module):
    """(a, s', r) of one transition after the other -> q_0, q_1, ..., of which q_0 is learned too.

    Each is linear in the GRU's state, which is 0 before the first transition. So q_0 is what the
    biases of that map say, and not N(0, 1).
    """

    action: Dense | None
    obs: Dense | None
    reward: Dense | None
    gru: Gru
    posterior: Dense
    """Hidden state -> mean and log variance."""

    @classmethod
    def init(
        cls,
        key: Key,
        obs_dim: int,
        act_dim: int,
        sizes: FeatureSizes,
        hidden: int,
        latent: int,
        keep_bias: float = 0.0,
    ) -> BeliefEncoder:
        keys = jax.random.split(key, 5)
        return cls(
            _init_features(keys[0], act_dim, sizes.action),
            _init_features(keys[1], obs_dim, sizes.obs),
            _init_features(keys[2], 1, sizes.reward),
            Gru.init(keys[3], sum(sizes), hidden, keep_bias),
            Dense.init(keys[4], hidden, 2 * latent),
        )

    def prior(self) -> Belief:
        """q_0."""
        return self._belief(jnp.zeros(self.gru.num_hidden, self.posterior.affine.dtype))

    def observe(
        self,
        belief: Belief,
        action: Float[Array, " act"],
        reward: Float[Array, ""],
        next_obs: Float[Array, " obs"],
    ) -> Belief:
        """The belief after one more transition."""
        return self._belief(self.gru(self._seen(action, reward, next_obs), belief.hidden))

    def beliefs(
        self,
        action: Float[Array, "step act"],
        reward: Float[Array, " step"],
        next_obs: Float[Array, "step obs"],
    ) -> Belief:
        """q_0, ..., q_T of a trajectory of T transitions, leaves [T + 1, ...]."""
        prior = self.prior()
        inputs = jax.vmap(self._seen)(action, reward, next_obs)
        states = self.gru.scan(inputs, prior.hidden)
        return jax.vmap(self._belief)(jnp.concatenate([prior.hidden[None], states]))

    def _seen(
        self,
        action: Float[Array, " act"],
        reward: Float[Array, ""],
        next_obs: Float[Array, " obs"],
    ) -> Float[Array, " feature"]:
        parts = ((self.action, action), (self.obs, next_obs), (self.reward, reward[None]))
        return jnp.concatenate([_features(layer, x) for layer, x in parts])

    def _belief(self, hidden: Float[Array, " hidden"]) -> Belief:
        return Belief(hidden, *jnp.split(self.posterior(hidden), 2))


class TransitionDecoder(eqx.Module):
    """f(z, features of the transition). Its first layer is a sum of what it makes of either,
    `shift` and `seen`, so each can be computed once for many pairs of them.

    s and s' have the same features.
    """

    obs: Dense | None
    action: Dense | None
    net: LatentMlp
    sees: tuple[Part, ...] = eqx.field(static=True)
    """In the order of the rows of the first layer, before those of z."""

    @classmethod
    def init(
        cls,
        key: Key,
        obs_dim: int,
        act_dim: int,
        sizes: FeatureSizes,
        sees: tuple[Part, ...],
        latent: int,
        hidden: tuple[int, ...],
        out_dim: int,
    ) -> TransitionDecoder:
        obs_key, action_key, net_key = jax.random.split(key, 3)
        looks = any(part != "action" for part in sees)
        in_dim = sum(sizes.action if part == "action" else sizes.obs for part in sees)
        return cls(
            _init_features(obs_key, obs_dim, sizes.obs if looks else 0),
            _init_features(action_key, act_dim, sizes.action if "action" in sees else 0),
            LatentMlp.init(net_key, in_dim, latent, hidden, out_dim, None),
            sees,
        )

    def shift(self, z: Float[Array, " latent"]) -> Float[Array, " hidden"]:
        """What z adds to the first layer, bias included."""
        return self.net.shift(z)

    def seen(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
    ) -> Float[Array, " hidden"]:
        """What a transition adds to it; 0 of a decoder that sees none."""
        parts = {"obs": (self.obs, obs), "action": (self.action, action)}
        parts["next_obs"] = (self.obs, next_obs)
        return self.net.seen(
            jnp.concatenate([obs[:0], *(_features(*parts[part]) for part in self.sees)])
        )

    def __call__(
        self, shift: Float[Array, " hidden"], seen: Float[Array, " hidden"]
    ) -> Float[Array, " out"]:
        return self.net.rest(seen + shift)
