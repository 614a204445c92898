"""Check plans of several layouts: groups of devices, sizes of meshes, and sequences that move together.

Every layout also keeps the rules of a plan that has it alone (``plans/layers/plan_of_layout.py``); these are the rules
that look at all of them. ``NOT_TOGETHER`` names what this release does with one layout only.
"""

from collections.abc import Callable, Iterator
from math import gcd, lcm, prod

from meshwright.errors import Problem, nearest
from meshwright.model.encoder import TextEncoder
from meshwright.plans.forms.long import NOT_YET, SPREAD, Layout
from meshwright.plans.layers.device_groups import group_problems, selected_devices
from meshwright.plans.layers.layer_assignment import layer_rules, stage_layers, stage_problems
from meshwright.plans.layers.layout_by_layer import layouts_by_block
from meshwright.plans.layers.plan_of_layout import replicas, sequences_together, uneven_batches
from meshwright.plans.rules.batch_and_pipeline import layers_and_stages
from meshwright.plans.rules.encoder_models import ONE_LAYOUT
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import OWN_STACK
from meshwright.workload.optimizers import OPTIMIZERS

OUTERMOST = "pp"


def layouts_used(case: RuleInput) -> Iterator[Problem]:
    """Require every layout to have blocks, and an existing group."""
    used = {rule.layout for rule in case.plan.layers.values()}
    for name, layout in case.plan.layouts.items():
        if name not in used:
            hint = "take it out, or name it in layers"
            yield Problem(f"layouts.{name}", name, "no block has this layout", hint)
        if layout.on not in case.plan.groups:
            near = nearest(layout.on, case.plan.groups)
            yield Problem(f"layouts.{name}.on", layout.on, "there is no such group", near)


def groups(case: RuleInput) -> Iterator[Problem]:
    """Require groups that are equal or disjoint, and together all devices."""
    problems = list(group_problems(case.plan, case.cluster))
    yield from problems
    if any(problem.severity == "error" for problem in problems):
        return
    sets = {selected_devices(of.devices, case.cluster) for of in case.plan.groups.values()}
    if len(sets) > 1:
        rule = f"{len(sets)} sets of devices: more than one {NOT_YET}"
        yield Problem("groups", list(case.plan.groups), rule, 'all: {devices: "*"}')


def pipeline_rank_sizes(case: RuleInput) -> Iterator[Problem]:
    """Require equally many devices of layouts on one pipeline rank, and all devices of the pipeline ranks together."""
    sizes: dict[int, int] = {}
    for rank, names in _layouts_of_ranks(case).items():
        products = {name: _size(case.plan.layouts[name]) for name in names}
        first = next(iter(products))
        sizes[rank] = products[first]
        for name, product in products.items():
            if product != products[first]:
                rule = (
                    f"{_product(case.plan.layouts[name])} ≠ {_product(case.plan.layouts[first])} of {first}: "
                    f"both are on pipeline rank {rank}"
                )
                yield Problem(f"layouts.{name}.grid", product, rule, f"a grid of {products[first]} devices")
    total, devices = sum(sizes.values()), case.cluster.devices
    if sizes and total != devices:
        terms = " + ".join(str(size) for size in sizes.values())
        rule = f"the pipeline ranks have {terms} = {total} ≠ {devices} devices"
        hint = f"grids of {devices // len(sizes)} devices" if devices % len(sizes) == 0 else "another pp"
        yield Problem("layouts", total, rule, hint)
    elif len(set(sizes.values())) > 1:
        rule = f"pipeline ranks of {', '.join(map(str, sorted(set(sizes.values()))))} devices: unlike sizes {NOT_YET}"
        yield Problem("layouts", list(sizes.values()), rule, f"{devices // len(sizes)} devices for each")


def orders(case: RuleInput) -> Iterator[Problem]:
    """Require pp to vary slowest in every layout, so that all agree which ranks are a pipeline rank."""
    for name, layout in case.plan.layouts.items():
        for field, order in (
            ("order", layout.order),
            ("experts.order", layout.experts and layout.experts.order),
        ):
            if order and order[-1] != OUTERMOST:
                rule = "with several layouts pp varies slowest: all agree which devices are a pipeline rank"
                hint = f"[{', '.join([*(axis for axis in order if axis != OUTERMOST), OUTERMOST])}]"
                yield Problem(f"layouts.{name}.{field}", list(order), rule, hint)


def sequences_of_replicas(case: RuleInput) -> Iterator[Problem]:
    """Require that the replicas of every layout divide the sequences that move through the pipeline together."""
    micro_batch, together = case.plan.pipeline.micro_batch, sequences_together(case.plan)
    most = max(map(replicas, case.plan.layouts.values()))
    for name, layout in case.plan.layouts.items():
        own = replicas(layout)
        if layout.batch_share is not None or together % own == 0:
            continue
        rest = f"{together} % {own} replicas of {name} = {together % own} ≠ 0"
        if uneven_batches(case.plan):
            rule = f"the batch_share of other layouts sums to {together} sequences, and {rest}"
            hint = f"shares that sum to {lcm(together, own)}"
            yield Problem(f"layouts.{name}.grid", own, rule, hint)
        else:
            moved = f"micro_batch·{most} replicas = {micro_batch}·{most} = {together} sequences move together"
            hint = f"micro_batch: {micro_batch * own // gcd(together, own)}"
            yield Problem("pipeline.micro_batch", micro_batch, f"{moved}, and {rest}", hint)


def one_layout_only(case: RuleInput) -> Iterator[Problem]:
    """Refuse what this release does with one layout only."""
    for find in NOT_TOGETHER:
        for field, value, what, hint in find(case):
            yield Problem(field, value, f"{what} with several layouts {NOT_YET}", hint)


Refused = tuple[str, object, str, str]
"""A field, its value, what it is, and a suggestion."""


def _schedules(case: RuleInput) -> Iterator[Refused]:
    schedule = case.plan.pipeline.schedule
    if case.plan.pipeline.chains > 1:
        yield "pipeline.schedule", schedule.name, "a schedule in two directions", "1f1b"
    if schedule.step_validation == "after":
        field = "pipeline.schedule.step_validation"
        yield field, "after", "steps that are validated afterwards", "before"
    if any(rule.vocabulary == SPREAD for rule in case.plan.layers.values()):
        yield "layers.embed.vocabulary", list(SPREAD), "a vocabulary over all pipeline ranks", "[tp]"


def _gathers(case: RuleInput) -> Iterator[Refused]:
    for name, layout in case.plan.layouts.items():
        if (layout.gather or case.plan.gather) == "per-unit":
            yield f"layouts.{name}.gather", "per-unit", "exchanges unit by unit", "per-step"


def _states(case: RuleInput) -> Iterator[Refused]:
    offload = case.plan.offload
    if case.plan.in_chunks or case.plan.host_shares.some:
        yield "offload", offload and offload.to_data(), "model states on hosts", "activations alone"


def _workload(case: RuleInput) -> Iterator[Refused]:
    spec = case.plan.workload
    name = spec.optimizer_in_full.name
    kind = OPTIMIZERS.get(name)
    if kind is not None and (kind.of_matrices or spec.optimizer_in_full.forward_only):
        yield "workload.optimizer", name, name, "adamw"
    if spec.adapter is not None:
        yield "workload.adapter", spec.adapter.form, "adapters", "task: pretrain"
    if spec.capacity is not None:
        yield "workload.capacity", str(spec.capacity), "a capacity of experts", "take it out"


def _model(case: RuleInput) -> Iterator[Refused]:
    arch = case.arch
    if isinstance(arch.encoder, TextEncoder):
        yield "layouts", sorted(case.plan.layouts), ONE_LAYOUT, "one layout"
    names = layouts_by_block(case.plan, arch.layers)
    if case.model.tied_gradients and names[0] != names[-1]:
        yield from _table(case, names)
    further = {names[1 + layer] for layer in range(arch.layers - arch.next_token_layers, arch.layers)}
    if arch.next_token_layers and further != {names[-1]}:
        field, what = "layers.head.layout", "layers for further tokens in another layout than the head's"
        yield field, names[-1], what, next(iter(sorted(further)))
    routing = arch.numerics.routing
    by_micro_batch = (
        routing is not None and routing.balance is not None and routing.balance.scope != "sequence"
    )
    if by_micro_batch and len(set(_replicas_of_experts(case, names))) > 1:
        yield (
            "layouts",
            sorted(set(names)),
            "a balancing loss of unlike micro-batches",
            "equal dp for routed layers",
        )


def _table(case: RuleInput, names: list[str]) -> Iterator[Refused]:
    """Yield what is not done with a table that embedding and head hold in unlike layouts."""
    field, value, first = "layers.head.layout", names[-1], names[0]
    placement = case.plan.pipeline.placement
    if placement[0] == placement[-1]:
        yield field, value, "a tied table in two layouts on one pipeline rank", first
    if case.arch.next_token_layers:
        yield (
            field,
            value,
            "a table of layers for further tokens in another layout than the embedding's",
            first,
        )
    if case.plan.written_types.get("reduce", "fp32") != "fp32":
        yield "dtypes.reduce", case.plan.written_types["reduce"], "a tied table in two layouts", "fp32"


def _replicas_of_experts(case: RuleInput, names: list[str]) -> Iterator[int]:
    """Yield the replicas of the layouts that have routed layers, and those with most replicas."""
    moe = case.arch.moe
    for layer, routed in enumerate(moe.layers if moe else ()):
        if routed:
            yield replicas(case.plan.layouts[names[1 + layer]])
    yield max(map(replicas, case.plan.layouts.values()))


NOT_TOGETHER: tuple[Callable[[RuleInput], Iterator[Refused]], ...] = (
    _schedules,
    _gathers,
    _states,
    _workload,
    _model,
)


def layouts_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse several layouts if the stack has one for all layers."""
    if "layout" not in case.stack.varies_by_layer:
        rule = f"{case.stack.id} has one layout for all layers"
        yield Problem("layouts", sorted(case.plan.layouts), rule, f"stack: {OWN_STACK}, or one layout")


def _layouts_of_ranks(case: RuleInput) -> dict[int, list[str]]:
    """Return the layouts that meet on each pipeline rank; empty where layers or stages are wrong."""
    plan, layers = case.plan, case.arch.layers
    if stage_problems(plan.pipeline, layers) or layer_rules(plan, layers).problems:
        return {}
    names, found = layouts_by_block(plan, layers), dict[int, list[str]]()
    for rank, stage in zip(plan.pipeline.placement, stage_layers(plan.pipeline, layers), strict=True):
        here = [*names[:1] * stage.embed, *names[1 + stage.first : 1 + stage.last], *names[-1:] * stage.head]
        known = found.setdefault(rank, [])
        known += [name for name in dict.fromkeys(here) if name not in known and name in plan.layouts]
    return {rank: known for rank, known in sorted(found.items()) if known}


def _size(layout: Layout) -> int:
    return prod(layout.grid.model_dump().values())


def _product(layout: Layout) -> str:
    degrees = layout.grid.model_dump()
    return f"{'·'.join(degrees)} = {'·'.join(map(str, degrees.values()))} = {_size(layout)}"


PLAN_RULES: tuple[Rule, ...] = (layouts_used, groups)
"""Rules that look at all layouts of a plan, of one or of several."""

LAYOUT_RULES: tuple[Rule, ...] = (
    layers_and_stages,
    pipeline_rank_sizes,
    orders,
    sequences_of_replicas,
    one_layout_only,
)
"""Rules of plans with several layouts."""
