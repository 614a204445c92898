"""Check configurations that were published: faults that people met, and runs that work.

    python benchmarks/check.py            prints the tables
    python benchmarks/check.py --write    also writes benchmarks/check.md

Exits with 1 where fewer than 18 of the 20 faults are named, a configuration that runs is refused, or a pair of
``assertion_table`` does not show its framework's assertion.

Each line of ``benchmarks/check/cases.csv`` is one file with the model and the cluster that it was for. Of a faulty
one the fault counts as named where a problem matches ``expected``; of a good one every error is a false alarm.
"""

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from assertion_table.section import CheckedPair, checked_pairs, failures, section

from meshwright import __version__
from meshwright.errors import InputError, Problem
from meshwright.verbs.check import check_text
from meshwright.verbs.import_ import ImportRequest

FOLDER = Path(__file__).parent / "check"
NAMED_AT_LEAST = 18
"""Faults of twenty that are to be named; false alarms are to be none."""


@dataclass(frozen=True, slots=True)
class Case:
    """A published configuration: ``fault`` and ``expected`` are empty for a good one."""

    file: str
    format: str
    model: str
    cluster: str
    seq_len: str
    global_batch: str
    kind: str
    fault: str
    expected: str
    source: str
    remark: str

    @property
    def wanted(self) -> ImportRequest:
        """What stands beside the file."""
        model = str(FOLDER / self.model) if self.model.endswith(".json") else self.model
        numbers = (int(text) if text else None for text in (self.seq_len, self.global_batch))
        seq_len, global_batch = numbers
        return ImportRequest(model=model, on=self.cluster, seq_len=seq_len, global_batch=global_batch)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``check`` says of a case."""

    case: Case
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that stop a run."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems that do not."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    @property
    def naming(self) -> Problem | None:
        """The problem that names the fault, an error before a warning."""
        if not self.case.expected:
            return None
        found = re.compile(self.case.expected)
        told = (problem for problem in (*self.errors, *self.warnings) if found.search(_text(problem)))
        return next(told, None)


def cases() -> list[Case]:
    """Every line of ``benchmarks/check/cases.csv``."""
    with (FOLDER / "cases.csv").open(encoding="utf-8") as lines:
        return [Case(**line) for line in csv.DictReader(lines)]


def judged(case: Case) -> Verdict:
    """Check one case; what a file is refused for counts as well."""
    text = (FOLDER / case.file).read_text(encoding="utf-8")
    try:
        return Verdict(case, check_text(text, case.file, case.wanted).problems)
    except InputError as error:
        return Verdict(case, error.problems)


def faulty(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those with a known fault."""
    return [verdict for verdict in verdicts if verdict.case.kind == "faulty"]


def good(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that are known to run."""
    return [verdict for verdict in verdicts if verdict.case.kind == "good"]


def named(verdicts: Iterable[Verdict]) -> int:
    """Known faults that are named."""
    return sum(verdict.naming is not None for verdict in faulty(verdicts))


def false_alarms(verdicts: Iterable[Verdict]) -> int:
    """Good configurations that are refused."""
    return sum(bool(verdict.errors) for verdict in good(verdicts))


def _text(problem: Problem) -> str:
    return f"{problem.field} {problem.rule}"


def _told(problems: Sequence[Problem]) -> str:
    return "; ".join(f"`{problem.field}`: {problem.rule}" for problem in problems) or "nothing"


def _said(verdict: Verdict) -> str:
    """The naming problem and how many others there are; all of them where none names the fault."""
    naming = verdict.naming
    if naming is None:
        return _told(verdict.problems)
    others = len(verdict.errors) - (naming.severity == "error")
    more = f" ({others} more error{'s' if others > 1 else ''})" if others else ""
    return _told([naming]) + (" (a warning)" if naming.severity == "warning" else "") + more


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def faulty_table(verdicts: Iterable[Verdict]) -> str:
    """Fault by fault: named or not, and in which words."""
    header = ("file", "on", "source", "fault", "named", "said")
    return _rows(
        header,
        (
            (
                _link(v.case),
                v.case.cluster,
                v.case.source,
                v.case.fault + (f" ({v.case.remark})" if v.case.remark else ""),
                "yes" if v.naming else "**no**",
                _said(v),
            )
            for v in faulty(verdicts)
        ),
    )


def good_table(verdicts: Iterable[Verdict]) -> str:
    """Run by run: errors, which are false alarms, and warnings."""
    header = ("file", "model", "on", "source", "known", "errors", "warnings")
    return _rows(
        header,
        (
            (
                _link(v.case),
                Path(v.case.model).stem if v.case.model.endswith(".json") else v.case.model,
                v.case.cluster,
                v.case.source,
                v.case.remark,
                f"**{_told(v.errors)}**" if v.errors else "none",
                _told(v.warnings) if v.warnings else "none",
            )
            for v in good(verdicts)
        ),
    )


def _link(case: Case) -> str:
    return f"[{Path(case.file).name}](check/{case.file})"


def totals(verdicts: Sequence[Verdict]) -> str:
    """Both figures beside what they are to be."""
    return (
        f"Faults named: {named(verdicts)} of {len(faulty(verdicts))} (at least {NAMED_AT_LEAST}).\n"
        f"Good configurations refused: {false_alarms(verdicts)} of {len(good(verdicts))} (none)."
    )


def page(verdicts: Sequence[Verdict], of_assertions: Sequence[CheckedPair]) -> str:
    """The page that is kept under ``benchmarks/``."""
    return f"""# Check

What `meshwright check` says of {len(verdicts)} configurations that were published, by version {__version__} on
{date.today().isoformat()}. The faulty ones come from threads in which somebody met the fault, the good ones from
recipes and papers with runs. A file holds what its source gives; a comment at its head, or the remark below, tells that
from what completes it. Nothing here was run by us. Made by `python benchmarks/check.py --write` from
`benchmarks/check/cases.csv`.

{totals(verdicts)}

## Faulty

{faulty_table(verdicts)}
## Good

An error is a false alarm. Warnings do not say that a run fails.

{good_table(verdicts)}
{section(of_assertions)}"""


if __name__ == "__main__":
    found, of_assertions = [judged(case) for case in cases()], checked_pairs()
    print(faulty_table(found), good_table(found), totals(found), section(of_assertions), sep="\n")
    if "--write" in sys.argv[1:]:
        (Path(__file__).parent / "check.md").write_text(page(found, of_assertions), encoding="utf-8")
    sys.exit(named(found) < NAMED_AT_LEAST or false_alarms(found) > 0 or failures(of_assertions) > 0)
