"""Check options by tables of what a program takes: ``options/NAME.csv``.

``sbatch.csv``: all options of SchedMD/slurm at 284c3b9 (26.11.0-0rc1), ``doc/man/man1/sbatch.1``. ``torchrun.csv``: all
options of PyTorch 2.13, ``torch/distributed/run.py``. ``value`` is none, optional or required, or the type of a
required one. Values of other types are not checked.
"""

import csv
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from meshwright.errors import nearest

SBATCH = "the table of options of sbatch 26.11"
TORCHRUN = "the table of options of torchrun 2.13"
COUNTS = ("--nodes", "--ntasks-per-node", "--gpus-per-node", "--cpus-per-task")
"""Options of sbatch whose values are written here as whole numbers."""
SIGNAL = re.compile(r"(B:|R:|RB:)?[A-Z0-9]+(@\d+)?").fullmatch


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a program."""

    name: str
    value: str

    def fault(self, value: str | None) -> str:
        """Return what is wrong with a value, or nothing."""
        if self.value == "none":
            return f"{self.name} takes no value" if value is not None else ""
        if self.value == "optional":
            return ""
        if not value:
            return f"{self.name} needs a value"
        pattern = {"int": r"-?\d+", "number": r"-?\d+(\.\d+)?"}.get(self.value, r"[\s\S]+")
        return "" if re.fullmatch(pattern, value) else f"{self.name}: {value!r} is no number"


def options_of(program: str) -> dict[str, Option]:
    """Return the options of a program by all their spellings."""
    path = files("meshwright.launchers.parsers").joinpath("options", f"{program}.csv")
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    spellings = [(spelling, row) for row in rows for spelling in (row["option"], row["short"]) if spelling]
    return {spelling: Option(row["option"], row["value"]) for spelling, row in spellings}


def sbatch_faults(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the table and what the ``#SBATCH`` lines of a script break of it."""
    return SBATCH, tuple(_sbatch_lines(text))


def _sbatch_lines(text: str) -> Iterator[str]:
    lines = text.splitlines()
    if not lines or not lines[0].startswith("#!"):
        yield "the first line names no interpreter (#!)"
    first = next((n for n, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    known = options_of("sbatch")
    for number, line in enumerate(lines):
        if not line.startswith("#SBATCH"):
            continue
        if number > first:
            yield f"line {number + 1} stands behind the first command, where sbatch reads no options"
        for fault in _word_faults(shlex.split(line.removeprefix("#SBATCH"), comments=True), known):
            yield f"line {number + 1}: {fault}"


def _word_faults(words: Sequence[str], known: dict[str, Option]) -> Iterator[str]:
    if not words:
        yield "names no option"
    for word in words:
        name, equals, value = word.partition("=")
        if name not in known:
            yield f"{name} is no option; {nearest(name, known)}"
            continue
        fault = known[name].fault(value if equals else None)
        if not fault and name in COUNTS and not re.fullmatch(r"[1-9]\d*", value):
            fault = f"{name}: {value!r} must be a whole number above 0"
        if not fault and name == "--signal" and not SIGNAL(value):
            fault = f"{name}: {value!r} is no [B:]SIGNAL[@SECONDS]"
        if fault:
            yield fault


def torchrun_table_faults(words: Sequence[str]) -> tuple[str, ...]:
    """Return what the options in front of a program break of torchrun's table."""
    known, faults = options_of("torchrun"), []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        option = known.get(name.replace("_", "-"))
        if option is None:
            faults.append(f"{name} is no option; {nearest(name, known)}")
            break
        given = value if equals else None
        if option.value != "none" and not equals and rest:
            given = rest.pop(0)
        faults += [fault] if (fault := option.fault(given)) else []
    if not rest and not faults:
        faults.append("names no program to start")
    return tuple(faults)
