"""The ablations of MACAW: each preset is one change, and each change does what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos import macaw_losses, macaw_sizes
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.registry import network_sizes
from omrl.cli import main, train
from omrl.cli.presets import parameters
from omrl.config import to_json
from omrl.data.sample import BatchSpec
from omrl.envs import registry
from omrl.errors import InputError
from omrl.ops import inner_loop
from omrl.presets import PRESETS
from omrl.types import Spec
from quick import quick_jit
from tiny_macaw import assert_close, make, make_batch, make_batches

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)


def as_float64(tree):
    return jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree)


# --- Presets: one change each ---

OURS = {
    "no-adv-head": {"advantage_head": False},
    "no-wt-equal-width": {"layer": "linear"},
    "no-wt-equal-params": {
        "layer": "linear",
        "hidden": [1139, 1139, 1139],
        "value_hidden": [1058, 1058, 1058],
    },
    "bias-transform": {"layer": "bias_transform"},
    "bias-transform-equal-params": {
        "layer": "bias_transform",
        "hidden": [723, 723, 723],
        "value_hidden": [670, 670, 670],
    },
    "z-only": {"adapt": "z"},
    "first-order": {"first_order": True},
    "fixed-lrs": {"learn_inner_lr": False},
    "inner-steps-2": {"inner_steps": 2},
    "inner-steps-5": {"inner_steps": 5},
    "inner-steps-10": {"inner_steps": 10},
    "no-adv-norm": {"normalize_advantage": False},
    "bootstrap": {"bootstrap_advantage": True, "bootstrap_outer_value": True},
}
LATE = to_json(BatchSpec("outer", 256, start=0.96))
RANDOM = to_json(BatchSpec("inner", 512, "without_replacement", buffer="encoder"))
CODE = {
    "no-adv-head": {"advantage_head": False},
    "maml-awr": {"advantage_head": False, "outer_batch": LATE},
    "no-wt-equal-width": {"layer": "bias_transform"},
    "no-wt-equal-params": {
        "layer": "bias_transform",
        "hidden": [725, 725, 725],
        "outer_batch": LATE,
    },
    "random-inner": {"inner_batch": RANDOM},
    "random-inner-no-adv-head": {"inner_batch": RANDOM, "advantage_head": False},
    "random-inner-no-wt": {"inner_batch": RANDOM, "layer": "bias_transform"},
}
ABLATIONS = {f"macaw-cheetah-vel-{suffix}": changes for suffix, changes in OURS.items()} | {
    f"macaw-cheetah-vel-{suffix}-code": changes for suffix, changes in CODE.items()
}


def test_every_ablation_is_listed():
    derived = {name for name in PRESETS if name.startswith("macaw-cheetah-vel-")}
    assert derived == {*ABLATIONS, "macaw-cheetah-vel-paper", "macaw-cheetah-vel-code"}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_its_preset_but_for_one_thing(name):
    base = "macaw-cheetah-vel-code" if name.endswith("-code") else "macaw-cheetah-vel"
    before, after = (to_json(PRESETS[each].config) for each in (base, name))
    changed = {key: after["algo"][key] for key, old in before["algo"].items()}
    changed = {key: new for key, new in changed.items() if new != before["algo"][key]}
    assert changed == ABLATIONS[name]
    assert after | {"algo": None} == before | {"algo": None}
    assert PRESETS[name].source.startswith("eric-mitchell" if name.endswith("-code") else "ours")


# --- Equal numbers of parameters ---

SPECS = [Spec(20, 6, 35, 200), Spec(3, 2, 2, 10)]
SIZES: list[dict[str, Any]] = [
    {},
    {"offset": True, "latent": 7},
    {"layer": "linear", "hidden": (5, 9), "value_hidden": (4,)},
    {"layer": "bias_transform", "head_hidden": ()},
    {"advantage_head": False, "value_hidden": ()},
]


@pytest.mark.parametrize("spec", SPECS, ids=["cheetah", "tiny"])
@pytest.mark.parametrize("changes", SIZES, ids=",".join)
def test_sizes_in_closed_form_are_those_of_the_networks(changes, spec):
    config = MacawConfig(**changes)
    assert network_sizes(config, spec) == {
        "value": macaw_sizes.value_size(config, spec.obs_dim),
        "policy": macaw_sizes.policy_size(config, spec.obs_dim, spec.act_dim),
    }


def test_sizes_by_hand():
    # Reference code, observations of 20 and actions of 6: 2,262,901 and 2,663,263 with weight
    # transform, 52,703 and 57,763 with bias transform.
    for layer, expected in (
        ("weight_transform", (2_262_901, 2_663_263)),
        ("bias_transform", (52_703, 57_763)),
    ):
        config = MacawConfig(offset=True, layer=layer)
        sizes = macaw_sizes.value_size(config, 20), macaw_sizes.policy_size(config, 20, 6)
        assert sizes == expected
    # 2 + 1 inputs for each of 3 units, 3 + 1 for the output
    config = MacawConfig(layer="linear", hidden=(3,))
    assert macaw_sizes.value_size(config, 2) == 3 * 3 + 4 * 1


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name.endswith("equal-params")])
def test_equal_parameters_are_within_one_percent_in_each_network(name):
    env = registry.make(PRESETS[name].config.env).spec
    spec = Spec(env.obs_dim, env.act_dim, 35, env.horizon)
    before = network_sizes(PRESETS["macaw-cheetah-vel"].config.algo, spec)
    after = network_sizes(PRESETS[name].config.algo, spec)
    for network, size in before.items():
        assert after[network] == pytest.approx(size, rel=0.01)


def test_nearest_width():
    def square(width: int) -> int:
        return width**2

    assert [macaw_sizes.nearest_width(square, size) for size in (0, 1, 12, 13, 16)] == [
        1,
        1,
        3,
        4,
        4,
    ]
    with pytest.raises(InputError, match="no width up to 10000"):
        macaw_sizes.nearest_width(square, 10_000**2 + 1)


def test_widths_keep_the_depth_of_each_network():
    like = MacawConfig(hidden=(8, 8), value_hidden=(8,), latent=5)
    wide = macaw_sizes.with_sizes_of(like, replace(like, layer="linear"), 3, 2)
    assert wide.value_hidden is not None
    assert (len(wide.hidden), len(wide.value_hidden)) == (2, 1)


# --- The page ---

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms" / "ablations.md").read_text()
SIZE_ROW = re.compile(
    r"^\| `(.*)` \| ([a-z ]+) \| (\d+) \| ([\d,]+) \| (\d+) \| ([\d,]+) \|$", re.MULTILINE
)
OPTIONS = re.findall(r"^\| `([a-z-]+)` \|.*\| `(--[\w. -]+)` \|", PAGE, re.MULTILINE)
"""(preset, options) of the lines whose option is complete."""


def test_the_table_of_sizes_is_that_of_the_presets():
    rows = SIZE_ROW.findall(PAGE)
    equal = {f"macaw-cheetah-vel-{name}" for name in OURS if "equal" in name}
    assert {row[0] for row in rows} >= equal
    for name, layer, policy_width, policy_size, value_width, value_size in rows:
        config = PRESETS[name].config
        assert isinstance(config.algo, MacawConfig)
        assert config.algo.layer == layer.replace(" ", "_")
        assert {*config.algo.hidden} == {int(policy_width)}
        assert {*config.algo.value_widths} == {int(value_width)}
        sizes = {"policy": policy_size, "value": value_size}
        assert {net: f"{size:,}" for net, size in parameters(config).items()} == sizes


def test_the_commands_are_those_of_the_presets(monkeypatch):
    started = []
    monkeypatch.setattr(train, "_start", lambda options, _: started.append(options.config))
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    for line in lines:
        if line.startswith("omrl train"):
            assert main(line.split()[1:]) == 0
    configs = [PRESETS[f"macaw-cheetah-vel-{name}"].config for name in OURS]
    assert [config for config in configs if config not in started] == []
    steps = [config.algo.inner_steps for config in started]
    assert [number for number in steps if number > 1] == [2, 5, 10, 7]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_the_options_make_the_preset_of_the_tuned_one(name, options, monkeypatch):
    started = []
    monkeypatch.setattr(train, "_start", lambda options, _: started.append(options.config))
    arguments = ["train", "macaw-cheetah-vel", *options.split(), "--data", "d", "--out", "r"]
    assert main(arguments) == 0
    assert started == [PRESETS[f"macaw-cheetah-vel-{name}"].config]


def test_most_ablations_have_one_option():
    with_widths_or_k = [name for name in OURS if "equal-params" in name or "steps" in name]
    assert {name for name, _ in OPTIONS} == OURS.keys() - set(with_widths_or_k)


# --- Adapting z alone ---


@pytest.mark.parametrize("layer", ["weight_transform", "bias_transform"])
def test_z_only_moves_z_and_nothing_else(layer):
    changes: dict[str, Any] = {"layer": layer, "offset": True, "inner_lr": 0.1}
    macaw = make(adapt="z", inner_form="plain", inner_lr_per="tensor", **changes)
    state, support = macaw.init(KEY), make_batch(KEY, 8)
    task = quick_jit(macaw.adapt)(state, macaw.begin(state, KEY), support, KEY)
    for net, traces in ((state.meta.value, task.value), (state.meta.policy, task.policy)):
        for before, after in zip(inner_loop.layers(net), traces, strict=True):
            assert np.all(np.asarray(after.z) != np.asarray(before.z))
            replaced = replace(after, z=before.z)
            for one, other in zip(jax.tree.leaves(replaced), jax.tree.leaves(before), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("x64")
def test_z_only_in_the_low_rank_form_is_the_plain_form():
    """Losses, every gradient, and that the rates of kernels and offsets are not learned."""
    gradients = []
    for form in ("low_rank", "plain"):
        macaw = make(adapt="z", inner_form=form, offset=True, inner_lr_per="tensor", inner_lr=0.1)
        meta, batches = as_float64(macaw.init(KEY).meta), as_float64(make_batches(KEY))
        gradient = quick_jit(partial(macaw_losses.meta_gradient, macaw.config, 6))
        gradients.append(gradient(meta, batches["inner"], batches["outer"]))
    assert_close(*gradients)
    grads = gradients[0][0]
    for rates in (grads.value_rates, grads.policy_rates):
        assert np.all(rates[:2, 0] != 0)  # With one step nothing reads the adapted head.
        np.testing.assert_array_equal(rates[:, 1:], 0)


def test_linear_layers_have_no_z():
    with pytest.raises(InputError, match="adapt: linear layers have no z"):
        make(adapt="z", layer="linear")


# --- The gradient that meta-learns ---


def meta_gradient(changes: dict[str, Any]):
    """Configuration, meta-parameters, batches and their gradient, of plain layers in float64."""
    macaw = make(layer="linear", inner_lr=0.05, **changes)
    meta = as_float64(macaw.init(KEY).meta)
    batches = as_float64(make_batches(jax.random.PRNGKey(1)))
    gradient = quick_jit(partial(macaw_losses.meta_gradient, macaw.config, 6))
    return macaw.config, meta, batches, gradient(meta, batches["inner"], batches["outer"])[0]


def outer_gradients(config, meta, inner, outer):
    """Of one task: the outer losses' gradients at the adapted networks, which are constants."""
    start = macaw_losses.begin(config, meta)
    loops = macaw_losses.inner_loops(config, meta, start, macaw_losses.NO_TAPS, inner)
    policy = inner_loop.read(meta.policy, loops.policy.history[-1])
    advantage = macaw_losses.advantage(config, loops.adapted_value, outer)
    return (
        jax.grad(macaw_losses.value_inner_loss)(loops.adapted_value, outer.obs, outer.mc_return),
        jax.grad(macaw_losses.policy_outer_loss)(policy, config, outer, advantage),
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("first_order", [True, False])
def test_first_order_is_the_outer_gradient_at_the_adapted_networks(first_order):
    config, meta, batches, grads = meta_gradient({"first_order": first_order})
    of_task = jax.vmap(partial(outer_gradients, config, meta))
    expected = quick_jit(of_task)(batches["inner"], batches["outer"])
    expected = jax.tree.map(lambda leaf: leaf.mean(0), expected)
    ours = inner_loop.generate(grads.value), inner_loop.generate(grads.policy)
    if first_order:
        assert_close(ours, expected)
    else:
        with pytest.raises(AssertionError):
            assert_close(ours, expected, rtol=1e-3)
    # The advantage head learns only through the inner gradient.
    moves = [np.max(np.abs(layer.weight)) for layer in grads.policy.head]
    assert all(move == 0 for move in moves) == first_order


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("learn", [True, False])
def test_fixed_rates_get_no_gradient(learn):
    _, _, _, grads = meta_gradient({"learn_inner_lr": learn})
    for rates in (grads.value_rates, grads.policy_rates):
        assert np.all((np.asarray(rates[:2]) != 0) == learn)


# --- Several inner steps ---


@pytest.mark.parametrize("steps", range(2, 11))
def test_any_number_of_steps_needs_no_other_setting(steps):
    config = make(inner_steps=steps).config
    assert (config.capacity, config.for_rounds(3).capacity) == (steps, 3 * steps)


@pytest.mark.usefixtures("x64")
def test_ten_low_rank_steps_are_ten_plain_rounds_of_one():
    """Of the value network, whose steps do not read the policy."""
    ten, one = make(inner_steps=10), make(inner_form="plain")
    state, support = as_float64(ten.init(KEY)), as_float64(make_batch(KEY, 8))
    task = quick_jit(ten.adapt)(state, ten.begin(state, KEY), support, KEY)
    stepped, step = one.begin(state, KEY), quick_jit(one.adapt)
    for _ in range(10):
        stepped = step(state, stepped, support, KEY)
    ours, plain = (inner_loop.read(state.meta.value, each.value) for each in (task, stepped))
    assert_close(ours, plain)
    with pytest.raises(AssertionError):
        assert_close(ours, inner_loop.generate(state.meta.value), rtol=1e-3)
