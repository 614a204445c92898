"""What was counted of routers, of a plan that names a file of it: read once, where the plan is, and kept with it."""

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, cast

from meshwright.errors import InputError, Problem
from meshwright.plan.long import LongPlan
from meshwright.plan.short import RoutingFile, ShortPlan
from meshwright.workload.counts_file import HINT_OF_PAIRS, counted_in_file
from meshwright.workload.routing import Counts, Pairs, Said

P = TypeVar("P", bound=ShortPlan | LongPlan)
FIELD = "workload.routing"


def routing_of_file(path: str | Path, field: str = FIELD) -> Counts | RoutingFile:
    """What a workload says of it: counts, or the file of pairs with what it has. Raises InputError."""
    found = counted_in_file(path, field)
    if not isinstance(found, Pairs):
        return found
    digest = sha256(found.values).hexdigest()
    return RoutingFile(pairs=str(path), sha256=digest, experts=found.experts, values=found.values)


def with_routing(plan: ShortPlan | LongPlan, folder: Path) -> ShortPlan | LongPlan:
    """The plan with the pairs of its file, whose relative name is meant from ``folder`` if it is there.

    Raises InputError where the file can not be read, or has other pairs than the plan says.
    """
    said = plan.workload.routing
    if not isinstance(said, RoutingFile) or said.values is not None:
        return plan
    path = folder / said.pairs if (folder / said.pairs).exists() else Path(said.pairs)
    try:
        found = routing_of_file(path)
    except InputError as error:
        raise InputError(replace(p, field=f"{FIELD}.pairs") for p in error.problems) from None
    if not isinstance(found, RoutingFile):
        raise InputError(Problem(f"{FIELD}.pairs", str(path), "has counts, and no pairs", HINT_OF_PAIRS))
    if said.sha256 not in (None, found.sha256):
        rule = f"{path} has {found.sha256}: it was changed since, or is another file"
        hint = "take sha256 out, or give the file that it is of"
        raise InputError(Problem(f"{FIELD}.sha256", said.sha256, rule, hint))
    return plan.model_copy(update={"workload": plan.workload.model_copy(update={"routing": found})})


def seen_from(plan: P, folder: Path) -> P:
    """The plan with the name that the file of its pairs, if it has one, has from a folder."""
    said = plan.workload.routing
    if not isinstance(said, RoutingFile):
        return plan
    named = said.model_copy(update={"pairs": os.path.relpath(said.pairs, folder)})
    workload = plan.workload.model_copy(update={"routing": named})
    return cast(P, plan.model_copy(update={"workload": workload}))


def said_of(routing: "Said | RoutingFile") -> Said:
    """What a workload is told. Raises InputError where a file was not read."""
    if not isinstance(routing, RoutingFile):
        return routing
    if routing.experts is None or routing.values is None:
        rule = "was not read: the text of a plan alone does not say where it is"
        raise InputError(Problem(f"{FIELD}.pairs", routing.pairs, rule, "give the plan's file"))
    return Pairs(routing.experts, routing.values)
