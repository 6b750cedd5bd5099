"""Draws the picture of the README from an evaluation with the trace `x_velocity`.

omrl demo
python benchmarks/readme_figure.py runs/demo/eval/bundled/*.npz docs/img/cheetah-vel.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from omrl.figures import speed_over_time
from omrl.results import EvalResult


def main(result: str, picture: str) -> None:
    path = Path(picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(speed_over_time(EvalResult.load(result), png=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
