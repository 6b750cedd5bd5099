"""Films of episodes, drawn by MuJoCo where it is the engine, else as a walk in the plane.

    omrl envs render cheetah-vel/macaw-v1 --task 3 --policy policy.safetensors --out film.mp4

Episodes are simulated first, by the engine that is used everywhere, and drawn from their states.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, UInt8

from omrl.envs.base import Script, ScriptedEnv, TaskEnv
from omrl.envs.baselines import MAX_PARAMETERS, POLICIES, scripted
from omrl.envs.engine import VectorEnv, script_rngs
from omrl.errors import InputError
from omrl.export import load_policy

BACKENDS = ("egl", "osmesa")
"""Of MuJoCo, which need no display."""
_OFF = ("disable", "disabled", "off", "false", "0")
"""Values of MUJOCO_GL that forbid MuJoCo to load OpenGL."""
MAX_FPS = 60.0
FPS_WITHOUT_CLOCK = 5.0
_GIF_FPS = 50.0
"""Viewers slow faster ones down."""
_DPI = 100
_MARGIN = 0.15
"""Around the plane, of its width."""

Frame = UInt8[np.ndarray, "height width 3"]
Policy = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The action [1, act] for an observation [1, obs] and the state [1, state] behind it."""


@runtime_checkable
class Painter(Protocol):
    """Draws states."""

    def paint(self, states: Float64[np.ndarray, "time state"], caption: str) -> Frame:
        """The last of the states of an episode until now."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Episode:
    """What happened in one."""

    states: Float64[np.ndarray, "time state"]
    """One more than there are steps."""
    returns: Float64[np.ndarray, " time"]
    """Sum of the rewards until then."""


def film(
    env: TaskEnv,
    task: int,
    policy: str,
    path: Path,
    *,
    episodes: int = 1,
    steps: int | None = None,
    seed: int = 0,
    size: tuple[int, int] = (480, 360),
    overwrite: bool = False,
) -> tuple[int, float]:
    """Write a film in real time, as its suffix says: `.mp4` or `.gif`.

    Args:
        policy: `random`, `zero`, `oracle`, `scripted`, or a file that `omrl adapt` wrote for this
            MDP.
        steps: at most so many per episode; without it until its end.
        size: width and height in pixels.

    Returns:
        Number of frames, and frames per second.
    """
    if env.extra:
        raise InputError(
            f"{env.spec.id}: omrl makes no films of it; draw its environments with {env.extra}"
        )
    _check_output(path, size, overwrite)
    # First, since with a MUJOCO_GL that does not work MuJoCo cannot even be imported.
    backend = find_backend() if env.spec.engine == "mujoco" else ""
    played = play(env, task, policy, episodes=episodes, steps=steps, seed=seed)
    stride, rate = frame_rate(env, _GIF_FPS if path.suffix == ".gif" else MAX_FPS)
    frames = _frames(env, task, played, stride, size, backend)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        part = Path(folder) / path.name
        count = (_write_gif if path.suffix == ".gif" else _write_mp4)(part, frames, size, rate)
        part.replace(path)
    return count, rate


def play(
    env: TaskEnv, task: int, policy: str, *, episodes: int, steps: int | None, seed: int
) -> list[Episode]:
    """Simulate episodes, each until its end or for `steps` steps."""
    if not 0 <= task < len(env.task_table):
        last = len(env.task_table) - 1
        raise InputError(f"task of {env.spec.id} must be from 0 to {last}, not {task}")
    length = env.spec.horizon if steps is None else steps
    if not 1 <= length <= env.spec.horizon:
        raise InputError(f"steps must be from 1 to {env.spec.horizon}, the horizon, not {steps}")
    if episodes < 1:
        raise InputError(f"episodes must be 1 or more, not {episodes}")
    act = choose_policy(env, task, policy, seed)
    played = []
    with closing(VectorEnv(env, env.tasks[[task]], seed=seed)) as vector:
        for episode in range(episodes):
            obs = vector.reset(episode)
            states, returns = [vector.states[0]], [0.0]
            while vector.alive.any() and len(states) <= length:
                step = vector.step(act(obs, vector.states))
                obs = step.obs
                states.append(vector.states[0])
                returns.append(returns[-1] + float(step.reward[0]))
            played.append(Episode(np.stack(states), np.array(returns)))
    return played


def task_of(env: TaskEnv, policy: str) -> tuple[TaskEnv, int]:
    """Where to film `policy` unless told: in the task that a file says it was adapted to, which no
    list need name, then the only one of the environment; a scripted policy in task 0."""
    if policy in POLICIES or not _is_file(policy):
        return env, 0
    context = load_policy(policy).metadata.get("context")
    known = context.get("parameters") if isinstance(context, dict) else None
    if not isinstance(known, dict) or set(known) != set(env.spec.task_names):
        return env, 0  # Of another family, which is refused later, or not by omrl adapt.
    return env.with_tasks(np.array([[known[name] for name in env.spec.task_names]]), {}), 0


def _is_file(policy: str) -> bool:
    return any(path.exists() for path in (Path(policy), Path(f"{policy}.safetensors")))


def choose_policy(env: TaskEnv, task: int, name: str, seed: int) -> Policy:
    """The scripted policy of that name, or that in a file, which has to be of this MDP."""
    for scripted_name in POLICIES:
        if name == scripted_name:
            act = scripted(env, scripted_name, seed)
            return lambda obs, states: act(states, env.tasks[[task]])
    if name == "scripted":
        return _play_script(env, task, seed)
    if not _is_file(name):
        raise InputError(
            f"no policy {name!r}: it is random, zero, oracle, scripted, or a file of omrl adapt"
        )
    policy, spec = load_policy(name), env.spec
    made_for = str(policy.metadata.get("spec_hash"))
    if made_for != spec.hash or (policy.obs_dim, policy.act_dim) != (spec.obs_dim, spec.act_dim):
        raise InputError(
            f"{name}: adapted in {policy.metadata.get('env_id')} of spec {made_for[:12]}, not "
            f"{spec.id} of {spec.hash[:12]}: render the former, or adapt anew"
        )
    return lambda obs, states: policy(obs)


def _play_script(env: TaskEnv, task: int, seed: int) -> Policy:
    """The script of the environment, a new one whenever the clock of the state is at 0."""
    if not isinstance(env, ScriptedEnv):
        raise InputError(f"{env.spec.id} has no script: choose random, zero, or a file")
    scripts: list[Script] = []

    def act(obs: np.ndarray, states: np.ndarray) -> np.ndarray:
        if states[0, 0] == 0.0:
            rngs = script_rngs(seed=seed, num_envs=1, episode=len(scripts))
            scripts.append(env.script(env.tasks[[task]], rngs))
        return scripts[-1].act(states)

    return act


def frame_rate(env: TaskEnv, limit: float = MAX_FPS) -> tuple[int, float]:
    """Every how many steps there is a frame, and the frames per second of a film in real time."""
    if env.spec.engine != "mujoco":
        return 1, FPS_WITHOUT_CLOCK
    stride = math.ceil(round(1.0 / (env.spec.dt * limit), 6))
    return stride, 1.0 / (env.spec.dt * stride)


def _frames(
    env: TaskEnv,
    task: int,
    played: Sequence[Episode],
    stride: int,
    size: tuple[int, int],
    backend: str,
) -> Iterator[Frame]:
    named = ""
    if len(env.spec.task_names) <= MAX_PARAMETERS:
        pairs = zip(env.spec.task_names, env.task_table[task], strict=True)
        named = ", " + ", ".join(f"{name} {value:.3g}" for name, value in pairs)
    with closing(_painter(env, task, played, size, backend)) as painter:
        for episode in played:
            for time in range(0, len(episode.states), stride):
                clock = f"{time * env.spec.dt:.2f} s" if backend else f"step {time}"
                caption = f"{env.spec.id}, task {task}{named}\n{clock}"
                caption += f", return {episode.returns[time]:.1f}"
                yield painter.paint(episode.states[: time + 1], caption)


def _painter(
    env: TaskEnv, task: int, played: Sequence[Episode], size: tuple[int, int], backend: str
) -> Painter:
    if not backend:
        return Plane(env, task, played, size)
    from omrl.envs.mujoco_physics import MujocoPhysics
    from omrl.envs.offscreen import Camera
    from omrl.envs.sawyer_physics import SawyerPhysics

    with closing(env.physics(1)) as physics:
        assert isinstance(physics, MujocoPhysics | SawyerPhysics)
        return Camera(physics.drawn(env.tasks[task]), backend, *size)


def find_backend() -> str:
    """The one of `BACKENDS` that works, or works and is asked for by MUJOCO_GL.

    Each is tried in a process of its own: in this one a failed attempt could not be undone.
    """
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in _OFF:
        raise InputError(f"MUJOCO_GL={asked} forbids to draw: unset it, or set it to egl or osmesa")
    candidates = (asked,) if asked in BACKENDS else BACKENDS
    for name in candidates:
        program = (
            f"from mujoco.{name} import GLContext as G; g = G(8, 8); g.make_current(); g.free()"
        )
        command = [sys.executable, "-c", program]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return name
    raise InputError(
        f"no OpenGL without a display (tried {' and '.join(candidates)}): apt-get install libegl1 "
        "libgl1, or libosmesa6 and MUJOCO_GL=osmesa"
    )


class Plane:
    """Draws walks whose observation begins with x and y, and whose task is a goal (x, y)."""

    def __init__(self, env: TaskEnv, task: int, played: Sequence[Episode], size: tuple[int, int]):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        width, height = size
        self._figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
        self._canvas = FigureCanvasAgg(self._figure)
        self._env, self._task = env, env.tasks[task]
        walked = [env.observe(episode.states)[:, :2] for episode in played]
        places = np.concatenate([env.tasks, *walked])
        low, high = places.min(axis=0), places.max(axis=0)
        margin = _MARGIN * (high - low).max()
        self._limits = (low - margin, high + margin)

    def paint(self, states: Float64[np.ndarray, "time state"], caption: str) -> Frame:
        """The walk until now, the goals of all tasks, and that of this one."""
        self._figure.clear()
        axes = self._figure.add_axes((0.1, 0.1, 0.85, 0.75))
        (left, bottom), (right, top) = self._limits
        axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
        axes.set_title(caption, size=7)
        axes.tick_params(labelsize=7)
        walk = self._env.observe(states)[:, :2]
        axes.plot(*self._env.tasks.T, "o", color="#dddddd", ms=5)
        axes.plot(*self._task, "*", color="#009E73", ms=14)
        axes.plot(*walk.T, "-", color="#0072B2", lw=1)
        axes.plot(*walk[-1], "o", color="#D55E00", ms=8)
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def close(self) -> None:
        """Nothing to free."""


# --- Files -------------------------------------------------------------------------------------


def _check_output(path: Path, size: tuple[int, int], overwrite: bool) -> None:
    if path.suffix not in (".mp4", ".gif"):
        raise InputError(f"{path}: the film must be called something.mp4 or something.gif")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists: choose another --out or pass --overwrite")
    for name, value in zip(("width", "height"), size, strict=True):
        if not 16 <= value <= 4096 or value % 2:
            raise InputError(f"{name} must be an even number from 16 to 4096, not {value}")
    if path.suffix == ".mp4":
        _ffmpeg()


def _ffmpeg() -> str:
    """The program."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise InputError(
            "an MP4 needs ffmpeg: pip install 'omrl[render]', or write a .gif"
        ) from None


def _write_mp4(path: Path, frames: Iterator[Frame], size: tuple[int, int], rate: float) -> int:
    width, height = size
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate}"]
    coding = ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
    command = [_ffmpeg(), "-loglevel", "error", *source, "-i", "-", *coding, os.fspath(path)]
    count = 0
    # A process group of its own: Ctrl-C is for this process, which then closes the pipe.
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said, process_group=0) as encoder,
    ):
        assert encoder.stdin is not None
        with contextlib.suppress(BrokenPipeError), encoder.stdin as pipe:
            for frame in frames:
                pipe.write(np.ascontiguousarray(frame).data)
                count += 1
        if encoder.wait():
            said.seek(0)
            lines = said.read().decode(errors="replace").split("\n")
            raise InputError(f"{path.name}: ffmpeg failed ({lines[0]}); write a .gif")
    return count


def _write_gif(path: Path, frames: Iterator[Frame], size: tuple[int, int], rate: float) -> int:
    from PIL import Image  # matplotlib needs it, too

    images = [Image.fromarray(frame) for frame in frames]
    first, *others = images
    first.save(path, save_all=True, append_images=others, duration=1000.0 / rate, loop=0)
    return len(images)
