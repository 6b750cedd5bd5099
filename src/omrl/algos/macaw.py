"""MACAW: meta-actor critic with advantage weighting (Mitchell et al. 2021, arXiv:2008.06043).

Meta-training (Algorithm 1), for every task of a batch:

    phi'   = phi   - eta grad L_V(phi, D_tr)                                   Eq. 2
    theta' = theta - alpha grad [L_AWR + lambda L_ADV](theta, phi', D_tr)      Eqs. 1, 3, 4
    outer losses  L_V(phi', D_ts),  L_AWR(theta', phi', D_ts)                  Eqs. 5, 6

and one Adam step each on phi, theta, the inner rates (and lambda) along the second-order gradient.
Meta-testing (Algorithm 2) is the inner loop alone.

Four files: the settings, with every difference between paper and reference code
(`macaw_config.py`), the losses of a task (`macaw_losses.py`), learning on online
(`macaw_tuning.py`), and here the algorithm behind the contract. `docs/algorithms/macaw.md` lists
the differences, `presets.py` names the sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.algos import macaw_losses, macaw_tuning, maml
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import MacawTask, Meta, meta_gradient
from omrl.algos.macaw_tuning import MacawTuning
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.nets.mlp import Dense
from omrl.ops import inner_loop
from omrl.ops.descent import move
from omrl.ops.gaussian import fixed_width_action
from omrl.ops.scale import scaled_batch, scaled_obs
from omrl.tuning import DEFAULT, FinetuneConfig
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
    tuning: FinetuneConfig = DEFAULT
    """What `tune` follows."""

    def init(self, key: Key) -> MacawState:
        value_key, policy_key = jax.random.split(key)
        config, spec = self.config, self.spec
        head = config.head_hidden if config.advantage_head else None
        make = maml.layer_maker(config)
        value = ValueNet.init(value_key, spec.obs_dim, config.value_widths, make)
        policy = PolicyNet.init(
            policy_key,
            spec.obs_dim,
            spec.act_dim,
            config.hidden,
            head,
            make,
            relu_action=config.relu_action,
        )
        coef = jnp.full((), math.log(config.adv_coef), jnp.float32)
        rates = maml.raw_rates(config, value, config.value_inner_lr), maml.raw_rates(config, policy)
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
        config, decay = self.config, maml.decay(self.config, state.step)
        lrs = (config.value_lr, config.policy_lr, config.lr_lr, config.lr_lr, config.lr_lr)
        meta = move(state.meta, directions, [rate * decay for rate in lrs])
        return MacawState(state.step + 1, meta, opt), losses

    def begin(self, state: MacawState, key: Key) -> MacawTask:
        return self._padded(macaw_losses.begin(self.config, state.meta))

    def adapt(self, state: MacawState, task: MacawTask, support: Batch, key: Key) -> MacawTask:
        """K more gradient steps on the support (Algorithm 2). More steps in all than the
        config's `capacity` make the task's parameters NaN."""
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
        scaled = scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)
        mean = self.policy(state, task)(scaled)
        return fixed_width_action(key, mean, self.config.sigma, deterministic)

    def policy_layers(self, state: MacawState, task: MacawTask) -> tuple[Dense, ...]:
        return self.policy(state, task).trunk

    def policy(self, state: MacawState, task: MacawTask) -> PolicyNet:
        """The task's dense policy, which takes observations scaled as the config says."""
        return inner_loop.read(state.meta.policy, task.policy)

    # --- Learning on online ---

    def for_tuning(self, settings: FinetuneConfig) -> Macaw:
        macaw_tuning.check(self.config, settings)
        return replace(self, tuning=settings)

    def begin_tuning(self, state: MacawState, task: MacawTask, key: Key) -> MacawTuning:
        return macaw_tuning.begin(self.config, self.tuning, state.meta, task)

    def tune(self, state: MacawState, tuning: MacawTuning, batch: Batch, key: Key) -> MacawTuning:
        return self.tune_policy(state, self.tune_value(state, tuning, batch, key), batch, key)

    def tune_value(
        self, state: MacawState, tuning: MacawTuning, batch: Batch, key: Key
    ) -> MacawTuning:
        scaled = self._scaled(batch)
        return macaw_tuning.tune_value(self.config, self.tuning, tuning, scaled)

    def tune_policy(
        self, state: MacawState, tuning: MacawTuning, batch: Batch, key: Key
    ) -> MacawTuning:
        scaled = self._scaled(batch)
        return macaw_tuning.tune_policy(self.config, self.tuning, state.meta, tuning, scaled)

    def tuned(self, state: MacawState, tuning: MacawTuning) -> MacawTask:
        return macaw_tuning.tuned(tuning)

    def _padded(self, task: MacawTask) -> MacawTask:
        return MacawTask(*(inner_loop.pad(t, self.config.capacity) for t in task))

    def _scaled(self, batch: Batch) -> Batch:
        config = self.config
        return scaled_batch(
            self.spec,
            batch,
            normalize_obs=config.normalize_obs,
            scale_returns=config.scale_returns,
        )
