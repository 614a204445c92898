"""Predict published runs and lay the predictions beside the published step times.

python benchmarks/known_runs.py            prints the table
python benchmarks/known_runs.py --write    also writes benchmarks/known-runs.md
"""

import csv
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from meshwright import __version__, api
from meshwright.units import GIB

FOLDER = Path(__file__).parent / "known-runs"


@dataclass(frozen=True)
class Row:
    """One run: published and predicted. ``bound`` is the largest error allowed, None without a bound."""

    run: str
    published_s: float
    predicted_s: float
    memory_gib: float
    capacity_gib: float
    fits: bool
    bound: float | None
    source: str
    note: str

    @property
    def error(self) -> float:
        """Predicted over published, minus one."""
        return self.predicted_s / self.published_s - 1


def rows() -> list[Row]:
    """Predict every run of ``benchmarks/known-runs/runs.csv``."""
    with (FOLDER / "runs.csv").open(encoding="utf-8") as lines:
        return [_row(line) for line in csv.DictReader(lines)]


def _row(line: dict[str, str]) -> Row:
    report = api.predict(FOLDER / line["plan"])
    memory = report.memory_bytes
    return Row(
        run=line["run"],
        published_s=float(line["published_step_s"]),
        predicted_s=report.step_time_s,
        memory_gib=memory["total"] / GIB,
        capacity_gib=memory["capacity"] / GIB,
        fits=report.fits,
        bound=float(line["bound"]) if line["bound"] else None,
        source=line["source"],
        note=line["note"],
    )


def table(found: list[Row]) -> str:
    """The table in Markdown."""
    lines = [
        "| run | published s | predicted s | error | bound | memory GiB | fits | source | remarks |",
        "|---|--:|--:|--:|--:|--:|---|---|---|",
    ]
    for row in found:
        bound = "none" if row.bound is None else f"{row.bound:.0%}"
        lines.append(
            f"| {row.run} | {row.published_s:.2f} | {row.predicted_s:.2f} | {row.error:+.1%} | {bound} "
            f"| {row.memory_gib:.1f} of {row.capacity_gib:.1f} | {'yes' if row.fits else 'no'} "
            f"| {row.source} | {row.note} |"
        )
    return "\n".join(lines)


def page(found: list[Row]) -> str:
    """The page that is kept under ``benchmarks/``."""
    bounded = [abs(row.error) for row in found if row.bound is not None]
    unfit = [row.run for row in found if not row.fits]
    return f"""# Known runs

Step times that were published, and what `meshwright predict` says of the same plans (`known-runs/*.yaml`). Predicted
by version {__version__} on {date.today().isoformat()}; nothing here was run by us. Global constants of the cost model
were fitted on published runs that include the sources of the first ten rows, so those are no blind test; the last two
were not used. Made by `python benchmarks/known_runs.py --write`.

{table(found)}

Rows with a bound: mean |error| {sum(bounded) / len(bounded):.1%}, largest {max(bounded):.1%}.
Do not fit by our ledger: {", ".join(unfit) or "none"}.
"""


if __name__ == "__main__":
    results = rows()
    print(table(results))
    if "--write" in sys.argv:
        (Path(__file__).parent / "known-runs.md").write_text(page(results), encoding="utf-8")
