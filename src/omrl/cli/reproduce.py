"""`omrl reproduce ID`: an experiment of the papers, from data to figure."""

from __future__ import annotations

from collections.abc import Sequence

from omrl.errors import InputError


def main(arguments: Sequence[str], command: str) -> None:
    raise InputError(
        "no experiment can be reproduced by name yet; results/README.md has the commands of the "
        "published runs"
    )
