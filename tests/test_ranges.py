"""No number of any config may be one that no run can use, whichever way it is given."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from omrl.algos.borel_config import BorelConfig
from omrl.algos.meta_bc import MetaBcConfig
from omrl.algos.sac import SacConfig
from omrl.algos.smac_config import SmacConfig
from omrl.cli import main
from omrl.cli.options import DeviceOptions
from omrl.config import from_json, to_json
from omrl.data.collect.config import CollectConfig, KeptConfig
from omrl.errors import InputError, at
from omrl.presets import PRESETS, RunConfig, RunRecord
from omrl.protocol import AdaptConfig
from omrl.ranges import Count, Fraction, Natural, Positive, Range, Size, check_ranges
from omrl.types import Spec

BAD = (0, -1, math.nan, math.inf, -math.inf, 1e20, 10**20)
CONFIGS = {
    **{name: preset.config for name, preset in PRESETS.items()},
    "collect with TD3": CollectConfig(),
    "collect with SAC": CollectConfig(agent=SacConfig()),
    "collect with kept policies": CollectConfig(
        agent=KeptConfig(policies=(1,), shares=(1.0,)), tasks=(0,)
    ),
    "adapt": AdaptConfig(),
    "record of a run": RunRecord(RunConfig(), Spec(3, 2, 6, 10, (0.5,), (2.0,)), "data", "hash"),
    "devices": DeviceOptions(coordinator="10.0.0.1:9000"),
}
ZERO_IS_LEGAL = {
    # indices, seeds, and counts of which there may be none
    "tasks", "train_tasks", "task", "shots", "rounds", "seed", "first_seed", "context_seed",
    "episode_seed", "process_id", "burn_in", "value_steps", "policy_steps",
    # 0: never, as many as fit, one per core, no end
    "eval_every", "group_size", "threads", "buffer_size",
    # phases of exploration that may be left out, and labels
    "posterior_steps", "label_context", "online_steps",
    # fractions, and amounts of noise
    "discount", "start", "recency", "target_decay", "target_rate", "target_noise",
    "target_noise_clip", "exploration_noise", "noise", "exploration",
    # weights of terms that may be left out of a loss
    "kl_weight", "state_weight", "mean_penalty", "log_std_penalty", "entropy_weight", "awac_weight",
    "reparam_weight", "self_supervised_reparam_weight", "self_supervised_entropy_weight",
    "conservative",
    # features of what is not seen
    "obs_features", "action_features", "reward_features",
    # rewards, nats, and first biases
    "reward_success", "reward_failure", "target_entropy", "keep_bias",
    # measured on the data
    "obs_mean", "return_mean", "return_std",
}  # fmt: skip
LEGAL = {(name, 0) for name in ZERO_IS_LEGAL} | {
    (name, -1)
    for name in (
        *("target_entropy", "obs_mean", "return_mean", "reward_success", "reward_failure"),
        "keep_bias",
    )
}
"""Which of `BAD` a field of that name takes."""

Path = tuple[str, ...]


def numeric_fields(config: Any, path: Path = ()) -> Iterator[tuple[Path, type, bool]]:
    """Path, int or float, and whether it is a tuple of these, of every number in a config."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        here = (*path, field.name)
        if dataclasses.is_dataclass(value):
            yield from numeric_fields(value, here)
            continue
        several = typing.get_origin(hint) is tuple
        for kind in (hint, *typing.get_args(hint)):
            if kind in (int, float):
                yield here, kind, several


def replaced(config: Any, path: Path, value: Any) -> Any:
    name, *rest = path
    inner = replaced(getattr(config, name), tuple(rest), value) if rest else value
    return dataclasses.replace(config, **{name: inner})


def put(json: Any, path: Path, value: Any) -> None:
    for name in path[:-1]:
        json = json[name]
    json[path[-1]] = value


INSTEAD = {
    ("awac_weight", 0): "reparam_weight",  # What is left of the actor's loss without it.
    ("prior_steps", 0): "into_encoder",  # What acts on the prior.
}
"""Another field that a refusal may begin with."""


@pytest.mark.parametrize("name", CONFIGS)
def test_every_number_of_every_config_is_checked(name):
    config, taken, tried = CONFIGS[name], set(), set()
    for path, kind, several in numeric_fields(config):
        tried.add(path[-1])
        # Values of another type than the field's are met by files alone: see below.
        for bad in map(kind, BAD if kind is float else filter(math.isfinite, BAD)):
            try:
                replaced(config, path, (bad,) if several else bad)
                taken.add((path[-1], bad))
            except InputError as error:
                refusal = str(error)
                named = f"({path[-1]}|{INSTEAD.get((path[-1], bad), path[-1])})"
                assert re.match(rf"(\w+\.)?{named}(\[0\])?[:,] ", refusal), (path, bad, refusal)
    legal = LEGAL
    algo = getattr(config, "algo", None)
    if isinstance(algo, MetaBcConfig):
        legal = LEGAL | {("inner_steps", 0)}  # Plain behaviour cloning.
    if isinstance(algo, SmacConfig):
        terms = ("reparam_weight", "self_supervised_reparam_weight")
        alone = ("awac_weight",) if algo.awac_weight else terms
        scores = {
            ("largest_score", score) for score in (0, -1) if algo.weights in ("exp", "whitened")
        }
        # Labels are what self-supervision learns from.
        alone += () if algo.oracle else ("label_context",)
        legal = LEGAL - {(name, 0) for name in alone} | scores | {("initial_steps", 0)}
        schedule = algo.exploration
        filled = schedule.into_encoder != "prior" or schedule.initial_steps
        legal |= {("prior_steps", 0)} if schedule.posterior_steps and filled else set()
    if isinstance(algo, BorelConfig):
        sees = algo.vae.reward_sees
        seen = {"action_features"} if "action" in sees else set()
        seen |= {"obs_features"} if {"obs", "next_obs"} & set(sees) else set()
        legal = LEGAL - {(name, 0) for name in seen}
        if getattr(algo.policy, "temperature", None) is not None:
            legal -= {("target_entropy", 0), ("target_entropy", -1)}
    if isinstance(config, RunConfig) and config.eval.protocol == "explore":
        legal = legal - {("shots", 0)}  # Nobody would act on what was explored.
    assert taken == {(field, bad) for field, bad in legal if field in tried}


ONE_OF_EACH = {tuple(numeric_fields(preset.config)): name for name, preset in PRESETS.items()}
"""Presets by the fields that they have."""


@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_a_file_is_refused_with_the_full_path(name):
    config = PRESETS[name].config
    for path, _, several in numeric_fields(config):
        json = to_json(config)
        put(json, path, [math.nan] if several else math.nan)
        with pytest.raises(InputError, match=rf"^config\.{re.escape('.'.join(path))}\b"):
            from_json(RunConfig, json)


OPTIONS = {
    "train macaw-cheetah-vel --data {data} --out {out}": [
        "--algo.inner-lr nan", "--algo.policy-lr inf", "--algo.value-lr -1e-3", "--algo.sigma 0",
        "--algo.hidden 0", "--algo.head-hidden 8 -1", "--algo.latent 100000000000",
        "--algo.temperature 1e20", "--algo.inner-batch.size 0", "--discount nan",
        "--train.first-seed 4294967296", "--train.seeds 0", "--eval.shots 0 100000000000",
        "--eval.context-size 0", "--slice every-100000000000000000000000000",
        "--eval.context-slice first-0", "--devices 0", "--process-id 1",
    ],
    "collect point-robot/oyster-v1 --out {out}": [
        "--agent.learning-rate nan", "--agent.discount 1.5", "--steps 0", "--threads -1",
    ],
    "evaluate {run}": ["--shots 0 100000000000", "--context-size 0", "--step -1"],
    "adapt {run} --context {data} --out {out}": ["--rounds -1", "--seed -1", "--context-seed -1"],
    "demo --out {out}": ["--episodes 0", "--steps 0"],
    "bench macaw": ["--seeds 0", "--seconds nan", "--repeats 0"],
    "bench mt_awr": ["--seeds 0", "--seconds 0"],
    "bench pearl": ["--seconds 0", "--repeats 0"],
    "bench smac": ["--seconds 0", "--repeats 0"],
    "bench envs": ["--seconds 0", "--sizes 0", "--sizes"],
    "data slice {data} {out}": ["--every 0"],
    "envs render point-robot/oyster-v1 --out {out}.gif": ["--width 0", "--seed -1", "--steps 0"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for command, options in OPTIONS.items() for option in options],
)
def test_an_option_is_refused_in_one_line_and_nothing_is_left(
    command, option, cheetah_data, tmp_path, capsys
):
    places = {"data": cheetah_data, "run": tmp_path / "no-run", "out": tmp_path / "out"}
    assert main([*command.format(**places).split(), *option.split()]) == 2
    error = capsys.readouterr().err
    field = option.split()[0].lstrip("-").replace("-", "_")
    assert re.match(rf"omrl: error: .*\b{re.escape(field)}(\[\d\])?: ", error), error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- Declaring ranges ---


@dataclasses.dataclass(frozen=True)
class Example:
    width: Size = 3
    rate: Positive = 0.5
    part: Fraction | None = None
    pair: tuple[Natural, Fraction] = (0, 1.0)
    several: tuple[Count, ...] = ()
    own: Annotated[float, Range(-2, 2.5)] = 0.0
    name: str = "free"
    free: int = 0

    def __post_init__(self) -> None:
        check_ranges(self)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 10_001}, "width: 10001 is not a whole number from 1 to 10000"),
        ({"width": 2.0}, "width: 2.0 is not a whole number from 1 to 10000"),
        ({"width": True}, "width: True is not a whole number from 1 to 10000"),
        ({"rate": 0.0}, "rate: 0.0 is not a number from 1e-09 to 1000000000"),
        ({"rate": "1"}, "rate: '1' is not a number from 1e-09 to 1000000000"),
        ({"part": math.nan}, "part: nan is not a number from 0 to 1"),
        ({"pair": (0, 1.5)}, "pair[1]: 1.5 is not a number from 0 to 1"),
        ({"several": (1, 0)}, "several[1]: 0 is not a whole number from 1 to 2147483647"),
        ({"own": 3.0}, "own: 3.0 is not a number from -2 to 2.5"),
    ],
)
def test_the_message_names_field_value_and_range(changes, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Example(**changes)


def test_both_ends_belong_to_a_range():
    Example(width=10_000, rate=1e-9, part=1.0, own=-2.0, free=10**20)
    Example(width=1, part=0.0, own=2.5, several=(2**31 - 1,))


def test_a_path_is_joined_only_to_a_field():
    assert at("algo", "steps: 0 is wrong") == "algo.steps: 0 is wrong"
    assert at("algo", "inner_batch.size: 0") == "algo.inner_batch.size: 0"
    assert at("agent", "hidden[1]: 0") == "agent.hidden[1]: 0"
    assert at("algo", "the batches: wrong") == "algo: the batches: wrong"
