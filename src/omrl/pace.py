"""How long a chunk of updates is, so that what happens between chunks is not kept waiting."""

from __future__ import annotations

from dataclasses import dataclass

from omrl.chunk import MAX_UPDATES

CHUNK_SECONDS = 1.5
"""Aim for the length of a chunk: a signal waits at most about this long."""


@dataclass
class Pace:
    """How many updates fit into a chunk; they change its length, never a result."""

    length: int = 1

    def measured(self, num_updates: int, seconds: float) -> None:
        """Approaches `CHUNK_SECONDS`, carefully: short chunks measure mostly their overhead."""
        fitting = int(num_updates * CHUNK_SECONDS / seconds)
        self.length = max(1, min(fitting, 4 * self.length, MAX_UPDATES))
