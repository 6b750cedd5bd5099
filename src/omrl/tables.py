"""How tables and the parameters of tasks are shown to a person, wherever they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

MOST_PARAMETERS = 4
"""A task with more, as one with random dynamics, shows three of them and how many there are."""


def print_grid(grid: Table) -> None:
    """Prints a table whole. A terminal that is too narrow wraps lines; rich would cut numbers."""
    from rich.measure import Measurement

    from omrl.console import Console

    unlimited = Console(width=10_000)
    needed = Measurement.get(unlimited, unlimited.options, grid).maximum
    Console(markup=False, highlight=False, width=max(Console().width, needed)).print(grid)


def print_lines(title: str, lines: Sequence[str]) -> None:
    """Prints lines as they are below a title, if there is one; a terminal wraps them."""
    from omrl.console import Console

    console = Console(markup=False, highlight=False, soft_wrap=True)
    for line in [title, *lines] if title else lines:
        console.print(line)


def print_rows(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    summary: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> None:
    """A table with a summary below its rows, then notes; Markdown where the output is no
    terminal."""
    from omrl.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        _print_ruled(header, rows, summary)
    else:
        text = markdown(header, [*rows, *summary])
        console.print(text, markup=False, soft_wrap=True)
    for line in ["", *notes]:
        console.print(line, markup=False, soft_wrap=True)


def _print_ruled(
    header: Sequence[str], rows: Sequence[Sequence[str]], summary: Sequence[Sequence[str]]
) -> None:
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD)
    for name in header:
        grid.add_column(name.replace("_", "\n"), justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    grid.add_section()
    for number, row in enumerate(summary):
        grid.add_row(*row, style="bold" if number == 0 else None)
    print_grid(grid)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of texts, the first column to the left and numbers to the right."""
    from rich.table import Table

    table = Table()
    for number, title in enumerate(header):
        table.add_column(title, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    print_grid(table)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = [f"{'-' * (width - 1)}:" for width in widths]
    lines = [
        " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (header, rule, *rows)
    ]
    return "\n".join(f"| {line} |" for line in lines)


def parameter_names(names: Sequence[str]) -> list[str]:
    """Titles of the columns of a task's parameters."""
    return list(names) if len(names) <= MOST_PARAMETERS else [f"{len(names)} parameters"]


def parameter_cells(values: Sequence[float]) -> list[str]:
    """What stands below `parameter_names`."""
    if len(values) <= MOST_PARAMETERS:
        return [f"{value:.4g}" for value in values]
    return [", ".join(f"{value:.4g}" for value in values[:3]) + f", … {len(values) - 3} more"]
