"""MACAW's golden files: what each holds, computed with the functions that training uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from golden_file import GoldenFile, Group
from macaw_format import (
    Arrays,
    read_batch,
    read_config,
    read_imitation_config,
    read_layer,
    read_meta,
    read_policy,
    read_value,
    write_layer,
    write_meta,
    write_net,
)

from omrl.algos import macaw_losses, maml, meta_bc
from omrl.algos.macaw import Macaw, MacawState
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import NO_TAPS, Meta
from omrl.algos.meta_bc import MetaBcConfig, MetaBcMeta
from omrl.data.formats.macaw_buffer import MacawReplayBuffer
from omrl.data.slice import macaw_buffer_rows
from omrl.nets.adaptive import AdaptiveLayer
from omrl.nets.mlp import Dense
from omrl.ops import inner_loop
from omrl.types import Batch, Spec

QUICK_COMPILE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Every program runs once: compiling it is all that takes time, and this takes a quarter of it."""

_INPUT = re.compile(
    r"(const|dims|init|lr_raw)/.*|set_seed|adv_coef_raw|task\d+/(inner|outer)/.*"
    r"|train/meta_step\d+/tasks|replay/traj\d+/.*|load/n_rows"
    r"|[^/]+/(z|W|c|b|bz|Wb|x|cot|obs|actions)|[^/]+/(value|policy)/[LH]\d+/(z|W|c|b|bz|Wb)"
)
_CASE = re.compile(r"(noadv_)?k(?P<steps>\d+)(?P<bootstrap>_bootstrap_inner)?(?P<raw>_no_norm)?")
_LOAD = re.compile(r"(?P<mode>start|middle|end)_size(?P<size>-?\d+)_skip(?P<skip>\d+)")


def is_input(name: str) -> bool:
    return bool(_INPUT.fullmatch(name))


def groups(file: GoldenFile) -> Iterator[Group]:
    """The outputs of a file, by what its names say that it holds."""
    for folder in file.folders():
        prefix = f"{folder}/"
        if prefix + "x" in file.arrays:
            yield _group(folder, _layer(file, prefix))
        elif prefix + "actions" in file.arrays:
            yield _group(folder, _networks(file, prefix))
        elif folder == "replay":
            yield _group(folder, _replay(file))
        elif folder == "load":
            yield _group(folder, _load(file))
        elif folder in {"forward", "train", "bc"} or _CASE.fullmatch(folder):
            yield from _problem_groups(file, folder)


def _group(folder: str, arrays: Arrays, label: str = "") -> Group:
    prefix = f"{folder}/"
    return Group(label or folder, prefix, {prefix + name: array for name, array in arrays.items()})


def _problem_groups(file: GoldenFile, folder: str) -> Iterator[Group]:
    """Outputs that start from meta-parameters: those of the file or of its set's problem file."""
    own = any(name.startswith("init/") for name in file.arrays)
    problem = file if own else file.sibling(f"{file.kind.split('_')[0]}_problem")
    meta = read_meta(problem)
    if folder == "forward":
        for batch in file.folders("forward/"):
            rows = read_batch(problem, batch.replace("_", "/") + "/")
            arrays = _forward(meta.policy, meta.value, rows.obs, rows.action)
            yield _group(f"{folder}/{batch}", arrays)
        return
    changes = _case_settings(folder)
    weight_transform = read_config(problem, meta, changes).layer == "weight_transform"
    for form in ("plain", "low_rank") if weight_transform else ("low_rank",):
        config = read_config(problem, meta, {**changes, "inner_form": form})
        if folder == "train":
            arrays = _train(file, problem, config, meta)
        else:
            batches = [read_batch(problem, f"task0/{part}/") for part in ("inner", "outer")]
            if folder == "bc":
                imitation = read_imitation_config(problem, meta, form)
                arrays = _imitation(imitation, meta, *batches)
            else:
                arrays = _one_task(config, meta, *batches)
            arrays = _flags(arrays)
        yield _group(folder, arrays, f"{folder} {form}" if weight_transform else folder)


def _case_settings(folder: str) -> dict[str, Any]:
    """What the name of a case changes."""
    if folder in {"bc", "train"}:
        return {}
    case = _CASE.fullmatch(folder)
    assert case
    # The reference divides by the temperature only what it has standardised.
    raw = {"normalize_advantage": False, "temperature": 1.0} if case["raw"] else {}
    return {
        "inner_steps": int(case["steps"]),
        "bootstrap_inner_value": bool(case["bootstrap"]),
        **raw,
    }


# --- Layers and networks ---


def _layer(file: GoldenFile, prefix: str) -> Arrays:
    x, cotangent = file[prefix + "x"], file[prefix + "cot"]
    return _layer_and_gradients(read_layer(file, prefix, x.shape[1]), x, cotangent)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _layer_and_gradients(layer: AdaptiveLayer, x: Any, cotangent: Any) -> Arrays:
    y, pull_back = jax.vjp(lambda layer, x: jax.vmap(layer.dense())(x), layer, x)
    layer_grad, x_grad = pull_back(cotangent)
    grads = {f"grad_{leaf}": array for leaf, array in write_layer(layer_grad).items()}
    return {"y": y, "grad_x": x_grad, **grads}


def _networks(file: GoldenFile, prefix: str) -> Arrays:
    obs, action = file[prefix + "obs"], file[prefix + "actions"]
    value = read_value(file, prefix + "value/", obs.shape[1])
    policy = read_policy(file, prefix + "policy/", obs.shape[1])
    arrays = _forward(policy, value, obs, action)
    return {**arrays, "value_out": arrays.pop("value")}


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _forward(policy: Any, value: Any, obs: Any, action: Any) -> Arrays:
    mean, advantage = jax.vmap(inner_loop.generate(policy).with_advantage)(obs, action)
    values = jax.vmap(inner_loop.generate(value))(obs)
    return {"action_mean": mean, "advantage_head": advantage, "value": values}


# --- One task: inner loops, outer losses, meta-gradients ---


@partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILE)
def _one_task(config: MacawConfig, meta: Meta, inner: Batch, outer: Batch) -> Arrays:
    start = macaw_losses.begin(config, meta)
    loops = macaw_losses.inner_loops(config, meta, start, NO_TAPS, inner)
    policy = inner_loop.read(meta.policy, loops.policy.history[-1])
    value_rates = maml.rates(config, meta.value_rates, meta.value)
    follower = macaw_losses.target_net(config, meta.value, value_rates, loops.value.history)
    outer_advantage = macaw_losses.advantage(config, loops.adapted_value, outer)
    arrays = {
        "outer_terminal_value_target_net": jax.vmap(follower)(outer.terminal_obs),
        "value_outer_target": macaw_losses.outer_value_target(config, meta, loops, outer),
        "policy_outer_weights": macaw_losses.weights(config, outer_advantage),
        "policy_outer_advantage_mean": jnp.mean(outer_advantage),
        "policy_outer_action_mean": jax.vmap(policy)(outer.obs),
    }
    for step, batch in enumerate(maml.inner_batches(config, inner)):
        arrays |= _inner_step(config, loops, batch, step)
    for net, states, name in (
        (meta.value, loops.value, "value"),
        (meta.policy, loops.policy, "policy"),
    ):
        rates = maml.rates(config, getattr(meta, f"{name}_rates"), net)
        arrays |= _inner_parameters(net, rates, states, name)
    for term in ("value", "policy"):
        grads, loss = _meta_gradient(config, meta, inner, outer, f"{term}_loss")
        arrays |= _named(f"meta_grad/{term}_outer/", grads) | {f"{term}_outer_loss": loss}
    return arrays


def _inner_step(config: MacawConfig, loops: Any, batch: Batch, step: int) -> Arrays:
    advantage = macaw_losses.advantage(config, loops.adapted_value, batch)
    return {
        f"value_inner_loss/step{step}": loops.value.losses[step],
        f"value_inner_target/step{step}": loops.value.targets[step],
        f"policy_inner_loss/step{step}": loops.policy.losses[step],
        f"policy_inner_adv_head_loss/step{step}": loops.policy.head_losses[step],
        f"policy_inner_advantages/step{step}": advantage,
        f"policy_inner_advantage_mean/step{step}": jnp.mean(advantage),
        f"policy_inner_weights/step{step}": macaw_losses.weights(config, advantage),
    }


def _inner_parameters(net: Any, rates: Any, loop: Any, name: str) -> Arrays:
    """Gradients of every inner step in terms of the layers' own tensors, adapted parameters."""
    arrays: Arrays = {}
    for step, grads in enumerate(loop.grads):
        layers = inner_loop.layers(inner_loop.materialize(net, rates, loop.history[step]))
        dense = jax.tree.leaves(grads, is_leaf=lambda node: isinstance(node, Dense))
        net_type = jax.tree.structure(net, is_leaf=lambda node: isinstance(node, AdaptiveLayer))
        own = net_type.unflatten(map(inner_loop.own_gradient, layers, dense))
        arrays |= _under(f"{name}_inner_grad/step{step}/", write_net(own))
    adapted = inner_loop.materialize(net, rates, loop.history[-1])
    return arrays | _under(f"{name}_adapted/", write_net(adapted))


@partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILE)
def _imitation(config: MetaBcConfig, meta: Meta, inner: Batch, outer: Batch) -> Arrays:
    own = MetaBcMeta(meta.policy, meta.policy_rates)
    start = meta_bc.begin(config, own)
    loop = meta_bc.inner_steps(config, own, start, meta_bc.NO_TAPS, inner)
    losses, _ = meta_bc.task_losses(config, own, start, meta_bc.NO_TAPS, inner, outer)
    rates = maml.rates(config, own.policy_rates, own.policy)
    grads = {
        name.replace("policy_inner_grad/step0/", "inner_grad/"): array
        for name, array in _inner_parameters(own.policy, rates, loop, "policy").items()
    }
    one = jax.tree.map(lambda leaf: leaf[None], (inner, outer))
    meta_grads, _ = meta_bc.meta_gradient(config, 1, own, *one)
    written = write_meta(meta._replace(**meta_grads._asdict()))
    meta_grad = _named("meta_grad/", {name: written[name] for name in ("policy", "lr_raw_policy")})
    outer_loss, inner_loss = losses["policy_loss"], loop.losses[0]
    return {"inner_loss": inner_loss, "outer_loss": outer_loss, **grads, **meta_grad}


def _meta_gradient(
    config: MacawConfig, meta: Meta, inner: Batch, outer: Batch, term: str
) -> tuple[dict[str, Arrays], jax.Array]:
    """Of one outer loss of one task, by group, and the loss."""
    one = jax.tree.map(lambda leaf: leaf[None], (inner, outer))
    grads, losses = macaw_losses.meta_gradient(config, 1, meta, *one, terms=(term,))
    return write_meta(grads), losses[term][0]


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}


def _named(prefix: str, by_group: dict[str, Arrays]) -> Arrays:
    return {
        f"{prefix}{group}/{name}".rstrip("/"): array
        for group, arrays in by_group.items()
        for name, array in arrays.items()
    }


def _flags(arrays: Arrays) -> Arrays:
    """With `<group>__all_zero` for every group of every meta-gradient."""
    zero: dict[str, bool] = {}
    for name, array in arrays.items():
        if match := re.match(r"meta_grad/\w+_outer/[^/]+", name):
            flag = f"{match[0]}__all_zero"
            zero[flag] = zero.get(flag, True) and not np.any(array)
    return arrays | {flag: np.int64(is_zero) for flag, is_zero in zero.items()}


# --- Meta-steps with their optimiser ---


def _train(file: GoldenFile, problem: GoldenFile, config: MacawConfig, meta: Meta) -> Arrays:
    spec = Spec(
        obs_dim=problem["task0/inner/obs"].shape[1],
        act_dim=problem["task0/inner/actions"].shape[1],
        num_train_tasks=int(problem["dims/n_train_tasks"]),
        horizon=1,
    )
    algorithm = Macaw(config, spec)
    state, arrays = algorithm.start(meta), {}
    for number in range(1, len(file.folders("train/")) + 1):
        tasks = file[f"train/meta_step{number}/tasks"]
        batches = {
            part: jax.tree.map(
                lambda *leaves: np.stack(leaves),
                *(read_batch(problem, f"task{task}/{part}/") for task in tasks),
            )
            for part in ("inner", "outer")
        }
        grads, new, state = _meta_step(algorithm, state, batches)
        arrays |= _named(f"meta_step{number}/grad/", grads)
        arrays |= _named(f"meta_step{number}/new/", new)
    return arrays


@partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILE)
def _meta_step(
    algorithm: Macaw, state: MacawState, batches: dict[str, Batch]
) -> tuple[dict[str, Arrays], dict[str, Arrays], MacawState]:
    """Gradients and new parameters by group, and the state with these."""
    grads, _ = macaw_losses.meta_gradient(
        algorithm.config,
        algorithm.spec.num_train_tasks,
        state.meta,
        batches["inner"],
        batches["outer"],
    )
    new_state, _ = algorithm.update(state, batches, jax.random.PRNGKey(0))
    return write_meta(grads), write_meta(new_state.meta), new_state


# --- The replay buffer ---


def _replay(file: GoldenFile) -> Arrays:
    names = [name for name in file.folders("replay/") if name.startswith("traj")]
    arrays: Arrays = {}
    buffer = MacawReplayBuffer(
        _ring_size(file, len(names)),
        file["replay/traj0/states"].shape[1],
        file["replay/traj0/actions"].shape[1],
        # Every kind of file has it but this one.
        float(file.arrays.get("const/discount_factor", 0.99)),
    )
    for number in range(len(names)):
        states, actions, rewards, dones = (
            file[f"replay/traj{number}/{name}"]
            for name in ("states", "actions", "rewards", "dones")
        )
        buffer.add_trajectory(states, actions, rewards, dones.astype(bool))
        rows: Arrays = {name: column.copy() for name, column in buffer.rows().items()}
        rows["write_location"] = np.int64(buffer.write_location)
        arrays |= _under(f"after{number}/", rows)
    return arrays


def _ring_size(file: GoldenFile, num_trajectories: int) -> int:
    """The rows stored at the end, if the ring was filled; else any size does that is larger."""
    added = sum(len(file[f"replay/traj{i}/rewards"]) for i in range(num_trajectories))
    last = f"replay/after{num_trajectories - 1}/"
    stored = len(file[last + "rewards"])
    return stored if stored < added or file[last + "write_location"] == 0 else added + 1


def _load(file: GoldenFile) -> Arrays:
    arrays: Arrays = {}
    for name in file.folders("load/"):
        if match := _LOAD.fullmatch(name):
            arrays[name] = macaw_buffer_rows(
                int(file["load/n_rows"]),
                int(match["size"]),
                int(match["skip"]),
                match["mode"],  # pyright: ignore[reportArgumentType]
            )
    return arrays
