"""Rules on the entries of ``synchronise`` against the plan's axes, model and optimizer, and against each other."""

import re
from collections.abc import Iterator
from math import prod

from meshwright.errors import Problem
from meshwright.plans.forms.long import ExpertGrid
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.plans.rules.synchronisation.combination_rules import COMBINATION_RULES
from meshwright.plans.rules.synchronisation.exchange_rules import entry_problems, only_codec
from meshwright.plans.rules.synchronisation.numbers_and_names import legal_number
from meshwright.plans.synchronisation.compression import Budget
from meshwright.plans.synchronisation.exchange_text import file_data
from meshwright.plans.synchronisation.plan_axes import sharded_axes
from meshwright.plans.synchronisation.synchronisation import AXES, STATES, Synchronisation, loose_axes
from meshwright.workload.optimizers import OPTIMIZERS

LAYERS = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?")
MOMENTS = ("first_moment", "second_moment", "optimizer")
EXPERT_AXES = {"dp_replicate": "edp_replicate", "dp_shard": "edp_shard"}
Found = Iterator[Problem]


def by_field(case: RuleInput) -> Iterator[tuple[str, Synchronisation]]:
    """Yield the entries by their fields whose state and axis are known names."""
    for place, entry in enumerate(case.plan.synchronise):
        if entry.state in STATES and entry.over in AXES:
            yield f"synchronise.{place}", entry


def loose(case: RuleInput) -> tuple[str, ...]:
    """Return the loose axes by the entries with known names."""
    return loose_axes((entry for _, entry in by_field(case)), sharded_axes(case.plan, case.layout))


def values_of_entries(case: RuleInput) -> Found:
    """Check each entry by itself."""
    for place, entry in enumerate(case.plan.synchronise):
        yield from entry_problems(f"synchronise.{place}", entry)


def each_state_once(case: RuleInput) -> Found:
    """Refuse two entries for one state over one axis."""
    seen: dict[tuple[str, str], str] = {}
    for field, entry in by_field(case):
        for state in entry.states:
            first = seen.setdefault((state, entry.axis), field)
            if first != field:
                rule = f"{first} exchanges {state} over {entry.axis} already"
                yield Problem(f"{field}.state", entry.state, rule, "one entry for a state and an axis")
                break


def several_ranks(case: RuleInput) -> Found:
    """Require ranks to exchange with, or an outer optimizer that needs none."""
    degrees = case.degrees
    sharded = sharded_axes(case.plan, case.layout)
    for field, entry in by_field(case):
        if entry.axis == "ep":
            experts = case.layout.experts
            if case.arch.moe is None:
                rule = f"{case.model.name} has no experts that tokens travel to"
                yield Problem(
                    f"{field}.state", entry.state, rule, "take the entry out, or a model with experts"
                )
            elif experts is None or experts.ep == 1:
                rule = "tokens travel to experts where ep > 1, and ep = 1"
                yield Problem(f"{field}.state", entry.state, rule, "layout.ep: 2, or take the entry out")
        elif degrees[entry.axis] == 1 and entry.axis not in sharded and entry.outer_in_full is None:
            rule = f"{entry.axis} = 1: without outer there is nothing to exchange"
            yield Problem(f"{field}.over", entry.axis, rule, "outer: {nesterov: {lr: 0.7}}, or another axis")


def sharded_states(case: RuleInput) -> Found:
    """Over an axis that shards states, allow only codecs of the gather and of the reduce-scatter."""
    sharded = sharded_axes(case.plan, case.layout)
    for field, entry in by_field(case):
        codec = entry.compress.written if entry.compress else ()
        if sharded and "low_rank" in codec:
            rule = (
                f"sharding {case.plan.sharding} leaves flat parts of matrices, and low_rank needs whole ones"
            )
            yield Problem(
                f"{field}.compress.low_rank", _rank(entry), rule, "sharding: none, or quantise: int8"
            )
        if entry.axis not in sharded:
            continue
        because = f"{case.plan.sharding} shards states over {entry.axis}"
        if entry.state in MOMENTS:
            rule = f"{because}: each rank has moments of its own, which nothing averages"
            yield Problem(f"{field}.state", entry.state, rule, "state: parameter or gradient")
        elif entry.state == "parameter":
            yield from only_codec(field, entry, because)
            if entry.compress and not {*codec} <= {"quantise", "low_rank"}:
                rule = f"{because}: the gather carries values, and {', '.join(codec)} takes changes"
                yield Problem(f"{field}.compress", ", ".join(codec), rule, "compress: {quantise: int8}")
            elif entry.compress and entry.compress.error_feedback:
                rule = f"{because}: the gather carries values, whose errors do not add up"
                yield Problem(f"{field}.compress.error_feedback", True, rule, "take error_feedback out")


def _rank(entry: Synchronisation) -> object:
    rank = entry.compress.low_rank if entry.compress else None
    return rank if isinstance(rank, int | float) or rank is None else file_data(rank)


def states_of_loose_axes(case: RuleInput) -> Found:
    """Refuse averages over tight axes, over which all ranks hold the same."""
    apart, sharded = loose(case), sharded_axes(case.plan, case.layout)
    for field, entry in by_field(case):
        if entry.axis in (*apart, *sharded, "ep"):
            continue
        if entry.state in MOMENTS:
            rule = f"{entry.axis} is exact in every step: all its ranks have the same moments"
            hint = f"an entry of state parameter over {entry.axis}, without one of gradients"
            yield Problem(f"{field}.state", entry.state, rule, hint)
        elif entry.state == "parameter":
            rule = f"gradients cross {entry.axis} in every step: all its ranks have the same parameters"
            yield Problem(f"{field}.state", entry.state, rule, "one entry for the axis: take one out")


def states_of_the_optimizer(case: RuleInput) -> Found:
    """Refuse moments that the optimizer does not keep."""
    optimizer = case.plan.workload.optimizer_in_full
    if optimizer.name not in OPTIMIZERS or any(True for _ in optimizer.problems()):
        return
    for field, entry in by_field(case):
        lacking = [key for key in entry.states if entry.state in MOMENTS and key not in optimizer.moments]
        if lacking:
            rule = f"{optimizer} keeps no {' and no '.join(lacking)}"
            others = [key for key in optimizer.moments if key in entry.states]
            yield Problem(f"{field}.state", entry.state, rule, f"state: {(*others, 'parameter')[0]}")


def experts_within_islands(case: RuleInput) -> Found:
    """Keep the experts' mesh inside each island or combined replica: its ranks are the same in both meshes."""
    mesh = case.layout.experts
    if case.arch.moe is None or mesh is None:
        return
    for field, entry in by_field(case):
        apart = entry.state == "parameter" and entry.axis in loose(case)
        if not apart and not (entry.state == "gradient" and entry.axis != "ep" and entry.combines):
            continue
        axis, own = entry.axis, EXPERT_AXES[entry.axis]
        degree, copies = case.degrees[axis], getattr(mesh, own)
        if copies != degree:
            rule = (
                f"ep = {mesh.ep}, etp = {mesh.etp}: experts or their optimizer's shards cross {axis}, "
                f"{own} = {copies} ≠ {axis} = {degree}"
            )
            yield Problem(f"{field}.over", axis, rule, f"ep·etp that leaves {own}: {degree}")
        elif degree > 1 and _stride(case, axis) != _expert_stride(mesh, own):
            rule = (
                f"ep = {mesh.ep}: ranks that differ in {axis} are other ones than those that differ in {own}, "
                f"every {_stride(case, axis)}th against every {_expert_stride(mesh, own)}th"
            )
            yield Problem(f"{field}.over", axis, rule, f"rank_order and expert order that end in {axis}")


def _stride(case: RuleInput, axis: str) -> int:
    inner = [name for name in case.layout.order if name != "pp"]
    return prod(case.degrees[name] for name in inner[: inner.index(axis)]) if axis in inner else 0


def _expert_stride(mesh: ExpertGrid, axis: str) -> int:
    inner = [name for name in mesh.order if name != "pp"]
    return prod(getattr(mesh, name) for name in inner[: inner.index(axis)]) if axis in inner else 0


def layers_of_the_model(case: RuleInput) -> Found:
    """Require at least a layer for each fragment."""
    layers = case.arch.main_layers
    for field, entry in by_field(case):
        count = entry.fragment_rule.count
        if count > layers and legal_number("fragments", count):
            rule = f"fragments ≤ layers: {count} > {layers}"
            yield Problem(f"{field}.fragments", count, rule, f"fragments: {layers}")


def encoded_layers(case: RuleInput) -> Found:
    """Require ranges of encoded layers that the model has."""
    last = case.arch.layers - 1
    for place, entry in enumerate(case.plan.synchronise):
        layers = entry.compress.layers if entry.compress else None
        if layers is None:
            continue
        found, field = LAYERS.fullmatch(layers), f"synchronise.{place}.compress.layers"
        if found is None or int(found[1]) > int(found[2] or found[1]):
            rule = "must be a layer or a range of layers, the first before the last"
            yield Problem(field, layers, rule, f"layers: 0..{last}")
        elif int(found[2] or found[1]) > last:
            yield Problem(field, layers, f"the model's layers are 0..{last}", f"layers: 0..{last}")


def low_ranks_encode(case: RuleInput) -> Found:
    """Warn of ranks whose factors are smaller than no matrix of the model: all are then sent whole."""
    for field, entry in by_field(case):
        low_rank = entry.compress.low_rank if entry.compress else None
        if low_rank is None:
            continue
        rank = low_rank.budget if isinstance(low_rank, Budget) else low_rank
        largest = max(
            (-(-rows * columns // (rows + columns)) - 1 for rows, columns in _matrices(case)), default=0
        )
        if rank > largest and legal_number("compress.low_rank", rank):
            rule = f"every matrix is sent whole: factors are smaller than one of them up to rank {largest}"
            yield Problem(f"{field}.compress.low_rank", _rank(entry), rule, "low_rank: 4", "warning")


def _matrices(case: RuleInput) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of the trained matrices on a rank."""
    experts = case.layout.experts
    for block in case.model.blocks:
        for parameter in (one for operator in block.operators for one in operator.parameters if one.trained):
            cut = case.grid.tp if parameter.ep_dim is None else experts.etp if experts else 1
            shape = [n // (cut if dim == parameter.tp_dim else 1) for dim, n in enumerate(parameter.shape)]
            if len(shape) > 1:
                yield shape[-2], shape[-1]


AXIS_RULES: tuple[Rule, ...] = (
    values_of_entries,
    each_state_once,
    several_ranks,
    sharded_states,
    states_of_loose_axes,
    states_of_the_optimizer,
    experts_within_islands,
    layers_of_the_model,
    encoded_layers,
    low_ranks_encode,
    *COMBINATION_RULES,
)
