"""Strictness for every test: no silent broadcasting, checked types, one compile cache."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# On a machine with a GPU too: exact numbers and the absence of a GPU are tested.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("MUJOCO_GL", "disable")
# Tests compile more than they compute; this halves the time. One module per program takes a
# tenth less where every worker has one core. Without the emitters, what is fused decides where a
# product and a sum become one instruction, so that an update in two programs would differ in its
# last bit: AVX has no such instruction. The pinned jaxlib has these flags and ends at unknown ones.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_max_isa=AVX "
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import typed

typed.install()

import jax
import pytest

import tiny_cheetah
from omrl import bundle, bundled, metatrain

jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items):
    """Files with the most slow tests first, so that no worker is left with one at the end."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish():
    """What was imported and collected stays: the garbage collector need not look at it again. What
    tracing leaves comes in thousands, and every collection is one of XLA's as well."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture
def getkey():
    """A function that returns a fresh key at every call."""
    counter = itertools.count()
    return lambda: jax.random.fold_in(jax.random.PRNGKey(0), next(counter))


@pytest.fixture
def x64():
    """64-bit arrays, for comparisons that rounding would blur."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def own_programs():
    """For modules whose many compiled programs no other module runs: gives back their memory."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def cheetah_data(tmp_path_factory) -> Path:
    """A tiny dataset of Cheetah-Velocity; not to be changed."""
    return tiny_cheetah.write_data(tmp_path_factory.mktemp("data") / "cheetah").path


@pytest.fixture(scope="session")
def cheetah_run(tmp_path_factory, cheetah_data) -> Path:
    """The run folder of a tiny meta-training on `cheetah_data`, of seeds 0 and 1; not to be
    changed."""
    path = tmp_path_factory.mktemp("run") / "cheetah"
    metatrain.start(
        tiny_cheetah.config(), cheetah_data, path, command="omrl train tiny", quiet=True
    )
    return path


@pytest.fixture(scope="session")
def stand_in_files(tmp_path_factory, cheetah_data, cheetah_run) -> Path:
    """Tiny files for `bundled.FOLDER`; not to be changed."""
    folder = tmp_path_factory.mktemp("stand-ins") / "bundled"
    trained = metatrain.load_trained(cheetah_run)
    bundle.write(
        folder / "macaw-cheetah-vel",
        trained.record,
        trained.states,
        seed=0,
        data="bundled:cheetah-vel",
        commands=("omrl train tiny",),
        versions={"jax": jax.__version__},
    )
    shutil.copytree(cheetah_data, folder / "cheetah-vel")
    return folder


@pytest.fixture
def stand_ins(stand_in_files, tmp_path, monkeypatch) -> Path:
    """The folder of what is bundled, with tiny files in place of the real ones."""
    folder = shutil.copytree(stand_in_files, tmp_path / "bundled")
    monkeypatch.setattr(bundled, "FOLDER", folder)
    return folder
