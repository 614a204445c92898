"""Faults that a user injects to try detection and recovery: ``KIND:rank=R,step=S[,factor=F][,peer=P]``.

``slow`` and ``link`` last from their step to the end of the run. The others happen once in a command, never again after
a recovery.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import InputError, Problem, nearest
from meshwright.runtime.faults.fault import KINDS, FaultKind

LASTING: frozenset[FaultKind] = frozenset({"slow", "link"})
SCALED: frozenset[FaultKind] = frozenset({"slow", "link", "spike"})
"""Kinds with a factor."""
FACTOR, MAX_FACTOR = 10.0, 1e6
MAX_STEP = 10**12 - 1
MOST = 64
"""Faults of a command: each has a place in the progress that ranks share (``recovery/progress_board.py``)."""
OPTION = "inject"
FORM = "KIND:rank=R,step=S[,factor=F]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault to inject. ``rank`` is None for ``spike``; ``peer`` is the other end of a ``link``."""

    kind: FaultKind
    step: int
    rank: int | None = None
    peer: int | None = None
    factor: float = FACTOR

    def __str__(self) -> str:
        given = {"rank": self.rank, "peer": self.peer, "step": self.step}
        texts = [f"{name}={value}" for name, value in given.items() if value is not None]
        if self.kind in SCALED:
            texts.append(f"factor={self.factor:.9f}".rstrip("0").rstrip("."))
        return f"{self.kind}:{','.join(texts)}"


def injections(texts: Iterable[str], ranks: int | None = None) -> tuple[Injection, ...]:
    """Return the faults that texts describe. Raises InputError with every problem.

    ``ranks`` is the number of ranks of the plan; without it, ranks are not compared with it.
    """
    problems: list[Problem] = []
    found = [_injection(text, ranks, problems) for text in texts]
    if len(found) > MOST:
        rule = f"at most {MOST} faults are injected into a run"
        problems.append(Problem(OPTION, len(found), rule, "fewer, in several runs"))
    if problems:
        raise InputError(problems)
    return tuple(one for one in found if one is not None)


def without_fired(texts: Sequence[str], fired: Iterable[int]) -> tuple[str, ...]:
    """Return injections of which those in the places ``fired`` happen no more: their step is one that no run reaches.

    All keep their places. Lasting ones go on.
    """
    places = frozenset(fired)
    return tuple(
        str(replace(one, step=MAX_STEP)) if place in places and one.kind not in LASTING else text
        for place, (text, one) in enumerate(zip(texts, injections(texts), strict=True))
    )


def _injection(text: str, ranks: int | None, problems: list[Problem]) -> Injection | None:
    name, _, rest = text.partition(":")
    kind = next((known for known in KINDS if known == name), None)
    if kind is None:
        rule = f"{name!r} is no kind of fault; the form is {FORM}"
        problems.append(Problem(OPTION, text, rule, nearest(name, KINDS)))
        return None
    before = len(problems)
    given = dict(_settings(text, kind, rest, problems))
    problems += _wrong_settings(text, kind, given, ranks)
    if len(problems) > before:
        return None
    peer, rank = given.get("peer"), given.get("rank")
    return Injection(
        kind=kind,
        step=int(given["step"]),
        rank=None if rank is None else int(rank),
        peer=None if peer is None else int(peer),
        factor=given.get("factor", FACTOR),
    )


def _settings(text: str, kind: FaultKind, rest: str, problems: list[Problem]) -> Iterator[tuple[str, float]]:
    """Yield the settings that can be read as numbers."""
    names = _names(kind)
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        if name not in names:
            rule = f"{kind} has no setting {name!r}"
            problems.append(Problem(OPTION, text, rule, nearest(name, names)))
        elif re.fullmatch(r"\d{1,12}" if name != "factor" else r"\d{1,9}(\.\d{1,9})?", value) is None:
            what = "number above 0" if name == "factor" else "whole number from 0 on"
            problems.append(Problem(OPTION, text, f"{name} must be a {what}", f"{name}={_example(name)}"))
        else:
            yield name, float(value)


def _names(kind: FaultKind) -> Sequence[str]:
    ranks = () if kind == "spike" else ("rank", "peer") if kind == "link" else ("rank",)
    return (*ranks, "step", *(("factor",) if kind in SCALED else ()))


def _example(name: str) -> str:
    return {"rank": "0", "peer": "1", "step": "3", "factor": "10"}[name]


def _wrong_settings(
    text: str, kind: FaultKind, given: Mapping[str, float], ranks: int | None
) -> Iterator[Problem]:
    for name in _names(kind):
        if name not in given and name != "factor" and f"{name}=" not in text:
            yield Problem(OPTION, text, f"{kind} needs {name}=", f"{name}={_example(name)}")
    for name in ("rank", "peer"):
        if ranks is not None and given.get(name, 0) >= ranks:
            rule = f"the plan has {ranks} ranks, 0 to {ranks - 1}"
            yield Problem(OPTION, text, rule, f"{name}={ranks - 1}")
    if "peer" in given and given.get("peer") == given.get("rank"):
        yield Problem(OPTION, text, "a link joins two ranks, and peer is rank", "another peer")
    if not 0 < given.get("factor", FACTOR) <= MAX_FACTOR:
        yield Problem(OPTION, text, f"factor must be above 0 and at most {MAX_FACTOR:g}", "factor=10")
