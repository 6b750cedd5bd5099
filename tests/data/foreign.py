"""Small files in the layouts of other programs, written as those programs write them."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import sys
import types
import zlib

import numpy as np
import pytest

from omrl.data.formats.macaw_buffer import MacawReplayBuffer


def episodes(task):
    """The columns of each episode of a task, as `points.lifetime` has them."""
    starts = task["episode_start"]
    for number in range(len(starts) - 1):
        first, stop = starts[number], starts[number + 1]
        rows, obs = slice(first, stop), slice(first + number, stop + number + 1)
        yield {n: c[obs if n == "obs" else rows] for n, c in task.items() if n != "episode_start"}


def joined(parts):
    """The inverse of `episodes`."""
    parts = list(parts)
    lengths = [len(part["reward"]) for part in parts]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return columns | {"episode_start": np.concatenate([[0], np.cumsum(lengths)])}


def rows_of(task):
    """Transitions in time order with `next_obs`; rewards and flags are columns of width one."""
    parts = list(episodes(task))
    return {
        "obs": np.concatenate([part["obs"][:-1] for part in parts]),
        "next_obs": np.concatenate([part["obs"][1:] for part in parts]),
        "actions": task["action"],
        "rewards": task["reward"][:, None],
        "terminals": task["terminated"][:, None],
        "timeouts": task["truncated"][:, None],
    }


def without_terms(columns):
    return {
        index: {n: c for n, c in task.items() if n != "terms"} for index, task in columns.items()
    }


# --- MACAW ---


def macaw(folder, columns, goals, *, size=None, name="point"):
    """Buffers and task files of MACAW's reference code; the buffer itself is that of the golden
    test."""
    h5py = pytest.importorskip("h5py")

    folder.mkdir()
    for index, task in columns.items():
        total = int(task["episode_start"][-1])
        buffer = MacawReplayBuffer(size or total, task["obs"].shape[1], task["action"].shape[1])
        for part in episodes(task):
            buffer.add_trajectory(part["obs"], part["action"], part["reward"], part["terminated"])
        with h5py.File(folder / f"buffers_{name}_train_{index}_sub_task_0.hdf5", "w") as file:
            for key, rows in buffer.rows().items():
                file.create_dataset(key, data=rows, compression="lzf")
            file.create_dataset("discount_factor", data=buffer.discount)
        task_file = folder / f"env_{name}_train_task{index}.pkl"
        task_file.write_bytes(pickle.dumps([{"velocity": np.float64(goals[index])}], protocol=3))


# --- rlkit and oyster ---


class _Attributes:
    pass


def classes(monkeypatch, *names):
    """Stand-ins of classes of packages that are not installed, by their full names."""
    made = []
    for name in names:
        module_name, _, class_name = name.rpartition(".")
        kind = type(class_name, (_Attributes,), {"__module__": module_name})
        module = types.ModuleType(module_name)
        setattr(module, class_name, kind)
        for parent in itertools.accumulate(module_name.split("."), "{}.{}".format):
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        monkeypatch.setitem(sys.modules, module_name, module)
        made.append(kind)
    return made


OYSTER = (
    "rlkit.data_management.env_replay_buffer.MultiTaskReplayBuffer",
    "rlkit.data_management.simple_replay_buffer.SimpleReplayBuffer",
    "rlkit.envs.wrappers.NormalizedBoxEnv",
    "gym.spaces.box.Box",
)


def oyster_buffer(monkeypatch, columns, *, capacity=None, dtype=np.float32):
    """A multi-task buffer as oyster fills it: a ring of `capacity` rows per task."""
    multi, simple, env, box = classes(monkeypatch, *OYSTER)
    result = multi()
    result.env, result._ob_space = env(), box()
    result.env._obs_mean = np.zeros(2)
    result._ob_space.low = np.full(2, -np.inf, np.float32)
    result.task_buffers = {
        index: _ring(simple(), task, capacity, dtype) for index, task in columns.items()
    }
    return result


def _ring(buffer, task, capacity, dtype):
    rows = rows_of(task)
    count = len(rows["rewards"])
    capacity = capacity or count + 7
    names = {
        "_observations": ("obs", dtype),
        "_next_obs": ("next_obs", dtype),
        "_actions": ("actions", dtype),
        "_rewards": ("rewards", dtype),
        "_terminals": ("terminals", np.uint8),
    }
    for name, (source, kind) in names.items():
        array = np.zeros((capacity, rows[source].shape[1]), kind)
        for row, value in enumerate(rows[source]):
            array[row % capacity] = value
        setattr(buffer, name, array)
    buffer._sparse_rewards = np.zeros((capacity, 1), dtype)
    buffer._top, buffer._size = count % capacity, min(count, capacity)
    buffer._max_replay_buffer_size = capacity
    buffer._episode_starts = [int(start) for start in task["episode_start"][:-1]]
    return buffer


def joblib_dump(monkeypatch, value, path, *, compress):
    """What joblib writes: arrays behind a description of them, aligned to 16 bytes."""
    (wrapper,) = classes(monkeypatch, "joblib.numpy_pickle.NumpyArrayWrapper")
    file = io.BytesIO()

    class Pickler(pickle._Pickler):
        def save(self, obj, save_persistent_id=True):
            if type(obj) is not np.ndarray:
                super().save(obj, save_persistent_id)
                return
            order = "F" if obj.flags.f_contiguous and not obj.flags.c_contiguous else "C"
            described = wrapper()
            described.__dict__ = {
                "subclass": np.ndarray,
                "shape": obj.shape,
                "order": order,
                "dtype": obj.dtype,
                "allow_mmap": not compress,
                "numpy_array_alignment_bytes": 16,
            }
            super().save(described)
            self.framer.commit_frame(force=True)
            padding = 16 - (file.tell() + 1) % 16
            file.write(bytes([padding]) + b"\xff" * padding + obj.tobytes(order))

    Pickler(file, 4).dump(value)
    path.write_bytes(zlib.compress(file.getvalue()) if compress else file.getvalue())


# --- SMAC, FOCAL, BOReL ---


def smac(folder, columns, goals, *, buffer="replay_buffer", marked=True, key="velocity", **extra):
    folder.mkdir(exist_ok=True)
    for index, task in columns.items():
        fields = rows_of(task)
        fields.pop("timeouts")
        fields |= {"discount_factor": 0.99, "mc_rewards": fields["rewards"][::-1]} | extra
        fields["terminals"] = fields["terminals"].astype(np.uint8)
        if marked:
            fields["end_indices"] = [int(stop) - 1 for stop in task["episode_start"][1:]]
        np.save(folder / f"macaw_{buffer}_task_{index}.npy", fields)
    tasks = [{key: goals[index]} for index in range(len(goals))]
    (folder / "tasks.pkl").write_bytes(pickle.dumps(tasks))


def focal(folder, columns, *, kind="evalsample", change=None):
    """A trajectory per file; the n-th is number n % 2 of training step 1000 (n // 2).

    `change` makes other rows [step, 4] of those of the last one.
    """
    for index, task in columns.items():
        goal = folder / f"goal_idx{index}"
        goal.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(episodes(task)):
            steps = [
                [
                    part["obs"][i],
                    part["action"][i],
                    np.float64(part["reward"][i]),
                    part["obs"][i + 1],
                ]
                for i in range(len(part["reward"]))
            ]
            path = goal / f"trj_{kind}{number % 2}_step{number // 2 * 1000}.npy"
            rows = np.array(steps, dtype=object)
            np.save(path, rows)
    if change is not None:
        np.save(path, change(rows))


def borel(folder, columns, goals, *, cube=0):
    """Two episodes per trajectory; with `cube` steps per trajectory as [step, trajectory, width].

    As in the authors' wrapper, the second episode begins with the last observation of the first.
    """
    for index, task in columns.items():
        rows = rows_of(task)
        rows["obs"] = rows["obs"].copy()
        second = task["episode_start"][1:-1:2]
        rows["obs"][second] = rows["next_obs"][second - 1]
        path = folder / f"seed_{70 + index}_goal_{round(goals[index], 3)}"
        path.mkdir(parents=True)
        for name in ("obs", "next_obs", "actions", "rewards", "terminals"):
            array = rows[name].astype(np.float32)
            if cube:
                array = array.reshape(-1, cube, array.shape[1]).transpose(1, 0, 2)
            np.save(path / f"{name}.npy", array, allow_pickle=False)


# --- D4RL, npz, Minari ---


def d4rl(path, task, *, next_observations=True, timeouts=True, **datasets):
    h5py = pytest.importorskip("h5py")

    rows = rows_of(task)
    fields = {
        "observations": rows["obs"],
        "actions": rows["actions"],
        "rewards": rows["rewards"][:, 0].astype(np.float32),
        "terminals": rows["terminals"][:, 0],
        "infos/qpos": np.zeros((len(rows["obs"]), 3)),
    }
    if next_observations:
        fields["next_observations"] = rows["next_obs"]
    if timeouts:
        fields["timeouts"] = rows["timeouts"][:, 0]
    with h5py.File(path, "w") as file:
        for name, value in (fields | datasets).items():
            file.create_dataset(name, data=value, compression="gzip")


def npz(folder, columns, **arrays):
    for index, task in columns.items():
        (folder / f"task-{index}").mkdir(parents=True)
        for number, part in enumerate(episodes(task)):
            np.savez(folder / f"task-{index}/episode-{number}.npz", **(part | arrays))


MINARI = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
}


def minari_metadata(data, storage, count, name="point/task-0-v0"):
    data.mkdir(parents=True)
    fields = {"total_episodes": count, "data_format": storage, "dataset_id": name}
    (data / "metadata.json").write_text(json.dumps(fields | {"minari_version": "0.5.4"}))


def minari_hdf5(data, task, *, name="point/task-0-v0"):
    """As Minari's collector writes it: infos of the reset first, terms by name."""
    h5py = pytest.importorskip("h5py")

    parts = list(episodes(task))
    minari_metadata(data, "hdf5", len(parts), name)
    with h5py.File(data / "main_data.hdf5", "w", track_order=True) as file:
        for number, part in enumerate(parts):
            group = file.create_group(f"episode_{number}")
            group.attrs["id"] = number
            for ours, theirs in MINARI.items():
                shape = (None, *part[ours].shape[1:])
                group.create_dataset(theirs, data=part[ours], chunks=True, maxshape=shape)
            terms = np.concatenate([[0.0], part["terms"][:, 0]])
            group.create_dataset("infos/terms/position", data=terms)


def minari_arrow(data, task, *, name="point/task-0-v0", **columns):
    pa = pytest.importorskip("pyarrow")

    parts = list(episodes(task))
    minari_metadata(data, "arrow", len(parts), name)
    for number, part in enumerate(parts):
        arrays = {}
        for ours, theirs in MINARI.items():
            values = part[ours]
            if ours != "obs":
                values = np.concatenate([values, np.zeros_like(values[:1])])
            arrays[theirs] = pa.array(list(values)) if values.ndim == 1 else fixed_lists(values)
        batch = pa.RecordBatch.from_pydict(arrays | columns)
        write_arrow(data / str(number), batch, number)


def fixed_lists(values):
    pa = pytest.importorskip("pyarrow")

    return pa.FixedSizeListArray.from_arrays(
        np.ascontiguousarray(values).reshape(-1), values.shape[1]
    )


def write_arrow(folder, batch, number, **options):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.ipc")

    folder.mkdir(exist_ok=True)
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(folder / "part-0.arrow", batch.schema, options=written) as file:
        file.write_batch(batch)
    (folder / "metadata.json").write_text(json.dumps({"id": number}))
