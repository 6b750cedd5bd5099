"""Options of the compiler: less work for a program that is called a few times, the same numbers."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl import compiling

FOLDER = "jax_compilation_cache_dir"


def test_few_updates_are_compiled_briefly_on_a_cpu():
    assert compiling.of_training("cpu", compiling.FEW_UPDATES) == compiling.briefly("cpu")
    assert compiling.briefly("cpu")["xla_backend_optimization_level"] == 0
    assert compiling.of_training("cpu", compiling.FEW_UPDATES + 1) == {}


@pytest.mark.parametrize("num_updates", [1, 60_000])
def test_a_gpu_compiles_as_always(num_updates):
    options = compiling.of_training("gpu", num_updates)
    assert options == {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    assert compiling.briefly("gpu") == {}


def test_an_option_that_this_jaxlib_lacks_is_left_out(monkeypatch):
    wanted = {"xla_cpu_no_such_option": True, "xla_backend_optimization_level": 0}
    monkeypatch.setattr(compiling, "_BRIEF", wanted)
    compiling.briefly.cache_clear()
    try:
        assert compiling.briefly("cpu") == {"xla_backend_optimization_level": 0}
    finally:
        compiling.briefly.cache_clear()


def test_the_function_is_jitted_once_and_gives_what_it_says():
    traced = []

    def scaled(factor: int, x: jax.Array) -> jax.Array:
        """Of x."""
        traced.append(factor)
        return factor * jnp.sin(x)

    jitted = compiling.jit_briefly(static_argnums=0)(scaled)
    assert jitted.__doc__ == "Of x."
    x = jnp.linspace(0, 1, 5)
    for factor in (2, 2, 3):
        np.testing.assert_allclose(jitted(factor, x), factor * np.sin(x), rtol=1e-6)
    assert traced == [2, 3]


def test_equal_programs_of_unlike_functions_are_compiled_once():
    hits = []
    jax.monitoring.register_event_listener(lambda event, **_: hits.append("cache_hits" in event))
    folder = getattr(jax.config, FOLDER)
    jax.config.update(FOLDER, None)
    try:
        with compiling.programs_kept(seconds=0.0):
            kept = getattr(jax.config, FOLDER)
            assert kept
            found = [jax.jit(lambda x: jnp.cos(x) ** 3)(0.5) for _ in range(2)]
        assert sum(hits) >= 1
        np.testing.assert_array_equal(found[0], found[1])
        assert not Path(kept).exists()
        assert getattr(jax.config, FOLDER) is None
    finally:
        jax.config.update(FOLDER, folder)


def test_a_cache_that_jax_has_already_stays():
    folder = getattr(jax.config, FOLDER)
    assert folder, "tests/conftest.py has one"
    with compiling.programs_kept():
        assert getattr(jax.config, FOLDER) == folder
