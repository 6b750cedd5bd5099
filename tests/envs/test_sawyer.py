"""Sawyer Manipulation against the facts that were measured in the environment of SMAC's authors."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from omrl.envs import sawyer, sawyer_model
from omrl.envs import sawyer_scene as scenes
from omrl.envs.engine import VectorEnv, advance
from omrl.envs.registry import make
from omrl.envs.sawyer_script import BUTTON, HANDLE, OBJECT, Script
from omrl.errors import InputError

ENV = make("sawyer-manip/smac3-v1")
FIXED = make("sawyer-manip/fixedgoal-v1")
EIGHT = make("sawyer-manip/8-v1")
SHORT = make("sawyer-manip/smac3-h50-v1")
ALL = (ENV, SHORT, FIXED, EIGHT)
EVERYTHING = {"side": 1, "drawer": 1, "handle": 1, "button": 1, "tray": 1, "object": 3}


def task(aim=0, **scene):
    return np.array([[aim, *(float(scene.get(name, 0)) for name in scenes.SCENE_NAMES)]])


def placed(env, tasks, seed=0):
    drawn = [env.reset(np.random.default_rng(seed + n)) for n in range(len(tasks))]
    return env.place(np.stack(drawn), tasks)


def play(env, tasks, actions, states=None):
    """Transitions of one environment per task."""
    states = placed(env, tasks) if states is None else states
    steps = []
    with closing(env.physics(1)) as physics:
        for action in actions:
            act = np.broadcast_to(np.asarray(action, float), (len(tasks), 4))
            steps.append(advance(env, physics, states, act, tasks, np.ones(len(tasks), bool)))
            states = steps[-1].states
    return steps


class Only(Script):
    """Does one thing, without noise, and then rests."""

    def __init__(self, scene, number):
        super().__init__(scene, [np.random.default_rng(0)] * len(scene), 75, noise=0.0)
        self._left[:, :-1] = False
        self._left[:, number] = True
        self._chosen[:] = number


def do(env, tasks, number):
    """Number of the step in which a sub-task was done, and the states until then."""
    script, states = Only(tasks[:, 1:], number), placed(env, tasks)
    path = [states]
    with closing(env.physics(1)) as physics:
        for step in range(75):
            action = script.act(states)
            if script.completed[:, number].all():
                return step, np.stack(path)
            states = physics.step(states, action, tasks, np.ones(len(tasks), bool))
            path.append(states)
    return 75, np.stack(path)


# --- The hand ----------------------------------------------------------------------------------


def test_a_unit_action_moves_the_hand_by_31_mm_and_half_of_it_by_15():
    nothing = task(side=1)
    for share, expected in ((1.0, 0.031), (0.5, 0.0155)):
        steps = play(ENV, nothing, [(share, 0, 0, -1)] * 4 + [(0, 0, 0, -1)] * 2)
        x = np.array([step.states[0, scenes.HAND.start] for step in steps])
        np.testing.assert_allclose(np.diff(x)[:3], expected, atol=2e-4)
        # It stops within 1.5 mm after release, 1 in the authors' environment, and stays.
        assert abs(np.diff(x)[3]) < 1.5e-3
        assert abs(np.diff(x)[4]) < 1e-4


def test_the_hand_stays_in_its_box():
    corner = play(ENV, task(side=1), [(1, 1, 1, -1)] * 30)[-1].states[0, scenes.HAND]
    np.testing.assert_allclose(corner, [0.85, 0.2, -0.1], atol=2e-3)
    down = [(-1, -1, 0, -1)] * 30 + [(0, 0, -1, -1)] * 20
    other = play(ENV, task(side=-1), down)[-1].states[0, scenes.HAND]
    np.testing.assert_allclose(other, [0.5, -0.2, -0.355], atol=2e-3)  # on the table


def test_the_fingers_are_where_the_action_says():
    steps = play(ENV, task(side=1), [(0, 0, 0, grip) for grip in (-1, -0.5, 0, -1) for _ in "abc"])
    found = [float(step.obs[0, 3]) for step in steps[2::3]]
    np.testing.assert_allclose(found, [0.053, 0.0345, 0.016, 0.053], atol=5e-4)


# --- The scene ---------------------------------------------------------------------------------


def test_what_is_absent_is_zero_in_the_observation():
    obs = ENV.observe(placed(ENV, task(side=1)))[0]
    np.testing.assert_allclose(obs[:4], [0.6, -0.15, -0.2, 0.053], atol=1e-6)
    np.testing.assert_array_equal(obs[4:], np.zeros(9))
    everything = ENV.observe(placed(ENV, task(**EVERYTHING)))[0]
    expected = [0.78, -0.12, -0.35, 0.59, 0.125, -0.34885, 0.6, -0.0125, -0.14]
    np.testing.assert_allclose(everything[4:], expected, atol=1e-6)


def test_the_other_side_is_the_mirror_image():
    def path(side):
        steps = play(ENV, task(**EVERYTHING | {"side": side}), [(0.5, 0.8 * side, -1, -1)] * 12)
        return np.stack([step.obs[0] for step in steps])

    mirror = np.ones(13)
    mirror[[1, 5, 8, 11]] = -1.0  # every y
    np.testing.assert_allclose(path(1), path(-1) * mirror, atol=1e-4)


@pytest.mark.parametrize("opens", [0, 1])
def test_nothing_moves_while_nothing_is_done(opens):
    still = task(**EVERYTHING, open=opens)
    start, last = placed(ENV, still), play(ENV, still, [(0, 0, 0, -1)] * 10)[-1].states
    physics = slice(1, 1 + scenes.NQ)
    np.testing.assert_allclose(last[:, physics], start[:, physics], atol=3e-4)
    np.testing.assert_array_equal(last[:, scenes.USED :], start[:, scenes.USED :])


def test_what_is_absent_touches_nothing():
    """The hand moves down through the place of the stack as through empty space."""

    def lowest(scene):
        steps = play(ENV, scene, [(0, 1, 0, -1)] * 9 + [(0, 0, -1, -1)] * 8)
        return steps[-1].states[0, scenes.HAND.stop - 1]

    absent, there = lowest(task(side=1)), lowest(task(**EVERYTHING))
    assert absent < -0.34 < -0.3 < there


# --- The rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("opens", [0, 1])
def test_the_button_takes_15_steps_and_moves_the_drawer_at_once(opens):
    tasks = task(sawyer.OPEN_DRAWER, **EVERYTHING, open=opens)
    steps, path = do(ENV, tasks, BUTTON)
    assert steps in (15, 16)  # 15 in the authors' environment
    before, after = path[-2, 0], path[-1, 0]
    assert (before[scenes.USED], after[scenes.USED]) == (0.0, 1.0)
    ends = [scenes.STACK_X + scenes.SLIDE * number for number in (opens, 1 - opens)]
    np.testing.assert_allclose([before[scenes.DRAWER_X], after[scenes.DRAWER_X]], ends, atol=0.01)
    # The block inside went along, and the clock has one step more.
    moved = after[scenes.LEGO.start] - before[scenes.LEGO.start]
    assert moved == pytest.approx(ends[1] - ends[0], abs=0.03)
    assert after[0] - before[0] == pytest.approx(sawyer.DT)


def test_the_button_works_once():
    tasks = task(sawyer.OPEN_DRAWER, **EVERYTHING)
    _, path = do(ENV, tasks, BUTTON)
    again = [(0, 0, 1, -1)] * 3 + [(0, 0, -1, -1)] * 4
    last = play(ENV, tasks, again, path[-1])[-1].states[0]
    assert last[scenes.DRAWER_X] == pytest.approx(scenes.STACK_X + scenes.SLIDE, abs=0.01)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("drawer", [0, 1])
def test_the_handle_takes_20_to_24_steps(side, drawer):
    """As many as in the authors' environment, 22 to 24, or fewer where it is higher up."""
    tasks = task(sawyer.OPEN_HANDLE, **EVERYTHING | {"side": side, "drawer": drawer, "tray": 3})
    steps, path = do(FIXED, tasks, HANDLE)
    assert 22 - 3 * drawer <= steps <= 24
    closed, goal = float(scenes.closed_handle_y(tasks[0, 1:])), path[0, 0, scenes.GOAL]
    assert goal == pytest.approx(closed - side * 0.115)
    assert abs(path[-1, 0, scenes.HANDLE_Y] - goal) < 0.05


@pytest.mark.parametrize("shape", range(scenes.NUM_SHAPES))
def test_every_object_can_be_carried(shape):
    tasks = task(**EVERYTHING | {"tray": 0}, shape=shape)
    steps, path = do(ENV, tasks, OBJECT)
    at = path[:, 0, scenes.OBJECT_AT]
    assert steps < 75
    assert at[:, 2].max() > -0.2  # high above the table
    assert np.linalg.norm(at[-1, :2] - [0.675, 0.0]) < 0.05


# --- Rewards -----------------------------------------------------------------------------------


def test_rewards_are_of_the_aim_alone():
    tolerances = [0.08, 0.065, 0.065, 0.008, 0.065, 0.08, 0.08, 0.0785]
    terms = np.ones((8, 8)) - np.eye(8)  # row n: aim n alone is reached
    tasks = np.zeros((8, 1, 9))
    tasks[:, 0, 0] = np.arange(8)
    rewards = EIGHT.reward(terms, np.zeros((1, 4)), tasks)
    np.testing.assert_array_equal(rewards, np.eye(8) - 1.0)
    for aim, tolerance in enumerate(tolerances):
        for away, expected in ((tolerance - 1e-6, 0.0), (tolerance + 1e-6, -1.0)):
            alone = np.where(np.arange(8) == aim, away, 1.0)
            assert EIGHT.reward(alone, np.zeros(4), tasks[aim, 0]) == expected


def test_distances_by_hand():
    tasks = task(**EVERYTHING, open=1)
    state = placed(FIXED, tasks)[0]
    state[scenes.HAND] = [0.675, 0.03, -0.15]
    state[scenes.HANDLE_Y] = -0.1
    state[scenes.DRAWER_X] = 0.7
    state[scenes.BUTTON_Z] = -0.145
    state[scenes.LEGO] = [0.675, 0.0, -0.31]
    state[scenes.OBJECT_AT] = [0.62, -0.2, -0.11]
    # |(0, .03, -.04)|; -.1 + .1275; .75 - .7; -.145 + .15; .7 - .6; .2; |(-.055, -.2)|; the tray
    # is at (.6, -.15).
    expected = [0.05, 0.0275, 0.05, 0.005, 0.1, 0.2, np.hypot(0.055, 0.2), 0.05]
    np.testing.assert_allclose(sawyer.distances(state), expected, atol=1e-12)
    absent = sawyer.distances(placed(FIXED, task(side=1))[0])
    assert absent[0] < 0.5
    np.testing.assert_array_equal(absent[1:], np.ones(7))


def test_the_drawer_that_starts_open_is_a_success_at_once():
    """As in the authors' environment; where the drawer always starts closed it is not."""
    for opens, reward in ((1, 0.0), (0, -1.0)):
        tasks = task(sawyer.OPEN_DRAWER, **EVERYTHING, open=opens)
        assert play(ENV, tasks, [(0, 0, 0, -1)])[0].reward[0] == reward
    assert not FIXED.tasks[:, 1 + scenes.OPEN].any()


def test_the_goal_of_the_handle_is_hidden_and_drawn_anew():
    tasks = np.repeat(task(sawyer.OPEN_HANDLE, **EVERYTHING), 400, axis=0)
    states = placed(ENV, tasks)
    pulled = -0.0125 - states[:, scenes.GOAL]
    assert 0.05 <= pulled.min() < 0.055
    assert 0.175 < pulled.max() <= 0.18
    np.testing.assert_array_equal(ENV.observe(states), ENV.observe(states[:1]).repeat(400, axis=0))
    # (.065 - .05) / .13 of them are reached by the closed drawer: .115.
    reached = np.mean(sawyer.distances(states)[:, sawyer.OPEN_HANDLE] < 0.065)
    assert reached == pytest.approx(0.115, abs=0.05)


# --- Tasks -------------------------------------------------------------------------------------


def test_canonical_tasks_are_those_of_their_seed():
    drawn = sawyer.draw_tasks()
    for env in ALL:
        name = env.spec.id.split("/")[1].removesuffix("-v1").removesuffix("-h50")
        np.testing.assert_array_equal(env.tasks, drawn[name])
        assert {name: len(tasks) for name, tasks in env.splits.items()} == {"train": 50, "test": 10}
        env.check_tasks(env.tasks)


def test_shares_of_sampled_tasks():
    tasks = ENV.sample_tasks(np.random.default_rng(0), 2000)
    scene = tasks[:, 1:]
    for column in (scenes.DRAWER, scenes.HANDLE, scenes.BUTTON):
        assert scene[:, column].mean() == pytest.approx(0.75, abs=0.03)
    for column in (scenes.TRAY, scenes.OBJECT):
        assert (scene[:, column] > 0).mean() == pytest.approx(0.75, abs=0.03)
    drawer = scene[:, scenes.DRAWER] == 1
    assert scene[drawer, scenes.OPEN].mean() == pytest.approx(0.5, abs=0.04)
    assert not scene[~drawer, scenes.OPEN].any()
    assert set(scene[drawer, scenes.OBJECT]) == {0, 3}
    assert set(scene[drawer, scenes.TRAY]) == {0, 1, 3}
    empty = ~scene[:, [scenes.DRAWER, scenes.HANDLE, scenes.BUTTON]].any(axis=1)
    assert set(scene[empty, scenes.TRAY]) == {0, 1, 2, 3, 4}
    ENV.check_tasks(tasks)
    assert set(EIGHT.sample_tasks(np.random.default_rng(0), 400)[:, 0]) == set(range(8))


def test_the_short_twin_differs_in_its_horizon_alone():
    assert SHORT.spec.horizon == 50
    assert ENV.spec.is_longer(SHORT.spec)
    assert not SHORT.spec.is_longer(ENV.spec)
    assert not ENV.spec.is_longer(ENV.spec)
    assert not ENV.spec.is_longer(replace(FIXED.spec, horizon=50))
    assert SHORT.task_table == ENV.task_table


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"side": 0}, "must be of -1, 1, not 0 as side of task 0"),
        ({"tray": 5}, "must be of 0, 1, 2, 3, 4, not 5 as tray of task 0"),
        ({"shape": 0.5}, "not 0.5 as shape of task 0"),
        ({"aim": 3}, "must be of 0, 1, 2, not 3 as aim of task 0"),
        ({"aim": 2, "button": 0}, "open_button_drawer of task 0 is impossible in its scene"),
        ({"aim": 1, "handle": 0}, "open_handle_drawer of task 0 is impossible in its scene"),
    ],
)
def test_tasks_that_are_none(changed, message):
    with pytest.raises(InputError, match=message):
        ENV.check_tasks(task(**EVERYTHING | changed))


def test_states_that_no_task_placed_are_refused():
    state = ENV.reset(np.random.default_rng(0))[None]
    with pytest.raises(ValueError, match="have to be placed"):
        play(ENV, task(side=1), [(0, 0, 0, 0)], state)


# --- The model ---------------------------------------------------------------------------------


def test_the_model_is_the_one_of_the_spec():
    assert sawyer_model.digest() == ENV.spec.model_sha256
    assert ENV.spec.timestep == sawyer_model.TIMESTEP
    assert ENV.spec.frame_skip == sawyer_model.FRAME_SKIP
    halves = [half[1] if half[2] == 0 else half[2] for _, _, half in sawyer_model.SHAPES]
    np.testing.assert_array_equal(halves, scenes.OBJECT_HALF_HEIGHTS)


def test_random_actions_in_many_scenes_stay_within_reason():
    tasks = ENV.sample_tasks(np.random.default_rng(1), 40)
    rng = np.random.default_rng(2)
    with closing(VectorEnv(ENV.with_tasks(tasks, {}), tasks, seed=0)) as vector:
        vector.reset()
        for _ in range(75):
            step = vector.step(rng.uniform(-1, 1, (40, 4)))
            assert np.abs(vector.states[:, 1 + scenes.NQ : scenes.USED]).max() < 200
            assert np.abs(step.obs).max() < 3


def test_other_openings_are_another_environment():
    wider = replace(ENV, openings=(0.1, 0.1))
    assert placed(wider, task(**EVERYTHING))[0, scenes.GOAL] == pytest.approx(-0.1125)
