"""Where trajectories go: what a picture of them shows, after every step."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from omrl.data.mixture import open_view
from omrl.diagnostics.base import SETS
from omrl.diagnostics.contexts import Case
from omrl.envs.engine import Moment
from omrl.envs.positions import of_step, over_time, shown_quantities
from omrl.explore import Agents

States = Float64[np.ndarray, "seed task repetition time quantity"]
"""NaN behind the end of a trajectory."""


class Watcher:
    """Records what it is shown of one trajectory of every row."""

    def __init__(self, case: Case):
        self._spec = spec = case.setting.env.spec
        shape = (*case.shape, spec.horizon, len(shown_quantities(spec)))
        self._steps = np.full(shape, np.nan)

    def __call__(self, agents: Agents, moment: Moment) -> None:
        *lead, _, quantities = self._steps.shape
        rows = slice(int(np.prod(lead)))
        now = of_step(self._spec, moment.after.obs[rows], moment.after.terms[rows])
        now = np.where(moment.alive[rows, None], now, np.nan)
        self._steps[..., moment.time, :] = now.reshape(*lead, quantities)

    def states(self) -> States:
        return over_time(self._spec, self._steps)


class Watchers:
    """One per set, of its first trajectory."""

    def __init__(self, case: Case):
        self._case = case
        self._of_set: dict[str, Watcher] = {}

    def __call__(self, name: str) -> Watcher:
        watcher = Watcher(self._case)
        self._of_set.setdefault(name, watcher)
        return watcher

    def states(self) -> Float64[np.ndarray, "set seed task repetition time quantity"]:
        """Of the sets in `SETS`."""
        found = {name: watcher.states() for name, watcher in self._of_set.items()}
        found["dataset"] = _logged(self._case)
        return np.stack([found[name] for name in SETS])


def _logged(case: Case) -> States:
    """Of one logged trajectory per row, as long as one is played; NaN where the data does not tell,
    or has no more of them."""
    spec, (seeds, tasks, repetitions) = case.setting.env.spec, case.shape
    shape = (tasks, seeds * repetitions, spec.horizon, len(shown_quantities(spec)))
    steps = np.full(shape, np.nan)
    view = open_view(case.config.context_slice, case.dataset)
    for t, index in enumerate(case.labels.tasks):
        task = view.task(index)
        if "terms" not in task.names:
            continue
        key = (case.config.context_seed, index)
        order = np.random.Generator(np.random.Philox(key=key)).permutation(task.num_episodes)
        for row, episode in enumerate(order[: seeds * repetitions]):
            first, end = task.episode_start[episode : episode + 2]
            end = min(end, first + spec.horizon)
            after = slice(first + episode + 1, end + episode + 1)  # An episode has one obs more.
            steps[t, row, : end - first] = of_step(spec, task.obs[after], task.terms[first:end])
    found = over_time(spec, steps)
    return found.reshape(tasks, seeds, repetitions, *shape[2:]).swapaxes(0, 1)
