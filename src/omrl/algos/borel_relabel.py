"""State relabelling: logged trajectories as those of the belief MDP, whose state s+ is observation
and belief (BOReL, arXiv:2008.02598, section 4).

The trained encoder goes once through every trajectory, then the policy learns from single
transitions. (The other relabelling of the paper, that of rewards, is `omrl.data.relabel`.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from omrl.algos.borel_policy import belief_obs
from omrl.algos.borel_vae import Trajectory
from omrl.nets.belief import Belief, BeliefEncoder


def believed(encoder: BeliefEncoder, trajectory: Trajectory, *, reset: bool) -> Belief:
    """q_0, ..., q_T along a trajectory, leaves [T + 1, ...].

    Args:
        reset: begin anew with every transition that ends the MDP, so that what is believed after
            it comes from that one alone. The reference code does so, but neither when the VAE is
            trained nor, before the last step, when it acts.
    """
    prior = encoder.prior()

    def observe(
        belief: Belief, transition: tuple[Array, Array, Array, Bool[Array, ""]]
    ) -> tuple[Belief, Belief]:
        action, reward, next_obs, terminated = transition
        if reset:
            belief = jax.tree.map(lambda new, old: jnp.where(terminated, new, old), prior, belief)
        belief = encoder.observe(belief, action, reward, next_obs)
        return belief, belief

    columns = (trajectory.action, trajectory.reward, trajectory.next_obs, trajectory.terminated)
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
