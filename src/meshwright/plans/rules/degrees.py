"""Rules on the degrees: their product, what they must divide, and the experts' mesh."""

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, prod
from typing import get_args

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture, Experts
from meshwright.plans.forms.conversion import expert_grid
from meshwright.plans.forms.long import ExpertAxis
from meshwright.plans.forms.short import MAX_DEGREE, Axis
from meshwright.plans.rules.encoder_models import encoder_widths
from meshwright.plans.rules.rule_input import Rule, RuleInput, largest_divisor

PADDING_WARNING = 1.25


def device_product(case: RuleInput) -> Iterator[Problem]:
    """pp·dp_replicate·dp_shard·cp·tp = devices."""
    degrees, devices = case.degrees, case.cluster.devices
    product = prod(degrees.values())
    if product == devices:
        return
    rule = f"{'·'.join(degrees)} = {'·'.join(map(str, degrees.values()))} = {product} ≠ {devices} devices"
    yield Problem("layout", product, rule, _other_degree(case) or _data_parallel_only(case))


def _other_degree(case: RuleInput) -> str:
    """One degree that would make the product right, data parallelism first."""
    degrees, devices = case.degrees, case.cluster.devices
    data = ["dp_replicate", "dp_shard"] if case.plan.sharding == "none" else ["dp_shard", "dp_replicate"]
    for axis in (*data, "pp", "cp", "tp"):
        others = prod(degrees.values()) // degrees[axis]
        degree = devices // others
        if degree and devices % others == 0 and _possible(case, axis, degree):
            return f"{axis}: {degree}"
    return ""


def _data_parallel_only(case: RuleInput) -> str:
    """Degrees with the right product where no single one mends it."""
    axis = "dp_replicate" if case.plan.sharding == "none" else "dp_shard"
    others = [f"{other}: 1" for other, degree in case.degrees.items() if other != axis and degree > 1]
    return ", ".join((f"{axis}: {case.cluster.devices}", *others))


def _possible(case: RuleInput, axis: str, degree: int) -> bool:
    """Return true if the degree divides the model's widths (tp) or leaves each stage a layer (pp)."""
    if axis == "tp":
        return all(width % degree == 0 for width in _widths(case.arch).values())
    return axis != "pp" or degree <= case.arch.layers


def rank_orders(case: RuleInput) -> Iterator[Problem]:
    """Each order names every axis once."""
    axes, order = get_args(Axis), case.layout.order
    if sorted(order) != sorted(axes):
        rule = "must name each of " + ", ".join(axes) + " once"
        yield Problem("layout.rank_order", list(order), rule, f"[{', '.join(axes)}]")
    experts = case.layout.experts
    expert_axes = get_args(ExpertAxis)
    if experts and sorted(experts.order) != sorted(expert_axes):
        field = f"layouts.{case.layout_name}.experts.order"
        rule = "must name each of " + ", ".join(expert_axes) + " once"
        yield Problem(field, list(experts.order), rule, f"[{', '.join(expert_axes)}]")


def tensor_widths(case: RuleInput) -> Iterator[Problem]:
    """tp divides heads, key-value heads, hidden and the feed-forward widths."""
    tp, arch = case.grid.tp, case.arch
    for problem in width_problems(arch, tp, "layout.tp"):
        copies = problem.rule.startswith("kv_heads") and tp % arch.kv_heads == 0
        if copies and case.stack.copies_key_value_heads:
            note = f"; {case.stack.id} would copy them, and a plan cannot say so yet"
            problem = replace(problem, rule=problem.rule + note)
        yield problem


def width_problems(
    arch: Architecture, tp: int, field: str, *, copied_kv_heads: bool = False
) -> Iterator[Problem]:
    """Yield the widths that tp does not divide. With ``copied_kv_heads`` it may be a multiple of those heads."""
    widths = _widths(arch)
    if copied_kv_heads and tp % arch.kv_heads == 0:
        widths.pop("kv_heads", None)
    legal = largest_divisor(gcd(*widths.values()), tp)
    for name, width in widths.items():
        if width % tp:
            yield Problem(field, tp, f"{name} % tp = {width} % {tp} = {width % tp} ≠ 0", f"tp: {legal}")


def _widths(arch: Architecture) -> dict[str, int]:
    """Return the widths that tp must divide, by name."""
    widths = {"heads": arch.heads, "kv_heads": arch.kv_heads, "hidden": arch.hidden}
    if arch.latent is not None:
        del widths["kv_heads"]
    if arch.intermediate:
        widths["ffn"] = arch.intermediate
    if arch.state_space is not None:
        widths["Mamba-2 heads"] = arch.state_space.heads
        widths |= {"Mamba-2 groups": arch.state_space.groups} if arch.state_space.groups > 1 else {}
    if arch.moe is not None and arch.moe.shared_intermediate:
        widths["shared experts' ffn"] = arch.moe.shared_intermediate
    return widths | encoder_widths(arch)


def _unpadded(case: RuleInput) -> int:
    """Return the largest tp below the plan's that pads the vocabulary by little."""
    vocab, least = case.arch.vocab, _vocab_multiple(case)
    fine = (
        tp for tp in range(case.grid.tp - 1, 1, -1) if -vocab % (least * tp) <= (PADDING_WARNING - 1) * vocab
    )
    return next(fine, 1)


def _vocab_multiple(case: RuleInput) -> int:
    """Return the factor by which, times tp, the padded vocabulary must be divisible."""
    return max(1, case.stack.vocab_multiple) * (case.pp if case.plan.choice.form else 1)


def vocabulary_padding(case: RuleInput) -> Iterator[Problem]:
    """Warn if padding to a multiple of vocab_multiple·tp adds more than a quarter to the vocabulary."""
    vocab, multiple = case.arch.vocab, _vocab_multiple(case) * case.grid.tp
    padded = -(-vocab // multiple) * multiple
    if padded > PADDING_WARNING * vocab:
        cut = "vocab_multiple·pp·tp" if case.plan.choice.form else "vocab_multiple·tp"
        rule = f"the vocabulary of {vocab} is padded to {padded}, a multiple of {cut} = {multiple}"
        yield Problem("layout.tp", case.grid.tp, rule, f"tp: {_unpadded(case)}", "warning")


def experts_present(case: RuleInput) -> Iterator[Problem]:
    """ep and etp want experts, and experts want a mesh."""
    mesh = case.layout.experts
    if case.arch.moe is None and mesh and mesh.ep * mesh.etp > 1:
        rule = f"the model has no experts, so ep·etp = {mesh.ep}·{mesh.etp} must be 1"
        yield Problem("layout.ep", mesh.ep, rule, "ep: 1, etp: 1")
    if case.arch.moe is not None and mesh is None:
        field = f"layouts.{case.layout_name}.experts"
        yield Problem(field, None, "the model has experts, so they need a mesh", _mesh(case, 1, 1))


def expert_widths(case: RuleInput) -> Iterator[Problem]:
    """ep divides the number of experts, etp their width."""
    mesh, moe = case.layout.experts, case.arch.moe
    if mesh is None or moe is None:
        return
    yield from expert_width_problems(moe, mesh.ep, mesh.etp, "layout", _legal_ep(case))


def expert_width_problems(moe: Experts, ep: int, etp: int, layout: str, legal_ep: int) -> Iterator[Problem]:
    """Yield the experts and their width that ep and etp do not divide; ``layout`` is the field that has them."""
    if moe.experts % ep:
        rule = f"experts % ep = {moe.experts} % {ep} = {moe.experts % ep} ≠ 0"
        yield Problem(f"{layout}.ep", ep, rule, f"ep: {legal_ep}")
    if moe.intermediate % etp:
        rule = f"experts' ffn % etp = {moe.intermediate} % {etp} = {moe.intermediate % etp} ≠ 0"
        yield Problem(f"{layout}.etp", etp, rule, f"etp: {largest_divisor(moe.intermediate, etp)}")


def expert_product(case: RuleInput) -> Iterator[Problem]:
    """ep·etp·edp_shard·edp_replicate = dp_replicate·dp_shard·cp·tp."""
    mesh, grid = case.layout.experts, case.grid
    if mesh is None:
        return
    degrees = (mesh.ep, mesh.etp, mesh.edp_shard, mesh.edp_replicate)
    if prod(degrees) != case.stage_ranks:
        ranks = (grid.dp_replicate, grid.dp_shard, grid.cp, grid.tp)
        rule = (
            f"ep·etp·edp_shard·edp_replicate = {'·'.join(map(str, degrees))} = {prod(degrees)} ≠ "
            f"dp_replicate·dp_shard·cp·tp = {'·'.join(map(str, ranks))} = {case.stage_ranks}"
        )
        yield Problem("layout.ep", mesh.ep, rule, _mesh_hint(case))


def _mesh_hint(case: RuleInput) -> str:
    """Suggest a mesh that fills the ranks: the same ep and etp if they divide them, else smaller ones."""
    mesh = case.layout.experts
    assert mesh is not None
    etp = largest_divisor(case.stage_ranks, mesh.etp)
    ep = mesh.ep if (case.stage_ranks // etp) % mesh.ep == 0 else _legal_ep(case)
    return _mesh(case, ep, etp)


def _mesh(case: RuleInput, ep: int, etp: int) -> str:
    """Write the whole expert mesh that ``ep`` and ``etp`` lead to."""
    if case.stage_ranks > MAX_DEGREE:
        return "take smaller degrees"
    fit = expert_grid(case.grid, ep, etp, case.plan.sharding == "none")
    return f"ep: {ep}, etp: {etp} (edp_shard: {fit.edp_shard}, edp_replicate: {fit.edp_replicate})"


def _legal_ep(case: RuleInput) -> int:
    """Return the largest ep up to the present one that divides the experts and the ranks of a stage."""
    mesh, moe = case.layout.experts, case.arch.moe
    if mesh is None or moe is None:
        return 1
    rest = case.stage_ranks // largest_divisor(case.stage_ranks, mesh.etp)
    return largest_divisor(gcd(moe.experts, rest), mesh.ep)


def experts_need_sequences(tp: int | None = None) -> str:
    """Return the rule of experts in tensor-parallel groups, with the degree where one plan breaks it."""
    degree = "tp" if tp is None else f"tp = {tp}"
    return f"experts with {degree} > 1 need sequence parallelism"


def expert_tokens(case: RuleInput) -> Iterator[Problem]:
    """With tp > 1 experts want sequence parallelism: without it all tp ranks send them the same tokens."""
    tp = case.grid.tp
    if case.arch.moe is not None and tp > 1 and not case.layout.sequence_parallel:
        rule = f"{experts_need_sequences(tp)}, which gives every token to one tp rank"
        yield Problem("layout.sequence_parallel", False, rule, "sequence_parallel: true")


def sharded_axes(case: RuleInput) -> Iterator[Problem]:
    """dp_shard wants something to shard, or entries of ``synchronise``, and sharding wants an axis."""
    grid, sharding = case.grid, case.plan.sharding
    if sharding == "none" and grid.dp_shard > 1 and not case.plan.synchronise:
        hint = f"dp_shard: 1, dp_replicate: {grid.dp_replicate * grid.dp_shard}"
        yield Problem("layout.dp_shard", grid.dp_shard, "no state is sharded, so dp_shard must be 1", hint)
    if sharding != "none" and grid.dp_shard * grid.cp == 1 and grid.dp_replicate > 1:
        rule = f"{sharding} shards over dp_shard·cp = 1·1, so nothing is sharded"
        yield Problem(
            "sharding", sharding, rule, f"dp_shard: {grid.dp_replicate}, dp_replicate: 1", "warning"
        )


DEGREE_RULES: tuple[Rule, ...] = (
    device_product,
    rank_orders,
    tensor_widths,
    vocabulary_padding,
    experts_present,
    expert_widths,
    expert_product,
    expert_tokens,
    sharded_axes,
)
