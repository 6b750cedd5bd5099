"""A deployable policy: `FILE.safetensors` with dense layers, `FILE.json` with what they mean.

Adaptation is over when a policy is exported, so what is left is a plain perceptron whatever layers
it was meta-trained with. The reader needs numpy and safetensors only: no JAX, no simulator.

    from omrl.export import load_policy
    policy = load_policy("policy.safetensors")
    observation, _ = env.reset()
    action = policy(observation)        # one observation [obs] or a batch [n, obs]

The JSON file carries the SHA-256 of the tensors, so a mixed-up or damaged pair is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from safetensors.numpy import load, save

from omrl.arrays import check_real, reading
from omrl.config import from_json, read_json
from omrl.errors import InputError
from omrl.files import atomic_write, named, read_bytes

FORMAT = "omrl-policy-1"
FIX = "export the policy again"
_ACTIVATIONS = {"relu": lambda hidden: np.maximum(hidden, 0.0), "tanh": np.tanh}

Layer = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_"]]
"""(weight [in, out], bias [out])"""


@dataclass(frozen=True)
class _Metadata:
    """The JSON beside the tensors."""

    format: str
    sha256: str
    layers: tuple[tuple[int, int], ...]
    activation: str
    output_tanh: bool
    obs_mean: tuple[float, ...]
    obs_std: tuple[float, ...]
    env_id: str
    spec_hash: str
    context: Mapping[str, Any]


@dataclass(frozen=True)
class Policy:
    """A deterministic policy in numpy; `policy(obs)` returns actions in [-1, 1]."""

    layers: tuple[Layer, ...]
    """As `Layer`, in float32, input first."""
    metadata: Mapping[str, Any]

    @property
    def obs_dim(self) -> int:
        return len(self.layers[0][0])

    @property
    def act_dim(self) -> int:
        return len(self.layers[-1][1])

    def __call__(self, obs: Float[np.ndarray, "*n obs"]) -> Float32[np.ndarray, "*n act"]:
        """Actions for one observation [obs] or a batch [n, obs]."""
        if obs.ndim not in (1, 2) or obs.shape[-1] != self.obs_dim:
            raise InputError(
                f"observation of shape {obs.shape}: this policy reads [{self.obs_dim}] or "
                f"[n, {self.obs_dim}]"
            )
        check_real("observation", obs)
        hidden = obs.astype(np.float32)
        if self.metadata["obs_mean"]:
            hidden = (hidden - np.float32(self.metadata["obs_mean"])) / np.float32(
                self.metadata["obs_std"]
            )
        activation = _ACTIVATIONS[self.metadata["activation"]]
        for weight, bias in self.layers[:-1]:
            hidden = activation(hidden @ weight + bias)
        weight, bias = self.layers[-1]
        output = hidden @ weight + bias
        return np.tanh(output) if self.metadata["output_tanh"] else np.clip(output, -1.0, 1.0)


def export_policy(
    path: str | Path,
    layers: Sequence[Layer],
    *,
    env_id: str,
    spec_hash: str,
    context: Mapping[str, Any],
    activation: str = "relu",
    output_tanh: bool = True,
    obs_mean: Sequence[float] = (),
    obs_std: Sequence[float] = (),
    overwrite: bool = False,
) -> Path:
    """Writes `path` (suffix `.safetensors` added if absent) and the JSON beside it; returns `path`.

    `context` says what the policy was adapted to: source, task, number of transitions, sampling.
    Observations are read as (obs - obs_mean) / obs_std; empty: as they are. Without `output_tanh`
    the output is clipped to [-1, 1].
    """
    path = _tensors_path(path)
    for target in (path, path.with_suffix(".json")):
        if target.exists() and not overwrite:
            raise InputError(f"{target} exists: choose another --out or pass --overwrite")
    arrays = [
        (np.ascontiguousarray(weight, np.float32), np.ascontiguousarray(bias, np.float32))
        for weight, bias in layers
    ]
    tensors = {f"{index}.weight": weight for index, (weight, _) in enumerate(arrays)}
    tensors |= {f"{index}.bias": bias for index, (_, bias) in enumerate(arrays)}
    content = save(tensors)
    metadata = {
        "format": FORMAT,
        "sha256": hashlib.sha256(content).hexdigest(),
        "layers": [list(weight.shape) for weight, _ in arrays],
        "activation": activation,
        "output_tanh": output_tanh,
        "obs_mean": [float(value) for value in obs_mean],
        "obs_std": [float(value) for value in obs_std],
        "env_id": env_id,
        "spec_hash": spec_hash,
        "context": dict(context),
    }
    _check(path, arrays, metadata)
    text = json.dumps(metadata, indent=2, allow_nan=False)
    with atomic_write(path) as file:
        file.write(content)
    with atomic_write(path.with_suffix(".json")) as file:
        file.write(text.encode())
    return path


def load_policy(path: str | Path) -> Policy:
    """The policy in `path`, checked against its JSON: hash, names, shapes, finite numbers."""
    path = _tensors_path(path)
    metadata = _read_metadata(path.with_suffix(".json"))
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != metadata["sha256"]:
        raise InputError(f"{path} does not match the sha256 in its JSON: {FIX}")
    with reading(path, FIX):
        tensors = load(content)
    names = {f"{i}.{part}" for i in range(len(metadata["layers"])) for part in ("weight", "bias")}
    if set(tensors) != names:
        raise InputError(f"{path} holds {sorted(tensors)}, its JSON says {sorted(names)}")
    layers = [
        (tensors[f"{index}.weight"], tensors[f"{index}.bias"])
        for index in range(len(metadata["layers"]))
    ]
    if any(weight.ndim != 2 or bias.ndim != 1 for weight, bias in layers):
        raise InputError(f"{path}: weights must be [in, out] and biases [out]")
    _check(path, layers, metadata)
    return Policy(tuple(layers), metadata)


def _check(path: Path, layers: Sequence[Layer], metadata: Mapping[str, Any]) -> None:
    """One line on the first thing that is wrong with a policy, whether written or read."""
    if not layers:
        raise InputError(f"{path}: a policy needs at least one layer")
    width = None
    for index, (weight, bias) in enumerate(layers):
        chained = width is None or weight.shape[0] == width
        if not chained or weight.shape[1] != len(bias):
            raise InputError(
                f"{path}: layer {index} has weight {weight.shape} and bias {bias.shape}, "
                f"expected [{width or 'in'}, out] and [out]"
            )
        if list(weight.shape) != metadata["layers"][index]:
            raise InputError(
                f"{path}: layer {index} is {list(weight.shape)}, its JSON says "
                f"{metadata['layers'][index]}"
            )
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise InputError(f"{path}: layer {index} must be float32")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise InputError(f"{path}: layer {index} has NaN or infinite numbers")
        width = len(bias)
    if metadata["activation"] not in _ACTIVATIONS:
        raise InputError(
            f"{path}: activation {metadata['activation']!r} is not one of {sorted(_ACTIVATIONS)}"
        )
    sizes = {len(metadata["obs_mean"]), len(metadata["obs_std"])}
    if sizes not in ({0}, {layers[0][0].shape[0]}):
        raise InputError(f"{path}: obs_mean and obs_std need one number per observation entry")
    if not all(np.isfinite(metadata["obs_mean"])) or not all(np.greater(metadata["obs_std"], 0)):
        raise InputError(f"{path}: obs_mean must be finite and obs_std above 0")


def _read_metadata(path: Path) -> dict[str, Any]:
    metadata = read_json(path, FIX)
    from_json(_Metadata, metadata, str(path), FIX)
    if metadata["format"] != FORMAT:
        raise InputError(f"{path} has format {metadata['format']!r}, this version reads {FORMAT!r}")
    return metadata


def _tensors_path(path: str | Path) -> Path:
    path = named(Path(path))
    if path.suffix == ".json":
        tensors = path.with_suffix(".safetensors")
        raise InputError(f"{path}: only describes a policy; give the .safetensors file, {tensors}")
    return path if path.suffix == ".safetensors" else path.with_name(path.name + ".safetensors")
