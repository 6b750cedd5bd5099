"""Meta-World: a robot arm at a table in 50 environments, of which it is not told the goal.

ML1 has the goals of one environment as tasks, ML10 and ML45 have environments as tasks, five of
which test. Meta-World (arXiv:1910.10897) as the package metaworld 3.0.0 has it, with start vectors
from the whole box ("continuous space randomization", MACAW, arXiv:2008.06043, appendix D.1) instead
of 50 per environment, and episodes of 150 steps as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs import metaworld_state as states
from omrl.envs.base import EnvSpec, Physics, Script, ScriptedEnv
from omrl.envs.metaworld_tasks import (
    KINDS,
    ML10_TEST,
    ML10_TRAIN,
    ML45_TEST,
    ML45_TRAIN,
    NAMES,
    NUM_VECTOR,
    SOURCE_SHA256,
    number_of,
)
from omrl.envs.processes import ProcessPhysics, step_somewhere
from omrl.envs.task_lists import digest_text, first_train
from omrl.errors import InputError

SIMULATOR = "omrl.envs.metaworld_simulator:Simulator"
HORIZON = 150
"""Of MACAW; Meta-World's own is 500."""
TIMESTEP, FRAME_SKIP = 0.0025, 5
STARTS = tuple(f"start.{n}" for n in range(NUM_VECTOR))
TERM_NAMES = (
    *states.REWARDS,
    *states.INFO,
    *(f"start_{n}" for n in range(NUM_VECTOR)),
    *(f"qpos_{n}" for n in range(states.NQ)),
    *(f"qvel_{n}" for n in range(states.NV)),
    *("mocap_x", "mocap_y", "mocap_z"),
)
"""Rewards of both versions, what Meta-World reports, and the simulator's state after the step."""
_LOGGED = [states.COLUMNS[name] for name in ("rewards", "info", "start", "qpos", "qvel")]
_TERMS = np.concatenate([np.arange(part.start, part.stop) for part in (*_LOGGED, states.MOCAP_AT)])
_OBJECT = [f"{part}_{axis}" for part in ("first", "second") for axis in
           ("x", "y", "z", "quat_0", "quat_1", "quat_2", "quat_3")]  # fmt: skip
_FRAME = ("hand_x", "hand_y", "hand_z", "gripper", *_OBJECT)
OBS_NAMES = (
    *_FRAME,
    *(f"last_{name}" for name in _FRAME),
    *("goal_x", "goal_y", "goal_z"),
)


@dataclass(frozen=True)
class MetaWorld(ScriptedEnv):
    """Meta-World's reward of one version; both are among the terms."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    names: tuple[str, ...]
    """Environments that a task may be of; where there is more than one, the first parameter of a
    task is its number among `metaworld_tasks.KINDS`."""
    fixed: bool
    """Whether a task has a start vector, its further parameters; else episodes draw theirs."""
    reward_name: str
    """The term that is the reward."""
    test_names: tuple[str, ...]
    """Environments that must not be trained on."""
    task_changes_physics: ClassVar[bool] = True
    extra: ClassVar[str] = "metaworld"

    # --- Tasks ---

    def check_tasks(self, tasks: np.ndarray) -> None:
        """See `TaskEnv.check_tasks`; and start vectors must be in the box of their environment."""
        super().check_tasks(tasks)
        numbers, starts = self._split(tasks)
        allowed = [number_of(name) for name in self.names]
        for row, number in enumerate(numbers):
            if number not in allowed:
                raise InputError(
                    f"tasks of {self.spec.id} must have the number of one of its environments "
                    f"({', '.join(map(str, allowed))}), not {number:g} as environment of task {row}"
                )
            problem = KINDS[int(number)].problem(starts[row]) if self.fixed else ""
            if problem:
                given = ", ".join(f"{value:g}" for value in starts[row])
                raise InputError(
                    f"tasks of {self.spec.id}: {KINDS[int(number)].name} {problem}; task {row} has "
                    f"{given}"
                )

    def check_training(self, indices: Sequence[int]) -> None:
        """`InputError` for tasks of environments that are there to test."""
        numbers, _ = self._split(self.tasks)
        for index in indices:
            name = NAMES[int(numbers[index])]
            if name in self.test_names:
                benchmark = self.spec.id.split("/")[0].upper()
                raise InputError(
                    f"training tasks: task {index} of {self.spec.id} is {name}, a test environment "
                    f"of {benchmark} ({', '.join(self.test_names)}); leave it out"
                )

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """Environments equally likely, start vectors uniform in their box."""
        rows = []
        for _ in range(num):
            number = number_of(self.names[rng.integers(len(self.names))])
            start = KINDS[number].draw(rng) if self.fixed else ()
            rows.append([*([number] if len(self.names) > 1 else []), *start])
        return np.array(rows, np.float64)[:, : len(self.spec.task_names)]

    def _split(
        self, tasks: Float[np.ndarray, "*batch parameter"]
    ) -> tuple[Float64[np.ndarray, "*batch"], Float64[np.ndarray, "*batch 6"]]:
        """Numbers of the environments, and start vectors, 0 where episodes draw theirs."""
        several = len(self.names) > 1
        numbers = tasks[..., 0] if several else np.full(tasks.shape[:-1], number_of(self.names[0]))
        starts = np.zeros((*tasks.shape[:-1], NUM_VECTOR))
        if self.fixed:
            own = tasks[..., several:]
            starts[..., : own.shape[-1]] = own
        return np.asarray(numbers, np.float64), starts

    # --- The MDP ---

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """The seed of the start vector, if episodes draw theirs; `place` makes the rest."""
        state = np.zeros(states.STATE_DIM)
        if not self.fixed:
            state[states.SEED] = rng.integers(2**53)
        return state

    def place(
        self,
        state: Float64[np.ndarray, "*batch state"],
        task: Float64[np.ndarray, "*batch parameter"],
    ) -> Float64[np.ndarray, "*batch state"]:
        """What Meta-World's reset leaves, with the start vector of the task or the seed's."""
        numbers, starts = self._split(task)
        rows = state.reshape(-1, states.STATE_DIM).copy()
        rows[:, states.ENVIRONMENT] = numbers.reshape(-1)
        rows[:, states.START] = starts.reshape(-1, NUM_VECTOR)
        if not self.fixed:
            for row in rows:
                rng = np.random.Generator(np.random.Philox(key=int(row[states.SEED])))
                row[states.START] = KINDS[int(row[states.ENVIRONMENT])].draw(rng)
        begun = step_somewhere(SIMULATOR, rows, np.empty((len(rows), 0)))
        begun[:, states.SEED] = rows[:, states.SEED]
        return begun.reshape(state.shape)

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """Hand (3), gripper, two objects (7 each); the same one step before; 0 for the goal (3)."""
        hidden = np.zeros((*state.shape[:-1], 3))
        return np.concatenate([state[..., states.OBS], hidden], axis=-1).astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """`TERM_NAMES` after the step."""
        return next_state[..., _TERMS]

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """That of the task whose transition it is, as Meta-World computed it."""
        return terms[..., TERM_NAMES.index(self.reward_name)]

    def achieved(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """Meta-World's success, of version 2 whatever the reward."""
        return np.asarray(terms[..., TERM_NAMES.index("success")] > 0.0)

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Never."""
        return np.zeros(state.shape[:-1], bool)

    def physics(self, num_threads: int) -> Physics:
        """Meta-World in as many processes. `InputError` where it is not installed."""
        return ProcessPhysics(SIMULATOR, num_threads)

    def script(
        self,
        tasks: Float64[np.ndarray, "env parameter"],
        rngs: Sequence[np.random.Generator],
        noise: float = 0.1,
    ) -> Script:
        """Meta-World's own policies, which see the goal, with noise."""
        from omrl.envs.metaworld_script import MetaWorldScript

        return MetaWorldScript(rngs, self.spec.horizon, noise)


# --- Ids ---------------------------------------------------------------------------------------

NUM_GOALS = 50
"""Training and test tasks of ML1, as in Meta-World."""
_SEED = 45
TASK_FILE = Path(__file__).with_name("assets") / "metaworld_tasks.npz"
_VERSIONS = {"v2": "reward_v2", "v1reward": "reward_v1"}
_SCALES = {"reward_v2": "from 0 to 10 per step", "reward_v1": "from about -1 to 1e5 per step"}


def draw_tasks() -> dict[str, np.ndarray]:
    """The lists in `assets/metaworld_tasks.npz`: start vectors, [environment, task, 6]."""
    rng = np.random.Generator(np.random.Philox(key=_SEED))
    return {
        "ml1": np.array([[kind.draw(rng) for _ in range(2 * NUM_GOALS)] for kind in KINDS]),
        "fixedgoal": np.array([[kind.draw(rng)] for kind in KINDS]),
    }


def _spec(
    env_id: str, reward_name: str, task_names: tuple[str, ...], distribution: str, start: str
) -> EnvSpec:
    return EnvSpec(
        id=env_id,
        obs_dim=len(OBS_NAMES),
        act_dim=4,
        horizon=HORIZON,
        dt=TIMESTEP * FRAME_SKIP,
        term_names=TERM_NAMES,
        task_names=task_names,
        obs_names=OBS_NAMES,
        reward=f"{reward_name}: Meta-World's of version {reward_name[-1]} for the environment, "
        f"{_SCALES[reward_name]}; the terms have both versions, and success under version 2",
        reset=f"Meta-World's of a new object with start vector {start}",
        action="(x, y, z) of the hand, moved by 0.01 m per unit within its box; effort of the "
        "gripper from -1, open, to 1, closed",
        termination="never",
        task_distribution=distribution,
        constants=(("action_scale", 0.01),),
        engine="metaworld 3.0.0 on mujoco",
        model_sha256=SOURCE_SHA256,
        timestep=TIMESTEP,
        frame_skip=FRAME_SKIP,
        position_source="qpos",
    )


_BOX = "uniform in its environment's box, drawn again where the goal is too near the object"


def _benchmark(
    benchmark: str,
    train: Sequence[str],
    test: Sequence[str],
    version: str,
    goals: np.ndarray | None,
) -> MetaWorld:
    """ML10 or ML45; `goals`: start vectors of the tasks, None: episodes draw theirs."""
    names = (*train, *test)
    numbers = [number_of(name) for name in names]
    rows = [[number, *(() if goals is None else goals[number, 0])] for number in numbers]
    kind = "continuous" if goals is None else "fixedgoal"
    listed = ", ".join(f"{number} {name}" for number, name in zip(numbers, names, strict=True))
    drawn = f"{len(train)} environments to train on, {len(test)} to test: {listed}"
    if goals is not None:
        drawn += f"; start vectors {_BOX}, by numpy's Philox(key={_SEED}), {digest_text(goals)}"
    spec = _spec(
        f"{benchmark}/{kind}-{version}-h{HORIZON}-v1",
        _VERSIONS[version],
        ("environment", *(() if goals is None else STARTS)),
        drawn,
        f"{_BOX}, at every reset" if goals is None else "of the task",
    )
    splits = tuple(first_train(len(train), len(test)).items())
    table = tuple(tuple(map(float, row)) for row in rows)
    return MetaWorld(spec, table, splits, names, goals is not None, _VERSIONS[version], tuple(test))


def _single(name: str, version: str, goals: Float64[np.ndarray, "task 6"]) -> MetaWorld:
    """ML1 of one environment."""
    own = goals[:, : KINDS[number_of(name)].size]
    spec = _spec(
        f"ml1-{name}/continuous-{version}-h{HORIZON}-v1",
        _VERSIONS[version],
        STARTS[: own.shape[1]],
        f"start vectors of {name} {_BOX}; canonical list by numpy's Philox(key={_SEED}), "
        f"{digest_text(own)}",
        "of the task",
    )
    splits = tuple(first_train(NUM_GOALS, NUM_GOALS).items())
    table = tuple(tuple(task) for task in own.tolist())
    return MetaWorld(spec, table, splits, (name,), True, _VERSIONS[version], ())


def _environments() -> tuple[MetaWorld, ...]:
    with np.load(TASK_FILE, allow_pickle=False) as file:
        lists = {name: file[name] for name in file.files}
    benchmarks = [
        _benchmark(benchmark, train, test, version, goals)
        for benchmark, train, test in (
            ("ml45", ML45_TRAIN, ML45_TEST),
            ("ml10", ML10_TRAIN, ML10_TEST),
        )
        for goals in (None, lists["fixedgoal"])
        for version in _VERSIONS
    ]
    singles = [
        _single(name, version, lists["ml1"][number])
        for number, name in enumerate(NAMES)
        for version in _VERSIONS
    ]
    return (*benchmarks, *singles)


ENVIRONMENTS: tuple[MetaWorld, ...] = _environments()
