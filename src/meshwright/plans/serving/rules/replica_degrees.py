"""Laws on the degrees of a replica: widths that tp divides, layers of stages, and the mesh of experts.

ep·etp = cp·tp·attention_dp for a model with experts; a dense model has neither.
"""

from collections.abc import Iterator
from math import gcd

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.rules.degrees import expert_width_problems, width_problems
from meshwright.plans.rules.rule_input import largest_divisor
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.rules.serving_rule_input import PlacedLayout, ServingRule, ServingRuleInput


def layout_problems(arch: Architecture, one: PlacedLayout) -> Iterator[Problem]:
    """Yield every law on degrees that a layout breaks."""
    yield from _widths(arch, one)
    yield from _layers(arch, one)
    yield from _mesh_of_experts(arch, one)


def _widths(arch: Architecture, one: PlacedLayout) -> Iterator[Problem]:
    """tp divides heads, hidden and feed-forward widths; it divides the key-value heads or is a multiple of them."""
    yield from width_problems(arch, one.layout.tp, f"{one.field}.tp", copied_kv_heads=True)


def _layers(arch: Architecture, one: PlacedLayout) -> Iterator[Problem]:
    """Every stage has a layer; layers that only predict further tokens are not served."""
    layers = arch.layers - arch.next_token_layers
    if one.layout.pp > layers:
        yield Problem(f"{one.field}.pp", one.layout.pp, f"pp > {layers} layers of the model", f"pp: {layers}")


def _mesh_of_experts(arch: Architecture, one: PlacedLayout) -> Iterator[Problem]:
    """ep·etp = cp·tp·attention_dp, ep divides the experts and etp their width; a dense model has no mesh."""
    yield from _dense(one) if arch.moe is None else _routed(one, arch)


def _dense(one: PlacedLayout) -> Iterator[Problem]:
    for key, degree in (("ep", one.layout.ep), ("etp", one.layout.etp)):
        if degree != 1:
            rule = f"the model has no experts, so {key} must be 1"
            yield Problem(f"{one.field}.{key}", degree, rule, f"{key}: 1, or leave it out")


def _routed(one: PlacedLayout, arch: Architecture) -> Iterator[Problem]:
    assert arch.moe is not None
    layout, moe = one.layout, arch.moe
    legal = largest_divisor(gcd(moe.experts, layout.stage_ranks), layout.ep)
    if layout.ep * layout.etp != layout.stage_ranks:
        yield Problem(f"{one.field}.ep", layout.ep, _product(layout), _mesh(layout, legal))
    yield from expert_width_problems(moe, layout.ep, layout.etp, one.field, legal)


def _product(layout: ReplicaLayout) -> str:
    return (
        f"ep·etp = {layout.ep}·{layout.etp} = {layout.ep * layout.etp} ≠ cp·tp·attention_dp = "
        f"{layout.cp}·{layout.tp}·{layout.attention_dp} = {layout.stage_ranks}"
    )


def _mesh(layout: ReplicaLayout, ep: int) -> str:
    """Return a mesh that fills the stage: the layout's own ep if it divides the experts and the ranks."""
    return f"ep: {ep}, etp: {layout.stage_ranks // ep}"


def layouts_of_pools(case: ServingRuleInput) -> Iterator[Problem]:
    """Require legal degrees of every layout."""
    if case.arch is None:
        return
    for law in (_widths, _layers, _mesh_of_experts):
        for one in case.layouts():
            yield from law(case.arch, one)


REPLICA_RULES: tuple[ServingRule, ...] = (layouts_of_pools,)
