"""A set of MACAW's golden files with random inputs, other sizes, and outputs of our plain form."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import macaw_cases
import numpy as np
from golden_file import GoldenFile

OBS, ACT, HIDDEN, HEAD, LATENT = 4, 2, (3,), (3, 2, 1), 5
INNER, OUTER, TASKS = 12, 10, 4
CONST = {
    "action_sigma": 0.3,
    "exp_advantage_clip": 4.0,
    "adaptation_temp": 0.7,
    "target_vf_alpha": 0.8,
    "discount_factor": 0.95,
    "outer_value_lr": 1e-3,
    "outer_policy_lr": 2e-3,
    "lrlr": 1e-2,
    "grad_clip": 1e9,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_eps": 1e-8,
}

Arrays = dict[str, Any]


def write_set(folder: Path, letter: str) -> None:
    """Problems with weight-transform and plain layers, cases, meta-steps, layers, a buffer."""
    random = np.random.Generator(np.random.Philox(key=[0, 7]))
    problem = problem_arrays(random, weight_transform=True)
    wlinear = {
        "wlinear_problem": {**problem, "forward/task2_outer/value": np.zeros(1)},
        "wlinear_k3": {"k3/value_outer_loss": np.zeros(1)},
    }
    linear = {
        **problem_arrays(random, weight_transform=False),
        "k2_bootstrap_inner_no_norm/value_outer_loss": np.zeros(1),
        "train/meta_step1/tasks": np.array([0, 2, 3]),
        "train/meta_step2/tasks": np.array([1, 2, 3]),
        "train/meta_step2/grad/adv_coef_raw": np.zeros(()),
    }
    files = {
        **wlinear,
        "linear": linear,
        "layers": layer_arrays(random),
        "replay": replay_arrays(random),
    }
    for kind, arrays in files.items():
        path = folder / f"golden_macaw_{letter}_{kind}.npz"
        np.savez(path, **arrays)
        with jax.enable_x64(True):
            # The first group of a folder is the plain form, which defines what the file holds.
            outputs = {
                name: np.asarray(array)
                for group in reversed(list(macaw_cases.groups(GoldenFile(path))))
                for name, array in group.arrays.items()
            }
        np.savez(path, **{**arrays, **outputs})


def problem_arrays(random: np.random.Generator, *, weight_transform: bool) -> Arrays:
    arrays: Arrays = {f"const/{name}": np.float64(value) for name, value in CONST.items()}
    arrays |= {"dims/n_train_tasks": np.int64(TASKS), "adv_coef_raw": np.float64(-0.5)}
    trunk = {f"L{i}": sizes for i, sizes in enumerate(pairwise((OBS, *HIDDEN, ACT)))}
    value = {f"L{i}": sizes for i, sizes in enumerate(pairwise((OBS, *HIDDEN, 1)))}
    head = {f"H{i}": sizes for i, sizes in enumerate(pairwise((HIDDEN[-1] + ACT, *HEAD)))}
    for net, chain in (("value", value), ("policy", trunk | head)):
        for layer, sizes in chain.items():
            make = weight_transform_arrays if weight_transform else linear_arrays
            for leaf, array in make(random, *sizes).items():
                arrays[f"init/{net}/{layer}/{leaf}"] = array
                arrays[f"lr_raw/{net}/{layer}/{leaf}"] = random.normal(-5, 0.5, ())
    for task in range(TASKS):
        for part, size in (("inner", INNER), ("outer", OUTER)):
            for name, array in batch_arrays(random, size).items():
                arrays[f"task{task}/{part}/{name}"] = array
    return arrays


def weight_transform_arrays(random: np.random.Generator, in_dim: int, out_dim: int) -> Arrays:
    params = in_dim * out_dim + out_dim
    return {
        "z": random.normal(size=LATENT),
        "W": random.normal(size=(params, LATENT)) / LATENT,
        "c": random.normal(size=params) / 2,
    }


def linear_arrays(random: np.random.Generator, in_dim: int, out_dim: int) -> Arrays:
    return {"W": random.normal(size=(out_dim, in_dim)), "b": random.normal(size=out_dim)}


def batch_arrays(random: np.random.Generator, size: int) -> Arrays:
    return {
        "obs": random.normal(size=(size, OBS)),
        "actions": random.uniform(-1, 1, size=(size, ACT)),
        "next_obs": random.normal(size=(size, OBS)),
        "terminal_obs": random.normal(size=(size, OBS)),
        "terminal_discounts": CONST["discount_factor"] ** random.integers(1, 20, (size, 1)),
        "dones": np.zeros((size, 1)),
        "rewards": random.normal(size=(size, 1)),
        "mc_rewards": 3 * random.normal(size=(size, 1)),
    }


def layer_arrays(random: np.random.Generator) -> Arrays:
    bias_transform = linear_arrays(random, 3, 2)
    bias_transform |= {"bz": random.normal(size=2), "Wb": random.normal(size=(2, 2))}
    arrays = {}
    for folder, leaves in (
        ("wl_p", weight_transform_arrays(random, 3, 2)),
        ("bl", bias_transform),
    ):
        leaves |= {"x": random.normal(size=(4, 3)), "cot": random.normal(size=(4, 2))}
        arrays |= {f"{folder}/{name}": array for name, array in leaves.items()}
    return arrays


def replay_arrays(random: np.random.Generator) -> Arrays:
    """A ring that is never filled."""
    arrays: Arrays = {
        "load/n_rows": np.int64(50),
        "load/end_size20_skip3": np.zeros(1, np.int64),
        "replay/after1/rewards": np.zeros((9, 1)),
        "replay/after1/write_location": np.int64(9),
    }
    for number, length in enumerate((5, 4)):
        arrays |= {
            f"replay/traj{number}/states": random.normal(size=(length + 1, OBS)),
            f"replay/traj{number}/actions": random.normal(size=(length, ACT)),
            f"replay/traj{number}/rewards": random.normal(size=length),
            f"replay/traj{number}/dones": np.zeros(length, np.int64),
        }
    return arrays
