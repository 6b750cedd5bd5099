"""Films: as many frames as were asked for, something on them, and one line where it cannot be."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from omrl.cli import main
from omrl.envs import render
from omrl.envs.registry import make
from omrl.envs.render import film, frame_rate, play
from omrl.errors import InputError
from omrl.export import export_policy

POINT = make("point-robot/oyster-v1")
VEL = make("cheetah-vel/macaw-v1")
SIZE = (64, 48)


@pytest.fixture
def opengl(monkeypatch):
    """Skips where this machine cannot draw MuJoCo."""
    monkeypatch.delenv("MUJOCO_GL")
    try:
        render.find_backend()
    except InputError as error:
        pytest.skip(f"MuJoCo's pictures need OpenGL: {error}")


def decoded(path, size) -> np.ndarray:
    """The frames of an MP4 of that size."""
    import imageio_ffmpeg

    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24"]
    done = subprocess.run([*program, "-"], capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, size[1], size[0], 3)


# --- Episodes ----------------------------------------------------------------------------------


def test_episodes_are_those_of_the_engine():
    two = play(VEL, 3, "random", episodes=2, steps=5, seed=1)
    again = play(VEL, 3, "random", episodes=1, steps=5, seed=1)
    assert [episode.states.shape for episode in two] == [(6, 19)] * 2
    np.testing.assert_array_equal(two[0].states, again[0].states)
    assert (two[0].states[0] != two[1].states[0]).any()
    assert two[0].returns[0] == 0.0
    assert (np.diff(two[0].returns) < 0).all()  # every reward of this task is negative


def test_an_episode_ends_with_the_mdp_or_at_the_horizon():
    (fallen,) = play(make("hopper-params/oyster-v1"), 0, "random", episodes=1, steps=None, seed=0)
    assert len(fallen.states) < 100
    (walk,) = play(POINT, 0, "oracle", episodes=1, steps=None, seed=0)
    assert len(walk.states) == 21
    np.testing.assert_allclose(walk.states[-1], POINT.tasks[0], atol=1e-6)


def test_the_policy_of_a_file_acts(tmp_path):
    bias = np.array([1.0, -1.0], np.float32)
    layers = [(np.zeros((2, 2), np.float32), bias)]
    options = {"env_id": POINT.spec.id, "spec_hash": POINT.spec.hash, "context": {}}
    file = export_policy(tmp_path / "policy", layers, output_tanh=False, **options)
    for name in (file, file.with_suffix("")):
        (walk,) = play(POINT, 0, str(name), episodes=1, steps=3, seed=0)
        np.testing.assert_allclose(np.diff(walk.states, axis=0), [[0.1, -0.1]] * 3, atol=1e-7)


def test_films_are_in_real_time():
    assert frame_rate(VEL) == (1, 20.0)
    assert frame_rate(make("walker-params/oyster-v1")) == (2, 31.25)  # steps of .016 s
    assert frame_rate(make("walker-params/smac-v1")) == (3, pytest.approx(1 / 0.024))
    assert frame_rate(POINT) == (1, 5.0)


# --- Films -------------------------------------------------------------------------------------


def test_a_film_in_the_plane(tmp_path):
    path = tmp_path / "new" / "film.mp4"
    size = (162, 120)  # no multiple of 16
    assert film(POINT, 3, "oracle", path, steps=4, episodes=2, size=size) == (10, 5.0)
    frames = decoded(path, size)
    assert len(frames) == 10
    assert frames[0].std() > 5
    assert (frames[0] != frames[4]).any()
    assert [file.name for file in path.parent.iterdir()] == ["film.mp4"]


def test_a_film_as_gif(tmp_path):
    path = tmp_path / "film.gif"
    assert film(make("gridnav/borel-v1"), 20, "oracle", path, steps=3, size=SIZE) == (4, 5.0)
    with Image.open(path) as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (4, SIZE, 200)


@pytest.mark.parametrize("env_id", ["cheetah-vel/macaw-v1", "hopper-params/corro-v1"])
def test_a_film_of_mujoco(env_id, opengl, tmp_path):
    path = tmp_path / "film.mp4"
    env = make(env_id)
    stride, rate = frame_rate(env)
    assert film(env, 3, "random", path, steps=2 * stride, size=SIZE) == (3, rate)
    frames = decoded(path, SIZE)
    assert len(frames) == 3
    assert frames[0].std() > 5


def test_the_camera_follows(opengl):
    from omrl.envs.mujoco_physics import compile_model
    from omrl.envs.offscreen import Camera

    model = compile_model(VEL.spec.model_file, VEL.spec.model_sha256, 14.0)
    state = np.zeros((1, 19))
    far = state.copy()
    far[0, 1] = 4.0  # m along the track: three squares of the floor, which repeats itself
    camera = Camera(model, render.find_backend(), *SIZE)
    near_picture, far_picture = camera.paint(state, ""), camera.paint(far, "")
    camera.close()
    assert np.abs(near_picture.astype(int) - far_picture).mean() < 1
    assert near_picture.std() > 5


# --- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "film.avi"], ".mp4"),
        (["--out", "there.gif"], "--overwrite"),
        (["--task", "100"], "from 0 to 99"),
        (["--task", "-1"], "task: -1 is not a whole number from 0"),
        (["--steps", "0"], "steps: 0 is not a whole number from 1"),
        (["--steps", "21"], "from 1 to 20"),
        (["--episodes", "0"], "episodes: 0 is not a whole number from 1"),
        (["--seed", "-1"], "seed: -1 is not a whole number from 0"),
        (["--width", "33"], "even"),
        (["--height", "10000"], "4096"),
        (["--policy", "rondom"], "random, zero, oracle"),
        (["--policy", "other"], "adapted in cheetah-vel/macaw-v1"),
        (["--policy", "unnamed"], "env_id: missing"),
        (["--policy", "wide"], "adapted in"),
    ],
)
def test_what_cannot_be_filmed_is_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gif").write_bytes(b"mine")
    layers = [(np.zeros((2, 2), np.float32), np.zeros(2, np.float32))]
    wide = [(np.zeros((3, 2), np.float32), np.zeros(2, np.float32))]
    vel = {"env_id": VEL.spec.id, "spec_hash": VEL.spec.hash, "context": {}}
    export_policy("other", layers, **vel)
    export_policy("wide", wide, **(vel | {"spec_hash": POINT.spec.hash}))
    json_file = export_policy("unnamed", layers, **vel).with_suffix(".json")
    kept = [line for line in json_file.read_text().splitlines() if "env_id" not in line]
    json_file.write_text("\n".join(line for line in kept if "spec_hash" not in line))
    before = sorted(tmp_path.iterdir())
    out = [] if "--out" in arguments else ["--out", "new.gif"]
    assert main(["envs", "render", POINT.spec.id, *out, *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "there.gif").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("MUJOCO_GL", "disable", "unset it"),
        ("MUJOCO_GL", "nonsense", "tried egl and osmesa): apt-get install libegl1"),
        ("PYOPENGL_PLATFORM", "nonsense", "tried egl and osmesa): apt-get install libegl1"),
    ],
)
def test_without_opengl_the_error_says_what_to_install(
    variable, value, says, tmp_path, monkeypatch
):
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError) as error:
        film(VEL, 0, "zero", tmp_path / "film.gif", steps=1, size=SIZE)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_the_backend_that_was_asked_for_is_the_only_one_tried(monkeypatch):
    monkeypatch.setenv("PYOPENGL_PLATFORM", "nonsense")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(InputError, match=r"tried osmesa\)"):
        render.find_backend()


def test_without_ffmpeg_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match=r"pip install 'omrl\[render\]'"):
        film(POINT, 0, "zero", tmp_path / "film.mp4", steps=1, size=SIZE)


def test_a_coder_that_fails_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "_ffmpeg", lambda: shutil.which("false"))
    with pytest.raises(InputError, match=r"film.mp4: ffmpeg failed .*write a .gif"):
        film(POINT, 0, "zero", tmp_path / "film.mp4", steps=1, size=SIZE)
    assert not list(tmp_path.iterdir())


def test_a_policy_is_filmed_in_the_task_it_was_adapted_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layers = [(np.zeros((2, 2), np.float32), np.zeros(2, np.float32))]
    goal = {"goal_x": 0.25, "goal_y": -0.75}
    kinds = {"own": {"parameters": goal}, "none": {}}
    for name, context in kinds.items():
        export_policy(
            name, layers, env_id=POINT.spec.id, spec_hash=POINT.spec.hash, context=context
        )
    env, task = render.task_of(POINT, "own")
    assert env.tasks[task].tolist() == [0.25, -0.75]
    for policy in ("none", "random", "missing"):
        assert render.task_of(POINT, policy) == (POINT, 0)
    assert main(["envs", "render", POINT.spec.id, "--policy", "own", "--out", "own.gif"]) == 0
