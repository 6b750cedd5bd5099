"""Multi-task AWR with fine-tuning, "MT + fine-tuning": the baseline of MACAW (arXiv:2008.06043).

Advantage-weighted regression (Peng et al. 2019, arXiv:1910.00177) on the data of all training tasks
at once. Value and policy are told the task: e_i, the one-hot of training task i, is appended to
every observation. For the tasks of a batch

    L_V(phi)      = mean (V_phi(s, e_i) - R)^2                                          Eq. 2
    L_AWR(theta)  = - mean exp(A / T) log pi_theta(a | s, e_i),   A = R - V_phi(s, e_i)  Eq. 1

and one Adam step on each. A test task has no e_i: zeros stand in its place, so the first layers
lose the rows of e_i for good. It is adapted to by Adam steps on one batch of its data, value
before policy, so that advantages are those of the value just stepped (Table 4, `eval_multitask`
of the reference code, which reports 1, 5 and 20 steps). Online it goes on with the same Adams.

`docs/algorithms/mt_awr.md` lists the differences to paper and reference code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.adaptive import make_layer
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.nets.mlp import Dense
from omrl.ops import awr, inner_loop
from omrl.ops.descent import cosine_decay, descend, move
from omrl.ops.gaussian import fixed_width_action, fixed_width_log_prob
from omrl.ops.scale import scaled_batch, scaled_obs
from omrl.ranges import Count, Positive, Size, check_ranges
from omrl.tuning import FinetuneConfig
from omrl.types import Batch, Key, Metrics, Scalar, Spec, Step

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes

BATCH = BatchSpec("batch", 256)


@dataclass(frozen=True)
class MtAwrConfig:
    """Settings of multi-task AWR with fine-tuning. Defaults are the paper's (Table 4)."""

    TAG: ClassVar[str] = "mt-awr"

    # --- Networks ---
    layer: Literal["linear", "bias_transform"] = "linear"
    """Dense layers, or those with an added bias, which the reference code has."""
    hidden: tuple[Size, ...] = (100, 100, 100)
    """Widths of the hidden layers of value and policy."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""
    scale_returns: bool = False
    """Divide returns by the training tasks' standard deviation of returns."""

    # --- Fine-tuning ---
    adapt_steps: Size = 1
    """Adam steps of one adaptation round; rounds go on with the same Adam."""
    adapt_value_lr: Positive = 1e-4
    """Their rate for the value."""
    adapt_policy_lr: Positive = 1e-3
    """Their rate for the policy."""

    # --- Losses, of training and fine-tuning ---
    sigma: Positive = 0.2
    """Standard deviation of the policy's Gaussian."""
    temperature: Positive = 1.0
    """T of the advantage weights."""
    max_weight: Positive = 20.0
    """Upper clip of the advantage weights."""
    normalize_advantage: bool = True
    """Standardise advantages over the batch before weighting."""
    bootstrap_advantage: bool = False
    """Continue returns past the episode's end with the value, in advantages."""
    bootstrap_value: bool = False
    """The same in the value's own target."""

    # --- Training ---
    steps: Count = 100_000
    """Updates."""
    task_batch: Size = 5
    """Tasks per update."""
    value_lr: Positive = 1e-4
    """Adam rate of the value network."""
    policy_lr: Positive = 1e-4
    """Adam rate of the policy."""
    lr_decay: bool = False
    """Let both Adam rates fall to zero over the run along a cosine."""
    divide_by_train_tasks: bool = False
    """Divide the summed losses by the number of training tasks, not of sampled ones."""
    batch: BatchSpec = BATCH
    """What every update sees of a task."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.batch.name != "batch":
            raise InputError(f"batch: its name is 'batch', not {self.batch.name!r}")

    @property
    def gradient_steps(self) -> int:
        """Of one adaptation round."""
        return self.adapt_steps

    def for_rounds(self, rounds: int) -> MtAwrConfig:
        """The same: a task needs no more room for more rounds."""
        return self


class Nets(NamedTuple):
    """Networks of adaptive layers, of which `inner_loop.generate` makes those that can be called.
    They take observations, in training with the task's one-hot behind them."""

    value: ValueNet
    policy: PolicyNet


class MtAwrState(NamedTuple):
    step: Int[Array, ""]
    nets: Nets
    opt: Any


class MtAwrTask(NamedTuple):
    """The networks of one task, without inputs for a one-hot, and where their Adam is."""

    nets: Nets
    value_opt: Any
    policy_opt: Any


# --- One task ---


def with_one_hot(batch: Batch, task: Int[Array, ""], num_tasks: int) -> Batch:
    """The task's one-hot behind every observation that the losses read, so not in `next_obs`."""
    one_hot = jax.nn.one_hot(task, num_tasks)

    def append(obs: Float[Array, "sample obs"]) -> Float[Array, "sample obs_and_task"]:
        return jnp.concatenate([obs, jnp.tile(one_hot, (len(obs), 1))], axis=1)

    return batch._replace(obs=append(batch.obs), terminal_obs=append(batch.terminal_obs))


def without_one_hot(nets: Nets, obs_dim: int) -> Nets:
    """The same functions for a one-hot of zeros, which adds nothing and gets no gradient."""

    def cut(layers: tuple[Any, ...]) -> tuple[Any, ...]:
        return (replace(layers[0], weight=layers[0].weight[:obs_dim]), *layers[1:])

    return Nets(
        replace(nets.value, layers=cut(nets.value.layers)),
        replace(nets.policy, trunk=cut(nets.policy.trunk)),
    )


def value_loss(config: MtAwrConfig, batch: Batch, net: ValueNet) -> Scalar:
    """L_V (Eq. 2)."""
    value = inner_loop.generate(net)
    target = awr.bootstrapped_return(batch, value) if config.bootstrap_value else batch.mc_return
    return awr.value_loss(jax.vmap(value)(batch.obs), target)


def policy_loss(
    config: MtAwrConfig, batch: Batch, value_net: ValueNet, policy_net: PolicyNet
) -> Scalar:
    """L_AWR (Eq. 1); the advantages, and so the value, are constants in it."""
    value, policy = inner_loop.generate(value_net), inner_loop.generate(policy_net)
    weights = awr.advantage_weights(
        awr.advantage(batch, value, bootstrap=config.bootstrap_advantage),
        temperature=config.temperature,
        max_weight=config.max_weight,
        normalize=config.normalize_advantage,
    )
    log_prob = fixed_width_log_prob(batch.action, jax.vmap(policy)(batch.obs), config.sigma)
    return awr.weighted_regression_loss(log_prob, weights)


def fine_tune(config: MtAwrConfig, task: MtAwrTask, batch: Batch) -> MtAwrTask:
    """One Adam step on the value, then one on the policy."""
    return fine_tune_policy(config, fine_tune_value(config, task, batch), batch)


def fine_tune_value(config: MtAwrConfig, task: MtAwrTask, batch: Batch) -> MtAwrTask:
    """One Adam step on the value."""
    adam, loss = optax.adam(config.adapt_value_lr), partial(value_loss, config, batch)
    value, opt = descend(adam, loss, task.nets.value, task.value_opt)
    return task._replace(nets=task.nets._replace(value=value), value_opt=opt)


def fine_tune_policy(config: MtAwrConfig, task: MtAwrTask, batch: Batch) -> MtAwrTask:
    """One Adam step on the policy."""
    adam = optax.adam(config.adapt_policy_lr)
    loss = partial(policy_loss, config, batch, task.nets.value)
    policy, opt = descend(adam, loss, task.nets.policy, task.policy_opt)
    return task._replace(nets=task.nets._replace(policy=policy), policy_opt=opt)


@dataclass(frozen=True)
class MtAwr(Algorithm[MtAwrState, MtAwrTask]):
    """Multi-task AWR with fine-tuning behind the contract of `omrl.algorithm`."""

    config: MtAwrConfig
    spec: Spec

    def init(self, key: Key) -> MtAwrState:
        config, spec = self.config, self.spec
        value_key, policy_key = jax.random.split(key)
        make = partial(make_layer, config.layer, latent=1, offset=False)
        in_dim = spec.obs_dim + spec.num_train_tasks
        value = ValueNet.init(value_key, in_dim, config.hidden, make)
        policy = PolicyNet.init(
            policy_key, in_dim, spec.act_dim, config.hidden, None, make, relu_action=False
        )
        nets = Nets(value, policy)
        return MtAwrState(jnp.zeros((), jnp.int32), nets, ADAM.init(nets))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches, tasks = (config.batch,), config.task_batch
        return (Stage("multi-task", config.steps, tasks, batches, self.update, with_tasks=True),)

    def update(
        self,
        state: MtAwrState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[MtAwrState, Metrics]:
        """One step on batches [task, sample, ...] of `tasks`; the key is not needed."""
        config, num_train_tasks = self.config, self.spec.num_train_tasks
        told = jax.vmap(partial(with_one_hot, num_tasks=num_train_tasks))(
            self._scaled(batches["batch"]), tasks
        )

        def loss(nets: Nets) -> tuple[Scalar, Metrics]:
            losses = {
                "value_loss": jax.vmap(lambda batch: value_loss(config, batch, nets.value))(told),
                "policy_loss": jax.vmap(lambda batch: policy_loss(config, batch, *nets))(told),
            }
            total = jnp.sum(losses["value_loss"]) + jnp.sum(losses["policy_loss"])
            divisor = num_train_tasks if config.divide_by_train_tasks else len(tasks)
            return total / divisor, losses

        grads, losses = jax.grad(loss, has_aux=True)(state.nets)
        directions, opt = ADAM.update(grads, state.opt)
        decay = cosine_decay(state.step, config.steps) if config.lr_decay else 1.0
        lrs = [config.value_lr * decay, config.policy_lr * decay]
        return MtAwrState(state.step + 1, move(state.nets, directions, lrs), opt), losses

    def begin(self, state: MtAwrState, key: Key) -> MtAwrTask:
        config, nets = self.config, without_one_hot(state.nets, self.spec.obs_dim)
        value_opt = optax.adam(config.adapt_value_lr).init(nets.value)  # pyright: ignore[reportArgumentType]
        policy_opt = optax.adam(config.adapt_policy_lr).init(nets.policy)  # pyright: ignore[reportArgumentType]
        return MtAwrTask(nets, value_opt, policy_opt)

    def adapt(self, state: MtAwrState, task: MtAwrTask, support: Batch, key: Key) -> MtAwrTask:
        """`adapt_steps` more Adam steps on the whole support each."""
        step, batch = partial(fine_tune, self.config), self._scaled(support)
        return jax.lax.fori_loop(
            0, self.config.adapt_steps, lambda _, task: step(task, batch), task
        )

    def observe(self, state: MtAwrState, task: MtAwrTask, step: Step, key: Key) -> MtAwrTask:
        return task

    def act(
        self,
        state: MtAwrState,
        task: MtAwrTask,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        scaled = scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)
        mean = inner_loop.generate(task.nets.policy)(scaled)
        return fixed_width_action(key, mean, self.config.sigma, deterministic)

    def policy_layers(self, state: MtAwrState, task: MtAwrTask) -> tuple[Dense, ...]:
        return inner_loop.generate(task.nets.policy).trunk

    # --- Learning on online: the task's networks and Adams go on ---

    def for_tuning(self, settings: FinetuneConfig) -> MtAwr:
        """With the rates of `settings`, without any with those of fine-tuning (Table 4)."""
        settings.check_left_alone(("parameters", "advantage_head"), "MtAwr")
        config = replace(
            self.config,
            adapt_value_lr=settings.value_lr or self.config.adapt_value_lr,
            adapt_policy_lr=settings.policy_lr or self.config.adapt_policy_lr,
        )
        return replace(self, config=config)

    def begin_tuning(self, state: MtAwrState, task: MtAwrTask, key: Key) -> MtAwrTask:
        return task

    def tune(self, state: MtAwrState, tuning: MtAwrTask, batch: Batch, key: Key) -> MtAwrTask:
        return fine_tune(self.config, tuning, self._scaled(batch))

    def tune_value(self, state: MtAwrState, tuning: MtAwrTask, batch: Batch, key: Key) -> MtAwrTask:
        return fine_tune_value(self.config, tuning, self._scaled(batch))

    def tune_policy(
        self, state: MtAwrState, tuning: MtAwrTask, batch: Batch, key: Key
    ) -> MtAwrTask:
        return fine_tune_policy(self.config, tuning, self._scaled(batch))

    def tuned(self, state: MtAwrState, tuning: MtAwrTask) -> MtAwrTask:
        return tuning

    def _scaled(self, batch: Batch) -> Batch:
        config = self.config
        return scaled_batch(
            self.spec,
            batch,
            normalize_obs=config.normalize_obs,
            scale_returns=config.scale_returns,
        )
