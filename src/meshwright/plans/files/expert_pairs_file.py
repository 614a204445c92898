"""Read the routing counts of a plan that names a file; the plan keeps them."""

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, cast

from meshwright.errors import InputError, Problem
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import RoutingFile, ShortPlan
from meshwright.workload.expert_counts_file import HINT_OF_PAIRS, read_counts_or_pairs
from meshwright.workload.expert_routing import Counts, Pairs, RoutingValue

P = TypeVar("P", bound=ShortPlan | LongPlan)
FIELD = "workload.routing"


def read_routing_file(path: str | Path, field: str = FIELD) -> Counts | RoutingFile:
    """Read a routing file: counts, or pairs with the file's name. Raise InputError."""
    found = read_counts_or_pairs(path, field)
    if not isinstance(found, Pairs):
        return found
    digest = sha256(found.values).hexdigest()
    return RoutingFile(pairs=str(path), sha256=digest, experts=found.experts, values=found.values)


def with_routing_read(plan: ShortPlan | LongPlan, folder: Path) -> ShortPlan | LongPlan:
    """Return the plan with the pairs of its file, relative to ``folder`` if it is there.

    Raises InputError where the file can not be read, or has other pairs than the plan says.
    """
    routing = plan.workload.routing
    if not isinstance(routing, RoutingFile) or routing.values is not None:
        return plan
    path = folder / routing.pairs if (folder / routing.pairs).exists() else Path(routing.pairs)
    try:
        found = read_routing_file(path)
    except InputError as error:
        raise InputError(replace(p, field=f"{FIELD}.pairs") for p in error.problems) from None
    if not isinstance(found, RoutingFile):
        raise InputError(Problem(f"{FIELD}.pairs", str(path), "has counts, and no pairs", HINT_OF_PAIRS))
    if routing.sha256 not in (None, found.sha256):
        rule = f"{path} has {found.sha256}: it was changed since, or is another file"
        hint = "take sha256 out, or give the file that it is of"
        raise InputError(Problem(f"{FIELD}.sha256", routing.sha256, rule, hint))
    return plan.model_copy(update={"workload": plan.workload.model_copy(update={"routing": found})})


def with_routing_path_from(plan: P, folder: Path) -> P:
    """Return the plan with the path of its file of pairs, if any, relative to a folder."""
    routing = plan.workload.routing
    if not isinstance(routing, RoutingFile):
        return plan
    named = routing.model_copy(update={"pairs": os.path.relpath(routing.pairs, folder)})
    workload = plan.workload.model_copy(update={"routing": named})
    return cast(P, plan.model_copy(update={"workload": workload}))


def routing_of_workload(routing: "RoutingValue | RoutingFile") -> RoutingValue:
    """Return the routing value of a workload. Raise InputError where its file was not read."""
    if not isinstance(routing, RoutingFile):
        return routing
    if routing.experts is None or routing.values is None:
        rule = "was not read: the text of a plan alone does not say where it is"
        raise InputError(Problem(f"{FIELD}.pairs", routing.pairs, rule, "give the plan's file"))
    return Pairs(routing.experts, routing.values)
