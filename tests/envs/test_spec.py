"""The spec: its hash, its JSON, and that every registered id fills it."""

import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from omrl.envs.base import EnvSpec
from omrl.envs.registry import all_ids, ids, make
from omrl.errors import InputError

MACAW_HASH = "ce25720157aa4f8379853437a22409f6343de35ce0f3bfd36077254c626eb4bb"
CHANGED = {str: "other", int: 12345, float: 0.123}


def changed(spec: EnvSpec, name: str) -> EnvSpec:
    value = getattr(spec, name)
    if name == "constants":
        return dataclasses.replace(spec, constants=(*value[:-1], (value[-1][0], 99.0)))
    other = (*value, "other") if isinstance(value, tuple) else CHANGED[type(value)]
    return dataclasses.replace(spec, **{name: other})


def test_hashes_of_published_ids_never_change():
    assert make("cheetah-vel/macaw-v1").spec.hash == MACAW_HASH
    assert (
        make("cheetah-dir/macaw-v1").spec.hash
        == "a8ce4685f6b03f7286d748916a1195c17349d77aab4fde308855fe98205ff94b"
    )
    assert (
        make("point-robot/oyster-v1").spec.hash
        == "8b8c18c4cc6155596b8ede6dab8eaa1f7f0a252b11306e6da6c554eb859a683a"
    )


def test_hash_is_the_same_in_another_process():
    code = "from omrl.envs.registry import make; print(make('cheetah-vel/macaw-v1').spec.hash)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == (
        MACAW_HASH + "\n"
    )


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(EnvSpec)])
def test_hash_depends_on_every_field(name):
    spec = make("cheetah-vel/macaw-v1").spec
    assert changed(spec, name).hash != spec.hash


@pytest.mark.parametrize("env_id", ids())
def test_json_round_trip(env_id):
    spec = make(env_id).spec
    assert EnvSpec.from_json(spec.to_json()) == spec


def test_hashes_differ_between_ids():
    assert len({make(env_id).spec.hash for env_id in ids()}) == len(ids()) == 42


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"obs_dim": "20"}, r"^spec\.obs_dim: '20' is not of type int; write it as"),
        ({"obs_dim": True}, r"^spec\.obs_dim: True is not of type int"),
        ({"dt": float("inf")}, r"^spec: not JSON \(Infinity is not a JSON number\)"),
        ({"term_names": ["x", 1]}, r"^spec\.term_names\[1\]: 1 is not of type str"),
        ({"constants": [["a"]]}, r"^spec\.constants\[0\]: 1 values where 2 are needed"),
        ({"colour": "red"}, r"^spec\.colour: no such field"),
    ],
)
def test_broken_json_names_the_field(edit, message):
    fields = json.loads(make("cheetah-vel/macaw-v1").spec.to_json()) | edit
    with pytest.raises(InputError, match=message):
        EnvSpec.from_json(json.dumps(fields))


@pytest.mark.parametrize("text", ["[]", "{}", "no JSON"])
def test_other_json_is_refused(text):
    with pytest.raises(InputError, match=r"^spec"):
        EnvSpec.from_json(text)


@pytest.mark.parametrize("env_id", ids())
def test_every_id_is_complete_and_consistent(env_id):
    env = make(env_id)
    spec = env.spec
    assert spec.id == env_id
    for name in ("reward", "reset", "action", "termination", "task_distribution", "engine"):
        assert getattr(spec, name), name
    assert len(spec.obs_names) == len(set(spec.obs_names)) == spec.obs_dim
    assert spec.horizon > 0
    rng = np.random.default_rng(0)
    state = env.reset(rng)
    action = np.zeros(spec.act_dim)
    terms = env.terms(state, action, state)
    assert terms.shape == (len(spec.term_names),)
    assert env.observe(state).shape == (spec.obs_dim,)
    sampled = env.sample_tasks(rng, 7)
    assert sampled.shape == (7, len(spec.task_names))
    assert env.reward(terms, action, sampled).shape == (7,)
    assert set(env.splits) >= {"train", "test"}
    assert env.tasks.shape[1] == len(spec.task_names)
    for indices in env.splits.values():
        assert len(set(indices)) == len(indices) > 0
        assert set(indices) <= set(range(len(env.tasks)))


def test_unknown_id_suggests_the_nearest():
    with pytest.raises(
        InputError, match=r"unknown environment 'cheetah-vel/macaw'.*cheetah-vel/mac"
    ):
        make("cheetah-vel/macaw")
    with pytest.raises(InputError) as told:
        make("qqq")
    few = re.match(
        r"unknown environment 'qqq'; there are (\d+), such as (\S+), (\S+), (\S+) \(",
        str(told.value),
    )
    assert few is not None
    assert int(few[1]) == len(all_ids())
    assert set(few.groups()[1:]) < set(all_ids())


def test_changing_what_an_env_returns_does_not_change_the_env():
    env = make("cheetah-vel/macaw-v1")
    env.tasks[:] = 0.0
    dict(env.splits).clear()
    assert env.tasks[39, 0] == 3.0
    assert len(env.splits["train"]) == 35
