"""Ablations of MACAW as presets: every one is another preset with one thing changed.

`docs/algorithms/ablations.md` says what each asks and which figure of the paper has it. Here is
what changes; the rest, settings and evaluation, is that of the preset it is derived from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_sizes import with_sizes_of
from omrl.data.sample import BatchSpec
from omrl.envs import registry

if TYPE_CHECKING:
    from omrl.presets import Preset

Changes = Mapping[str, Any]

OURS: Mapping[str, Changes] = {
    "no-adv-head": {"advantage_head": False},
    "no-wt-equal-width": {"layer": "linear"},
    "no-wt-equal-params": {"layer": "linear"},
    "bias-transform": {"layer": "bias_transform"},
    "bias-transform-equal-params": {"layer": "bias_transform"},
    "z-only": {"adapt": "z"},
    "first-order": {"first_order": True},
    "fixed-lrs": {"learn_inner_lr": False},
    "inner-steps-2": {"inner_steps": 2},
    "inner-steps-5": {"inner_steps": 5},
    "inner-steps-10": {"inner_steps": 10},
    "no-adv-norm": {"normalize_advantage": False},
    "bootstrap": {"bootstrap_advantage": True, "bootstrap_outer_value": True},
}
"""What changes in the preset `macaw-...`, by what its name gets appended; those that end with
`equal-params` also get the widths with which both networks are as large as before."""

_LAST_100K = BatchSpec("outer", 256, start=0.96)
_RANDOM_INNER = {"inner_batch": BatchSpec("inner", 512, "without_replacement", buffer="encoder")}
_NO_HEAD = {"advantage_head": False}
_NO_WT = {"layer": "bias_transform"}

_OF_LAST_100K = (
    "outer batches are of the last 4 % of a lifetime, which is the code's last 100,000 transitions "
    "where there are the paper's 2.5 million"
)
_OF_RANDOM_DATA = (
    "inner batches are of the dataset given as --encoder-data, where the code collects 20,000 "
    "transitions of its untrained policy; contexts at test are of the main dataset unless omrl "
    "evaluate --data names the other one"
)

CODE: Mapping[str, tuple[Changes, str, str]] = {
    "no-adv-head": (_NO_HEAD, "standard.json and overrides/noadv.json", ""),
    "maml-awr": (_NO_HEAD | {"outer_batch": _LAST_100K}, "mamlawr.json", _OF_LAST_100K),
    "no-wt-equal-width": (_NO_WT, "standard.json and overrides/no_wlinear.json", ""),
    "no-wt-equal-params": (
        _NO_WT | {"hidden": (725, 725, 725), "outer_batch": _LAST_100K},
        "standard.json and overrides/no_wlinear_wide.json",
        _OF_LAST_100K,
    ),
    "random-inner": (_RANDOM_INNER, "standard_rand_inner.json", _OF_RANDOM_DATA),
    "random-inner-no-adv-head": (
        _RANDOM_INNER | _NO_HEAD,
        "standard_rand_inner.json and overrides/noadv.json",
        _OF_RANDOM_DATA,
    ),
    "random-inner-no-wt": (
        _RANDOM_INNER | _NO_WT,
        "standard_rand_inner.json and overrides/no_wlinear.json",
        _OF_RANDOM_DATA,
    ),
}
"""Of the reference code: what changes in its standard configuration, its files, what differs."""


def ours(name: str, base: Preset) -> dict[str, Preset]:
    """The ablations of the preset `base` called `name`."""
    return {f"{name}-{suffix}": _ablation(name, suffix, base) for suffix in OURS}


def of_the_code(name: str, base: Preset) -> dict[str, Preset]:
    """Those that the reference code has of its standard configuration `base`; `name` is that
    without `-code`."""
    return {
        f"{name}-{suffix}-code": replace(
            _changed(base, changes),
            source=f"eric-mitchell/macaw@3dfd4f9, config/alg/{files}",
            deviates="; ".join(filter(None, (f"as {name}-code", deviates))),
        )
        for suffix, (changes, files, deviates) in CODE.items()
    }


def _ablation(name: str, suffix: str, base: Preset) -> Preset:
    changes = OURS[suffix]
    changed = _changed(base, changes)
    source = f"ours: {name} but for " + ", ".join(f"{k} = {v}" for k, v in changes.items())
    if suffix.endswith("equal-params"):
        source += ", as wide as makes the networks as large as before"
        changed = _resized(base, changed)
    return replace(changed, source=source)


def _changed(base: Preset, changes: Changes) -> Preset:
    return replace(base, config=replace(base.config, algo=replace(base.config.algo, **changes)))


def _resized(base: Preset, changed: Preset) -> Preset:
    before, after = base.config.algo, changed.config.algo
    assert isinstance(before, MacawConfig)
    assert isinstance(after, MacawConfig)
    spec = registry.make(base.config.env).spec
    algo = with_sizes_of(before, after, spec.obs_dim, spec.act_dim)
    return replace(changed, config=replace(changed.config, algo=algo))
