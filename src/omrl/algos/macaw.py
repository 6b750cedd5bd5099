"""MACAW: meta-actor critic with advantage weighting (Mitchell et al. 2021, arXiv:2008.06043).

Meta-training (Algorithm 1), for every task of a batch:

    phi'   = phi   - eta grad L_V(phi, D_tr)                                   Eq. 2
    theta' = theta - alpha grad [L_AWR + lambda L_ADV](theta, phi', D_tr)      Eqs. 1, 3, 4
    outer losses  L_V(phi', D_ts),  L_AWR(theta', phi', D_ts)                  Eqs. 5, 6

and one Adam step each on phi, theta, the inner rates (and lambda) along the second-order gradient.
Meta-testing (Algorithm 2) is the inner loop alone.

Three files: the settings, with every difference between paper and reference code
(`macaw_config.py`), the losses of a task (`macaw_losses.py`), and here the algorithm behind the
contract. `docs/algorithms/macaw.md` lists the differences, `presets.py` names the sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.algos import macaw_losses
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import MacawTask, Meta, meta_gradient
from omrl.nets.adaptive import AdaptiveLayer, BiasTransform, Linear, WeightTransform
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.nets.mlp import Dense
from omrl.ops import inner_loop
from omrl.types import Batch, Key, Metrics, Spec, Step

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes


class MacawState(NamedTuple):
    step: Int[Array, ""]
    meta: Meta
    opt: Any


@dataclass(frozen=True)
class Macaw(Algorithm[MacawState, MacawTask]):
    """MACAW behind the contract of `omrl.algorithm`."""

    config: MacawConfig
    spec: Spec

    def init(self, key: Key) -> MacawState:
        value_key, policy_key = jax.random.split(key)
        config, spec = self.config, self.spec
        head = config.head_hidden if config.advantage_head else None
        value = ValueNet.init(value_key, spec.obs_dim, config.hidden, self._layer)
        policy = PolicyNet.init(
            policy_key,
            spec.obs_dim,
            spec.act_dim,
            config.hidden,
            head,
            self._layer,
            relu_action=config.relu_action,
        )
        coef = jnp.full((), math.log(config.adv_coef), jnp.float32)
        rates = self._raw_rates(value), self._raw_rates(policy)
        return self.start(Meta(value, policy, *rates, coef))

    def start(self, meta: Meta) -> MacawState:
        """The state before any update of the given meta-parameters."""
        return MacawState(jnp.zeros((), jnp.int32), meta, ADAM.init(meta))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches = (config.inner_batch, config.outer_batch)
        return (Stage("meta-train", config.steps, config.task_batch, batches, self.update),)

    def update(
        self, state: MacawState, batches: dict[str, Batch], key: Key
    ) -> tuple[MacawState, Metrics]:
        """One meta-step on batches [task, sample, ...]; the key is not needed."""
        inner, outer = self._scaled(batches["inner"]), self._scaled(batches["outer"])
        grads, losses = meta_gradient(
            self.config, self.spec.num_train_tasks, state.meta, inner, outer
        )
        directions, opt = ADAM.update(grads, state.opt)
        meta = self._move(state.meta, directions, state.step)
        return MacawState(state.step + 1, meta, opt), losses

    def begin(self, state: MacawState, key: Key) -> MacawTask:
        return self._padded(macaw_losses.begin(self.config, state.meta))

    def adapt(self, state: MacawState, task: MacawTask, support: Batch, key: Key) -> MacawTask:
        """K more gradient steps on the support (Algorithm 2). More steps in all than
        `max_adapt_steps` make the task's parameters NaN."""
        return self._padded(
            macaw_losses.adapt(self.config, state.meta, task, self._scaled(support))
        )

    def observe(self, state: MacawState, task: MacawTask, step: Step, key: Key) -> MacawTask:
        return task

    def act(
        self,
        state: MacawState,
        task: MacawTask,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        action = self.policy(state, task)(self._scaled_obs(obs))
        if not deterministic:
            action = action + self.config.sigma * jax.random.normal(key, action.shape)
        return jnp.clip(action, -1.0, 1.0)

    def policy_layers(self, state: MacawState, task: MacawTask) -> tuple[Dense, ...]:
        return self.policy(state, task).trunk

    def policy(self, state: MacawState, task: MacawTask) -> PolicyNet:
        """The task's dense policy, which takes observations scaled as the config says."""
        return inner_loop.read(state.meta.policy, task.policy)

    def _padded(self, task: MacawTask) -> MacawTask:
        return MacawTask(*(inner_loop.pad(t, self.config.max_adapt_steps) for t in task))

    def _layer(self, key: Key, in_dim: int, out_dim: int) -> AdaptiveLayer:
        config = self.config
        if config.layer == "linear":
            return Linear.init(key, in_dim, out_dim)
        if config.layer == "bias_transform":
            return BiasTransform.init(key, in_dim, out_dim)
        return WeightTransform.init(
            key, in_dim, out_dim, latent=config.latent, offset=config.offset
        )

    def _raw_rates(self, net: Any) -> Float[Array, "layer rate"]:
        layers = inner_loop.layers(net)
        per_layer = len(jax.tree.leaves(layers[0])) if self.config.inner_lr_per == "tensor" else 1
        return jnp.full((len(layers), per_layer), math.log(self.config.inner_lr), jnp.float32)

    def _move(self, meta: Meta, directions: Meta, step: Int[Array, ""]) -> Meta:
        """Adam's step. One `scale_by_adam` over all, whose directions each part scales by its own
        rate, is the same as an Adam per part and has one step counter."""
        config = self.config
        decay = 1.0
        if config.lr_decay:
            decay = 0.5 * (1 + jnp.cos(math.pi * jnp.minimum(step / config.steps, 1.0)))
        rates = (config.value_lr, config.policy_lr, config.lr_lr, config.lr_lr, config.lr_lr)
        parts = (
            jax.tree.map(lambda x, d, rate=rate: x - rate * decay * d, part, direction)
            for rate, part, direction in zip(rates, meta, directions, strict=True)
        )
        return Meta(*parts)

    def _scaled_obs(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b obs"]:
        if not self.config.normalize_obs:
            return obs
        lead = (1,) * (obs.ndim - 1)
        mean = jnp.asarray(self.spec.obs_mean, obs.dtype).reshape(*lead, -1)
        std = jnp.asarray(self.spec.obs_std, obs.dtype).reshape(*lead, -1)
        return (obs - mean) / std

    def _scaled(self, batch: Batch) -> Batch:
        scale = self.spec.return_std if self.config.scale_returns else 1.0
        return batch._replace(
            obs=self._scaled_obs(batch.obs),
            terminal_obs=self._scaled_obs(batch.terminal_obs),
            mc_return=batch.mc_return / scale,
        )
