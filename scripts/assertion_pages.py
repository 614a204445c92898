"""Generated parts of docs/framework-assertions.md: the frameworks' assertions and our answers."""

import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_table import table

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from assertion_table.answers import (
    ANSWERS,
    NOT_ABOUT_PLANS,
    NOT_READ,
    RULE,
    TARGETS,
    AnsweredAssertion,
    counts,
    read_answers,
)

RELEASES = {
    "megatron": "megatron-core 0.19.2",
    "torchtitan": "torchtitan 0.3.0",
    "deepspeed": "DeepSpeed 0.19.8",
    "accelerate": "Accelerate 1.15.0",
}
HEADINGS = {
    RULE: ("answered by a rule", "named as"),
    NOT_READ: ("about plans, and not read", "why"),
    NOT_ABOUT_PLANS: ("not about plans", "about"),
}


def assertion_counts() -> str:
    """Return the table of counts by target and answer."""
    found = counts()
    rows = ((RELEASES[target], *(found[target][answer] for answer in ANSWERS)) for target in TARGETS)
    total = ("**all**", *(sum(count[answer] for count in found.values()) for answer in ANSWERS))
    return table(("release", "a rule", "not about plans", "not read"), (*rows, total))


def assertion_tables() -> str:
    """Return the tables of all assertions, by target and answer."""
    return "\n".join(part for target in TARGETS for part in _parts(target))


def _parts(target: str) -> Iterator[str]:
    rows = read_answers(target)
    for answer, (heading, last) in HEADINGS.items():
        chosen = [row for row in rows if row.answer == answer]
        yield f"## {RELEASES[target]}: {heading}\n"
        yield table(("requires", "where", "file", last), map(_cells, chosen))


def _cells(row: AnsweredAssertion) -> tuple[str, ...]:
    return f"`{row.requires}`", f"`{row.where}`" if row.where else "", row.file.rpartition("/")[2], row.reason
