"""A torchtitan job as a file states it, whatever the file's format."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.errors import Problem, nearest
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Fact, UnmappedOption

RECOMPUTATIONS = ("none", "selective", "full", "memory-budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Options by the names of today's command line, and facts that each format states in its own way.

    ``labels`` are the file's own names of options, where they are others. A job is ``complete`` where the options that
    it leaves out are known too.
    """

    release: str
    options: Mapping[str, GivenOption]
    facts: Mapping[str, Fact]
    problems: list[Problem]
    unread: tuple[UnmappedOption, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False


def recomputation(field: str, name: str, words: str, problems: list[Problem]) -> dict[str, Fact]:
    """Return the fact of a named recomputation; none and a problem of ``field`` for what no plan says."""
    if name in RECOMPUTATIONS[:3]:
        return {"recompute": Fact(name, words)}
    if name == RECOMPUTATIONS[3]:
        rule = "recomputes what a memory budget asks for: no plan says it"
        problems.append(Problem(field, name, rule, "none, selective or full", "warning"))
    else:
        rule = "is no activation checkpointing of torchtitan"
        problems.append(Problem(field, name, rule, nearest(name, RECOMPUTATIONS)))
    return {}
