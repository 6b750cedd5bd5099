"""Strictness for every test: no silent broadcasting, checked types, one compile cache."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MUJOCO_GL", "disable")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

from jaxtyping import install_import_hook

install_import_hook("omrl", "beartype.beartype")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

SHARED = ROOT.parent / "shared"


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


@pytest.fixture
def shared() -> Path:
    """The folder with papers and reference data beside the repository; absent in most clones."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared (papers and reference data), which is not beside this clone")
    return SHARED
