"""Pairs of configurations for each assertion that ``check`` answers: one that breaks it, and one that does not.

A configuration is one of ``bases.yaml`` with changes, words of ``key=value``: ``key`` alone is a flag, or true;
``no:key`` takes a key out. Values of several words stand in quotes. Keys without dashes are variables.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from assertion_table.answers import RULE, TARGETS, AnsweredAssertion, read_answers
from meshwright.errors import InputError, Problem
from meshwright.frameworks.option_table import nested
from meshwright.plans.resolve import resolve_with
from meshwright.verbs.check import check_text
from meshwright.verbs.import_ import ImportRequest, import_text, renamed

HERE = Path(__file__).parent
FILES = {
    "megatron": "train.sh",
    "torchtitan": "train.sh",
    "deepspeed": "config.json",
    "accelerate": "config.yaml",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """An assertion with both configurations as the text of their files."""

    target: str
    row: AnsweredAssertion
    request: ImportRequest
    breaking: str
    holding: str

    def named(self, problems: Sequence[Problem]) -> Problem | None:
        """Return the error that names the broken assertion."""
        expected = re.compile(self.row.expected)
        found = (p for p in problems if expected.search(f"{p.field} {p.rule}"))
        return next((problem for problem in found if problem.severity == "error"), None)


def pairs() -> Iterator[Pair]:
    """Yield every pair of every target."""
    for target in TARGETS:
        for row in read_answers(target):
            if row.answer == RULE:
                base = bases()[target][row.base]
                texts = (_text(target, base, changes) for changes in (row.breaks, row.holds))
                yield Pair(target, row, _request(base), *texts)


@cache
def bases() -> Mapping[str, Mapping[str, Any]]:
    """Return the configurations that pairs change, by target and name."""
    return YAML(typ="safe").load(HERE / "bases.yaml")


def checked(pair: Pair, text: str) -> tuple[Problem, ...]:
    """Return what ``check`` says of a configuration."""
    try:
        return check_text(text, FILES[pair.target], pair.request).problems
    except InputError as error:
        return error.problems


@cache
def errors_without_search(request: ImportRequest, text: str) -> tuple[Problem, ...]:
    """Return the errors of ``check`` without its search for a better plan, and without those of memory."""
    try:
        found = import_text(text, request)
    except InputError as error:
        return error.problems
    problems = list(found.problems)
    if found.plan is not None:
        nouns = found.model, found.cluster, found.stack
        try:
            resolve_with(found.plan, *nouns, stack_binds=True, further=found.changed_file.file_problems)
        except InputError as error:
            problems += renamed(error.problems, found.foreign)
    return tuple(problem for problem in problems if problem.severity == "error")


def _request(base: Mapping[str, Any]) -> ImportRequest:
    model = base.get("model")
    if model is not None and model.endswith(".json"):
        folders = (HERE, HERE.parent / "check" / "models")
        model = str(next(folder / model for folder in folders if (folder / model).exists()))
    return ImportRequest(model=model, on=base["cluster"], seq_len=base.get("seq_len"))


def _text(target: str, base: Mapping[str, Any], changes: str) -> str:
    options = _changed(base["options"], changes)
    if target == "deepspeed":
        return json.dumps(nested(options), indent=2) + "\n"
    if target == "accelerate":
        text = StringIO()
        YAML().dump(nested(options), text)
        return text.getvalue()
    words = [word for key, value in options.items() if key.startswith("--") for word in _words(key, value)]
    exports = [f"export {key}={value}\n" for key, value in options.items() if not key.startswith("--")]
    return f"{''.join(exports)}{base['program']} {' '.join(words)}\n"


def _changed(options: Mapping[str, Any], changes: str) -> dict[str, Any]:
    """Return the options with the changes: a key of a section is written with dots."""
    changed = dict(options)
    for word in shlex.split(changes):
        key, equals, value = word.partition("=")
        if key.startswith("no:"):
            changed.pop(key.removeprefix("no:"))
        else:
            changed[key] = _read(value) if equals else True
    return changed


@cache
def _read(value: str) -> object:
    """Return a YAML value; changes have the same few again and again."""
    return YAML(typ="safe").load(value)


def _words(key: str, value: Any) -> list[str]:
    return (
        [key]
        if value is True
        else [key, *shlex.split(str(value))]
        if "|" not in str(value)
        else [key, f"'{value}'"]
    )
