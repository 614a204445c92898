"""Refuse what ``synchronise`` does not do yet, by name. The table ``NOT_SUPPORTED`` shrinks as support grows."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from meshwright.errors import Problem
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.forms.long import NOT_YET
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.plans.synchronisation.combination import ALL, MEAN, PLAIN_CODE, Combination, Partners
from meshwright.plans.synchronisation.exchange_text import file_data
from meshwright.plans.synchronisation.plan_axes import sharded_axes
from meshwright.plans.synchronisation.synchronisation import NEVER, PeriodRule, Synchronisation
from meshwright.schedules.choice import validates_afterwards
from meshwright.stack.stack import OWN_STACK
from meshwright.stack.state_types import types_of
from meshwright.workload.optimizers import OPTIMIZERS

FIELD = "synchronise"
Refusal = tuple[str, object, str, str]
"""Key, value, rule, suggestion."""


def keys_of_entries(case: RuleInput) -> Iterator[Problem]:
    """Refuse keys of entries, and states of unusual types."""
    for place, entry in enumerate(case.plan.synchronise):
        for refusal in OF_ENTRIES:
            for key, value, rule, hint in refusal(case, entry):
                yield Problem(f"{FIELD}.{place}.{key}", value, f"{rule} {NOT_YET}", hint)


def parts_of_plans(case: RuleInput) -> Iterator[Problem]:
    """Refuse other parts of the plan together with entries."""
    if not case.plan.synchronise:
        return
    for what, refusal in NOT_SUPPORTED.items():
        value = refusal(case)
        if value:
            yield Problem(
                FIELD,
                format_count(case.plan.synchronise),
                f"{what} ({value}): with synchronise it {NOT_YET}",
                "take one out",
            )


def exchanges_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse entries for a stack that exchanges gradients in every step, and nothing else."""
    if case.plan.synchronise and not case.stack.synchronises:
        rule = f"replicas of {case.stack.id} exchange whole gradients in every step, and nothing else"
        hint = f"stack: {OWN_STACK}, or take the entries out"
        yield Problem(FIELD, format_count(case.plan.synchronise), rule, hint)


def format_count(entries: Sequence[Synchronisation]) -> str:
    """Return the number of entries in words."""
    return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"


def _lists(case: RuleInput, entry: Synchronisation) -> Iterator[Refusal]:
    if not isinstance(entry.over, str):
        yield "over", list(entry.over), "an exchange over several axes at a time", "over: dp_replicate"


def _partners(case: RuleInput, entry: Synchronisation) -> Iterator[Refusal]:
    of_gradients, partners, combine = entry.state == "gradient", entry.partners, entry.combine
    quorum = of_gradients and isinstance(partners, Partners) and partners.written == ("quorum",)
    if of_gradients and entry.coded is not None and entry.coded.scheme != PLAIN_CODE:
        rule = f"{entry.coded.scheme} ends a gradient rounds later, for several jobs in turn; outside of simulations it"
        yield "combine.coded.scheme", entry.coded.scheme, rule, "coded: {tolerate: 1}"
    if partners not in (None, ALL) and not quorum:
        yield "with", _shown(partners), "an exchange with some of the ranks", "take with out"
    stale = isinstance(combine, Combination) and "stale" in combine.written
    if combine not in (None, MEAN) and (stale or not of_gradients):
        rule = "weights by staleness" if stale else f"another combination of {entry.state}s than the mean"
        yield "combine", _shown(combine), rule, "take combine out"


def _shown(part: object) -> object:
    return file_data(part) if isinstance(part, Strict) else part


def _periods(case: RuleInput, entry: Synchronisation) -> Iterator[Refusal]:
    if entry.every == NEVER:
        yield "every", NEVER, "training apart", "every: 1000"
    if isinstance(entry.every, PeriodRule) and entry.every.probability is not None:
        yield "every.probability", entry.every.probability, "a random period", "every: 10"


def _narrow_moments(case: RuleInput, entry: Synchronisation) -> Iterator[Refusal]:
    workload = case.workload
    if workload is None:
        return
    types = types_of(case.stack, workload.precision, case.plan.written_types)
    for key in entry.states:
        kind = getattr(types, key, "fp32") if key.endswith("moment") else "fp32"
        if kind != "fp32" and key in workload.optimizer.moments:
            yield "state", entry.state, f"an average of a {key} in {kind}", f"dtypes.{key}: fp32"


def _tokens(case: RuleInput, entry: Synchronisation) -> Iterator[Refusal]:
    """Yield what buckets of tokens on their way to experts do not go with."""
    if entry.state != "expert_token":
        return
    if entry.compress is not None and entry.compress.layers is not None:
        yield "compress.layers", entry.compress.layers, "lsh in some of the layers", "take layers out"
    if case.workload is not None and case.workload.capacity is not None:
        yield "state", entry.state, "buckets of tokens for experts with a capacity", "no workload.capacity"
    if case.stack.deduplicates_exchange:
        rule = f"buckets with {case.stack.id}, which sends a token once to a rank with some of its experts,"
        yield "state", entry.state, rule, "another stack"


OF_ENTRIES: tuple[Callable[[RuleInput, Synchronisation], Iterator[Refusal]], ...] = (
    _lists,
    _partners,
    _periods,
    _narrow_moments,
    _tokens,
)


def _shares(case: RuleInput) -> object:
    layout = case.layout
    return (
        (layout.batch_share and f"batch_share {list(layout.batch_share)}")
        or (layout.state_share not in (None, "even") and f"state_share {list(layout.state_share or ())}")
        or None
    )


def _host(case: RuleInput) -> object:
    if case.plan.in_chunks:
        return "offload.manager"
    return "offload" if case.plan.host_shares.some else None


def _validated_after(case: RuleInput) -> object:
    after = validates_afterwards(case.plan.choice, case.stack.validates_step_afterwards, case.pp)
    return "step_validation: after" if after else None


def _adapters_apart(case: RuleInput) -> object:
    workload = case.workload
    adapter = None if workload is None else workload.adapter
    return adapter.form if adapter is not None and adapter.of_each_replica else None


def _forward_only(case: RuleInput) -> object:
    optimizer = case.plan.workload.optimizer_in_full
    return optimizer.name if optimizer.forward_only else None


def _whole_matrices(case: RuleInput) -> object:
    optimizer = case.plan.workload.optimizer_in_full
    of_matrices = optimizer.name in OPTIMIZERS and optimizer.kind.of_matrices
    return optimizer.name if of_matrices and sharded_axes(case.plan, case.layout) else None


def _shards_of_sequences(case: RuleInput) -> object:
    sharded = sharded_axes(case.plan, case.layout)
    encoded = any(entry.over in sharded and entry.compress is not None for entry in case.plan.synchronise)
    return encoded and case.layout.grid.cp > 1 and f"cp = {case.layout.grid.cp}"


def _two_tables(case: RuleInput) -> object:
    gradients = [entry for entry in case.plan.synchronise if entry.state == "gradient"]
    encoded = any(entry.compress is not None or entry.combines for entry in gradients)
    apart = case.arch.tied_embeddings and case.pp > 1 and case.plan.choice.form is None
    return encoded and apart and f"pp = {case.pp}"


def _combining(case: RuleInput) -> list[Synchronisation]:
    return [entry for entry in case.plan.synchronise if entry.state == "gradient" and entry.combines]


def _reduced_often(case: RuleInput) -> object:
    plan, cut = case.plan, case.stack.cuts_parameters(case.plan.sharding)
    if not _combining(case):
        return None
    if cut and plan.gather in ("per-layer", "per-unit"):
        return f"gather: {plan.gather}"
    each = case.pp == 1 and plan.sharding in case.stack.reduces_each_micro_batch
    return each and f"sharding: {plan.sharding}"


def _two_combined(case: RuleInput) -> object:
    gradients = [entry for entry in case.plan.synchronise if entry.state == "gradient"]
    return _combining(case) and len(gradients) > 1 and f"{len(gradients)} of them"


def _late_routers(case: RuleInput) -> object:
    late = [entry for entry in _combining(case) if entry.lacks_late_replicas]
    routing = case.arch.numerics.routing
    if not late or routing is None:
        return None
    if routing.correction_speed:
        return "corrections that move"
    return routing.balance is not None and late[0].coded is not None and "losses that balance experts"


def _late_vocabulary(case: RuleInput) -> object:
    late = any(entry.lacks_late_replicas for entry in _combining(case))
    return late and case.plan.choice.form is not None and case.plan.choice.vocabulary


NOT_SUPPORTED: Mapping[str, Callable[[RuleInput], object]] = {
    "several layouts": lambda case: len(case.plan.layouts) > 1 and f"{len(case.plan.layouts)} of them",
    "uneven shares of batch or states": _shares,
    "model states on the host": _host,
    "steps that are validated afterwards": _validated_after,
    "adapters that differ by replica": _adapters_apart,
    "an optimizer without backward passes": _forward_only,
    "an optimizer of whole matrices with sharded states": _whole_matrices,
    "encoded exchanges of what cp shards too": _shards_of_sequences,
    "encoded or combined gradients of a tied table on two pipeline ranks": _two_tables,
    "combined gradients that are reduced several times in a step": _reduced_often,
    "combined gradients and another entry of gradients": _two_combined,
    "late replicas and routers": _late_routers,
    "late replicas and a vocabulary that is spread over the pipeline": _late_vocabulary,
    "several chains of stages": lambda case: case.plan.pipeline.chains > 1 and case.plan.choice.name,
}
"""Parts of a plan with the value that is refused; nothing where there is none."""
UNSUPPORTED_RULES: tuple[Rule, ...] = (keys_of_entries, parts_of_plans)
