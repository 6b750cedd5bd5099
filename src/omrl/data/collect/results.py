"""What a collection leaves beside the transitions: learning curves, and the agents at their end.

    curves.npz   tasks [task], returns and steps [task, round], final_returns [task, episode]
    curves.png   the returns over the steps (MACAW, Figures 9 and 10)
    agents.npz   tasks [task], obs_mean and obs_scale [task, obs], weight.i and bias.i [task, ...]
    agents-I-of-K.npz   alike, the policies kept after I/K of the transitions, I < K

The final agents are the oracle: what an agent reaches that has learned its task alone. Where nobody
learned there are neither agents nor `final_returns`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from omrl.arrays import check_array, read_npz
from omrl.data.manifest import check_mdp
from omrl.data.store import are_tasks_of, open_dataset
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.files import atomic_write

CURVES, AGENTS, FIGURE = "curves.npz", "agents.npz", "curves.png"
FIX = "collect again"
Arrays = Mapping[str, np.ndarray]
"""By name; the first axis of each is the task, `tasks` has the indices."""


def save(path: Path, arrays: Arrays) -> None:
    with atomic_write(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def load(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file, one entry per task in each. Raises `InputError`."""
    arrays = read_npz(path, FIX)
    lengths = {array.shape[:1] for array in arrays.values()}
    if "tasks" not in arrays or len(lengths) > 1 or () in lengths:
        raise InputError(f"{path}: must have one entry per task in each array, and tasks; {FIX}")
    return arrays


def add_tasks(path: Path, arrays: Arrays) -> None:
    """Add tasks to a file of results, in place of what it has about the same ones."""
    if path.is_file():
        held = load(path)
        if held.keys() != arrays.keys():
            other = ", ".join(sorted(held.keys() ^ arrays.keys()))
            raise InputError(f"{path}: missing or unknown arrays: {other}; {FIX}")
        others = ~np.isin(held["tasks"], arrays["tasks"])
        order = np.argsort(np.concatenate([held["tasks"][others], arrays["tasks"]]))
        arrays = {
            name: _stack(column[others], arrays[name])[order] for name, column in held.items()
        }
    save(path, arrays)


def agents_file(number: int, count: int) -> str:
    """Name of the file of the `number`-th of `count` policies kept of each lifetime."""
    return AGENTS if number == count else f"agents-{number}-of-{count}.npz"


def _stack(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Concatenated over tasks; where one has fewer rounds, padded with NaN."""
    if first.ndim < 2 or first.shape[1] == second.shape[1]:
        return np.concatenate([first, second])
    rounds = max(first.shape[1], second.shape[1])
    return np.concatenate([
        np.pad(part, ((0, 0), (0, rounds - part.shape[1])), constant_values=np.nan)
        for part in (first, second)
    ])  # fmt: skip


@dataclass(frozen=True)
class FinalAgents:
    """The deterministic policies of the agents at the end of their lifetimes; numpy only."""

    tasks: Int64[np.ndarray, " task"]
    obs_mean: Float32[np.ndarray, "task obs"]
    obs_scale: Float32[np.ndarray, "task obs"]
    obs_limit: float
    weights: tuple[Float32[np.ndarray, "task _ _"], ...]
    """[task, in, out] of each layer."""
    biases: tuple[Float32[np.ndarray, "task _"], ...]
    act_dim: int

    @classmethod
    def load(cls, dataset: str | Path, file: str = AGENTS) -> FinalAgents:
        """Those in the folder of a dataset; `file` is that of policies kept earlier.

        Raises `InputError` where there are none.
        """
        path = Path(dataset) / file
        if not path.is_file():
            raise InputError(f"{path}: missing; only what `omrl collect` trained has its agents")
        arrays = load(path)
        layers = range(sum(name.startswith("weight.") for name in arrays))
        parts = [f"{part}.{i}" for i in layers for part in ("weight", "bias")]
        wanted = {"tasks", "obs_mean", "obs_scale", "obs_limit", "act_dim", *parts}
        if arrays.keys() != wanted or not layers or not len(arrays["tasks"]):
            other = ", ".join(sorted(arrays.keys() ^ wanted)) or "no task or no layer"
            raise InputError(f"{path}: missing or unknown arrays: {other}; {FIX}")
        _check_agents(path, arrays, len(layers))
        return cls(
            arrays["tasks"],
            arrays["obs_mean"],
            arrays["obs_scale"],
            float(arrays["obs_limit"][0]),
            tuple(arrays[f"weight.{i}"] for i in layers),
            tuple(arrays[f"bias.{i}"] for i in layers),
            int(arrays["act_dim"][0]),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """The inverse of `load`."""
        num_tasks = len(self.tasks)
        layers = {f"weight.{i}": weight for i, weight in enumerate(self.weights)}
        layers |= {f"bias.{i}": bias for i, bias in enumerate(self.biases)}
        return layers | {
            "tasks": self.tasks,
            "obs_mean": self.obs_mean,
            "obs_scale": self.obs_scale,
            "obs_limit": np.full(num_tasks, self.obs_limit, np.float32),
            "act_dim": np.full(num_tasks, self.act_dim),
        }

    def act(
        self, task: int, obs: Float32[np.ndarray, "*batch obs"]
    ) -> Float32[np.ndarray, "*batch act"]:
        """The best actions of the agent of task index `task`."""
        if task not in self.tasks:
            raise InputError(f"task {task}: has no agent; there are {self.tasks.tolist()}")
        (found,) = np.flatnonzero(self.tasks == task)
        x = (obs - self.obs_mean[found]) / self.obs_scale[found]
        x = np.clip(x, -self.obs_limit, self.obs_limit)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight[found] + bias[found], 0)
        x = x @ self.weights[-1][found] + self.biases[-1][found]
        return np.tanh(x[..., : self.act_dim])


@dataclass(frozen=True)
class KeptPolicies:
    """What a collection kept of its agents' lifetimes, earliest first."""

    agents: tuple[FinalAgents, ...]

    @classmethod
    def load(cls, dataset: str | Path, env: TaskEnv) -> KeptPolicies:
        """Those in the folder of a dataset with the MDP and tasks of `env`. Raises `InputError`."""
        opened = open_dataset(dataset)
        check_mdp(opened.path, opened.manifest, env)
        if not are_tasks_of(env, opened.manifest.tasks):
            raise InputError(f"{dataset}: its tasks are not those of {env.spec.id}")
        counts = [
            int(found[1])
            for path in opened.path.glob("agents-*.npz")
            if (found := re.fullmatch(r"agents-1-of-([1-9]\d{0,4})\.npz", path.name))
        ]
        count = max(counts, default=1)
        numbers = range(1, count + 1)
        kept = cls(tuple(FinalAgents.load(opened.path, agents_file(i, count)) for i in numbers))
        for number, agents in enumerate(kept.agents, start=1):
            _check_shapes(opened.path / agents_file(number, count), agents, kept.agents[-1], env)
        return kept

    @property
    def hash(self) -> str:
        """sha256 of all arrays."""
        digest = hashlib.sha256()
        for agents in self.agents:
            for name, array in sorted(agents.arrays().items()):
                digest.update(f"{name} {array.dtype} {array.shape} ".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def check(self, policies: tuple[int, ...], tasks: tuple[int, ...]) -> None:
        """`InputError` unless there are these policies of all these tasks."""
        count = len(self.agents)
        if any(number > count for number in policies):
            raise InputError(
                f"agent.policies: {max(policies)}, but {count} were kept of each lifetime; choose "
                f"among 1 to {count}"
            )
        missing = sorted(set(tasks) - set(self.agents[-1].tasks.tolist()))
        if missing:
            raise InputError(
                f"tasks: no policies were kept of {', '.join(map(str, missing))}; there are "
                f"--tasks {' '.join(map(str, self.agents[-1].tasks.tolist()))}"
            )


def _check_agents(path: Path, arrays: Arrays, num_layers: int) -> None:
    """`InputError` unless the arrays are of networks that can act."""
    num_tasks, obs_dim = len(arrays["tasks"]), arrays["obs_mean"].shape[-1]
    widths = [obs_dim, *(arrays[f"bias.{i}"].shape[-1] for i in range(num_layers))]
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("tasks", "obs_limit", "act_dim"), (num_tasks,)),
        **dict.fromkeys(("obs_mean", "obs_scale"), (num_tasks, obs_dim)),
        **{f"weight.{i}": (num_tasks, *widths[i : i + 2]) for i in range(num_layers)},
        **{f"bias.{i}": (num_tasks, width) for i, width in enumerate(widths[1:])},
    }
    for name, shape in shapes.items():
        dtype = np.int64 if name in ("tasks", "act_dim") else np.float32
        check_array(path, name, arrays[name], dtype, shape, FIX)
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{path}: {name} is not finite; {FIX}")
    legal = {
        "tasks": len(np.unique(arrays["tasks"])) == num_tasks and arrays["tasks"].min() >= 0,
        "obs_scale": (arrays["obs_scale"] > 0).all(),
        "obs_limit": arrays["obs_limit"].min() > 0 and np.ptp(arrays["obs_limit"]) == 0,
        "act_dim": 0 < arrays["act_dim"].min() <= widths[-1] and np.ptp(arrays["act_dim"]) == 0,
    }
    for name, is_legal in legal.items():
        if not is_legal:
            raise InputError(f"{path}: {name} has numbers that no collection writes; {FIX}")


def _check_shapes(path: Path, agents: FinalAgents, final: FinalAgents, env: TaskEnv) -> None:
    """`InputError` unless the policies fit the environment, and are of the tasks of `final`."""
    spec, num_tasks = env.spec, len(final.tasks)
    widths = [spec.obs_dim, *(bias.shape[-1] for bias in final.biases)]
    wanted = {
        "obs_mean": (num_tasks, spec.obs_dim),
        "obs_scale": (num_tasks, spec.obs_dim),
        **{f"weight.{i}": (num_tasks, *widths[i : i + 2]) for i in range(len(final.biases))},
        **{f"bias.{i}": (num_tasks, width) for i, width in enumerate(widths[1:])},
    }
    arrays = agents.arrays()
    for name, shape in wanted.items():
        if name not in arrays:
            raise InputError(f"{path}: has no {name}, the final agents do; {FIX}")
        check_array(path, name, arrays[name], np.float32, shape, FIX)
    same = np.array_equal(agents.tasks, final.tasks) and agents.tasks.max() < len(env.tasks)
    if not same or agents.act_dim != spec.act_dim or widths[-1] < spec.act_dim:
        raise InputError(f"{path}: policies of other tasks or actions than {spec.id} has; {FIX}")


def draw_curves(curves: Arrays, title: str, path: Path) -> None:
    """One curve per task, coloured by its index."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    tasks = curves["tasks"]
    colour = ScalarMappable(Normalize(tasks.min(), tasks.max()), "viridis")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for task, steps, returns in zip(tasks, curves["steps"], curves["returns"], strict=True):
        axes.plot(steps, returns, color=colour.to_rgba(task), linewidth=0.9)
    figure.colorbar(colour, ax=axes, label="task")
    axes.set(xlabel="transitions of the task", ylabel="mean return of the round", title=title)
    axes.grid(alpha=0.3)
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=150)
