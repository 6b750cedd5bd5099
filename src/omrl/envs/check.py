"""Does this machine's MuJoCo give the MDPs that the ids stand for?

`check` steps an environment and compares: a thousand recorded transitions of its family, rewards
with those that follow from the stored terms, and the single Gymnasium environment with the batch.

    python -m omrl.envs.check --record cheetah-vel    # writes assets/transitions/cheetah-vel.npz
"""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64

from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.envs.engine import VectorEnv, advance, initial_states
from omrl.envs.gym_wrapper import GymEnv
from omrl.errors import InputError

NUM_STARTS, NUM_STEPS = 20, 50
STATE_TOLERANCE = 1e-9
"""Relative to 1 or the entry, whichever is larger. Compilers round differently."""
REWARD_TOLERANCE = 1e-6
_FOLDER = Path(__file__).parent / "assets" / "transitions"


@dataclass(frozen=True)
class CheckResult:
    """Largest differences found in one environment."""

    id: str
    transitions: int
    """Recorded ones compared."""
    state: float
    """Next state against the recorded one, relative."""
    reward: float
    """Reward stepped against reward of the stored (float32) terms and action, relative."""
    gymnasium: float
    """`GymEnv` against the batch, observations and rewards."""

    @property
    def passed(self) -> bool:
        return (
            self.state <= STATE_TOLERANCE
            and self.reward <= REWARD_TOLERANCE
            and self.gymnasium == 0.0
        )


@dataclass(frozen=True)
class Recorded:
    """Transitions of a family's first environment, task n mod the number of tasks in row n."""

    env: TaskEnv
    states: Float64[np.ndarray, "time env state"]
    """One more than there are actions."""
    actions: Float32[np.ndarray, "step env act"]

    @property
    def tasks(self) -> Float64[np.ndarray, "env parameter"]:
        return _tasks(self.env, self.states.shape[1])


def check(env: TaskEnv) -> CheckResult:
    """Compare everything; the result says what was found, `passed` whether it is right."""
    return CheckResult(
        env.spec.id,
        NUM_STARTS * NUM_STEPS,
        _state_difference(read(_family(env))),
        _reward_difference(env),
        _gymnasium_difference(env),
    )


def read(family: str) -> Recorded:
    """The recorded transitions of a family."""
    path = _FOLDER / f"{family}.npz"
    if not path.is_file():
        raise InputError(
            f"no transitions of {family!r} are on record ({path}); only environments that come "
            "with omrl have some"
        )
    with np.load(path, allow_pickle=False) as file:
        return Recorded(registry.make(str(file["env"])), file["states"], file["actions"])


def record(family: str) -> Path:
    """Write the transitions that this machine gives."""
    env = next(env for env in map(registry.make, registry.all_ids()) if _family(env) == family)
    rng = np.random.default_rng(0)
    tasks = _tasks(env, NUM_STARTS)
    states = [initial_states(env, seed=0, num_envs=NUM_STARTS, episode=0, tasks=tasks)]
    shape = (NUM_STEPS, NUM_STARTS, env.spec.act_dim)
    actions = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
    for action in actions:
        states.append(_step(env, states[-1], action, tasks))
    path = _FOLDER / f"{family}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, env=env.spec.id, states=np.stack(states), actions=actions)
    return path


def _family(env: TaskEnv) -> str:
    """Of Meta-World one for all: ML45 has all its environments."""
    return "ml45" if env.extra == "metaworld" else env.spec.id.split("/")[0]


def _tasks(env: TaskEnv, num: int) -> Float64[np.ndarray, "env parameter"]:
    return env.tasks[np.arange(num) % len(env.tasks)]


def _step(
    env: TaskEnv, states: np.ndarray, action: np.ndarray, tasks: np.ndarray
) -> Float64[np.ndarray, "env state"]:
    with closing(env.physics(1)) as physics:
        return advance(env, physics, states, action, tasks, np.ones(len(states), bool)).states


def _state_difference(recorded: Recorded) -> float:
    steps, num = recorded.actions.shape[:2]
    starts = recorded.states[:-1].reshape(steps * num, -1)
    expected = recorded.states[1:].reshape(steps * num, -1)
    tasks = np.tile(recorded.tasks, (steps, 1))
    found = _step(recorded.env, starts, recorded.actions.reshape(steps * num, -1), tasks)
    return float(np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1.0)))


def _reward_difference(env: TaskEnv) -> float:
    tasks = _tasks(env, NUM_STARTS)
    rng = np.random.default_rng(1)
    worst = 0.0
    with closing(VectorEnv(env, tasks, seed=1)) as vector:
        vector.reset()
        for _ in range(min(NUM_STEPS, env.spec.horizon)):
            alive = vector.alive
            action = rng.uniform(-1.0, 1.0, (NUM_STARTS, env.spec.act_dim)).astype(np.float32)
            step = vector.step(action)
            again = env.reward(step.terms.astype(np.float32), action, tasks)
            scale = np.maximum(np.abs(again), 1.0)
            worst = max(worst, float(np.max(np.abs(again - step.reward) / scale * alive)))
    return worst


def _gymnasium_difference(env: TaskEnv) -> float:
    single = GymEnv(env.spec.id, task=0)
    seeds, rng = (3, 4), np.random.default_rng(2)
    obs, _ = single.reset(seed=seeds[0])
    # The batch has a second environment, so that its rows are told apart.
    drawn = np.stack([env.reset(np.random.default_rng(seed)) for seed in seeds])
    states = env.place(drawn, env.tasks[[0, 0]])
    worst = float(np.max(np.abs(obs - env.observe(states)[0])))
    with closing(env.physics(2)) as physics, closing(single):
        for _ in range(min(NUM_STEPS, env.spec.horizon)):
            action = rng.uniform(-1.0, 1.0, (2, env.spec.act_dim)).astype(np.float32)
            after = advance(env, physics, states, action, env.tasks[[0, 0]], np.ones(2, bool))
            states = after.states
            obs, reward, terminated, _, _ = single.step(action[0])
            worst = max(worst, float(np.max(np.abs(obs - after.obs[0]))))
            worst = max(worst, abs(float(after.reward[0]) - float(reward)))
            if terminated:
                break
    return worst


def main() -> None:
    """Record the transitions of families."""
    parser = argparse.ArgumentParser(prog="python -m omrl.envs.check")
    parser.add_argument("--record", nargs="+", required=True, metavar="FAMILY")
    for family in parser.parse_args().record:
        print(record(family))


if __name__ == "__main__":
    main()
