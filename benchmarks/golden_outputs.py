"""Show that a change of the code alone changes no answer: record what many commands say, compare two records.

    python benchmarks/golden_outputs.py record OUT.json [--source DIR] [--only WORD]
    python benchmarks/golden_outputs.py compare OLD.json NEW.json [--only WORD]

The commands are those of ``golden/commands.yaml``; each runs in a folder of its own with a copy of ``golden/files``.
``--source`` names a tree of sources to run in place of the installed package, ``--only`` a word that the names of
commands have. A record whose name ends in ``.gz`` is compressed; ``golden/baseline.json.gz`` is the one to hold others
against.

What a clock says and the names of folders are masked in a record. Numbers must agree to 1e-12 and all else exactly;
sentences may differ where a line of ``golden/sentences.tsv`` says so: old, tab, new. The order of problems is free.
Both records must come from one machine: processors round differently, and a plan at a limit may fall on its other side.

What only the newer record has is told as added, and so is a new rule under ``rejected``, beside which other counts may
change. Where a plan of the older answer breaks a rule of the installed package, that rule is told as the cause, and the
answer may differ. What differs for another reason stands with it in ``golden/causes.tsv``: path or name of the command,
tab, cause. Exits with 1 where all else is not the same.
"""

import argparse
import contextlib
import gzip
import json
import math
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from meshwright.errors import InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.resolve import resolve

HERE = Path(__file__).parent / "golden"
WORKERS = 2
TOLERANCE = 1e-12
START = "import sys; sys.argv[0] = 'meshwright'; from meshwright.cli.main import main; main()"
PLACE = "import meshwright; print(meshwright.__file__)"
FIXED = {"COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
FIXED |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
PROGRESS = re.compile(r"^ *\d+% .*\n", re.MULTILINE)
CLOCKED = re.compile(r"(?<=searched in )[\d.]+(?= s)")
"""What a clock says in text, as progress does to whoever waits long."""
MEASURED = frozenset({"search_time_s"})
"""Keys that a clock fills in for every command; ``measured`` of the commands' file names those of single ones."""
SENTENCES = {"reason", "reasons", "rule", "suggestion", "why", "origin", "remarks", "text", "errors"}
Data = Mapping[str, object]
Counts = Mapping[str, int]


class Command(NamedTuple):
    """A line of arguments, and the keys of its answer that a clock fills in."""

    arguments: list[str]
    measured: frozenset[str]


def environment(home: Path, source: Path | None) -> dict[str, str]:
    """Return everything that a command finds in its environment."""
    sources = {} if source is None else {"PYTHONPATH": str(source.resolve())}
    return {"PATH": os.environ["PATH"], "HOME": str(home)} | FIXED | sources


def read_commands(only: str) -> dict[str, Command]:
    """Read the commands, each under its verb and what is special about it."""
    data = YAML(typ="safe").load((HERE / "commands.yaml").read_text(encoding="utf-8"))
    measured = data.pop("measured")
    found = {}
    for verb, lines in data.items():
        for name, line in lines.items():
            words = shlex.split(line) if verb == "text" else [verb, *shlex.split(line), "--json"]
            name = f"{verb} {name}"
            found[name] = Command(words, MEASURED | frozenset(measured.get(name, ())))
    return {name: command for name, command in found.items() if only in name}


def answer(source: Path | None, command: Command) -> object:
    """Run a command and return its exit code, JSON or text, standard error, and the files that it wrote."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        home = Path(name).resolve()
        work = home / "work"
        shutil.copytree(HERE / "files", work)
        before = _texts(work)
        done = subprocess.run(
            [sys.executable, "-c", START, *command.arguments],
            cwd=work,
            env=environment(home, source),
            capture_output=True,
            encoding="utf-8",
            timeout=600,
            check=False,
        )
        written = {path: text for path, text in _texts(work).items() if before.get(path) != text}

    def plain(text: str) -> str:
        return CLOCKED.sub("measured", text.replace(str(work), "WORK").replace(str(home), "HOME"))

    said = {
        "command": shlex.join(command.arguments),
        "exit": done.returncode,
        **_content(plain(done.stdout)),
        "errors": PROGRESS.sub("", plain(done.stderr)),
        "files": {path: _content(plain(text)) for path, text in written.items()},
    }
    return _masked(said, command.measured)


def _texts(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes().decode("utf-8", "replace") for path in paths}


def _content(text: str) -> dict[str, object]:
    try:
        return {"json": json.loads(text)}
    except json.JSONDecodeError:
        return {"text": text}


def _masked(value: object, measured: frozenset[str]) -> object:
    if isinstance(value, dict):
        return {k: "measured" if k in measured else _masked(item, measured) for k, item in value.items()}
    return [_masked(item, measured) for item in value] if isinstance(value, list) else value


def record(path: Path, source: Path | None, only: str) -> None:
    """Run all commands, ``WORKERS`` at a time, and write what they answered."""
    command = [sys.executable, "-c", PLACE]
    place = subprocess.check_output(command, env=environment(Path.home(), source), text=True).strip()
    if source is not None and not Path(place).is_relative_to(source.resolve()):
        sys.exit(f"{source} has no package: {place} would run")
    commands = read_commands(only)
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = dict(zip(commands, pool.map(partial(answer, source), commands.values()), strict=True))
    content = (json.dumps(answers, ensure_ascii=False, indent=1) + "\n").encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(answers)} commands, {used.ru_utime + used.ru_stime:.0f} CPU s")


@dataclass
class Comparison:
    """Gather what two records differ in, path by path. ``sentences``: which line became which."""

    sentences: Mapping[str, str]
    causes: Mapping[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)

    def compare_answers(self, old: Data, new: Data) -> None:
        """Compare the answers to every command; those that differ for a rule are told with it."""
        self._compare_keys(dict.fromkeys(old), dict.fromkeys(new), "", False)
        for name in old.keys() & new.keys():
            found = Comparison(self.sentences, self.causes)
            found.compare(old[name], new[name], name)
            self.allowed += found.allowed
            known = [self.causes[name]] if name in self.causes else []
            causes = known or (causes_of(old[name]) if found.differences else [])
            if causes:
                self.allowed.append(f"{name}: {len(found.differences)} differences, for: {'; '.join(causes)}")
            else:
                self.differences += found.differences

    def compare(self, old: object, new: object, path: str, said: bool = False) -> None:
        """Compare two values of JSON; ``said``: they lie under a key of sentences."""
        if isinstance(old, dict) and isinstance(new, dict):
            if path.endswith(".rejected"):
                old = self._compare_rules(old, new, path)
            self._compare_keys(old, new, f"{path}." if path else "", said)
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            if path.endswith(".problems"):
                old, new = (sorted(problems, key=_field_and_value) for problems in (old, new))
            for index, (one, other) in enumerate(zip(old, new, strict=True)):
                self.compare(one, other, f"{path}[{index}]", said)
        elif path.endswith(".yaml") and isinstance(old, str) and isinstance(new, str) and old != new:
            self.compare(*(YAML(typ="safe").load(text) for text in (old, new)), f"{path} ", said)
        elif not self._agree(old, new, said):
            known = self.causes.get(path)
            text = f"{path}: {_brief(old, new)} -> {_brief(new, old)}"
            (self.differences if known is None else self.allowed).append(
                f"{text}{f', for {known}' if known else ''}"
            )

    def _compare_keys(self, old: Data, new: Data, path: str, said: bool) -> None:
        self.differences += [f"{path}{key}: missing" for key in old if key not in new]
        self.allowed += [f"added {path}{key}" for key in new if key not in old]
        rules = self._new_rules(old, new)
        for key in old:
            if rules and key.startswith("candidates_") and old[key] != new.get(key):
                self.allowed.append(f"counted anew {path}{key}: {old[key]} -> {new.get(key)}, for {rules}")
            elif key in new:
                self.compare(old[key], new[key], f"{path}{key}", said or key in SENTENCES)

    def _new_rules(self, old: Data, new: Data) -> str:
        """Return the rules that only the newer of two answers of a search rejects plans for."""
        before, after = (set(answer.get("rejected") or {}) for answer in (old, new))
        return "; ".join(sorted(after - before - {self.sentences.get(rule, rule) for rule in before}))

    def _compare_rules(self, old: Counts, new: Counts, path: str) -> Counts:
        """Return the old counts under new names; where there is a new rule, the new counts of all others."""
        renamed: Counter[str] = Counter()
        for rule, count in old.items():
            renamed[rule if rule in new else self.sentences.get(rule, rule)] += count
        if not new.keys() > renamed.keys():
            return renamed
        changes = [rule for rule in renamed if renamed[rule] != new[rule]]
        self.allowed += [f"counted anew {path}.{rule}: {renamed[rule]} -> {new[rule]}" for rule in changes]
        return dict(renamed) | {rule: new[rule] for rule in changes}

    def _agree(self, old: object, new: object, said: bool) -> bool:
        if type(old) is not type(new):
            return False
        if isinstance(old, float) and isinstance(new, float):
            return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=0.0)
        if said and isinstance(old, str) and isinstance(new, str):
            lines, others = old.split("\n"), new.split("\n")
            pairs = zip(lines, others, strict=False)
            return len(lines) == len(others) and all(a == b or self.sentences.get(a) == b for a, b in pairs)
        return old == new


def _field_and_value(problem: Data) -> tuple[str, str]:
    return str(problem["field"]), str(problem["value"])


def causes_of(old: Any) -> list[str]:
    """Return the rules of today that the plans of an older answer break."""
    with contextlib.chdir(HERE / "files"):
        return sorted({rule for plan in _best_plans(old.get("json")) for rule in _broken_rules(plan)})


def _best_plans(answer: Any) -> Iterator[Data]:
    """Find the plans that an answer proposes."""
    if isinstance(answer, dict):
        best = answer.get("best_plan")
        yield from [best] if best else [row["plan"] for row in answer.get("plans", []) if "plan" in row]


def _broken_rules(plan: Data) -> list[str]:
    try:
        resolve(parse_plan(json.dumps(plan)), stack_binds=True)
    except InputError as error:
        return [f"{problem.field}: {problem.rule}" for problem in error.problems]
    return []


def _brief(value: object, other: object) -> str:
    """Shorten a value; of a text take the lines that the other one has not."""
    if isinstance(value, list):
        return f"{len(value)} items"
    if isinstance(value, str) and isinstance(other, str):
        value = "\n".join(line for line in value.split("\n") if line not in other.split("\n"))
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 600 else f"{text[:600]}…"


def read_pairs(name: str) -> dict[str, str]:
    """Read a table of two columns: which sentence became which, or why a path differs."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return {first: second for first, tab, second in (line.partition("\t") for line in lines) if tab}


def read_record(path: Path) -> dict[str, object]:
    """Read a record, compressed or not."""
    content = path.read_bytes()
    return dict(json.loads(gzip.decompress(content) if path.suffix == ".gz" else content))


def compare(old: Path, new: Path, only: str) -> int:
    """Print what was added and every difference; return 1 where there is one."""
    ours, theirs = ({name: said for name, said in read_record(p).items() if only in name} for p in (old, new))
    found = Comparison(read_pairs("sentences.tsv"), read_pairs("causes.tsv"))
    found.compare_answers(ours, theirs)
    for line in (*found.allowed, *found.differences):
        print(line)
    print(f"{len(ours)} commands, {len(found.differences)} differences, {len(found.allowed)} additions")
    return int(bool(found.differences))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording, comparing = verbs.add_parser("record"), verbs.add_parser("compare")
    recording.add_argument("out", type=Path)
    recording.add_argument("--source", type=Path, help="a tree of sources, such as src")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    for verb in (recording, comparing):
        verb.add_argument("--only", default="", help="a word that the names of commands have")
    given = parser.parse_args()
    if given.verb == "compare":
        return compare(given.old, given.new, given.only)
    record(given.out, given.source, given.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
