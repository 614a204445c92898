"""The order of experts on ep ranks: rows of a CSV file, and rules on them.

A row lists the experts of a routed layer, each once, in the order in which ep's ranks hold them: E/ep on each. One row
does for all layers. Nothing reads the file again: a plan that is read has the rows.
"""

from collections.abc import Iterator
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ExpertOrder, ShortPlan
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import OWN_STACK
from meshwright.workload.expert_counts_file import read_expert_counts

FIELD = "layout.expert_order"
HINT = "a row for each routed layer, or one for all, that names each expert once"
MOST_CHARACTERS = 60
"""Characters of a row that a problem shows."""


def read_expert_order(path: str | Path, field: str = FIELD) -> tuple[tuple[int, ...], ...]:
    """Read the rows of a CSV file. Raises InputError."""
    rows = read_expert_counts(path, field)
    if any(number != int(number) or number < 0 for row in rows for number in row):
        raise InputError(Problem(field, str(path), "must be whole numbers, the experts from 0 on", HINT))
    return tuple(tuple(map(int, row)) for row in rows)


def with_expert_order_read(plan: ShortPlan | LongPlan, folder: Path) -> ShortPlan | LongPlan:
    """Replace the name of an expert order's file by its rows; relative names start at ``folder`` if found there.

    Raises InputError where the file can not be read or has other things than experts.
    """

    def read(order: ExpertOrder | None) -> ExpertOrder | None:
        if not isinstance(order, str):
            return order
        return read_expert_order(folder / order if (folder / order).exists() else order)

    if isinstance(plan, ShortPlan):
        order = read(plan.layout.expert_order)
        return plan.model_copy(update={"layout": plan.layout.model_copy(update={"expert_order": order})})
    layouts = {
        name: layout.model_copy(update={"expert_order": read(layout.expert_order)})
        for name, layout in plan.layouts.items()
    }
    return plan.model_copy(update={"layouts": layouts})


def rows_by_layer(order: ExpertOrder | None, routed: tuple[bool, ...]) -> tuple[tuple[int, ...] | None, ...]:
    """Return the row of each layer of a legal order; None for the model's own order."""
    if order is None or isinstance(order, str):
        return ()
    rows = iter(order * sum(routed) if len(order) == 1 else order)
    found = [next(rows) if here else None for here in routed]
    return tuple(row if row is not None and list(row) != sorted(row) else None for row in found)


def expert_orders(case: RuleInput) -> Iterator[Problem]:
    """expert_order names every expert of every routed layer once."""
    order, moe, mesh = case.layout.expert_order, case.arch.moe, case.layout.experts
    if order is None:
        return
    if isinstance(order, str):
        rule = "was not read: the text of a plan alone does not say where it is"
        yield Problem(FIELD, order, rule, "give the plan's file, or the rows")
        return
    if moe is None:
        yield Problem(FIELD, f"{len(order)} rows", "the model has no experts", "take it out")
        return
    if len(order) not in (1, routed := sum(moe.layers)):
        rule = f"has {len(order)} rows, the model has {routed} routed layers"
        yield Problem(FIELD, f"{len(order)} rows", rule, HINT)
    for number, row in enumerate(order):
        if sorted(row) != list(range(moe.experts)):
            rule = f"row {number} must name each of the experts 0 to {moe.experts - 1} once"
            yield Problem(FIELD, _shortened(row), rule, HINT)
    if mesh is None or mesh.ep == 1:
        rule = "changes nothing: ep = 1, every rank has all experts"
        yield Problem(FIELD, f"{len(order)} rows", rule, "ep: 2 or more", "warning")


def expert_order_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse an order of experts if the stack cannot change theirs."""
    order = case.layout.expert_order
    if order is not None and not isinstance(order, str) and not case.stack.orders_experts:
        rule = f"{case.stack.id} has the experts as the model numbers them"
        yield Problem(FIELD, f"{len(order)} rows", rule, f"stack: {OWN_STACK}, or take it out")


def _shortened(row: tuple[int, ...]) -> str:
    text = ",".join(map(str, row))
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"


EXPERT_RULES: tuple[Rule, ...] = (expert_orders,)
