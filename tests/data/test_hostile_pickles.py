"""Programs in pickles are refused by name, and so are buffers that are none."""

import pickle

import foreign
import hostile
import numpy as np
import pytest
from hostile import ENV, GOALS, HUGE, assert_refused, cases, one_task
from points import lifetime

CASES, case = cases()


# --- Programs in pickles ---


def rlkit_program(path):
    path.write_bytes(pickle.dumps({"replay_buffer": hostile.Runs(path.parent / "made")}))


def macaw_program(path):
    foreign.macaw(path, one_task(), GOALS)
    content = pickle.dumps([{"velocity": hostile.Runs(path.parent / "made")}])
    (path / "env_point_train_task0.pkl").write_bytes(content)


def smac_tasks_program(path):
    foreign.smac(path, one_task(), GOALS)
    (path / "tasks.pkl").write_bytes(pickle.dumps([hostile.Runs(path.parent / "made")]))


def smac_program(path):
    path.mkdir()
    content = np.array(hostile.Runs(path.parent / "made"), object)
    np.save(path / "macaw_replay_buffer_task_0.npy", content)


def focal_program(path):
    (path / "goal_idx0").mkdir(parents=True)
    content = np.full((1, 4), hostile.Runs(path.parent / "made"), object)
    np.save(path / "goal_idx0/trj_eval0_step0.npy", content)


def borel_program(path):
    foreign.borel(path, one_task(), GOALS)
    content = np.array([hostile.Runs(path.parent / "made")], object)
    np.save(path / "seed_70_goal_0.0/obs.npy", content)


def npz_program(path):
    foreign.npz(path, one_task(), obs=np.array([hostile.Runs(path.parent / "made")], object))


for make, message in (
    (rlkit_program, "holds 'posix.mkdir', which is refused"),
    (macaw_program, "task0.pkl: holds 'posix.mkdir', which is refused"),
    (smac_tasks_program, "tasks.pkl: holds 'posix.mkdir', which is refused"),
    (smac_program, "task_0.npy: holds 'posix.mkdir', which is refused"),
    (focal_program, "step0.npy: holds 'posix.mkdir', which is refused"),
    (borel_program, r"obs.npy: dtype object; only numbers"),
    (npz_program, r"episode-0.npz, obs.npy: dtype object; only numbers"),
):
    case(make.__name__.split("_")[0], message)(make)


# --- rlkit, SMAC, FOCAL ---


def change_oyster(path, **attributes):
    with pytest.MonkeyPatch.context() as patch:
        buffer = foreign.oyster_buffer(patch, one_task())
        buffer.task_buffers[0].__dict__ |= attributes
        path.write_bytes(pickle.dumps({"replay_buffer": buffer}))


@case("rlkit", "row 1: does not go on where row 0 led, and no episode ended there")
def rlkit_unsorted_rows(path):
    rows = np.random.default_rng(0).normal(size=(2, 27, 2))
    change_oyster(path, _observations=rows[0], _next_obs=rows[1])


for attributes, message in (
    ({"_size": 10**9}, "_size 1000000000 or _top 20 is beyond its 27 rows"),
    ({"_size": -1}, "_size must be a number of rows"),
    ({"_size": 1.5}, "_size must be a number of rows"),
    ({"_top": 2**70}, "is beyond its 27 rows"),
    ({"_rewards": np.zeros((5, 1))}, "reward: shape"),
    ({"_rewards": np.full((27, 1), np.nan)}, "reward, row 0.*NaN or infinity"),
    ({"_rewards": np.zeros((27, 1), int)}, "reward: dtype int64, must be floating-point"),
    ({"_rewards": "many"}, "must be an array of numbers, not str"),
    ({"_rewards": np.float32(1)}, r"reward: shape \(\)"),
    ({"_observations": np.zeros((27, 3))}, r"obs: shape \(\d+, 3\), must be"),
    ({"_terminals": np.full((27, 1), 7)}, "terminated: must be truth values"),
):

    def rlkit_attribute(path, attributes=attributes):
        change_oyster(path, **attributes)

    case("rlkit", message)(rlkit_attribute)


for content, message in (
    ([1, 2], "must be a replay buffer, not list"),
    ({"algorithm": 1}, "no 'replay_buffer' in it; it holds algorithm"),
    ({"replay_buffer": None}, "must be a replay buffer, not NoneType"),
):

    def rlkit_content(path, content=content):
        path.write_bytes(pickle.dumps(content))

    case("rlkit", message)(rlkit_content)


for extra, message in (
    ({"obs": np.zeros((25, 2))}, "row 1: does not go on where row 0 led, within an episode"),
    ({"end_indices": [4, 10**9]}, "end_indices: must be rows between 0 and"),
    ({"end_indices": [-1]}, "end_indices: must be rows between 0 and"),
    ({"end_indices": np.array([0.5])}, "end_indices: must be rows between 0 and"),
    ({"end_indices": "x"}, "end_indices: must be an array of numbers, not str"),
    ({"rewards": None}, "rewards: must be an array of numbers, not NoneType"),
    ({"actions": np.full((25, 1), np.inf)}, "action, row 0.*NaN or infinity"),
    ({"actions": np.full((25, 1), 1.5)}, r"action, row 0.*outside \[-1, 1\]"),
    ({"actions": np.zeros((25, 1), np.int8)}, "dtype int8, must be floating-point"),
):

    def smac_field(path, extra=extra):
        path.mkdir()
        task = {0: lifetime(ENV, 0, [5] * 5)}
        foreign.smac(path, task, GOALS, marked="end_indices" not in extra, **extra)

    case("smac", message)(smac_field)


@case("smac", "must hold one dict of arrays")
def smac_list(path):
    path.mkdir()
    np.save(path / "macaw_replay_buffer_task_0.npy", np.array([{}, {}], object))


@case("smac", "no obs or observations in it")
def smac_empty_dict(path):
    path.mkdir()
    np.save(path / "macaw_replay_buffer_task_0.npy", np.array({}, object))


def mixed(rows):
    rows[1, 0] = rows[1, 0].astype(np.float64)
    return rows


def nan_in(rows):
    rows[2, 0] = rows[1, 3] = rows[1, 3] * np.nan
    return rows


for change, message in (
    (lambda rows: rows[::-1], "row 1: does not go on where row 0 led, within an episode"),
    (mixed, "obs: shapes or dtypes differ from step to step"),
    (nan_in, "obs, row 20.*NaN or infinity"),
    (lambda rows: rows[:, :3], r"shape \(5, 3\), must be \(steps, 4\)"),
    (lambda rows: rows[:0], r"shape \(0, 4\), must be \(steps, 4\)"),
):

    def focal_rows(path, change=change):
        foreign.focal(path, one_task(), change=change)

    case("focal", f"{message}")(focal_rows)


@case(
    "focal",
    "trj_evalsample00_step0.npy: the same trajectory as|the same trajectory as trj_evalsample",
)
def focal_trajectories_twice(path):
    foreign.focal(path, one_task())
    folder = path / "goal_idx0"
    content = (folder / "trj_evalsample0_step0.npy").read_bytes()
    (folder / "trj_evalsample00_step0.npy").write_bytes(content)


@case("focal", "1099511627776 objects announced|with 0 bytes|objects announced for an array")
def focal_a_header_of_many_rows(path):
    (path / "goal_idx0").mkdir(parents=True)
    shape = b"\x8a\x06" + HUGE.to_bytes(6, "little") + b"K\x04\x86"
    code = hostile.array(shape, b"O8", raw=b"]")
    content = hostile.npy_of_objects(hostile.program(code), (HUGE, 4))
    (path / "goal_idx0/trj_eval0_step0.npy").write_bytes(content)


@pytest.mark.parametrize(("format", "make", "message"), CASES)
def test_it_is_refused(tmp_path, format, make, message):
    assert_refused(tmp_path, format, make, message)
