"""Tables of the documentation."""

from collections.abc import Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; empty cells for None."""
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [["" if cell is None else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
