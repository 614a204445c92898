"""Pipeline schedules beside what was published of them, beside measured runs, and how fast they are made.

    python benchmarks/schedules.py                     prints what needs no table of runs
    python benchmarks/schedules.py RUNS.csv            prints the page
    python benchmarks/schedules.py RUNS.csv --write    also writes benchmarks/schedules.md

The table of runs is not part of the repository; the page names where each of them was published. Measured passes of
one-host runs are (``tests/schedules/vocabulary/vocabulary_passes.csv``). Takes about four minutes.
"""

import os
import platform
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from schedule_page import (
    published,
    vocabulary_memory,
    vocabulary_passes,
    vocabulary_runs,
    zero_bubble_memory,
    zero_bubble_runs,
)
from schedule_page.section import Section, filled, page_of
from schedule_page.speed import speed
from schedule_page.units import trade_off

from meshwright import __version__


def by_itself() -> Iterator[Section]:
    """What is published of schedules, and what they take to be made."""
    yield published.makespans()
    yield published.zb_v()
    yield published.forms()
    yield trade_off()
    yield speed()
    yield vocabulary_passes.iterations()


def of_runs(path: str) -> Iterator[Section]:
    """What the measured runs of a table say."""
    groups, others = zero_bubble_runs.profiled_runs(path)
    yield zero_bubble_runs.step_times(groups)
    yield zero_bubble_runs.order(groups, others)
    yield zero_bubble_memory.predicted(groups)
    yield zero_bubble_memory.of_lists(groups)
    placed = vocabulary_runs.groups_of(path)
    yield vocabulary_runs.times(placed)
    yield vocabulary_memory.predicted(placed)
    yield vocabulary_memory.in_flight(placed)


def page(sections: list[Section]) -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    head = f"""\
The lists of `meshwright schedule` beside published figures and measured runs, by version {__version__} on
{date.today().isoformat()} ({machine}). Made by `python benchmarks/schedules.py RUNS.csv --write`; the table of runs,
put together from the papers named below, is not part of the repository.

Where figures come from: *published*, by the authors of a schedule; *played*, our lists on a virtual clock, which is
simulated; *counted*, in our lists; *predicted*, by the cost model; *measured*, seconds and bytes that others
measured on their devices and published. Nothing was run on accelerators by us; of our own measurements there are
only the CPU seconds under *Speed*.

Orders are compared within a group of runs of which only the schedule, or the place of the vocabulary, differs. *Pairs*:
those in the right order of those whose measured times differ by more than 5 %. *Regret*: what the predicted best of a
group takes beyond the measured best."""
    return f"# Schedules\n\n{filled(head)}\n\n{page_of(sections)}"


def main(arguments: list[str]) -> None:
    """Print the page, and write it where asked."""
    paths = [word for word in arguments if not word.startswith("--")]
    sections = [*by_itself(), *(section for path in paths[:1] for section in of_runs(path))]
    text = page(sections)
    print(text)
    if "--write" in arguments:
        assert paths, "a page without measured runs is not kept: name a table of runs"
        (Path(__file__).parent / "schedules.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
