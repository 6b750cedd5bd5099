"""What XLA is told of the programs that it compiles.

On a CPU it takes longer over a program than a short run takes over all of its updates. So what is
called a few times is compiled without most of its optimisations there. And where many runs are made
in one process, what they have in common is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

_TRAINING: dict[str, dict[str, Any]] = {
    "gpu": {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
}
"""By platform. Kernels that do not need each other's results run at the same time; XLA's default is
one after the other, and an update of small networks is hundreds of kernels that fill no GPU."""

_BRIEF: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
}

_KEPT_SECONDS = 0.1
"""Programs that took as long to compile are worth reading back."""

FEW_UPDATES = 200
"""Of a stage for which a CPU's optimisations take longer than they save."""

Result = TypeVar("Result")


def of_training(platform: str, num_updates: int) -> dict[str, Any]:
    """Options for the program of a stage of so many updates."""
    brief = briefly(platform) if num_updates <= FEW_UPDATES else {}
    return {**_TRAINING.get(platform, {}), **brief}


@cache
def briefly(platform: str) -> dict[str, Any]:
    """Options for a program that is called a few times; none but on a CPU."""
    if platform != "cpu":
        return {}
    return {name: value for name, value in _BRIEF.items() if _is_known(name, value)}


def jit_briefly(**options: Any) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """`jax.jit` with `options`, of a function that is called a few times, and in no other jitted
    one."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @cache
        def jitted(platform: str) -> Callable[..., Result]:
            return jax.jit(function, compiler_options=briefly(platform), **options)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Result:
            # Asked for at the call: an import must not start JAX's devices.
            return jitted(jax.default_backend())(*args, **kwargs)

        return call

    return decorate


@contextmanager
def programs_kept(seconds: float = _KEPT_SECONDS) -> Iterator[None]:
    """Compiles no program twice that takes so long, unless JAX has a cache of its own already.

    To `jax.jit` a function under other settings is another function, also where all of its program
    is the same, as of many runs in one experiment. Here programs are compared, in a folder that is
    gone in the end.
    """
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    if before[0]:
        yield
        return
    with TemporaryDirectory(prefix="omrl-programs-") as folder:
        for name, value in zip(names, (folder, seconds), strict=True):
            jax.config.update(name, value)
        reset_cache()  # JAX looks for a folder once.
        try:
            yield
        finally:
            for name, value in zip(names, before, strict=True):
                jax.config.update(name, value)
            reset_cache()


def _is_known(name: str, value: Any) -> bool:
    """Whether this jaxlib has the option: XLA's come and go."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
