"""BOReL on SMAC's data: what is original and what matched, and how physics is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import pytest

from omrl.algos.borel_config import BorelConfig
from omrl.algos.registry import build
from omrl.envs import registry
from omrl.preset_borel_smac import PROBLEMS
from omrl.presets import PRESETS
from omrl.protocol import EXPLORE
from test_presets import spec_of

KINDS = ("-original", "-matched", "-conservative", "")
COMPARED = [(problem, kind) for problem in PROBLEMS for kind in KINDS]
PHYSICS = {"walker-params", "hopper-params"}
SMAC = {"sawyer": "smac-sawyer75-paper"}
"""SMAC's preset, where it is not smac-PROBLEM-paper."""


def algo(name: str) -> BorelConfig:
    config = PRESETS[name].config.algo
    assert isinstance(config, BorelConfig)
    return config


@pytest.mark.parametrize(("problem", "kind"), COMPARED)
def test_environment_data_and_evaluation_are_those_of_smac(problem, kind):
    config = PRESETS[f"borel-smac-{problem}{kind}"].config
    smac = PRESETS[SMAC.get(problem, f"smac-{problem}-paper")].config
    same = ("env", "discount", "train_split", "holdout", "slice")
    assert [getattr(config, field) for field in same] == [getattr(smac, field) for field in same]
    assert config.eval == PRESETS["macaw-smac-cheetah-vel-original"].config.eval
    assert config.eval.explore == EXPLORE["explore-paper"]["explore"]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_original_and_what_is_matched(problem):
    original, matched = (algo(f"borel-smac-{problem}{kind}") for kind in KINDS[:2])
    smac: Any = PRESETS[SMAC.get(problem, f"smac-{problem}-paper")].config.algo
    code = algo("borel-cheetah-vel-code")
    head = "squared" if problem in PHYSICS else "none"
    vae = replace(code.vae, state_head=head)
    assert original == replace(code, vae=vae, vae_steps=original.vae_steps)
    policy: Any = matched.policy
    assert policy.hidden == smac.hidden == (300, 300, 300)
    assert policy.policy_lr == policy.critic_lr == smac.policy_lr == smac.critic_lr == 3e-4
    assert matched.batch.size == smac.batch.size == 256
    assert (matched.task_batch, matched.steps) == (smac.task_batch, smac.steps) == (4, 50_000)
    same = {"policy": original.policy, "task_batch": 16, "steps": 1_000_000}
    assert replace(matched, **same) == original


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_conservative_one_is_the_matched_one_with_cql(problem):
    matched, conservative = (algo(f"borel-smac-{problem}{kind}") for kind in KINDS[1:3])
    policy: Any = conservative.policy
    assert (policy.conservative, policy.conservative_actions) == (10.0, 10)
    plain = replace(policy, conservative=0.0, log_prob="clipped")
    assert replace(conservative, policy=plain) == matched
    assert PRESETS[f"borel-smac-{problem}-conservative"].source.startswith("ours")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_ours_is_the_matched_one_with_a_better_trained_model(problem):
    matched, ours = algo(f"borel-smac-{problem}-matched"), algo(f"borel-smac-{problem}")
    assert (ours.normalize_obs, ours.lr_decay, ours.vae.elbo_terms) == (True, True, 50)
    assert ours.vae_steps > matched.vae_steps
    same = {"vae": matched.vae, "vae_steps": matched.vae_steps, "steps": matched.steps}
    assert replace(ours, **same, normalize_obs=False, lr_decay=False) == matched
    assert replace(ours.vae, elbo_terms=None) == matched.vae


def test_updates_of_the_model_are_100_epochs():
    """Three trajectories of a task are one chunk of 8; of 100 tasks there are 25 chunks of 4."""
    assert len(registry.make("cheetah-vel/oyster-v1").splits["train"]) == 100
    assert algo("borel-smac-cheetah-vel-original").vae_steps == 2500


def test_sawyers_50_episodes_are_four_chunks():
    """25 trajectories of two; of 50 tasks there are 13 chunks."""
    assert algo("borel-smac-sawyer-original").vae_steps == 100 * 13 * 4


@pytest.mark.parametrize("problem", PROBLEMS)
def test_states_are_decoded_where_rewards_cannot_be_another_tasks(problem):
    """Relabelling is refused there, so that these presets have to do without, and in Sawyer, whose
    tasks have other objects and other rewards."""
    config = PRESETS[f"borel-smac-{problem}-matched"].config
    env = registry.make(config.env)
    assert env.task_changes_physics == (problem in PHYSICS or problem == "sawyer")
    state = jax.eval_shape(build(config.algo, spec_of(config.env)).init, jax.random.PRNGKey(0))
    assert (state.model.vae.states is not None) == (problem in PHYSICS)
