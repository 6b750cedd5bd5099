"""The contract of `omrl.algorithm` as checks that any algorithm must pass: add it to `CASES`.

Every check gets a case and an empty folder. The case's programs are compiled once for all checks
(four seeds on one device); a case should be as small as its algorithm allows.

Run as a program it is the part of `check_devices` that needs a process of its own: it goes on from
checkpoints, on as many devices as it is given.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_macaw
from omrl.algorithm import Algorithm, Stage
from omrl.checkpoint import Checkpoints
from omrl.chunk import Layout, abstract_states, init_states, place, prepare, program, train_chunk
from omrl.data.buffers import Buffers, with_columns
from omrl.data.device import DeviceData
from omrl.data.sample import BatchSpec, sample_batches
from omrl.errors import InputError
from omrl.nets.mlp import forward
from omrl.stages import stages_of
from omrl.types import Spec, Step
from toy import Toy, ToyConfig, make_data

SEEDS = np.arange(3, 7)
NUM_UPDATES = 6
"""Updates of every stage in a check."""

TRACES: Counter[str] = Counter()
"""How often Python ran the update of a case."""


@dataclass(frozen=True)
class Case:
    """One algorithm under test."""

    name: str
    make: Callable[[], Algorithm]
    data: Callable[[Spec], DeviceData] = make_data
    """Six tasks at least."""
    exported: bool = True
    """Dense layers are its policy."""


CASES = [
    Case("toy", lambda: Toy(ToyConfig())),
    Case("macaw", tiny_macaw.make),
    Case(
        "macaw-two-steps",
        lambda: tiny_macaw.make(
            inner_steps=2, max_adapt_steps=2, offset=True, split_inner_batch=True
        ),
    ),
    Case("macaw-bias-transform", lambda: tiny_macaw.make(layer="bias_transform")),
    Case("macaw-linear", lambda: tiny_macaw.make(layer="linear", normalize_obs=True)),
    Case("mt-awr", tiny_macaw.make_mt_awr),
    Case("meta-bc", tiny_macaw.make_meta_bc),
    Case(
        "pearl",
        lambda: tiny_macaw.make_pearl(next_obs_in_context=True, normalize_obs=True),
    ),
    Case("smac", lambda: tiny_macaw.make_smac(normalize_obs=True)),
    Case("borel", lambda: tiny_macaw.make_borel(normalize_obs=True)),
    Case("borel-grid", tiny_macaw.make_borel_grid, exported=False),
    Case(
        "macaw-self-supervised",
        lambda: tiny_macaw.make_self_supervised(normalize_obs=True, scale_returns=True),
    ),
]


# --- What several checks need ---


@dataclass(frozen=True)
class Counted:
    """An update that counts how often it is traced."""

    name: str
    update: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        TRACES[self.name] += 1
        return self.update(*arguments)


@functools.cache
def algorithm(case: Case) -> Algorithm:
    return case.make()


@functools.cache
def stages(case: Case) -> tuple[Stage, ...]:
    return tuple(
        dataclasses.replace(stage, update=Counted(case.name, stage.update))
        for stage in algorithm(case).stages()
    )


def layout(*, side_by_side: bool = False) -> Layout:
    of_one_device = Layout.of(jax.devices("cpu")[:1], len(SEEDS))
    return dataclasses.replace(of_one_device, side_by_side=side_by_side)


def num_compiled(case: Case) -> list[int]:
    return [program(stage, layout())._cache_size() for stage in stages(case)]


def start(case: Case, where: Layout, seeds: np.ndarray = SEEDS) -> Any:
    return jax.device_put(init_states(algorithm(case), where, seeds), where.by_seed)


def train(
    case: Case,
    where: Layout,
    states: Any,
    cuts: tuple[int, ...] = (NUM_UPDATES,),
    only: slice = slice(None),
) -> Any:
    """`states` after chunks of the lengths `cuts` of every stage."""
    data = place(case.data(algorithm(case).spec), where.replicated)
    task_ids = np.arange(len(data.num_rows))
    for stage in stages(case)[only]:
        prepared = prepare(stage, where, states, data)
        for length in cuts:
            states, metrics, finite = train_chunk(
                stage,
                where,
                states,
                data,
                SEEDS,
                task_ids,
                length,
                collected(stage, data, where),
                prepared,
            )
            assert np.all(np.asarray(finite))
            for rows in metrics.values():
                assert np.all(np.isfinite(np.asarray(rows)[:, :length]))
    return states


def collected(stage: Stage, data: DeviceData, where: Layout) -> Buffers | None:
    """For a stage that explores: the logged data again, as if every seed had collected it."""
    if stage.exploration is None:
        return None
    of_seeds = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * len(SEEDS)), data)
    return place(Buffers(of_seeds, of_seeds), where.by_seed)


@functools.cache
def trained(case: Case) -> Any:
    """All seeds on one device, every stage in one chunk: what the others are compared with."""
    where = layout()
    return train(case, where, start(case, where))


def assert_same_bits(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def kinds(tree: Any) -> Any:
    """Structure, and per leaf its shape, dtype and whether the dtype is weak."""
    leaves = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]
    return jax.tree.structure(tree), leaves


def support(case: Case, size: int = 8) -> Any:
    data = case.data(algorithm(case).spec)
    specs = (BatchSpec("support", size),)
    return sample_batches(data, specs, jnp.int32(0), jax.random.PRNGKey(1))["support"]


# --- The checks ---


def check_structure(case: Case, _: Path) -> None:
    """Update keeps tree, shapes and dtypes; all leaves are arrays, none of a weak type."""
    made = algorithm(case)
    for leaf in jax.tree.leaves(made.init(jax.random.PRNGKey(0))):
        assert isinstance(leaf, jax.Array)
    key = jax.random.PRNGKey(0)
    state = jax.eval_shape(made.init, key)
    assert not any(weak for _, _, weak in kinds(state)[1])
    assert state.step.shape == ()
    assert state.step.dtype == jnp.int32
    for stage in made.stages():
        batches = jax.eval_shape(functools.partial(batches_of, case, stage), state)
        after, metrics = jax.eval_shape(
            stage.update, state, batches, key, *task_arguments(stage, jnp.arange(stage.task_batch))
        )
        assert kinds(after) == kinds(state)
        assert any(name.endswith("loss") for name in metrics)
        assert all(metric.shape in ((), (stage.task_batch,)) for metric in metrics.values())


def check_init(case: Case, _: Path) -> None:
    """The initial state is a function of the seed alone."""
    where = layout()
    first, again = start(case, where), start(case, where)
    assert_same_bits(first, again)
    alone = start(case, where, SEEDS[1:2])
    assert_same_bits(alone, jax.tree.map(lambda leaf: leaf[1:2], first))
    others = start(case, where, SEEDS + len(SEEDS))
    assert any(
        np.any(np.asarray(one) != np.asarray(other))
        for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(others), strict=True)
    )


def check_step(case: Case, _: Path) -> None:
    """The state counts its updates, over all stages."""
    expected = np.full(len(SEEDS), NUM_UPDATES * len(stages(case)))
    np.testing.assert_array_equal(trained(case).step, expected)


def check_one_trace(case: Case, _: Path) -> None:
    """One program and one trace per stage, whatever the chunk's length, the number of seeds and
    whoever made the state."""
    assert algorithm(case).stages() == algorithm(case).stages()
    assert stages_of(case.make()) is stages_of(algorithm(case))
    trained(case)
    traces = TRACES[case.name]
    assert traces == len(stages(case))
    assert num_compiled(case) == [1] * len(stages(case))
    train(case, layout(), start(case, layout()), cuts=(0, 1, 2, 1))
    assert TRACES[case.name] == traces
    assert num_compiled(case) == [1] * len(stages(case))


def check_chunk_length(case: Case, _: Path) -> None:
    """Cutting the updates into other chunks changes no bit."""
    where = layout()
    assert_same_bits(train(case, where, start(case, where), cuts=(1, 3, 2)), trained(case))


def check_resume(case: Case, folder: Path) -> None:
    """Half, save, load, half equals the whole bit for bit."""
    where = layout()
    for number in range(len(stages(case))):
        before = train(case, where, start(case, where), only=slice(number))
        half = train(case, where, before, cuts=(2,), only=slice(number, number + 1))
        checkpoints = Checkpoints(folder / str(number))
        checkpoints.save(1, half, {}, {})
        checkpoints.wait()
        restored, _ = checkpoints.restore(abstract_states(algorithm(case), where, len(SEEDS)), {})
        checkpoints.close()
        rest = train(case, where, restored, cuts=(4,), only=slice(number, number + 1))
        assert num_compiled(case) == [1] * len(stages(case))
        assert_same_bits(train(case, where, rest, only=slice(number + 1, None)), trained(case))


def check_seeds_side_by_side(case: Case, _: Path) -> None:
    """Seeds by `vmap` equal seeds one after the other within rounding."""
    where = layout(side_by_side=True)
    # Few updates: the question is whether seeds mix, not how fast rounding errors grow.
    states = train(case, where, start(case, where), cuts=(3,))
    expected = train(case, layout(), start(case, layout()), cuts=(3,))
    for one, other in zip(jax.tree.leaves(states), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)


def check_act(case: Case, _: Path) -> None:
    """Actions are in [-1, 1], whatever the observation; deterministic ones ignore the key."""
    made = algorithm(case)
    state = jax.tree.map(lambda leaf: leaf[0], trained(case))
    task = made.begin(state, jax.random.PRNGKey(0))
    act = jax.jit(made.act, static_argnames="deterministic")
    for size in (0.0, 1.0, 1e3):
        obs = size * jax.random.normal(jax.random.PRNGKey(1), (made.spec.obs_dim,))
        for deterministic in (False, True):
            one, other = (
                act(state, task, obs, jax.random.PRNGKey(number), deterministic=deterministic)
                for number in (2, 3)
            )
            assert one.shape == (made.spec.act_dim,)
            assert np.all(np.abs(one) <= 1)
            if deterministic:
                np.testing.assert_array_equal(one, other)


def check_policy_layers(case: Case, _: Path) -> None:
    """The layers for export are the deterministic policy, adapted or not; else there are none."""
    made, key = algorithm(case), jax.random.PRNGKey(0)
    state = jax.tree.map(lambda leaf: leaf[0], trained(case))
    begun = made.begin(state, key)
    if not case.exported:
        with pytest.raises(InputError, match="cannot be exported"):
            made.policy_layers(state, begun)
        return
    obs = jax.random.normal(key, (made.spec.obs_dim,))
    scaled = obs
    if made.config.normalize_obs:
        scaled = (obs - jnp.array(made.spec.obs_mean)) / jnp.array(made.spec.obs_std)
    for task in (begun, jax.jit(made.adapt)(state, begun, support(case), key)):
        action = jnp.tanh(forward(made.policy_layers(state, task), scaled))
        expected = made.act(state, task, obs, key, True)
        np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)


def check_task(case: Case, _: Path) -> None:
    """`Task` keeps tree, shapes and dtypes through begin, adapt, observe and resample."""
    made, key = algorithm(case), jax.random.PRNGKey(0)
    state = jax.eval_shape(made.init, key)
    task = jax.eval_shape(made.begin, state, key)
    adapted = jax.eval_shape(made.adapt, state, task, support(case), key)
    batch = jax.tree.map(lambda leaf: leaf[0], support(case))
    step = Step(batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated)
    observed = jax.eval_shape(made.observe, state, adapted, step, key)
    resampled = jax.eval_shape(made.resample, state, observed, key)
    assert kinds(task) == kinds(adapted) == kinds(observed) == kinds(resampled)


def check_online_context(case: Case, _: Path) -> None:
    """What a method says of how it takes in what it explores is so, and so is its posterior."""
    made, key = algorithm(case), jax.random.PRNGKey(0)
    state = made.init(key)
    task = made.begin(state, key)
    batch = jax.tree.map(lambda leaf: leaf[0], support(case))
    step = Step(batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated)
    after = jax.jit(made.observe)(state, task, step, key)
    leaves = zip(jax.tree.leaves(task), jax.tree.leaves(after), strict=True)
    learned = any(np.any(np.asarray(one) != np.asarray(other)) for one, other in leaves)
    assert learned == (made.online_context in ("trajectory", "step"))
    if type(made).posterior is not Algorithm.posterior:
        mean, variance = made.posterior(state, task)
        if made.online_context == "step":  # Its prior is learned.
            assert np.all(np.asarray(variance) > 0)
            return
        np.testing.assert_array_equal(mean, np.zeros_like(mean))
        np.testing.assert_array_equal(variance, np.ones_like(variance))


def check_task_order(case: Case, _: Path) -> None:
    """The order of the sampled tasks changes nothing beyond rounding.

    For updates that draw no random number per task.
    """
    key = jax.random.PRNGKey(0)
    state = algorithm(case).init(key)
    for stage in algorithm(case).stages():
        data = prepared_data(case, stage, state)
        update = jax.jit(stage.update)
        tasks = jnp.arange(stage.task_batch)
        sample = jax.jit(jax.vmap(functools.partial(sample_batches, data, stage.batches)))
        batches = sample(tasks, jax.random.split(key, stage.task_batch))
        order = np.roll(np.arange(stage.task_batch), 1)
        permuted = jax.tree.map(lambda leaf, order=order: leaf[order], batches)
        (one, metrics), (other, permuted_metrics) = (
            update(state, given, key, *task_arguments(stage, given_tasks))
            for given, given_tasks in ((batches, tasks), (permuted, tasks[order]))
        )
        for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=1e-4, atol=1e-6)
        for name, metric in metrics.items():
            expected = metric[order] if metric.ndim else metric
            np.testing.assert_allclose(permuted_metrics[name], expected, rtol=1e-4, atol=1e-6)


def check_devices(case: Case, folder: Path) -> None:
    """From one device to four and back: the same bits. There every device has one seed, so that
    seeds one after the other in one program equal each alone too."""
    where = layout()
    checkpoints = Checkpoints(folder)
    checkpoints.save(0, start(case, where), {}, {})
    checkpoints.wait()
    checkpoints.close()
    process = on_four_devices()
    assert process.stdin
    assert process.stdout
    print(json.dumps([case.name, str(folder)]), file=process.stdin, flush=True)
    assert process.stdout.readline() == f"{case.name}\n"
    checkpoints = Checkpoints(folder)
    states, meta = checkpoints.restore(abstract_states(algorithm(case), where, len(SEEDS)), {}, 1)
    checkpoints.close()
    assert meta["devices"] == 4
    assert_same_bits(states, trained(case))


@functools.cache
def on_four_devices() -> subprocess.Popen[str]:
    """A process of its own for `check_devices`, one for all cases: it imports for seconds."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    return subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, "XLA_FLAGS": flags},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def close() -> None:
    """Ends the process of `check_devices`, if there is one."""
    if on_four_devices.cache_info().currsize:
        with on_four_devices() as process:
            assert process.stdin
            process.stdin.close()
        on_four_devices.cache_clear()


CHECKS = [check for name, check in list(globals().items()) if name.startswith("check_")]


def task_arguments(stage: Stage, tasks: jax.Array) -> tuple[jax.Array, ...]:
    """What `update` gets behind the key."""
    return (tasks,) if stage.with_tasks else ()


def batches_of(case: Case, stage: Stage, state: Any) -> Any:
    """What an update reads at `state`."""
    keys = jax.random.split(jax.random.PRNGKey(0), stage.task_batch)
    data = prepared_data(case, stage, state)
    sample = jax.vmap(functools.partial(sample_batches, data, stage.batches))
    return sample(jnp.arange(stage.task_batch), keys)


def prepared_data(case: Case, stage: Stage, state: Any) -> DeviceData:
    """The data as a stage draws it that begins at `state`."""
    data = case.data(algorithm(case).spec)
    return with_columns(data, stage.prepare and stage.prepare(state, data))


def go_on(case: Case, folder: Path) -> None:
    """From checkpoint 0 on all devices to checkpoint 1."""
    where = Layout.of(jax.devices(), len(SEEDS))
    checkpoints = Checkpoints(folder)
    states, _ = checkpoints.restore(abstract_states(algorithm(case), where, len(SEEDS)), {}, 0)
    checkpoints.save(1, train(case, where, states), {}, {"devices": len(jax.devices())})
    checkpoints.wait()
    checkpoints.close()


def main() -> None:
    """Goes on for each line [case, folder] and tells the name of the case, or else why not."""
    cases = {case.name: case for case in CASES}
    for line in sys.stdin:
        name, folder = json.loads(line)
        try:
            go_on(cases[name], Path(folder))
        except Exception as error:
            traceback.print_exc()
            name = repr(error).replace("\n", " ")
        print(name, flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
