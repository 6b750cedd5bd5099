"""State relabelling: logged trajectories as those of the belief MDP, whose state s+ is observation
and belief (BOReL, arXiv:2008.02598, section 4).

The trained encoder goes once through every trajectory, then the policy learns from single
transitions: `belief_columns`. (The other relabelling of the paper, that of rewards, is
`omrl.data.relabel`.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from omrl.algos.borel_policy import belief_obs
from omrl.data.device import DeviceData
from omrl.nets.belief import Belief, BeliefEncoder
from omrl.types import Trajectory


def believed(encoder: BeliefEncoder, trajectory: Trajectory, *, reset: bool) -> Belief:
    """q_0, ..., q_T along a trajectory, leaves [T + 1, ...].

    Args:
        reset: begin anew with every transition that ends the MDP, so that what is believed after
            it comes from that one alone. The reference code does so, but neither when the VAE is
            trained nor, before the last step, when it acts.
    """
    prior = encoder.prior()

    def observe(belief: Belief, at: tuple[Array, ...]) -> tuple[Belief, Belief]:
        belief = _after(encoder, belief, *at)
        return belief, belief

    anew = trajectory.terminated & reset
    columns = (trajectory.action, trajectory.reward, trajectory.next_obs, anew)
    after = jax.lax.scan(observe, prior, columns)[1]
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), prior, after)


def belief_states(
    encoder: BeliefEncoder, trajectory: Trajectory, *, reset: bool = False
) -> tuple[Float[Array, "step belief_obs"], Float[Array, "step belief_obs"]]:
    """s+ before and after every transition of a trajectory; `reset`: see `believed`."""
    known = believed(encoder, trajectory, reset=reset)
    mean, log_variance = known.mean, known.log_variance
    before = belief_obs(trajectory.obs, mean[:-1], log_variance[:-1])
    return before, belief_obs(trajectory.next_obs, mean[1:], log_variance[1:])


def belief_columns(
    encoder: BeliefEncoder,
    data: DeviceData,
    *,
    episodes: int,
    reset: bool = False,
    to_start: bool = False,
) -> dict[str, Array]:
    """The columns in which the data of the belief MDP differs from `data`, with the same rows.

    A trajectory is `episodes` of a task, one behind the other. What follows on the last step of an
    inner one is the start of the next, with the belief of before: neither ends the belief MDP. So
    the policy learns that what it finds out in one episode pays in the next.

    Args:
        to_start: the last step of a trajectory leads to a start as well, that of the task's first
            episode, as if one more episode followed.

    Returns:
        `obs`, s+ in place of s; `terminated`, without ends between the episodes of a trajectory.
    """

    def of_task(*columns: Array) -> dict[str, Array]:
        return _of_task(encoder, *columns, episodes=episodes, reset=reset, to_start=to_start)

    columns = (data.obs, data.action, data.reward, data.terminated, data.obs_index, data.num_rows)
    return jax.vmap(of_task)(*columns)


def _of_task(
    encoder: BeliefEncoder,
    obs: Float[Array, "obs_row obs"],
    action: Float[Array, "row act"],
    reward: Float[Array, " row"],
    terminated: Bool[Array, " row"],
    obs_index: Int32[Array, " row"],
    num_rows: Int32[Array, ""],
    *,
    episodes: int,
    reset: bool,
    to_start: bool,
) -> dict[str, Array]:
    row, none = jnp.arange(len(reward)), len(obs)
    # Before episode e there are e observations more than transitions.
    episode = obs_index - row
    is_first = jnp.append(True, jnp.diff(episode) > 0)
    begins = is_first & (episode % episodes == 0)
    there = row < num_rows
    is_last = there & (jnp.append(is_first[1:], True) | (row + 1 == num_rows))
    leads_on = is_last & ~jnp.append(begins[1:], True) & (row + 1 < num_rows)

    def observe(belief: Belief, at: tuple[Array, ...]) -> tuple[Belief, Array]:
        action, reward, obs_row, anew = at
        next_obs = obs[obs_row + 1].astype(jnp.float32)
        belief = _after(encoder, belief, action, reward, next_obs, anew)
        return belief, jnp.concatenate([belief.mean, belief.log_variance])

    # --- One pass in the order of the rows ---
    prior, anew = encoder.prior(), begins | (terminated & reset)
    after = jax.lax.scan(observe, prior, (action, reward, obs_index, anew))[1]
    # --- To the observations that they are had with; where a trajectory begins, the prior ---
    known = jnp.concatenate([prior.mean, prior.log_variance])
    known = jnp.broadcast_to(known, (none, known.size))
    known = known.at[jnp.where(there, obs_index + 1, none)].set(after, mode="drop")
    known = known.at[jnp.where(leads_on, obs_index + 2, none)].set(after, mode="drop")
    # --- The last observation of an inner episode is the first of the next one ---
    start = obs[obs_index + 2]
    obs = obs.at[jnp.where(leads_on, obs_index + 1, none)].set(start, mode="drop")
    if to_start:
        ends = jnp.where(is_last & ~leads_on, obs_index + 1, none)
        obs, leads_on = obs.at[ends].set(obs[0], mode="drop"), is_last
    return {
        "obs": jnp.concatenate([obs.astype(jnp.float32), known], axis=1),
        "terminated": terminated & ~leads_on,
    }


def _after(
    encoder: BeliefEncoder,
    belief: Belief,
    action: Float[Array, " act"],
    reward: Float[Array, ""],
    next_obs: Float[Array, " obs"],
    anew: Bool[Array, ""],
) -> Belief:
    """The belief after one more transition, of the prior where it begins `anew`."""
    before = jax.tree.map(lambda new, old: jnp.where(anew, new, old), encoder.prior(), belief)
    return encoder.observe(before, action, reward, next_obs)
