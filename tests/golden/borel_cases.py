"""BOReL's golden files: what each holds, computed with the functions that training uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from golden_file import GoldenFile, Group
from latent_format import QUICK_COMPILE, Arrays, group, read_layers, under

from omrl.algos import borel_policy, borel_relabel, borel_vae, sac
from omrl.algos.borel_config import BeliefSacConfig, VaeConfig
from omrl.algos.borel_policy import Noise
from omrl.algos.borel_vae import Draws, Trajectory, Vae
from omrl.algos.sac import SacState
from omrl.nets.belief import BeliefEncoder, TransitionDecoder
from omrl.nets.gru import Gru
from omrl.nets.latent_mlp import LatentMlp
from omrl.nets.mlp import Dense, Mlp
from omrl.ops.belief import kl_chain
from omrl.ops.gaussian import LOG_SLOPES, squash
from omrl.types import Step

LEFT_OUT: Mapping[str, str] = {
    "sac/pi_grad_torch13/": "what the reference code does by accident: a gradient through Qs that "
    "were changed after they were used",
}
"""Outputs that are not compared, by how their names start, and why."""

VAE = VaeConfig()
"""The reference code's settings; sizes are those of the networks."""
SAC = BeliefSacConfig(log_prob="clipped")

quick_jit = partial(jax.jit, compiler_options=QUICK_COMPILE)
_INPUT = re.compile(r"(enc|rdec|in|sac/(q1|q2|pi|in))/.*|vae/noise/eps")


def is_input(name: str) -> bool:
    return bool(_INPUT.fullmatch(name))


def groups(file: GoldenFile) -> Iterator[Group]:
    """The outputs of a file."""
    vae, seen = read_vae(file), read_trajectories(file)
    yield group("vae/", _vae(vae, seen, jnp.asarray(file["vae/noise/eps"])))
    yield group("relabel/", _relabelled(vae, seen))
    yield group("sac/", _sac(*read_policy(file)))


# --- Layouts of the file as ours ---


def _read_layer(file: GoldenFile, name: str, kind: str = "") -> Dense:
    weight, bias = file[f"{name}.weight{kind}"], file[f"{name}.bias{kind}"]
    return Dense.of(jnp.asarray(weight.T), jnp.asarray(bias))


def read_vae(file: GoldenFile) -> Vae:
    mean, log_variance = (_read_layer(file, f"enc/fc_{name}") for name in ("mu", "logvar"))
    encoder = BeliefEncoder(
        _read_layer(file, "enc/action_encoder.fc"),
        _read_layer(file, "enc/state_encoder.fc"),
        _read_layer(file, "enc/reward_encoder.fc"),
        Gru(*(_read_layer(file, "enc/gru", kind) for kind in ("_ih_l0", "_hh_l0"))),
        Dense(jnp.concatenate([mean.affine, log_variance.affine], axis=1)),
    )
    first, *rest = (
        _read_layer(file, f"rdec/{name}") for name in ("fc_layers.0", "fc_layers.1", "fc_out")
    )
    # Theirs sees z, s', a, s; ours z behind them.
    latent = mean.bias.size
    weight = jnp.concatenate([first.weight[latent:], first.weight[:latent]])
    rewards = TransitionDecoder(
        _read_layer(file, "rdec/state_encoder.fc"),
        _read_layer(file, "rdec/action_encoder.fc"),
        LatentMlp((Dense.of(weight, first.bias), *rest)),
        VAE.reward_sees,
    )
    return Vae(encoder, rewards, None)


def read_trajectories(file: GoldenFile) -> Trajectory:
    """Leaves [rollout, step, ...]; the file has the steps first."""
    obs, action, reward, next_obs = (
        jnp.asarray(np.swapaxes(file[f"in/{name}"], 0, 1))
        for name in ("obs", "act", "rew", "next_obs")
    )
    ends = jnp.zeros(obs.shape[:2], bool)
    return Trajectory(obs, action, reward[..., 0], next_obs, ends, ~ends)


def _steps_first(array: Any) -> Any:
    return jnp.swapaxes(array, 0, 1)


def read_policy(file: GoldenFile) -> tuple[SacState, Step, Noise]:
    """Where one update of one task begins, and what it reads."""
    *hidden, mean = read_layers(file, "sac/pi/")
    log_std = _read_layer(file, "sac/pi/last_fc_log_std")
    actor = Mlp((*hidden, Dense(jnp.concatenate([mean.affine, log_std.affine], axis=1))))
    critics = [Mlp(read_layers(file, f"sac/{name}/")) for name in ("q1", "q2")]
    critics = jax.tree.map(lambda *leaves: jnp.stack(leaves), *critics)
    inputs = {name: jnp.asarray(file[f"sac/in/{name}"])[None] for name in file.folders("sac/in/")}
    batch = Step(
        inputs["obs"],
        inputs["act"],
        inputs["rew"][..., 0],
        inputs["next_obs"],
        inputs["done"][..., 0] > 0,
    )
    noise = Noise(inputs["eps_next"], inputs["eps_new"])
    return borel_policy.start(SAC, actor, critics), batch, noise


# --- What the files hold ---


def _draws(noise: jax.Array) -> Draws:
    return Draws(jnp.broadcast_to(jnp.arange(noise.shape[1]), noise.shape[:2]), noise)


@quick_jit
def _vae(vae: Vae, seen: Trajectory, noise: jax.Array) -> Arrays:
    known = jax.vmap(lambda one: borel_vae.beliefs(vae.encoder, one))(seen)
    first = jax.tree.map(lambda leaf: leaf[0], (seen, known))
    arrays = {
        "mean": _steps_first(known.mean),
        "logvar": _steps_first(known.log_variance),
        "hidden": _steps_first(known.hidden),
        "kl_per_step_ep0": kl_chain(first[1].mean, first[1].log_variance),
        "rew_pred_ep0": borel_vae.decoded(vae.rewards, first[0], first[1].mean),
    }
    for case, factor in (("zero", 0), ("noise", 1)):
        arrays |= under(f"{case}/", _losses(vae, seen, _draws(factor * noise)))
    # --- Gradient and step are without noise ---
    draws = _draws(0 * noise)
    grad = jax.grad(lambda vae: _losses(vae, seen, draws)["total"])(vae)
    arrays |= {
        "grad/fc_mu.weight": grad.encoder.posterior.weight[:, : known.mean.shape[-1]].T,
        "grad/gru.weight_ih_l0": grad.encoder.gru.of_input.weight.T,
    }
    of_one_task = jax.tree.map(lambda leaf: leaf[None], (seen, draws))
    moved, _ = borel_vae.step(VAE, borel_vae.start(vae), *of_one_task)
    return arrays | {"total_after_1_adam": _losses(moved.vae, seen, draws)["total"]}


def _losses(vae: Vae, seen: Trajectory, draws: Draws) -> Arrays:
    terms = jax.vmap(lambda one, drawn: borel_vae.elbo(VAE, vae, one, drawn))(seen, draws)
    return {
        "rew_loss": jnp.mean(terms.reward_error),
        "kl": jnp.mean(terms.kl),
        "total": jnp.mean(borel_vae.loss(VAE, terms)),
    }


@quick_jit
def _relabelled(vae: Vae, seen: Trajectory) -> Arrays:
    """The reference code's way: the belief starts anew at terminal steps."""

    def states(seen: Trajectory) -> Arrays:
        pairs = jax.vmap(lambda one: borel_relabel.belief_states(vae.encoder, one, reset=True))(
            seen
        )
        return dict(zip(("aug_obs", "aug_next_obs"), map(_steps_first, pairs), strict=True))

    ended = states(seen._replace(terminated=seen.terminated.at[1, 3].set(True)))
    return states(seen) | {"terminal_t3_b1/aug_next_obs": ended["aug_next_obs"]}


@quick_jit
def _sac(state: SacState, batch: Step, noise: Noise) -> Arrays:
    """Of one task."""
    actor, critics = state.actor, state.critics
    act_dim = batch.action.shape[-1]
    target = borel_policy.q_target(SAC, state, batch, noise.next_action)
    losses = borel_policy.q_losses(critics, batch, target)[0]

    def policy_loss(actor: Mlp) -> Any:
        given = (state.log_temperature, critics, batch.obs, noise.action)
        return jnp.mean(borel_policy.policy_losses(SAC, actor, *given))

    def log_prob(obs: Any, noise: Any) -> Any:
        slope = LOG_SLOPES[SAC.log_prob]
        return squash(noise, *sac.action_distribution(actor, obs), slope)[1]

    grad = jax.grad(policy_loss)(actor)
    moved, _ = borel_policy.step(SAC, state, batch, noise)
    last_of_first = {
        name: nets.layers[-1].weight[0].T
        for name, nets in (("q1_after", moved.critics), ("q1_target_after", moved.target_critics))
    }
    return {
        "q_target": target[0, :, None],
        "next_log_prob": jax.vmap(log_prob)(batch.next_obs[0], noise.next_action[0])[:, None],
        "log_prob": jax.vmap(log_prob)(batch.obs[0], noise.action[0])[:, None],
        "q1_loss": losses[0],
        "q2_loss": losses[1],
        "pi_loss": policy_loss(actor),
        "pi_grad_oldQ/last_fc.weight": grad.layers[-1].weight[:, :act_dim].T,
        **{f"{name}/last_fc.weight": weight for name, weight in last_of_first.items()},
    }
