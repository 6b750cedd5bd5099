"""MACAW's losses, inner loops and meta-gradient.

Everything up to `task_losses` sees one task; equations are in `ops/awr.py`, steps in
`ops/inner_loop.py`. Adaptive networks hold meta-parameters, dense ones can be called.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.algos.macaw_config import MacawConfig
from omrl.algos.maml import inner_batches, rates
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.ops import awr, inner_loop
from omrl.ops.gaussian import fixed_width_log_prob
from omrl.ops.inner_loop import Rates, TapsOfNet, Traces
from omrl.types import Batch, Scalar


class Meta(NamedTuple):
    """All that is meta-learned. Inner rates and lambda are softplus of the stored numbers."""

    value: ValueNet
    policy: PolicyNet
    value_rates: Float[Array, "layer rate"]
    policy_rates: Float[Array, "layer rate"]
    adv_coef: Scalar


class MacawTask(NamedTuple):
    """The adapted networks."""

    value: Traces
    policy: Traces


class MacawTaps(NamedTuple):
    """Taps of a training pass, see `ops.low_rank.Taps`."""

    value: TapsOfNet | None
    policy: TapsOfNet | None


NO_TAPS = MacawTaps(None, None)


# --- Losses of one task ---


def value_inner_loss(net: ValueNet, obs: Array, target: Array) -> Scalar:
    """L_V (Eq. 2) of a dense value network."""
    return awr.value_loss(jax.vmap(net)(obs), target)


def policy_inner_loss(
    net: PolicyNet, config: MacawConfig, batch: Batch, advantage: Array, adv_coef: Scalar
) -> tuple[Scalar, Scalar]:
    """L_AWR + lambda L_ADV (Eq. 3) of a dense policy, and its second term alone."""
    if not config.advantage_head:
        return policy_outer_loss(net, config, batch, advantage), jnp.zeros_like(adv_coef)
    mean, predicted = jax.vmap(net.with_advantage)(batch.obs, batch.action)
    head_loss = adv_coef * awr.advantage_head_loss(predicted, advantage)
    return _regression(config, mean, batch.action, advantage) + head_loss, head_loss


def policy_outer_loss(
    net: PolicyNet, config: MacawConfig, batch: Batch, advantage: Array
) -> Scalar:
    """L_AWR (Eq. 1) of a dense policy."""
    return _regression(config, jax.vmap(net)(batch.obs), batch.action, advantage)


def weights(config: MacawConfig, advantage: Float[Array, " sample"]) -> Float[Array, " sample"]:
    """The regression weights of Eq. 1 as the config has them."""
    return awr.advantage_weights(
        advantage,
        temperature=config.temperature,
        max_weight=config.max_weight,
        normalize=config.normalize_advantage,
    )


def _regression(config: MacawConfig, mean: Array, action: Array, advantage: Array) -> Scalar:
    log_prob = fixed_width_log_prob(action, mean, config.sigma)
    return awr.weighted_regression_loss(log_prob, weights(config, advantage))


# --- Inner loops of one task ---


class ValueInner(NamedTuple):
    """What the value's inner loop went through: index s is step s, `history` starts before any."""

    history: list[Traces]
    losses: list[Scalar]
    targets: list[Array]
    grads: list[Any]


class PolicyInner(NamedTuple):
    """The same of the policy's."""

    history: list[Traces]
    losses: list[Scalar]
    head_losses: list[Scalar]
    grads: list[Any]


def target_net(config: MacawConfig, net: Any, rates: Rates, history: list[Traces]) -> Any:
    """The target network after the steps in `history`: V_t <- d V_t + (1 - d) V after each."""
    decay, steps = config.target_decay, len(history) - 1
    shares = [decay**steps, *((1 - decay) * decay ** (steps - s) for s in range(1, steps + 1))]
    return inner_loop.mean(net, rates, history, shares)


def adapt_value(
    config: MacawConfig,
    net: ValueNet,
    rates: Rates,
    traces: Traces,
    batches: list[Batch],
    taps: TapsOfNet | None = None,
) -> ValueInner:
    """phi' = phi - eta grad L_V(phi, D_tr), once per batch."""
    inner = ValueInner([traces], [], [], [])
    for batch in batches:
        target = batch.mc_return
        if config.bootstrap_inner_value:
            target = awr.bootstrapped_return(batch, target_net(config, net, rates, inner.history))
        dense = inner_loop.read(net, traces)
        loss, grads = jax.value_and_grad(value_inner_loss)(dense, batch.obs, target)
        traces = inner_loop.descend(
            net, rates, traces, grads, first_order=config.first_order, taps=taps
        )
        inner.history.append(traces)
        inner.losses.append(loss)
        inner.targets.append(target)
        inner.grads.append(grads)
    return inner


def adapt_policy(
    config: MacawConfig,
    net: PolicyNet,
    rates: Rates,
    traces: Traces,
    batches: list[Batch],
    advantages: list[Array],
    adv_coef: Scalar,
    taps: TapsOfNet | None = None,
) -> PolicyInner:
    """theta' = theta - alpha grad L_pi(theta, phi', D_tr), once per batch."""
    inner = PolicyInner([traces], [], [], [])
    for batch, advantage in zip(batches, advantages, strict=True):
        (loss, head_loss), grads = jax.value_and_grad(policy_inner_loss, has_aux=True)(
            inner_loop.read(net, traces), config, batch, advantage, adv_coef
        )
        traces = inner_loop.descend(
            net, rates, traces, grads, first_order=config.first_order, taps=taps
        )
        inner.history.append(traces)
        inner.losses.append(loss)
        inner.head_losses.append(head_loss)
        inner.grads.append(grads)
    return inner


def advantage(config: MacawConfig, value: ValueNet, batch: Batch) -> Float[Array, " sample"]:
    """R - V'(s)."""
    return awr.advantage(batch, value, bootstrap=config.bootstrap_advantage)


def adv_coefficient(config: MacawConfig, raw: Scalar) -> Scalar:
    """lambda from its stored form."""
    if config.learn_adv_coef:
        return jax.nn.softplus(raw)
    return jnp.full_like(raw, config.adv_coef)


class Inner(NamedTuple):
    """Both inner loops of one task."""

    value: ValueInner
    policy: PolicyInner
    adapted_value: ValueNet


def inner_loops(
    config: MacawConfig, meta: Meta, task: MacawTask, taps: MacawTaps, support: Batch
) -> Inner:
    """Value, then policy (Algorithm 1, lines 7 and 8; Algorithm 2, lines 5 and 6)."""
    batches = inner_batches(config, support)
    value_rates = rates(config, meta.value_rates, meta.value, config.value_inner_lr)
    value = adapt_value(config, meta.value, value_rates, task.value, batches, taps.value)
    adapted = inner_loop.read(meta.value, value.history[-1])
    policy = adapt_policy(
        config,
        meta.policy,
        rates(config, meta.policy_rates, meta.policy),
        task.policy,
        batches,
        [advantage(config, adapted, batch) for batch in batches],
        adv_coefficient(config, meta.adv_coef),
        taps.policy,
    )
    return Inner(value, policy, adapted)


def adapt(config: MacawConfig, meta: Meta, task: MacawTask, support: Batch) -> MacawTask:
    """The task after K more steps."""
    inner = inner_loops(config, meta, task, NO_TAPS, support)
    return MacawTask(inner.value.history[-1], inner.policy.history[-1])


def outer_value_target(
    config: MacawConfig, meta: Meta, loops: Inner, batch: Batch
) -> Float[Array, " sample"]:
    """The returns of Eq. 5, continued by the target network where the config says so."""
    if not config.bootstrap_outer_value:
        return batch.mc_return
    value_rates = rates(config, meta.value_rates, meta.value, config.value_inner_lr)
    follower = target_net(config, meta.value, value_rates, loops.value.history)
    return awr.bootstrapped_return(batch, follower)


def task_losses(
    config: MacawConfig, meta: Meta, starts: MacawTask, taps: MacawTaps, inner: Batch, outer: Batch
) -> tuple[dict[str, Scalar], MacawTask]:
    """The losses of one task (Algorithm 1, lines 6 to 10) and its last traces."""
    loops = inner_loops(config, meta, starts, taps, inner)
    target = outer_value_target(config, meta, loops, outer)
    outer_advantage = advantage(config, loops.adapted_value, outer)
    policy = inner_loop.read(meta.policy, loops.policy.history[-1])
    losses = {
        "value_loss": value_inner_loss(loops.adapted_value, outer.obs, target),
        "policy_loss": policy_outer_loss(policy, config, outer, outer_advantage),
        "value_inner_loss": loops.value.losses[0],
        "policy_inner_loss": loops.policy.losses[0],
        "adv_head_loss": loops.policy.head_losses[0],
    }
    return losses, MacawTask(loops.value.history[-1], loops.policy.history[-1])


def meta_loss(
    config: MacawConfig,
    num_train_tasks: int,
    terms: Sequence[str],
    meta: Meta,
    taps: MacawTaps,
    inner: Batch,
    outer: Batch,
) -> tuple[Scalar, tuple[dict[str, Array], MacawTask]]:
    """The outer losses named by `terms` over a batch of tasks, leaves [task, sample, ...]; every
    task's losses and last traces."""
    starts = begin(config, meta, taps)
    of_task = partial(task_losses, config, meta, starts)
    axes = (inner_loop.tap_axes(taps), 0, 0)
    losses, traces = jax.vmap(of_task, in_axes=axes)(taps, inner, outer)
    divisor = num_train_tasks if config.divide_by_train_tasks else inner.obs.shape[0]
    total = jnp.sum(jnp.stack([losses[term] for term in terms]))
    return total / divisor, (losses, traces)


def meta_gradient(
    config: MacawConfig,
    num_train_tasks: int,
    meta: Meta,
    inner: Batch,
    outer: Batch,
    terms: Sequence[str] = ("value_loss", "policy_loss"),
) -> tuple[Meta, dict[str, Array]]:
    """The gradient of `meta_loss` with respect to everything meta-learned, and the losses."""
    loss = partial(meta_loss, config, num_train_tasks, terms)
    return inner_loop.meta_gradient(
        lambda meta, taps: loss(meta, taps, inner, outer),
        meta,
        NO_TAPS,
        inner.obs.shape[0],
        config.inner_steps,
        plain=config.plain,
    )


def begin(config: MacawConfig, meta: Meta, taps: MacawTaps | None = None) -> MacawTask:
    """The meta-parameters as a task on which no step was taken."""
    start = partial(inner_loop.start, plain=config.plain)
    taps = taps or NO_TAPS
    return MacawTask(start(meta.value, taps.value), start(meta.policy, taps.policy))
