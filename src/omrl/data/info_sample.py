"""What a sample of the rows tells about the data of a task: state coverage and reward noise.

Rows are drawn at random within equal parts of the lifetime, so that all of it is seen and no
rhythm of the episodes is met, and from the number of the task alone: the same data always gives
the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from omrl.data.dataset import TaskData
from omrl.envs.base import TaskEnv

MOST_ROWS = 10_000
"""Of a task in its sample."""
MOST_ENTRIES = 2**25
"""Numbers in the sampled observations of all tasks, which are in memory together."""
CELLS = 20
"""Per axis of the grid of states."""
DEAD = 1e-6
"""Entries that vary less are constant: normalisation leaves them as they are, too."""
NEIGHBOURS = 100
QUERIES = 200
"""Rows whose reward is predicted from their neighbours."""
_QUERIES_AT_ONCE = 50
_STEPS = 30
_CONVERGED = 1e-12


@dataclass(frozen=True)
class Sample:
    """Some transitions of a task, in time order."""

    obs: Float32[np.ndarray, "rows obs"]
    action: Float32[np.ndarray, "rows act"]
    next_obs: Float32[np.ndarray, "rows obs"]
    reward: Float64[np.ndarray, " rows"]
    terms: Float64[np.ndarray, "rows term"] | None
    """None where they were not recorded."""


def sample_size(num_tasks: int, obs_dim: int) -> int:
    """Rows to take of each of `num_tasks` tasks, at most."""
    return max(1, min(MOST_ROWS, MOST_ENTRIES // max(1, num_tasks * obs_dim)))


def draw(task: TaskData, most: int) -> Sample:
    """Up to `most` transitions of a task."""
    starts = task.episode_start
    rows = _rows(int(starts[-1]), most, task.record.index)
    obs_rows = rows + np.searchsorted(starts, rows, side="right") - 1
    has_terms = "terms" in task.columns
    return Sample(
        obs=np.asarray(task.obs[obs_rows], np.float32),
        action=np.asarray(task.action[rows], np.float32),
        next_obs=np.asarray(task.obs[obs_rows + 1], np.float32),
        reward=np.asarray(task.reward[rows], np.float64),
        terms=np.asarray(task.terms[rows], np.float64) if has_terms else None,
    )


def _rows(held: int, most: int, seed: int) -> Int64[np.ndarray, " rows"]:
    if held <= most:
        return np.arange(held)
    bounds = np.linspace(0, held, most + 1)
    fraction = np.random.Generator(np.random.Philox(key=seed)).random(most)
    rows = bounds[:-1] + fraction * np.diff(bounds)
    return np.minimum(rows, held - 1).astype(np.int64)


# --- State coverage ---


def occupied_cells(
    samples: Sequence[Float32[np.ndarray, "_ obs"]],
) -> Bool[np.ndarray, "task cell"]:
    """Which cells of one grid of states the observations of each task are in.

    The grid has `CELLS` x `CELLS` cells over the two leading principal components of the
    standardised observations of all tasks, from their 0.1 % to their 99.9 % quantiles; what is
    beyond counts as in the outermost cells.

    The coverage of a task is its share of the cells that the tasks together are in: SACo of
    arXiv:2111.04714, unique states relative to those of a reference dataset, for states that are
    continuous and with all tasks as reference.
    """
    pooled = np.concatenate(samples).astype(np.float64)
    alive = np.ptp(pooled, axis=0) > DEAD
    mean, std = pooled[:, alive].mean(0), pooled[:, alive].std(0)
    scaled = (pooled[:, alive] - mean) / std
    _, axes = np.linalg.eigh(scaled.T @ scaled)
    projected = scaled @ axes[:, :-3:-1]
    low, high = np.quantile(projected, (0.001, 0.999), axis=0)
    width = np.where(high > low, high - low, 1.0) / CELLS
    places = np.clip((projected - low) / width, 0, CELLS - 1).astype(np.int64)
    cells = places @ (CELLS ** np.arange(places.shape[1]))
    task = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
    occupied = np.zeros((len(samples), CELLS**2), bool)
    occupied[task, cells] = True
    return occupied


# --- Reward noise ---


def recomputed_noise(
    sample: Sample, env: TaskEnv, parameters: Float64[np.ndarray, " parameter"]
) -> float:
    """Root mean square of the stored reward minus that of the recorded terms."""
    terms = np.zeros((len(sample.reward), 0)) if sample.terms is None else sample.terms
    expected = np.asarray(env.reward(terms, sample.action.astype(np.float64), parameters))
    return float(np.sqrt(np.mean((sample.reward - expected) ** 2)))


def unexplained_noise(sample: Sample) -> float | None:
    """Standard deviation of what (s, a, s') does not explain of the reward, at most; None where
    there are too few rows.

    Local linear regression: the reward of a row is predicted from its `NEIGHBOURS` nearest of the
    sample. With the weights w of that prediction the squared residual of a linear reward with
    independent noise of variance v has the mean v (1 + |w|^2), so the mean of the squared residuals
    over 1 + |w|^2 estimates v (residual variance by nearest neighbours: Evans and Jones, "A proof
    of the Gamma test", 2002, Proc. R. Soc. Lond. A 458, which extrapolates means in place of
    fits). A reward that bends within the neighbourhood adds to it: an upper bound.
    """
    inputs = np.hstack([sample.obs, sample.action, sample.next_obs]).astype(np.float64)
    # The copy of a row would predict it with all its noise.
    distinct = np.unique(np.column_stack([inputs, sample.reward]), axis=0)
    inputs, reward = distinct[:, :-1], distinct[:, -1]
    if len(reward) <= NEIGHBOURS:
        return None
    alive = np.ptp(inputs, axis=0) > DEAD
    inputs = (inputs[:, alive] - inputs[:, alive].mean(0)) / inputs[:, alive].std(0)
    queries = np.unique(np.linspace(0, len(reward) - 1, QUERIES).astype(np.int64))
    parts = np.array_split(queries, max(1, len(queries) // _QUERIES_AT_ONCE))
    squares = np.concatenate([_squared_residuals(inputs, reward, part) for part in parts])
    return float(np.sqrt(squares.mean()))


def _squared_residuals(
    inputs: Float[np.ndarray, "rows input"],
    reward: Float[np.ndarray, " rows"],
    queries: Int64[np.ndarray, " query"],
) -> Float[np.ndarray, " query"]:
    """Of the rows `queries` as predicted from their neighbours, over 1 + |w|^2."""
    # Without BLAS and LAPACK, here and in `_fitted`: with small matrices of tasks side by side
    # their threads wait for each other longer than they compute.
    lengths = (inputs**2).sum(1)
    distance = lengths[None] - 2 * np.einsum("qi,ri->qr", inputs[queries], inputs)
    distance[np.arange(len(queries)), queries] = np.inf
    near = np.argpartition(distance, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
    centre = inputs[near].mean(1)
    weights = 1 / NEIGHBOURS + _fitted(inputs[near] - centre[:, None], inputs[queries] - centre)
    residual = reward[queries] - (weights * reward[near]).sum(1)
    return np.asarray(residual**2 / (1 + (weights**2).sum(1)))


def _fitted(
    offsets: Float[np.ndarray, "query neighbour input"], target: Float[np.ndarray, "query input"]
) -> Float[np.ndarray, "query neighbour"]:
    """Weights that make `target` of the offsets: those of least squares, regularised by an early
    stop of conjugate gradients. Whatever they are, they do not depend on the rewards, on which the
    estimate relies."""
    residual = np.einsum("qki,qi->qk", offsets, target)
    weights, direction = np.zeros_like(residual), residual
    size = (residual**2).sum(1)
    least = _CONVERGED * size
    for _ in range(_STEPS):
        along = np.einsum("qki,qk->qi", offsets, direction)
        # What has converged stays: a step along rounding errors leads anywhere.
        going = size > least
        rate = np.divide(size, (along**2).sum(1), out=np.zeros_like(size), where=going)[:, None]
        weights = weights + rate * direction
        residual = residual - rate * np.einsum("qki,qi->qk", offsets, along)
        before, size = size, (residual**2).sum(1)
        turn = np.divide(size, before, out=np.zeros_like(size), where=going)[:, None]
        direction = residual + turn * direction
    return weights
