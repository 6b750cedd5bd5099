"""Every preset of `omrl train` is a program: built and updated by shapes alone.

Of those that differ in rates, weights and environment, one is updated for them all."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from omrl.algos.registry import build
from omrl.data.buffers import with_columns
from omrl.data.collect.config import ScriptedConfig
from omrl.data.collect.presets import PRESETS as COLLECTIONS
from omrl.data.sample import sample_batches
from omrl.data.trajectories import TrajectorySpec
from omrl.envs import registry
from omrl.presets import PRESETS
from omrl.types import Spec
from toy import make_data

KEY = jax.random.PRNGKey(0)


def spec_of(env_id: str) -> Spec:
    env = registry.make(env_id)
    scales = {"obs_mean": (0.0,) * env.spec.obs_dim, "obs_std": (1.0,) * env.spec.obs_dim}
    sizes = env.spec.obs_dim, env.spec.act_dim, len(env.splits["train"]), env.spec.horizon
    return Spec(*sizes, **scales)


def kinds(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def sampled(stage, spec, state):
    """The batches of an update at `state`."""
    data = make_data(spec, num_tasks=stage.task_batch, num_rows=spec.horizon)
    data = with_columns(data, stage.prepare and stage.prepare(state, data))
    keys = jax.random.split(KEY, stage.task_batch)
    sample = functools.partial(sample_batches, data, stage.batches)
    return jax.vmap(sample)(jnp.arange(stage.task_batch), keys)


def steps_of(batch):
    """The further axis of a batch of trajectories."""
    return (batch.steps,) if isinstance(batch, TrajectorySpec) else ()


def outline(value, name=""):
    """What the shapes of an update can depend on: of rates and weights only whether they are 0 or
    1, of numbers of updates only whether there are any."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return type(value), tuple(outline(getattr(value, name), name) for name in names)
    if isinstance(value, float):
        return value if value in (0, 1) else float
    return bool(value) if name in ("steps", "online_steps", "every") else value


ONE_OF_EACH = {outline(preset.config.algo): name for name, preset in PRESETS.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds(name):
    config = PRESETS[name].config
    algorithm = build(config.algo, spec_of(config.env))
    jax.eval_shape(algorithm.init, KEY)
    assert all(stage.task_batch > 0 for stage in algorithm.stages())


def test_meta_world_has_the_numbers_of_its_own_columns():
    """arXiv:2008.06043, Tables 3 to 5; beside them the standard column."""
    names = ("macaw-ml45-paper", "mt-awr-ml45-paper", "pearl-ml45-paper")
    configs = [PRESETS[name].config for name in names]
    assert {config.env for config in configs} == {"ml45/continuous-v1reward-h150-v1"}
    macaw, mt_awr, pearl = (config.algo for config in configs)
    assert macaw == dataclasses.replace(
        PRESETS["macaw-cheetah-vel-paper"].config.algo,
        adv_coef=1e-3,
        value_lr=1e-6,
        inner_lr=1e-2,
        value_inner_lr=1e-4,
        hidden=(300, 300, 300),
        task_batch=10,
    )
    assert mt_awr == dataclasses.replace(
        PRESETS["mt-awr-cheetah-vel-paper"].config.algo,
        hidden=(300, 300, 300),
        value_lr=1e-6,
        adapt_value_lr=1e-6,
    )
    assert configs[1].eval.shots[-1] == 20
    standard = PRESETS["pearl-cheetah-vel-paper"].config.algo
    assert (pearl.task_batch, pearl.context.size, pearl.latent) == (16, 750, 8)
    assert pearl.hidden == (512, 512, 512)
    same = {"hidden": standard.hidden, "latent": 5, "task_batch": 10, "context": standard.context}
    assert dataclasses.replace(pearl, **same) == standard


@pytest.mark.parametrize("problem", ["reach", "push"])
def test_ml1_is_trained_on_the_goals_that_its_collection_has(problem):
    collection = COLLECTIONS[f"ml1-{problem}"].config
    for method in ("macaw", "smac"):
        config = PRESETS[f"{method}-ml1-{problem}"].config
        assert config.env == collection.env == f"ml1-{problem}/continuous-v2-h150-v1"
        # An episode of a deterministic policy is the same every time.
        assert (config.eval.split, config.eval.episodes) == ("test", 1)
        assert len(build(config.algo, spec_of(config.env)).stages()) == 1
    assert (collection.tasks, len(registry.make(collection.env).tasks)) == ((), 100)
    assert collection.agent == ScriptedConfig(noise=0.1, random=(1.0, 0.0))
    assert collection.most_steps(registry.make(collection.env).spec) == 9000


@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_a_preset_updates(name):
    config = PRESETS[name].config
    spec = spec_of(config.env)
    algorithm = build(config.algo, spec)
    state = jax.eval_shape(algorithm.init, KEY)
    for stage in algorithm.stages():
        tasks = jnp.arange(stage.task_batch)
        batches = jax.eval_shape(functools.partial(sampled, stage, spec), state)
        assert {name: batch.reward.shape for name, batch in batches.items()} == {
            batch.name: (stage.task_batch, batch.size, *steps_of(batch)) for batch in stage.batches
        }
        arguments = (state, batches, KEY, *((tasks,) if stage.with_tasks else ()))
        after, metrics = jax.eval_shape(stage.update, *arguments)
        assert kinds(after) == kinds(state)
        assert any(metric.endswith("loss") for metric in metrics)
