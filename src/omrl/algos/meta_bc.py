"""Meta behaviour cloning: MAML on imitation, the baseline of MACAW's Figure 3 (arXiv:2008.06043).

One loss in both loops, the negative log-likelihood of the logged actions:

    L(theta, D)  = - mean_{(s, a) in D} log N(a; pi_theta(s), sigma^2)
    theta'       = theta - alpha grad L(theta, D_tr)     K inner steps (Algorithm 1, line 8)
    outer loss     L(theta', D_ts)

and one Adam step each on theta and the inner rates along the second-order gradient. It is MACAW
with weights of 1 and no value: what is gained over it is gained by the rewards. With `inner_steps`
0 nothing adapts, and what is left is multi-task behaviour cloning: one policy for the data of all
tasks, which is not told the task either.

`docs/algorithms/meta_bc.md` lists the differences to the reference code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.algos import maml
from omrl.algos.maml import MamlConfig
from omrl.nets.heads import PolicyNet
from omrl.nets.mlp import Dense
from omrl.ops import inner_loop
from omrl.ops.descent import move
from omrl.ops.gaussian import fixed_width_action, fixed_width_log_prob
from omrl.ops.inner_loop import TapsOfNet, Traces
from omrl.ops.scale import scaled_batch, scaled_obs
from omrl.ranges import Range
from omrl.types import Batch, Key, Metrics, Scalar, Spec, Step

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes


@dataclass(frozen=True)
class MetaBcConfig(MamlConfig):
    """Settings of meta behaviour cloning. Defaults are those of MACAW's policy."""

    TAG: ClassVar[str] = "meta-bc"

    inner_steps: Annotated[int, Range(0, 10_000)] = 1
    """K, gradient steps of one adaptation; 0: multi-task behaviour cloning."""


class MetaBcMeta(NamedTuple):
    """All that is meta-learned. Inner rates are softplus of the stored numbers."""

    policy: PolicyNet
    policy_rates: Float[Array, "layer rate"]


class MetaBcState(NamedTuple):
    step: Int[Array, ""]
    meta: MetaBcMeta
    opt: Any


class MetaBcTask(NamedTuple):
    """The adapted policy."""

    policy: Traces


class MetaBcTaps(NamedTuple):
    """Taps of a training pass, see `ops.low_rank.Taps`."""

    policy: TapsOfNet | None


NO_TAPS = MetaBcTaps(None)


# --- One task ---


def imitation_loss(net: PolicyNet, sigma: float, batch: Batch) -> Scalar:
    """L of a dense policy."""
    return -jnp.mean(fixed_width_log_prob(batch.action, jax.vmap(net)(batch.obs), sigma))


class Inner(NamedTuple):
    """What the inner loop went through: index s is step s, `history` starts before any."""

    history: list[Traces]
    losses: list[Scalar]
    grads: list[Any]


def inner_steps(
    config: MetaBcConfig, meta: MetaBcMeta, task: MetaBcTask, taps: MetaBcTaps, support: Batch
) -> Inner:
    """theta' = theta - alpha grad L(theta, D_tr), K times."""
    inner = Inner([task.policy], [], [])
    rates = maml.rates(config, meta.policy_rates, meta.policy)
    for batch in maml.inner_batches(config, support):
        traces = inner.history[-1]
        dense = inner_loop.read(meta.policy, traces)
        loss, grads = jax.value_and_grad(imitation_loss)(dense, config.sigma, batch)
        after = inner_loop.descend(
            meta.policy, rates, traces, grads, first_order=config.first_order, taps=taps.policy
        )
        inner.history.append(after)
        inner.losses.append(loss)
        inner.grads.append(grads)
    return inner


def task_losses(
    config: MetaBcConfig,
    meta: MetaBcMeta,
    start: MetaBcTask,
    taps: MetaBcTaps,
    inner: Batch,
    outer: Batch,
) -> tuple[dict[str, Scalar], MetaBcTask]:
    """The losses of one task and its last traces."""
    loop = inner_steps(config, meta, start, taps, inner)
    adapted = inner_loop.read(meta.policy, loop.history[-1])
    losses = {"policy_loss": imitation_loss(adapted, config.sigma, outer)}
    if loop.losses:
        losses["policy_inner_loss"] = loop.losses[0]
    return losses, MetaBcTask(loop.history[-1])


def begin(config: MetaBcConfig, meta: MetaBcMeta, taps: MetaBcTaps = NO_TAPS) -> MetaBcTask:
    """The meta-parameters as a task on which no step was taken."""
    return MetaBcTask(inner_loop.start(meta.policy, taps.policy, plain=config.plain))


# --- All tasks ---


def meta_gradient(
    config: MetaBcConfig, num_train_tasks: int, meta: MetaBcMeta, inner: Batch, outer: Batch
) -> tuple[MetaBcMeta, dict[str, Array]]:
    """The gradient of the mean outer loss over a batch of tasks, leaves [task, sample, ...], with
    respect to everything meta-learned, and every task's losses."""
    num_tasks = inner.obs.shape[0]

    def loss(meta: MetaBcMeta, taps: MetaBcTaps) -> Any:
        of_task = partial(task_losses, config, meta, begin(config, meta, taps))
        axes = (inner_loop.tap_axes(taps), 0, 0)
        losses, traces = jax.vmap(of_task, in_axes=axes)(taps, inner, outer)
        divisor = num_train_tasks if config.divide_by_train_tasks else num_tasks
        return jnp.sum(losses["policy_loss"]) / divisor, (losses, traces)

    return inner_loop.meta_gradient(
        loss, meta, NO_TAPS, num_tasks, config.inner_steps, plain=config.plain
    )


@dataclass(frozen=True)
class MetaBc(Algorithm[MetaBcState, MetaBcTask]):
    """Meta behaviour cloning behind the contract of `omrl.algorithm`."""

    config: MetaBcConfig
    spec: Spec

    def init(self, key: Key) -> MetaBcState:
        config, spec = self.config, self.spec
        policy = PolicyNet.init(
            key,
            spec.obs_dim,
            spec.act_dim,
            config.hidden,
            None,
            maml.layer_maker(config),
            relu_action=False,
        )
        meta = MetaBcMeta(policy, maml.raw_rates(config, policy))
        return MetaBcState(jnp.zeros((), jnp.int32), meta, ADAM.init(meta))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches = (config.inner_batch, config.outer_batch)
        return (Stage("meta-train", config.steps, config.task_batch, batches, self.update),)

    def update(
        self, state: MetaBcState, batches: dict[str, Batch], key: Key
    ) -> tuple[MetaBcState, Metrics]:
        """One meta-step on batches [task, sample, ...]; the key is not needed."""
        config = self.config
        inner, outer = self._scaled(batches["inner"]), self._scaled(batches["outer"])
        grads, losses = meta_gradient(config, self.spec.num_train_tasks, state.meta, inner, outer)
        directions, opt = ADAM.update(grads, state.opt)
        decay = maml.decay(config, state.step)
        meta = move(state.meta, directions, [config.policy_lr * decay, config.lr_lr * decay])
        return MetaBcState(state.step + 1, meta, opt), losses

    def begin(self, state: MetaBcState, key: Key) -> MetaBcTask:
        return self._padded(begin(self.config, state.meta))

    def adapt(self, state: MetaBcState, task: MetaBcTask, support: Batch, key: Key) -> MetaBcTask:
        """K more gradient steps on the support. More steps in all than the config's `capacity` make
        the task's parameters NaN."""
        scaled = self._scaled(support)
        loop = inner_steps(self.config, state.meta, task, NO_TAPS, scaled)
        return self._padded(MetaBcTask(loop.history[-1]))

    def observe(self, state: MetaBcState, task: MetaBcTask, step: Step, key: Key) -> MetaBcTask:
        return task

    def act(
        self,
        state: MetaBcState,
        task: MetaBcTask,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        scaled = scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)
        mean = inner_loop.read(state.meta.policy, task.policy)(scaled)
        return fixed_width_action(key, mean, self.config.sigma, deterministic)

    def policy_layers(self, state: MetaBcState, task: MetaBcTask) -> tuple[Dense, ...]:
        return inner_loop.read(state.meta.policy, task.policy).trunk

    def _padded(self, task: MetaBcTask) -> MetaBcTask:
        return MetaBcTask(inner_loop.pad(task.policy, self.config.capacity))

    def _scaled(self, batch: Batch) -> Batch:
        normalize = self.config.normalize_obs
        return scaled_batch(self.spec, batch, normalize_obs=normalize, scale_returns=False)
