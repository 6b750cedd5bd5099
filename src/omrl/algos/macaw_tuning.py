"""MACAW learning on online, after its adaptation (arXiv:2008.06043, C.2 and D.4).

The value and policy that the inner loop ends with go on with Adam, by default on all that they are
made of: z', W' and b' of every weight-transform layer, written out of the low-rank form, so 4.9
million numbers per task at the paper's sizes. That is what the reference code does, and what the
outer loop's rates are meant for: one step of W moves a generated weight by about the rate times
|z|_1. With `parameters` "generated" only the dense weights move, 0.1 million numbers, each by about
the rate.

Losses are those of the outer loop: L_V (Eq. 2) and L_AWR (Eq. 1), bootstrapped where the config of
the inner loop says so.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import optax

from omrl.algos import macaw_losses
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import MacawTask, Meta
from omrl.algos.maml import rates
from omrl.errors import InputError
from omrl.nets.adaptive import Linear
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.nets.mlp import Dense
from omrl.ops import awr, inner_loop
from omrl.ops.descent import Optimizer, descend
from omrl.ops.inner_loop import Traces
from omrl.tuning import FinetuneConfig
from omrl.types import Batch, Scalar


class MacawTuning(NamedTuple):
    """The networks of one task, of adaptive layers or of the dense ones that they make, and their
    Adams."""

    value: ValueNet
    policy: PolicyNet
    value_opt: Any
    policy_opt: Any


def check(config: MacawConfig, settings: FinetuneConfig) -> None:
    """`InputError` for a term of the loss that the networks have no head for."""
    if settings.advantage_head and not config.advantage_head:
        raise InputError(
            "finetune.advantage_head: this policy was trained without an advantage head; leave it "
            "off"
        )


def begin(
    config: MacawConfig, settings: FinetuneConfig, meta: Meta, task: MacawTask
) -> MacawTuning:
    """The adapted networks with fresh Adams."""
    if settings.parameters == "generated":
        value = inner_loop.read(meta.value, task.value)
        policy = inner_loop.read(meta.policy, task.policy)
    else:
        value_rates = rates(config, meta.value_rates, meta.value, config.value_inner_lr)
        policy_rates = rates(config, meta.policy_rates, meta.policy)
        value = inner_loop.materialize(meta.value, value_rates, task.value)
        policy = inner_loop.materialize(meta.policy, policy_rates, task.policy)
    value_adam, policy_adam = optimizers(config, settings)
    return MacawTuning(value, policy, value_adam.init(value), policy_adam.init(policy))


def optimizers(config: MacawConfig, settings: FinetuneConfig) -> tuple[Optimizer, Optimizer]:
    """Of value and policy; without rates of their own at those of the outer loop (D.4)."""
    return (
        optax.adam(settings.value_lr or config.value_lr),
        optax.adam(settings.policy_lr or config.policy_lr),
    )


def tune_value(
    config: MacawConfig, settings: FinetuneConfig, tuning: MacawTuning, batch: Batch
) -> MacawTuning:
    """One Adam step on L_V."""
    adam, _ = optimizers(config, settings)
    value, opt = descend(adam, partial(_value_loss, config, batch), tuning.value, tuning.value_opt)
    return tuning._replace(value=value, value_opt=opt)


def tune_policy(
    config: MacawConfig, settings: FinetuneConfig, meta: Meta, tuning: MacawTuning, batch: Batch
) -> MacawTuning:
    """One Adam step on L_AWR (+ lambda L_ADV), with the advantages of the value as it is."""
    _, adam = optimizers(config, settings)
    advantage = macaw_losses.advantage(config, _dense(tuning.value), batch)
    coefficient = macaw_losses.adv_coefficient(config, meta.adv_coef)

    def loss(policy: PolicyNet) -> Scalar:
        net = _dense(policy)
        if settings.advantage_head:
            whole = macaw_losses.policy_inner_loss(net, config, batch, advantage, coefficient)
            return whole[0]
        return macaw_losses.policy_outer_loss(net, config, batch, advantage)

    policy, opt = descend(adam, loss, tuning.policy, tuning.policy_opt)
    return tuning._replace(policy=policy, policy_opt=opt)


def tuned(tuning: MacawTuning) -> MacawTask:
    """The task of the networks' dense layers."""
    return MacawTask(_traces(tuning.value), _traces(tuning.policy))


def _value_loss(config: MacawConfig, batch: Batch, net: ValueNet) -> Scalar:
    value = _dense(net)
    target = batch.mc_return
    if config.bootstrap_inner_value:
        target = awr.bootstrapped_return(batch, value)
    return macaw_losses.value_inner_loss(value, batch.obs, target)


def _dense(net: Any) -> Any:
    return net if _dense_layers(net) else inner_loop.generate(net)


def _dense_layers(net: Any) -> list[Dense]:
    """The layers of a network of dense ones; none of another."""
    layers = net.layers if isinstance(net, ValueNet) else (*net.trunk, *net.head)
    return [layer for layer in layers if isinstance(layer, Dense)]


def _traces(net: Any) -> Traces:
    return tuple(Linear(layer.weight, layer.bias) for layer in _dense_layers(_dense(net)))
