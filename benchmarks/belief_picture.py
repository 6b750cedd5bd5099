"""Draws what a run of BOReL believes of the cells of grid navigation along the episodes of a task.

python benchmarks/belief_picture.py runs/grid 15 docs/img/borel-gridnav.png
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from omrl.drawing import image, panels
from omrl.envs.engine import VectorEnv
from omrl.envs.gridnav import HORIZON, NUM_CELLS, STEP_REWARD
from omrl.metatrain import Trained, load_trained
from omrl.types import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPISODES = 2
SHOWN = (0, 3, 6, 9, 12, 15)
"""Steps of an episode before which there is a panel."""


class Moment(NamedTuple):
    """Before an action, or after the last one."""

    cell: Float[np.ndarray, " 2"]
    belief: Float[np.ndarray, "x y"]
    """Decoded probability that the goal is in a cell, from the belief's mean."""


def believed(trained: Trained, task: int) -> list[list[Moment]]:
    """Of every episode HORIZON + 1 moments, of the run's first seed."""
    algorithm, key = trained.algorithm, jax.random.PRNGKey(0)
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trained.states)
    act, observe = jax.jit(algorithm.act, static_argnums=4), jax.jit(algorithm.observe)
    cells = np.stack(np.divmod(np.arange(NUM_CELLS**2), NUM_CELLS), axis=1).astype(np.float32)

    @jax.jit
    def decoded(known: Any) -> jax.Array:
        def of_cell(cell: jax.Array) -> jax.Array:
            obs, action = jnp.append(cell, 0.0), jnp.zeros(trained.env.spec.act_dim)
            reward = algorithm.predict_reward(state, known, obs, action, obs)
            return (reward - STEP_REWARD) / (1 - STEP_REWARD)

        return jax.vmap(of_cell)(cells).reshape(NUM_CELLS, NUM_CELLS)

    known = algorithm.begin(state, key)
    episodes = []
    with closing(VectorEnv(trained.env, trained.env.tasks[[task]], seed=0)) as env:
        for number in range(EPISODES):
            obs = env.reset(number)[0]
            moments = [Moment(obs[:2], np.asarray(decoded(known)))]
            for _ in range(HORIZON):
                action = act(state, known, obs, key, True)
                after = env.step(np.asarray(action)[None])
                seen = Step(obs, action, after.reward[0], after.obs[0], after.terminated[0])
                known, obs = observe(state, known, seen, key), after.obs[0]
                moments.append(Moment(obs[:2], np.asarray(decoded(known))))
            episodes.append(moments)
    return episodes


@image
def picture(episodes: list[list[Moment]], goal: Float[np.ndarray, " 2"]) -> Figure:
    """A row of panels for each episode: belief, way so far, agent, goal."""
    figure, grid = panels(len(SHOWN) * len(episodes), len(SHOWN), share=True)
    for axes, (number, step) in zip(grid, np.ndindex(len(episodes), len(SHOWN)), strict=True):
        moments = episodes[number][: SHOWN[step] + 1]
        way = np.array([moment.cell for moment in moments])
        axes.imshow(moments[-1].belief.T, origin="lower", cmap="Blues", vmin=0, vmax=0.2)
        axes.plot(*way.T, color="#888888", linewidth=1)
        axes.plot(*way[-1], "o", color="#D55E00")
        axes.plot(*goal, "*", color="#009E73", markersize=9)
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.set_title(f"episode {number + 1}, {SHOWN[step]} moves", size=7)
    return figure


def main(run: str, task: str, path: str) -> None:
    trained = load_trained(run)
    goal = trained.env.tasks[int(task)]
    Path(path).write_bytes(picture(believed(trained, int(task)), goal, png=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
