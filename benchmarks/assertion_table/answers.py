"""Our answers to the frameworks' assertions: one CSV for each target, held against the sources.

answer      rule: ``check`` refuses what breaks it; not about plans: no parallelism, memory or batch;
            not read: it is about plans, and ``check`` cannot tell
reason      the field or rule that answers it, or why none does
base        for a rule: the configuration of ``bases.yaml`` that the pair changes
breaks      changes that break the assertion, as ``key=value`` words; ``no:key`` takes a key out
holds       changes that keep to it
expected    regular expression that an error of the breaking configuration matches
"""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from assertion_table.extraction import Assertion

HERE = Path(__file__).parent
TARGETS = ("megatron", "torchtitan", "deepspeed", "accelerate")
RULE, NOT_ABOUT_PLANS, NOT_READ = "rule", "not about plans", "not read"
ANSWERS = (RULE, NOT_ABOUT_PLANS, NOT_READ)


@dataclass(frozen=True, slots=True)
class AnsweredAssertion:
    """A row of a target's table."""

    key: str
    file: str
    function: str
    requires: str
    where: str
    answer: str = ""
    reason: str = ""
    base: str = ""
    breaks: str = ""
    holds: str = ""
    expected: str = ""


COLUMNS = tuple(field.name for field in fields(AnsweredAssertion))


def read_answers(target: str) -> list[AnsweredAssertion]:
    """Return the table of a target; empty where there is none."""
    path = HERE / f"{target}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return [AnsweredAssertion(**row) for row in csv.DictReader(lines)]


def write_answers(target: str, rows: Iterable[AnsweredAssertion]) -> None:
    """Write the table of a target."""
    with (HERE / f"{target}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def merged(found: Sequence[Assertion], rows: Sequence[AnsweredAssertion]) -> list[AnsweredAssertion]:
    """Return the assertions in the order of the sources, each with its answer or an empty one."""
    answered = {row.key: row for row in rows}
    kept = []
    for assertion in found:
        own = asdict(assertion)
        row = answered.get(assertion.key)
        kept.append(AnsweredAssertion(**(asdict(row) | own if row else own)))
    return kept


def differences(found: Sequence[Assertion], rows: Sequence[AnsweredAssertion]) -> list[str]:
    """Return a line for each assertion without an answer, and for each answer without its assertion."""
    answered = {row.key for row in rows if row.answer}
    present = {assertion.key for assertion in found}
    lines = [f"no answer: {described(assertion)}" for assertion in found if assertion.key not in answered]
    return lines + [f"no such assertion any more: {described(row)}" for row in rows if row.key not in present]


def described(row: Assertion | AnsweredAssertion) -> str:
    """Return an assertion in a line."""
    condition = f" (where {row.where})" if row.where else ""
    return f"{row.key} {row.file} {row.function}: {row.requires}{condition}"


def counts() -> Mapping[str, Counter[str]]:
    """Return by target how many assertions have each answer."""
    return {target: Counter(row.answer for row in read_answers(target)) for target in TARGETS}
