"""The physics of each robot equal Gymnasium's own, wherever the MDP's are the same."""

from contextlib import closing

import gymnasium
import numpy as np
import pytest

from omrl.bench_envs import MATCHING
from omrl.envs.engine import initial_states
from omrl.envs.registry import make

NUM_STEPS = 60
# A solver that has not converged when it stops remembers where it started.
WITH_WARM_START = dict.fromkeys(MATCHING, 1e-9) | {"humanoid": 1e-4}


@pytest.fixture(params=MATCHING)
def pair(request):
    """Name, our environment and Gymnasium's; the task leaves the nominal model as it is."""
    env_id, gym_id, options = MATCHING[request.param]
    theirs = gymnasium.make(gym_id, **options).unwrapped
    yield request.param, make(env_id), theirs
    theirs.close()


def trajectory(env, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Actions, and states with the first; nothing ends."""
    actions = np.random.default_rng(0).uniform(-1, 1, (num_steps, 1, env.spec.act_dim))
    states = [initial_states(env, seed=3, num_envs=1, episode=0)]
    nominal = np.ones((1, len(env.spec.task_names)))
    with closing(env.physics(1)) as physics:
        for action in actions:
            states.append(physics.step(states[-1], action, nominal, np.ones(1, bool)))
    return actions[:, 0], np.concatenate(states)


def test_one_step_from_equal_states(pair):
    family, ours, theirs = pair
    num_qpos, num_qvel = theirs.model.nq, theirs.model.nv
    actions, states = trajectory(ours, NUM_STEPS)
    coordinates = states[:, 1 : 1 + num_qpos + num_qvel]
    controls = actions * theirs.model.actuator_ctrlrange[:, 1]
    theirs.reset(seed=0)
    for zeroed, tolerance in ((True, 0.0), (False, WITH_WARM_START[family])):
        for step, control in enumerate(controls):
            theirs.set_state(*np.split(coordinates[step], [num_qpos]))
            if zeroed:
                theirs.data.qacc_warmstart[:] = 0
            theirs.do_simulation(control, theirs.frame_skip)
            found = np.concatenate([theirs.data.qpos, theirs.data.qvel])
            np.testing.assert_allclose(found, coordinates[step + 1], rtol=0, atol=tolerance)
    assert np.abs(np.diff(coordinates, axis=0)).max() > 1.0
