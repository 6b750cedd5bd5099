"""What a collection leaves beside the transitions: learning curves, and the agents at their end.

    curves.npz   tasks [task], returns and steps [task, round], final_returns [task, episode]
    curves.png   the returns over the steps (MACAW, Figures 9 and 10)
    agents.npz   tasks [task], obs_mean and obs_scale [task, obs], weight.i and bias.i [task, ...]

The final agents are the oracle: what an agent reaches that has learned its task alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from omrl.arrays import check_array, read_npz
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
    def load(cls, dataset: str | Path) -> FinalAgents:
        """Those in the folder of a dataset. Raises `InputError` where there are none."""
        path = Path(dataset) / AGENTS
        if not path.is_file():
            raise InputError(f"{path}: missing; only data from `omrl collect` has its agents")
        arrays = load(path)
        layers = range(sum(name.startswith("weight.") for name in arrays))
        parts = [f"{part}.{i}" for i in layers for part in ("weight", "bias")]
        wanted = {"tasks", "obs_mean", "obs_scale", "obs_limit", "act_dim", *parts}
        if arrays.keys() != wanted or not layers or not len(arrays["tasks"]):
            other = ", ".join(sorted(arrays.keys() ^ wanted)) or "no task or no layer"
            raise InputError(f"{path}: missing or unknown arrays: {other}; {FIX}")
        for name, array in arrays.items():
            dtype = np.int64 if name in ("tasks", "act_dim") else np.float32
            check_array(path, name, array, dtype, array.shape, FIX)
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
