"""Bundles: what is kept of a trained seed, that it acts as the run does, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from omrl import bundle, bundled, metatrain
from omrl.checkpoint import leaf_names
from omrl.config import to_json
from omrl.deploy import adapt_and_export
from omrl.errors import InputError
from omrl.export import load_policy
from omrl.protocol import AdaptConfig

REAL = bundled.FOLDER / "macaw-cheetah-vel"


@pytest.fixture(scope="module")
def run(cheetah_run):
    return metatrain.load_trained(cheetah_run)


@pytest.fixture
def made(cheetah_run, tmp_path, monkeypatch):
    """A bundle of seed 1, whose kernels alone are large enough for half precision."""
    monkeypatch.setattr(bundle, "LARGE", 15)
    folder = tmp_path / "bundle"
    assert bundle.main([str(cheetah_run), str(folder), "--seed", "1", "--data", "there"]) == 0
    return folder


def test_holds_one_seed_without_its_optimiser(made, run):
    held = metatrain.load_trained(made)
    assert (held.seeds, held.step, held.env) == ([1], 3, run.env)
    assert jax.tree.structure(held.states) == jax.tree.structure(run.states)
    pairs = zip(jax.tree.leaves(held.states), jax.tree.leaves(run.states), strict=True)
    for name, (left, right) in zip(leaf_names(run.states), pairs, strict=True):
        assert left.shape == (1, *right.shape[1:]), name
        assert left.dtype == right.dtype, name
        expected = np.asarray(right[1])
        if name.startswith("opt."):
            expected = np.zeros_like(expected)
        elif name.endswith("kernel"):
            expected = expected.astype(np.float16)
        np.testing.assert_array_equal(left[0], expected.astype(left.dtype), err_msg=name)


def test_the_manifest_says_where_it_is_from(made, run, cheetah_run):
    manifest = bundle.read(made).manifest
    assert manifest.record.data == "there"
    assert manifest.record.data_hash == run.record.data_hash
    assert manifest.record.spec == run.record.spec
    assert manifest.record.run.algo == run.record.run.algo
    assert manifest.commands == (
        "omrl train tiny",
        f"python -m omrl.bundle {cheetah_run} {made} --seed 1 --data there",
    )
    assert ("jax", jax.__version__) in manifest.versions
    assert sorted(path.name for path in made.iterdir()) == ["manifest.json", "weights.npz"]


def test_adapts_like_the_run(made, cheetah_run, cheetah_data, tmp_path):
    config = AdaptConfig(task=7, seed=1, context_size=16)
    obs = np.random.default_rng(0).normal(size=(50, 20))
    actions = []
    for source in (made, cheetah_run):
        out = tmp_path / f"{source.name}-policy"
        trained = metatrain.load_trained(source)
        actions.append(load_policy(adapt_and_export(trained, cheetah_data, out, config))(obs))
    np.testing.assert_allclose(*actions, rtol=0, atol=0.01)  # float16 has three digits
    assert np.ptp(actions[1], axis=0).min() > 0.1


def test_large_numbers_are_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "LARGE", 15)
    meta = jax.tree.map(lambda leaf: 1e6 * leaf, run.states.meta)
    with pytest.raises(InputError, match=r"leaf meta.value.layers\[0\].kernel .* float16"):
        write(tmp_path / "b", run, states=run.states._replace(meta=meta))
    assert not (tmp_path / "b").exists()


def write(folder: Path, run, states=None, seed: int = 0) -> Path:
    states = run.states if states is None else states
    return bundle.write(folder, run.record, states, seed, data="d", commands=(), versions={})


def test_what_cannot_be_written(run, tmp_path):
    with pytest.raises(InputError, match="seed 7: the run has 0, 1"):
        write(tmp_path / "b", run, seed=7)
    with pytest.raises(InputError, match="exists"):
        write(tmp_path, run)


def flip(folder: Path) -> None:
    path = folder / "weights.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rewrite(**changes):
    """Stores other arrays, and hashes that fit them."""

    def edit(folder: Path) -> None:
        held = bundle.read(folder)
        leaves = held.leaves | {name: change(held.leaves[name]) for name, change in changes.items()}
        np.savez(folder / "weights.npz", **leaves)
        records = tuple(bundle._record(name, leaf) for name, leaf in leaves.items())
        write_manifest(folder, dataclasses.replace(held.manifest, leaves=records))

    return edit


def write_manifest(folder: Path, manifest: bundle.Manifest) -> None:
    fields = to_json(manifest) | {"sha256": manifest.hash}
    (folder / "manifest.json").write_text(json.dumps(fields))


def exchange(folder: Path) -> None:
    """Another seed's numbers: valid, but not those of the manifest."""
    leaves = bundle.read(folder).leaves
    np.savez(folder / "weights.npz", **leaves | {"step": leaves["step"] + 1})


def lose(folder: Path) -> None:
    leaves = bundle.read(folder).leaves
    del leaves["meta.adv_coef"]
    np.savez(folder / "weights.npz", **leaves)


def of_other_leaves(folder: Path) -> None:
    manifest = bundle.read(folder).manifest
    algo = dataclasses.replace(manifest.record.run.algo, advantage_head=False)
    run = dataclasses.replace(manifest.record.run, algo=algo)
    record = dataclasses.replace(manifest.record, run=run)
    write_manifest(folder, dataclasses.replace(manifest, record=record))


def edit_text(old: str, new: str):
    def edit(folder: Path) -> None:
        path = folder / "manifest.json"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "damaged"),
        (exchange, "leaf step is damaged"),
        (lose, "leaf meta.adv_coef is missing"),
        (
            rewrite(**{"meta.adv_coef": lambda x: np.full_like(x, np.nan)}),
            "meta.adv_coef has other than finite",
        ),
        (rewrite(**{"meta.adv_coef": lambda x: x[None]}), r"is \(1,\), its config makes \(\)"),
        (of_other_leaves, "other leaves than this version of omrl makes .*head"),
        (lambda folder: (folder / "manifest.json").unlink(), "cannot read"),
        (lambda folder: (folder / "weights.npz").write_bytes(b"text"), "damaged"),
        (edit_text("{", ""), "not JSON"),
        (edit_text('"discount": 0.99', '"discount": NaN'), "NaN is not a JSON number"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "is not an object"),
        (edit_text('"sha256"', '"sha"'), "sha256"),
        (edit_text('"omrl-bundle-1"', '"omrl-bundle-9"'), "omrl-bundle-9"),
        (edit_text('"discount": 0.99', '"discount": 0.98'), "was changed after it was written"),
        (edit_text('"discount": 0.99', '"discount": "x"'), "discount: 'x' is not of type float"),
    ],
)
def test_damage_is_one_clear_line(made, damage, message):
    damage(made)
    with pytest.raises(InputError, match=message) as caught:
        metatrain.load_trained(made)
    assert "\n" not in str(caught.value)


def test_objects_are_never_unpickled(made):
    held = bundle.read(made)
    np.savez(made / "weights.npz", **held.leaves | {"step": np.array([{}], object)})
    with pytest.raises(InputError, match=r"damaged \(Python objects, or no array\)"):
        bundle.read(made)


def test_a_bundle_has_one_step(made):
    assert metatrain.load_trained(made, step=3).step == 3
    with pytest.raises(InputError, match="no checkpoint 2; a bundle has one, 3"):
        metatrain.load_trained(made, step=2)


def test_the_program_reports_errors_in_one_line(tmp_path, capsys):
    assert bundle.main([str(tmp_path), str(tmp_path / "b")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1


# --- By name ---


def test_names_stand_for_folders(stand_ins, cheetah_data):
    assert bundled.names() == ["bundled:cheetah-vel", "bundled:macaw-cheetah-vel"]
    assert bundled.resolve("bundled:cheetah-vel") == stand_ins / "cheetah-vel"
    assert bundled.resolve(Path("bundled:cheetah-vel")) == stand_ins / "cheetah-vel"
    assert bundled.resolve(str(cheetah_data)) == cheetah_data
    assert bundled.label(stand_ins / "cheetah-vel") == "bundled:cheetah-vel"
    assert bundled.label(cheetah_data) == str(cheetah_data)
    with pytest.raises(InputError, match=r"'bundled:cheetah'; did you mean bundled:cheetah-vel"):
        bundled.resolve("bundled:cheetah")


def test_results_name_what_is_bundled_and_no_path(stand_ins):
    trained = metatrain.load_trained("bundled:macaw-cheetah-vel")
    assert trained.source == "bundled:macaw-cheetah-vel"
    assert metatrain.evaluate_trained(trained).provenance.dataset == "bundled:cheetah-vel"


def test_a_copy_without_bundled_files_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    with pytest.raises(InputError, match="came without any"):
        bundled.resolve("bundled:cheetah-vel")


# --- The real one ---


def test_the_bundled_checkpoint_adapts_to_unseen_tasks():
    assert sum(path.stat().st_size for path in REAL.iterdir()) <= 10 * 2**20
    trained = metatrain.load_trained("bundled:macaw-cheetah-vel")
    config = dataclasses.replace(trained.record.run.eval, episodes=1)
    result = metatrain.evaluate_trained(trained, config=config)
    assert result.task_indices.tolist() == [2, 7, 15, 23, 26]
    assert result.shot(0).mean() < -150
    assert result.shot(1).mean() > -50


def test_a_copy_of_the_folder_is_all_it_takes(made, tmp_path):
    shutil.copytree(made, tmp_path / "elsewhere")
    assert metatrain.load_trained(tmp_path / "elsewhere").seeds == [1]
