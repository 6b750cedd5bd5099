"""An exported policy computes what was exported, without JAX, and damage is refused."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos.macaw import Macaw
from omrl.algos.macaw_config import MacawConfig
from omrl.errors import InputError
from omrl.export import export_policy, load_policy
from omrl.types import Batch, Spec

PROVENANCE = {
    "env_id": "point-robot/oyster-v1",
    "spec_hash": "0" * 64,
    "context": {"source": "data/point-robot", "task": 3, "size": 256, "seed": 0},
}
# relu([1, -2] @ [[1, -1], [0, 2]] + [0, 1]) = relu([1, -1 - 4 + 1]) = [1, 0]; 2 * 1 + 0 * 3 - 1 = 1
LAYERS = [
    (np.array([[1.0, -1.0], [0.0, 2.0]]), np.array([0.0, 1.0])),
    (np.array([[2.0], [3.0]]), np.array([-1.0])),
]


def test_policy_is_literal_for_one_and_for_many(tmp_path):
    policy = load_policy(export_policy(tmp_path / "p", LAYERS, **PROVENANCE))
    expected = np.tanh(1.0)
    assert policy(np.array([1.0, -2.0])) == pytest.approx([expected])
    batch = policy(np.array([[1.0, -2.0], [0.0, 0.0]]))  # second: relu([0, 1]) = [0, 1]; 3 - 1 = 2
    assert batch.shape == (2, 1)
    assert batch.dtype == np.float32
    assert batch[:, 0] == pytest.approx([expected, np.tanh(2.0)])
    assert (policy.obs_dim, policy.act_dim) == (2, 1)


def test_normalisation_activation_and_clipping(tmp_path):
    path = export_policy(
        tmp_path / "p",
        LAYERS,
        activation="tanh",
        output_tanh=False,
        obs_mean=[1.0, 0.0],
        obs_std=[2.0, 4.0],
        **PROVENANCE,
    )
    policy = load_policy(path)
    # ([3, 4] - [1, 0]) / [2, 4] = [1, 1]; tanh([1, 2]) = [.76, .96]; 2 * .76 + 3 * .96 - 1 > 1
    assert policy(np.array([3.0, 4.0])) == pytest.approx([1.0])
    # [1, -1.6] -> [0, -.4]; tanh([0, .2]) = [0, .19738]; 3 * .19738 - 1 = -.40787
    assert policy(np.array([1.0, -1.6])) == pytest.approx([-0.40787], abs=1e-5)


def test_equals_the_same_network_in_jax(tmp_path):
    rng = np.random.default_rng(0)
    sizes = (20, 32, 32, 6)
    layers = [
        (rng.normal(size=(i, o)) / np.sqrt(i), rng.normal(size=o))
        for i, o in itertools.pairwise(sizes)
    ]
    policy = load_policy(export_policy(tmp_path / "p", layers, **PROVENANCE))
    obs = rng.normal(size=(7, 20))

    def network(hidden):
        for weight, bias in layers[:-1]:
            hidden = jax.nn.relu(hidden @ jnp.asarray(weight) + jnp.asarray(bias))
        return jnp.tanh(hidden @ jnp.asarray(layers[-1][0]) + jnp.asarray(layers[-1][1]))

    expected = jax.vmap(network)(jnp.asarray(obs))
    assert policy(obs) == pytest.approx(np.asarray(expected), abs=1e-5)


def test_an_adapted_macaw_policy_acts_as_exported(tmp_path, getkey):
    spec = Spec(3, 2, 4, 10, obs_mean=(0.1, -0.2, 0.3), obs_std=(0.5, 1.0, 2.0))
    algorithm = Macaw(MacawConfig(hidden=(8, 8), latent=4, normalize_obs=True), spec)
    state = algorithm.init(getkey())
    obs = jax.random.normal(getkey(), (6, 3))
    support = Batch(
        obs=obs,
        action=jnp.zeros((6, 2)),
        reward=jnp.ones(6),
        next_obs=obs,
        terminated=jnp.zeros(6, bool),
        mc_return=jnp.arange(6.0),
        terminal_obs=obs,
        terminal_discount=jnp.ones(6),
    )
    task = algorithm.adapt(state, algorithm.begin(state, getkey()), support, getkey())
    trunk = algorithm.policy(state, task).trunk
    path = export_policy(
        tmp_path / "p",
        [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in trunk],
        obs_mean=spec.obs_mean,
        obs_std=spec.obs_std,
        **PROVENANCE,
    )
    act = partial(algorithm.act, state, task, key=getkey(), deterministic=True)
    expected = jax.vmap(lambda row: act(obs=row))(obs)
    assert load_policy(path)(np.asarray(obs)) == pytest.approx(np.asarray(expected), abs=1e-6)


def test_loads_without_jax_and_also_without_omrl(tmp_path):
    path = export_policy(tmp_path / "policy.safetensors", LAYERS, **PROVENANCE)
    program = f"""
import sys
import numpy as np
from omrl.export import load_policy
policy = load_policy({str(path)!r})
action = policy(np.array([1.0, -2.0]))
assert not {{"jax", "mujoco", "scipy"}} & set(sys.modules), sorted(sys.modules)
from safetensors.numpy import load_file
tensors = load_file({str(path)!r})
hidden = np.maximum(np.float32([1, -2]) @ tensors["0.weight"] + tensors["0.bias"], 0)
assert np.allclose(np.tanh(hidden @ tensors["1.weight"] + tensors["1.bias"]), action)
print(action[0])
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(result.stdout) == pytest.approx(np.tanh(1.0))


def test_the_program_on_the_page_gives_the_same_action(tmp_path, monkeypatch):
    page = Path(__file__).parents[1] / "docs" / "evaluation.md"
    (program,) = re.findall(r"```python\n(import json\n.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    observation = np.float32([1.0, -2.0])
    for scales in ({}, {"obs_mean": [0.5, -1.0], "obs_std": [2.0, 0.1]}):
        path = export_policy(Path("policy.safetensors"), LAYERS, **PROVENANCE, **scales)
        names = {"observation": observation}
        exec(compile(program, "evaluation.md", "exec"), names)
        np.testing.assert_allclose(names["action"], load_policy(path)(observation), atol=1e-6)
        path.unlink()
        path.with_suffix(".json").unlink()


def test_metadata_says_what_it_is(tmp_path):
    path = export_policy(tmp_path / "p", LAYERS, **PROVENANCE)
    metadata = json.loads(path.with_suffix(".json").read_text())
    assert metadata["layers"] == [[2, 2], [2, 1]]
    assert {key: metadata[key] for key in PROVENANCE} == PROVENANCE
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.json", "p.safetensors"]


def damage_tensors(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def edit_json(**changes):
    def edit(path: Path) -> None:
        sidecar = path.with_suffix(".json")
        sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | changes))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_tensors, "does not match the sha256"),
        (lambda path: path.unlink(), "cannot read"),
        (lambda path: path.with_suffix(".json").write_text("{"), "not JSON"),
        (lambda path: path.with_suffix(".json").write_text("[]"), "is not an object"),
        (edit_json(format="omrl-policy-9"), "omrl-policy-9"),
        (edit_json(layers=[[2, 2]]), "its JSON says"),
        (edit_json(layers=[[2, 2], [2, 3]]), "layer 1 is"),
        (edit_json(activation="eval"), "not one of"),
        (edit_json(layers=None), r"json\.layers: None is not a list; export"),
        (edit_json(obs_mean=["one", "two"]), r"obs_mean\[0\]: 'one' is not of type float"),
        (edit_json(obs_mean=[1.0]), "one number per observation"),
        (edit_json(obs_mean=[1.0, 1.0], obs_std=[1.0, 0.0]), "above 0"),
    ],
)
def test_damage_is_one_clear_line(tmp_path, damage, message):
    path = export_policy(tmp_path / "p", LAYERS, **PROVENANCE)
    damage(path)
    with pytest.raises(InputError, match=message) as caught:
        load_policy(path)
    assert "\n" not in str(caught.value)


def test_the_json_is_not_the_policy(tmp_path):
    export_policy(tmp_path / "p", LAYERS, **PROVENANCE)
    expected = r"p\.json: only describes a policy; give the \.safetensors file, .*p\.safetensors"
    with pytest.raises(InputError, match=expected):
        load_policy(str(tmp_path / "p.json"))
    with pytest.raises(InputError, match=expected):
        export_policy(tmp_path / "p.json", LAYERS, overwrite=True, **PROVENANCE)


def test_wrong_layers_are_refused_and_leave_nothing(tmp_path):
    swapped = [LAYERS[1], LAYERS[0]]
    with pytest.raises(InputError, match="layer 1"):
        export_policy(tmp_path / "p", swapped, **PROVENANCE)
    with pytest.raises(InputError, match="NaN"):
        export_policy(tmp_path / "p", [(np.full((2, 1), np.nan), np.zeros(1))], **PROVENANCE)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept(tmp_path):
    path = export_policy(tmp_path / "p", LAYERS, **PROVENANCE)
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists"):
        export_policy(tmp_path / "p", LAYERS[:1], **PROVENANCE)
    assert path.read_bytes() == before
    export_policy(tmp_path / "p", LAYERS[:1], overwrite=True, **PROVENANCE)
    assert load_policy(path).act_dim == 2


def test_wrong_observation_shape_is_refused(tmp_path):
    policy = load_policy(export_policy(tmp_path / "p", LAYERS, **PROVENANCE))
    with pytest.raises(InputError, match=r"reads \[2\] or \[n, 2\]"):
        policy(np.zeros(3))
