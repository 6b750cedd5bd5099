"""MACAW: meta-actor critic with advantage weighting (Mitchell et al. 2021, arXiv:2008.06043).

Meta-training (Algorithm 1), for every task of a batch:

    phi'   = phi   - eta grad L_V(phi, D_tr)                                   Eq. 2
    theta' = theta - alpha grad [L_AWR + lambda L_ADV](theta, phi', D_tr)      Eqs. 1, 3, 4
    outer losses  L_V(phi', D_ts),  L_AWR(theta', phi', D_ts)                  Eqs. 5, 6

and one Adam step each on phi, theta, the inner rates (and lambda) along the second-order gradient.
Meta-testing (Algorithm 2) is the inner loop alone. Equations are in `ops/awr.py`, the inner step in
`ops/inner_loop.py`. Differences between paper and reference code are fields of `MacawConfig`, with
the paper's choice as default; `docs/algorithms/macaw.md` lists them, `presets.py` names the sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.adaptive import AdaptiveLayer, BiasTransform, Linear, WeightTransform
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.ops import awr, inner_loop
from omrl.ops.inner_loop import Rates, Traces
from omrl.types import Batch, Key, Metrics, Scalar, Spec, Step


@dataclass(frozen=True)
class MacawConfig:
    """Settings of MACAW. Defaults are the paper's (Table 5 of the appendix, cheetah)."""

    # --- Networks ---
    layer: Literal["weight_transform", "bias_transform", "linear"] = "weight_transform"
    hidden: tuple[int, ...] = (100, 100, 100)
    """Widths of the hidden layers of value and policy."""
    head_hidden: tuple[int, ...] = (32,)
    """Hidden widths of the advantage head."""
    latent: int = 100
    """Length of z in weight-transform layers."""
    offset: bool = False
    """Generated weights are z W + b; False: z W."""
    relu_action: bool = False
    """The advantage head sees only the positive part of actions."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""
    scale_returns: bool = False
    """Divide returns by the training tasks' standard deviation of returns."""

    # --- Inner loop ---
    inner_steps: int = 1
    """K, gradient steps of one adaptation."""
    inner_lr: float = 1e-3
    """Initial eta and alpha, of every tensor."""
    learn_inner_lr: bool = True
    inner_lr_per: Literal["layer", "tensor"] = "layer"
    split_inner_batch: bool = False
    """With K steps: give each one K-th of the batch; False: the whole batch each time."""
    advantage_head: bool = True
    """Eq. 3; False is MAML + AWR."""
    adv_coef: float = 1e-2
    """lambda, the weight of the advantage regression."""
    learn_adv_coef: bool = False
    first_order: bool = False
    inner_form: Literal["low_rank", "plain"] = "low_rank"
    """How weight-transform layers step; both give the same numbers, plain copies every kernel."""
    max_adapt_steps: int = 1
    """Gradient steps that an adapted task has room for at meta-test."""

    # --- Losses ---
    sigma: float = 0.2
    """Standard deviation of the policy's Gaussian."""
    temperature: float = 1.0
    """T of the advantage weights."""
    max_weight: float = 20.0
    """Upper clip of the advantage weights."""
    normalize_advantage: bool = True
    imitate: bool = False
    """All advantage weights are 1: behaviour cloning in both loops."""
    bootstrap_advantage: bool = False
    """Continue returns past the episode's end with the adapted value, in advantages."""
    bootstrap_outer_value: bool = False
    """The same in the outer value target, with the target network."""
    bootstrap_inner_value: bool = False
    """The same in the inner value target."""
    target_decay: float = 0.9
    """After every inner step the target network keeps this share of itself."""

    # --- Outer loop ---
    steps: int = 100_000
    """Meta-steps."""
    task_batch: int = 5
    value_lr: float = 1e-5
    policy_lr: float = 1e-4
    lr_lr: float = 1e-3
    """Adam rate of the inner rates and of lambda."""
    lr_decay: bool = False
    """Let all Adam rates fall to zero over the run along a cosine."""
    divide_by_train_tasks: bool = False
    """Divide the summed losses by the number of training tasks, not of sampled ones."""

    # --- Batches ---
    inner_batch: BatchSpec = BatchSpec("inner", 256, "contiguous")
    outer_batch: BatchSpec = BatchSpec("outer", 256, start=0.6, disjoint_from="inner")

    def __post_init__(self) -> None:
        if (self.inner_batch.name, self.outer_batch.name) != ("inner", "outer"):
            raise InputError("the batches of macaw are named 'inner' and 'outer'")
        if self.split_inner_batch and self.inner_batch.size % self.inner_steps:
            raise InputError(
                f"split_inner_batch: inner_batch.size ({self.inner_batch.size}) must be a multiple "
                f"of inner_steps ({self.inner_steps})"
            )
        if self.max_adapt_steps < self.inner_steps:
            raise InputError(
                f"max_adapt_steps ({self.max_adapt_steps}) must be at least inner_steps "
                f"({self.inner_steps})"
            )


class Meta(NamedTuple):
    """Everything that is meta-learned. Inner rates and lambda are softplus of the stored numbers."""

    value: ValueNet
    policy: PolicyNet
    value_rates: Float[Array, "layer rate"]
    policy_rates: Float[Array, "layer rate"]
    adv_coef: Scalar


class MacawState(NamedTuple):
    step: Int[Array, ""]
    meta: Meta
    opt: Any


class MacawTask(NamedTuple):
    """The adapted networks."""

    value: Traces
    policy: Traces


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
    if config.imitate:
        return jnp.ones_like(advantage)
    return awr.advantage_weights(
        advantage,
        temperature=config.temperature,
        max_weight=config.max_weight,
        normalize=config.normalize_advantage,
    )


def _regression(config: MacawConfig, mean: Array, action: Array, advantage: Array) -> Scalar:
    log_prob = jax.vmap(partial(awr.gaussian_log_prob, sigma=config.sigma))(action, mean)
    return awr.weighted_regression_loss(log_prob, weights(config, advantage))


# --- Inner loops of one task ---


class ValueInner(NamedTuple):
    """What the value inner loop went through; index s is step s, `history` starts before any."""

    history: list[Traces]
    losses: list[Scalar]
    targets: list[Array]
    grads: list[Any]


class PolicyInner(NamedTuple):
    traces: Traces
    losses: list[Scalar]
    head_losses: list[Scalar]
    grads: list[Any]


def inner_batches(config: MacawConfig, batch: Batch) -> list[Batch]:
    """The batch of every inner step."""
    steps = config.inner_steps
    if not config.split_inner_batch:
        return [batch] * steps
    size = batch.obs.shape[0] // steps
    return [jax.tree.map(lambda x, s=s: x[s * size : (s + 1) * size], batch) for s in range(steps)]


def target_net(config: MacawConfig, net: Any, rates: Rates, history: list[Traces]) -> Any:
    """The target network after the steps in `history`: V_t <- d V_t + (1 - d) V after each."""
    decay, steps = config.target_decay, len(history) - 1
    shares = [decay**steps, *((1 - decay) * decay ** (steps - s) for s in range(1, steps + 1))]
    return inner_loop.mean(net, rates, history, shares)


def adapt_value(
    config: MacawConfig, net: ValueNet, rates: Rates, traces: Traces, batches: list[Batch]
) -> ValueInner:
    """phi' = phi - eta grad L_V(phi, D_tr), once per batch."""
    inner = ValueInner([traces], [], [], [])
    for batch in batches:
        target = batch.mc_return
        if config.bootstrap_inner_value:
            target = awr.bootstrapped_return(batch, target_net(config, net, rates, inner.history))
        dense = inner_loop.read(net, traces)
        loss, grads = jax.value_and_grad(value_inner_loss)(dense, batch.obs, target)
        if config.first_order:
            grads = jax.lax.stop_gradient(grads)
        traces = inner_loop.descend(net, rates, traces, grads)
        for record, value in zip(inner, (traces, loss, target, grads), strict=True):
            record.append(value)
    return inner


def adapt_policy(
    config: MacawConfig,
    net: PolicyNet,
    rates: Rates,
    traces: Traces,
    batches: list[Batch],
    advantages: list[Array],
    adv_coef: Scalar,
) -> PolicyInner:
    """theta' = theta - alpha grad L_pi(theta, phi', D_tr), once per batch."""
    losses, head_losses, all_grads = [], [], []
    for batch, advantage in zip(batches, advantages, strict=True):
        (loss, head_loss), grads = jax.value_and_grad(policy_inner_loss, has_aux=True)(
            inner_loop.read(net, traces), config, batch, advantage, adv_coef
        )
        if config.first_order:
            grads = jax.lax.stop_gradient(grads)
        traces = inner_loop.descend(net, rates, traces, grads)
        losses.append(loss)
        head_losses.append(head_loss)
        all_grads.append(grads)
    return PolicyInner(traces, losses, head_losses, all_grads)


def advantage(config: MacawConfig, value: ValueNet, batch: Batch) -> Float[Array, " sample"]:
    """R - V'(s), a constant: the value never learns from the policy's loss."""
    returns = batch.mc_return
    if config.bootstrap_advantage:
        returns = awr.bootstrapped_return(batch, value)
    return jax.lax.stop_gradient(returns - jax.vmap(value)(batch.obs))


def rates(config: MacawConfig, raw: Float[Array, "layer rate"], net: Any) -> Rates:
    """The inner rates of every layer's tensors from their stored form."""
    num_tensors = len(jax.tree.leaves(inner_loop.layers(net)[0]))
    positive = (
        jax.nn.softplus(raw) if config.learn_inner_lr else jnp.full_like(raw, config.inner_lr)
    )
    return jnp.broadcast_to(positive, (raw.shape[0], num_tensors))


def adv_coefficient(config: MacawConfig, raw: Scalar) -> Scalar:
    """lambda from its stored form."""
    if config.learn_adv_coef:
        return jax.nn.softplus(raw)
    return jnp.full_like(raw, config.adv_coef)


def task_losses(
    config: MacawConfig, meta: Meta, starts: MacawTask, inner: Batch, outer: Batch
) -> dict[str, Scalar]:
    """Inner loops and outer losses of one task (Algorithm 1, lines 6 to 10)."""
    value_rates = rates(config, meta.value_rates, meta.value)
    policy_rates = rates(config, meta.policy_rates, meta.policy)
    batches = inner_batches(config, inner)

    # --- Value: inner loop, outer loss ---
    value_inner = adapt_value(config, meta.value, value_rates, starts.value, batches)
    value = inner_loop.read(meta.value, value_inner.history[-1])
    target = outer.mc_return
    if config.bootstrap_outer_value:
        follower = target_net(config, meta.value, value_rates, value_inner.history)
        target = awr.bootstrapped_return(outer, follower)

    # --- Policy: inner loop, outer loss ---
    advantages = [advantage(config, value, batch) for batch in batches]
    coef = adv_coefficient(config, meta.adv_coef)
    policy_inner = adapt_policy(
        config, meta.policy, policy_rates, starts.policy, batches, advantages, coef
    )
    policy = inner_loop.read(meta.policy, policy_inner.traces)
    return {
        "value_loss": value_inner_loss(value, outer.obs, target),
        "policy_loss": policy_outer_loss(policy, config, outer, advantage(config, value, outer)),
        "value_inner_loss": value_inner.losses[0],
        "policy_inner_loss": policy_inner.losses[0],
        "adv_head_loss": policy_inner.head_losses[0],
    }


def meta_loss(
    config: MacawConfig, meta: Meta, inner: Batch, outer: Batch, num_train_tasks: int
) -> tuple[Scalar, Metrics]:
    """The outer losses of a batch of tasks, leaves [task, sample, ...], and every task's losses."""
    starts = begin(config, meta)
    losses = jax.vmap(partial(task_losses, config, meta, starts))(inner, outer)
    divisor = num_train_tasks if config.divide_by_train_tasks else inner.obs.shape[0]
    total = jnp.sum(losses["policy_loss"])
    if not config.imitate:
        total = total + jnp.sum(losses["value_loss"])
    return total / divisor, losses


def begin(config: MacawConfig, meta: Meta) -> MacawTask:
    """The meta-parameters as a task on which no step was taken."""
    start = partial(inner_loop.start, plain=config.inner_form == "plain")
    return MacawTask(start(meta.value), start(meta.policy))


# --- The algorithm ---


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
        meta = Meta(value, policy, self._raw_rates(value), self._raw_rates(policy), coef)
        return MacawState(jnp.zeros((), jnp.int32), meta, self._optimizer().init(meta))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches = (config.inner_batch, config.outer_batch)
        return (Stage("meta-train", config.steps, config.task_batch, batches, self.update),)

    def update(
        self, state: MacawState, batches: dict[str, Batch], key: Key
    ) -> tuple[MacawState, Metrics]:
        """One meta-step on batches [task, sample, ...]; the key is not needed."""
        inner, outer = self._scaled(batches["inner"]), self._scaled(batches["outer"])
        grads, losses = jax.grad(partial(meta_loss, self.config), has_aux=True)(
            state.meta, inner, outer, self.spec.num_train_tasks
        )
        updates, opt = self._optimizer().update(grads, state.opt, state.meta)
        meta = optax.apply_updates(state.meta, updates)
        return MacawState(state.step + 1, meta, opt), losses  # pyright: ignore[reportArgumentType]

    def begin(self, state: MacawState, key: Key) -> MacawTask:
        task = begin(self.config, state.meta)
        return MacawTask(*(inner_loop.pad(t, self.config.max_adapt_steps) for t in task))

    def adapt(self, state: MacawState, task: MacawTask, support: Batch, key: Key) -> MacawTask:
        """K more gradient steps on the support (Algorithm 2). More steps in all than
        `max_adapt_steps` make the task's parameters NaN."""
        config, meta = self.config, state.meta
        batches = inner_batches(config, self._scaled(support))
        value_rates = rates(config, meta.value_rates, meta.value)
        traces = adapt_value(config, meta.value, value_rates, task.value, batches).history[-1]
        value = inner_loop.read(meta.value, traces)
        policy = adapt_policy(
            config,
            meta.policy,
            rates(config, meta.policy_rates, meta.policy),
            task.policy,
            batches,
            [advantage(config, value, batch) for batch in batches],
            adv_coefficient(config, meta.adv_coef),
        ).traces
        return MacawTask(*(inner_loop.pad(t, config.max_adapt_steps) for t in (traces, policy)))

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

    def policy(self, state: MacawState, task: MacawTask) -> PolicyNet:
        """The task's dense policy, which takes observations scaled as the config says."""
        return inner_loop.read(state.meta.policy, task.policy)

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

    def _optimizer(self) -> optax.GradientTransformation:
        config = self.config

        def adam(rate: float) -> optax.GradientTransformation:
            return optax.adam(
                optax.cosine_decay_schedule(rate, config.steps) if config.lr_decay else rate
            )

        labels = Meta("value", "policy", "rates", "rates", "rates")  # pyright: ignore[reportArgumentType]
        return optax.partition(
            {
                "value": adam(config.value_lr),
                "policy": adam(config.policy_lr),
                "rates": adam(config.lr_lr),
            },
            labels,  # pyright: ignore[reportArgumentType]
        )

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
