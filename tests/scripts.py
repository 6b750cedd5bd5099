"""Programs of `benchmarks/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@contextmanager
def benchmark(name: str) -> Iterator[Any]:
    """`benchmarks/NAME.py`; importable, as its dataclasses have to be, until the block ends, as are
    the modules beside it."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))
    del sys.modules[name]
