"""Which operations take the time of a MACAW meta-step?

    python benchmarks/macaw_profile.py [--seeds N]

Runs the benchmark's program under JAX's profiler and prints the operations by their total time per
meta-step, with how often each runs. On a GPU these are kernels; on a CPU, XLA's thunks.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import re
import tempfile
from pathlib import Path

import jax

from omrl.bench import CONFIG, Chunks

STEPS = 20
HOST = re.compile(r"^\$|ThunkExecutor|Execute|PjitFunction|wait|end: |block_until_ready|trace")
"""Events of the host program, which contain the operations."""


def profile(seeds: int) -> list[tuple[str, float, float]]:
    """(operation, milliseconds, times) per meta-step, the longest first."""
    chunks = Chunks(CONFIG, jax.devices()[:1], seeds)
    chunks.measure(0)
    chunks.measure(STEPS)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            chunks.measure(STEPS)
        (file,) = Path(folder).rglob("perfetto_trace.json.gz")
        with gzip.open(file) as stream:
            trace = json.load(stream)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    time, count = collections.Counter(), collections.Counter()
    for event in events:
        if event.get("ph") == "X" and not HOST.search(event["name"]):
            time[event["name"]] += event["dur"] / 1e3 / STEPS
            count[event["name"]] += 1 / STEPS
    return [(name, spent, count[name]) for name, spent in time.most_common()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=60)
    arguments = parser.parse_args()
    rows = profile(arguments.seeds)
    total, launches = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{jax.devices()[0].device_kind}, {arguments.seeds} seed(s):", end=" ")
    print(f"{total:.3f} ms in {launches:.0f} operations per meta-step")
    for name, spent, times in rows[: arguments.rows]:
        print(f"{spent:8.4f} ms  x{times:5.1f}  {name[:110]}")


if __name__ == "__main__":
    main()
