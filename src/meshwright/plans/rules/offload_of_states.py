"""Rules on model states in host memory: passes that can fetch them, and what the stack keeps there."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import OWN_STACK, Stack
from meshwright.workload.optimizers import OPTIMIZERS

FETCHED = "per-layer"
"""When sharded parameters are gathered that are fetched layer by layer."""
WORDS = {"all": "all of {}", "share": "any share of {}"}
KEYS = {"optimizer": "offload.optimizer", "parameters": "offload.parameters"}


def fetched_parameters(case: RuleInput) -> Iterator[Problem]:
    """Refuse parameters on the host that passes do not fetch layer by layer."""
    plan, share = case.plan, case.plan.host_shares.parameters
    if not share:
        return
    if plan.sharding == "zero3" and plan.gather != FETCHED:
        rule = f"parameters come from the host layer by layer, and gather is {plan.gather}"
        yield Problem(KEYS["parameters"], _written(plan.offload, "parameters"), rule, f"gather: {FETCHED}")
    if plan.sharding in ("zero1", "zero2"):
        rule = f"{plan.sharding} gathers whole parameters behind the step, and their home is the host"
        yield Problem(
            KEYS["parameters"], _written(plan.offload, "parameters"), rule, "sharding: zero3, or none"
        )


def states_of_a_spread_vocabulary(case: RuleInput) -> Iterator[Problem]:
    """Refuse states on the host where embedding and head are spread over the pipeline ranks."""
    vocabulary = case.plan.choice.vocabulary
    if vocabulary is not None and case.plan.host_shares.some:
        key = "optimizer" if case.plan.host_shares.optimizer else "parameters"
        rule = f"shares of a vocabulary that is spread over pipeline ranks ({vocabulary}) stay on the device"
        hint = "the vocabulary at the ends, or take offload out"
        yield Problem(KEYS[key], _written(case.plan.offload, key), rule, hint)


def states_of_matrices(case: RuleInput) -> Iterator[Problem]:
    """Refuse the states of an optimizer on the host that multiplies matrices."""
    optimizer = case.plan.workload.optimizer_in_full
    if case.plan.host_shares.optimizer and optimizer.name in OPTIMIZERS and optimizer.kind.of_matrices:
        rule = f"the host only steps element by element, and {optimizer.name} multiplies matrices"
        yield Problem(
            KEYS["optimizer"],
            _written(case.plan.offload, "optimizer"),
            rule,
            "take it out, or optimizer: adamw",
        )


def states_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse shares of states on the host that the stack does not keep there, at all or under this sharding."""
    shares, stack, sharding = case.plan.host_shares, case.stack, case.plan.sharding
    if not shares.some:
        return
    key = "optimizer" if shares.optimizer else "parameters"
    value = _written(case.plan.offload, key)
    ways = [way for way in stack.state_offloads if way.has(shares)]
    grid = case.grid
    alone = grid.dp_replicate * grid.dp_shard * grid.cp == 1
    if not ways:
        rule = f"{stack.id} keeps {able(stack)} on the host"
        yield Problem(KEYS[key], value, rule, f"take offload out, or stack: {OWN_STACK}")
    elif not any(way.runs_with(sharding, alone=alone) for way in ways):
        known = list(dict.fromkeys(name for way in ways for name in way.shardings))
        rule = f"{stack.id} does so with sharding {' or '.join(known)} only"
        yield Problem(KEYS[key], value, rule, f"sharding: {known[0]}")


def able(stack: Stack) -> str:
    """Return in words what a stack keeps on the host."""
    ways = [
        " with ".join(
            WORDS[share].format(name)
            for share, name in ((way.optimizer, "the optimizer's states"), (way.parameters, "the parameters"))
            if share != "none"
        )
        for way in stack.state_offloads
    ]
    return " or ".join(dict.fromkeys(ways)) or "no model states"


def _written(offload: object, key: str) -> object:
    return getattr(offload, key)


HOST_STATE_RULES: tuple[Rule, ...] = (
    fetched_parameters,
    states_of_a_spread_vocabulary,
    states_of_matrices,
)
