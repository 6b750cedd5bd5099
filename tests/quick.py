"""`jax.jit` for tests that compile more than they run: a quarter of the time to compile."""

from __future__ import annotations

from functools import partial

import jax

quick_jit = partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
    },
)
"""Results differ from those of `jax.jit` by rounding: not for tests of equal bits."""
