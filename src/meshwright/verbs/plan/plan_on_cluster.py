"""Answer a planning question: resolve the nouns, search, predict the best plans, give reasons."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.cluster import Cluster
from meshwright.cost.lower_bounds.state_memory import state_memory_bound
from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.uncertainty.step_error import pair_interval
from meshwright.errors import InfeasibleError, InputError, Problem, attempted, nearest
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, load_nouns
from meshwright.plans.rules.adapters import model_problems, stack_problems
from meshwright.plans.rules.encoder_models import encoder_problems
from meshwright.plans.rules.not_in_this_release import unsupported_workload, workload_of
from meshwright.plans.rules.routing_and_capacity import capacity_problems, routing_problems
from meshwright.plans.rules.stack_limits import broken_by_every_plan
from meshwright.plans.rules.stack_limits.stack_models import missing_model
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.algorithms.time_memory_front import TimeMemoryPoint, time_memory_front
from meshwright.search.partition.balance import BALANCES
from meshwright.search.space.plan_space import Space
from meshwright.search.stage_rebalancing import RebalancedPlan
from meshwright.stack.stack import Stack
from meshwright.units import format_bytes
from meshwright.verbs.plan.adapter_exports import with_export_remark
from meshwright.verbs.plan.constraints import parse_forbid, parse_keep
from meshwright.verbs.plan.expert_placement import with_expert_orders
from meshwright.verbs.plan.host_state_search import search_with_states_on_hosts
from meshwright.verbs.plan.layers.range_answer import LAYERS, Layers, RangeAnswer, by_range, ranged_answer
from meshwright.verbs.plan.least_memory import memory_summary
from meshwright.verbs.plan.node_placement import spare_plans, with_node_orders
from meshwright.verbs.plan.proposal import Proposal, network_advised, proposed, with_node_remark
from meshwright.verbs.plan.recommendation import (
    RECOMMENDS,
    Recommend,
    Recommended,
    in_new_order,
    recommended,
)
from meshwright.verbs.plan.search_space import Progress, Scope, search, search_scope, searched_space
from meshwright.verbs.plan.searched_values import SpaceValues, space_values
from meshwright.verbs.plan.smallest_cluster import smallest_cluster
from meshwright.verbs.plan.solver_schedules import Solved, SolverOptions, ranked, solved, solving_problems
from meshwright.verbs.predict.sharding_exchanges import with_sharding_exchanges
from meshwright.workload.adapter import Adapter
from meshwright.workload.workload import Workload

FAR_TOO_LARGE = "states alone exceed the memory of a device"
TOO_LARGE = "peak memory exceeds what is usable of a device"
SLOWER = "slower than what was found, by a lower bound"
DUPLICATE = "equal to a plan"
"""Beginning of the reasons that name a plan in another spelling."""
AS_REQUESTED = ", as asked"
"""End of the reasons that exclude a value on request."""
LEAN = "memory"
"""Stages that are cut for the least memory come in their own order: with them plans are slower."""
MOST_RULES = 5
"""Rules that the summary of a refusal names."""
STAGES = ("balanced", *BALANCES)
"""Ways to cut stages."""
EXCHANGES = ("local", "compress")
"""Keys of exchanges between replicas: less often, and with fewer bytes."""
ALLOWED = ("dtypes", *EXCHANGES)
"""Keys that are searched only if a question allows it: their values change what is computed."""
UNPLAYED = "perhaps quicker, with a schedule that takes long to play"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A planning question: ``header`` holds the nouns and the workload.

    ``keep`` has the choices that are fixed, ``forbid`` values that no plan may have.

    ``stages``: as equally many layers as there can be, or cut anew for the best plans, by time or by memory.
    ``schedules``: names with commas between, ``auto`` for all of the stack, None for those with closed forms.
    ``solving``: how long a solver then looks for better lists, if at all.
    ``recommend``: ``robust`` for the plan with the least regret, ``fastest`` for the least predicted time. ``allow``:
    keys of ``ALLOWED`` that are searched too. ``layers``: ``uniform`` for one layout and recomputation for all layers,
    ``ranges`` to search them by ranges of layers too, ``auto`` for ranges only where nothing else fits.
    """

    header: ShortPlan
    keep: tuple[str, ...] = ()
    top: int = 5
    stages: str = "balanced"
    schedules: str | None = None
    solving: SolverOptions | None = None
    forbid: tuple[str, ...] = ()
    recommend: Recommend = "robust"
    allow: tuple[str, ...] = ()
    layers: Layers = "auto"

    def __post_init__(self) -> None:
        """Split keys at commas."""
        words = tuple(word.strip() for text in self.allow for word in text.split(","))
        object.__setattr__(self, "allow", words)


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The recommended plans, the fastest one, and how they were found. Times in seconds of wall clock.

    ``tied`` feasible plans are predicted to take at most ``tie_ratio`` times the best: the model can not tell them
    apart. ``unplayed`` plans may be better than these, by no more than ``gap``, a fraction of the best time: playing
    their schedules would have taken too long, or the search was ``interrupted``. ``gap`` is 0 where the best of all was
    found. ``solved``: what came of looking for better lists, where that was asked for. ``time_memory``: the plans that
    none beats in time and memory, of those that are tied.
    """

    considered: int
    legal: int
    evaluated: int
    feasible: int
    tied: int
    tie_ratio: float
    unplayed: int
    gap: float
    interrupted: bool
    search_time_s: float
    rejected: Mapping[str, int]
    proposals: tuple[Proposal, ...]
    fastest: Proposal
    space: SpaceValues
    solved: Solved | None = None
    recommend: Recommend = "robust"
    time_memory: tuple[TimeMemoryPoint, ...] = ()
    ranges: RangeAnswer | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        return {
            "candidates_considered": self.considered,
            "candidates_legal": self.legal,
            "candidates_evaluated": self.evaluated,
            "candidates_feasible": self.feasible,
            "candidates_tied": self.tied,
            "candidates_unplayed": self.unplayed,
            "optimal": self.unplayed == 0,
            "gap": self.gap,
            "interrupted": self.interrupted,
            "space": self.space.to_json(),
            "tie_ratio": self.tie_ratio,
            "search_time_s": self.search_time_s,
            "rejected": dict(self.rejected),
            "solved": None if self.solved is None else self.solved.to_json(),
            "recommend": self.recommend,
            "plans": [proposal.to_json() for proposal in self.proposals],
            "fastest": {name: self.fastest.to_json()[name] for name in ("plan", "long", "predict")},
            "pareto_memory": [point.to_json() for point in self.time_memory],
            "ranges": None if self.ranges is None else self.ranges.to_json(),
        }


def answer(
    question: PlanRequest,
    setting: Setting | None = None,
    progress: Progress | None = None,
    known: Recommended | None = None,
) -> PlanAnswer:
    """Search. Raises InputError for a wrong question and InfeasibleError when nothing fits.

    ``setting`` stands for what the header names, where it is at hand; ``progress`` hears how far the search is.
    ``known``: what was found and recommended already.
    """
    setting, scope = checked(question, setting)
    began = time.perf_counter()
    if known is None:
        space, staged = _searched(question, setting, scope, progress)
        if not len(staged.found.ranking):
            return _by_ranges_alone(question, setting, scope, space, staged, began)
        seconds = time.perf_counter() - began
        known = recommended(staged, setting, recommendation(question), plans_to_show(question, setting))
    else:
        space, seconds = searched_space(scope, setting), time.perf_counter() - began
    staged, found, rows = known.staged, known.staged.found, known.rows
    with_fastest = rows if known.fastest in rows else (*rows, known.fastest)
    every = proposed(staged, with_fastest, question.header, setting, known.regret)
    proposals, quickest = tuple(every[: len(rows)]), every[with_fastest.index(known.fastest)]
    before = proposals
    better = None
    if question.solving is not None and not found.interrupted:
        limit = scope.knobs.get("memory_limit")
        limit = None if limit is None else float(limit)
        better = solved(staged, question.header, setting, question.solving, limit, progress)
        own = [one for row, one in zip(rows, proposals, strict=True) if row not in better.proposals]
        proposals = ranked([*own, *better.proposals.values()], len(rows))
        before = proposals
    proposals = with_node_orders(with_expert_orders(proposals, setting), setting, question.top)
    proposals = in_new_order(before, proposals, recommendation(question))[: question.top]
    ranges = None
    if question.layers == "ranges":
        ranges = ranged_answer(found, known, question.header, setting, scope, recommendation(question))
        proposals = (*ranges.proposals, *proposals)[: question.top]
    by_ranges = (ranges.fastest,) if ranges is not None and ranges.fastest is not None else ()
    quickest = min((*proposals, quickest, *by_ranges), key=lambda one: one.report.step_time_s)
    first, *others = proposals
    others = [with_node_remark(one, setting.cluster.pool) for one in others]
    ratio = pair_interval(setting).high
    return PlanAnswer(
        considered=space.considered,
        legal=len(space),
        evaluated=len(found.plans),
        feasible=len(found.ranking),
        tied=found.within(ratio),
        tie_ratio=ratio,
        unplayed=found.unplayed,
        gap=found.gap,
        interrupted=found.interrupted or (better is not None and better.interrupted),
        search_time_s=seconds,
        rejected=_rejected(space, found),
        proposals=(finished(first, setting), *others),
        fastest=quickest,
        space=space_values(space, setting, least_time(found) if ranges is None else None),
        ranges=ranges,
        solved=better,
        recommend=recommendation(question),
        time_memory=time_memory_front(found, question.header, ratio),
    )


def finished(one: Proposal, setting: Setting) -> Proposal:
    """Return the first proposal with all remarks and advice."""
    noted = with_listed_exchanges(with_node_remark(one, setting.cluster.pool), setting)
    return noted if by_range(one) else with_export_remark(network_advised(noted, setting), setting)


def with_listed_exchanges(one: Proposal, setting: Setting) -> Proposal:
    """Return a proposal whose prediction lists what replicas exchange, as ``predict`` does."""
    long = one.long or expand(one.plan, setting.model.architecture)
    resolved = Resolved(long, None if one.long else one.plan, setting)
    return replace(one, report=with_sharding_exchanges(one.report, resolved))


def recommendation(question: PlanRequest) -> Recommend:
    """Return how the plans of a question are recommended; the leanest stages come in their own order."""
    return "fastest" if question.stages == LEAN else question.recommend


def plans_to_show(question: PlanRequest, setting: Setting) -> int:
    """Return the number of plans to predict in full, those included that an order of nodes may bring forward."""
    return question.top + spare_plans(setting)


def _searched(
    question: PlanRequest, setting: Setting, scope: Scope, progress: Progress | None
) -> tuple[Space, RebalancedPlan]:
    """Search, at last with states on the hosts. Raise InfeasibleError where nothing fits and no ranges are searched."""
    space, found = search(scope, setting, progress)
    staged = _staged(found, question, setting)
    if not len(staged.found.ranking):
        space, found = search_with_states_on_hosts(scope, setting, progress) or (space, found)
        staged = _staged(found, question, setting)
    if not len(staged.found.ranking) and not searches_ranges(question, setting):
        raise infeasible(space, staged.found, setting, scope, question.header)
    return space, staged


def searches_ranges(question: PlanRequest, setting: Setting) -> bool:
    """Return true if plans whose layers differ are searched where no plan with one layout fits."""
    return question.layers != "uniform" and question.stages == "balanced" and bool(setting.free_by_layer)


def _by_ranges_alone(
    question: PlanRequest, setting: Setting, scope: Scope, space: Space, staged: RebalancedPlan, began: float
) -> PlanAnswer:
    """Answer where no plan with one layout fits. Raise InfeasibleError where no other plan does."""
    found = staged.found
    ranges = ranged_answer(found, None, question.header, setting, scope, recommendation(question))
    if not ranges.proposals:
        raise infeasible(space, found, setting, scope, question.header)
    first, *others = ranges.proposals[: question.top]
    return PlanAnswer(
        considered=space.considered,
        legal=len(space),
        evaluated=len(found.plans),
        feasible=0,
        tied=0,
        tie_ratio=pair_interval(setting).high,
        unplayed=found.unplayed,
        gap=ranges.search.gap,
        interrupted=found.interrupted,
        search_time_s=time.perf_counter() - began,
        rejected=_rejected(space, found),
        proposals=(finished(first, setting), *others),
        fastest=first,
        space=space_values(space, setting),
        recommend=recommendation(question),
        ranges=ranges,
    )


def least_time(found: RankedPlans) -> float:
    """Return the least predicted step in seconds."""
    return float(found.step_s[found.ranking].min())


def checked(question: PlanRequest, setting: Setting | None) -> tuple[Setting, Scope]:
    """Return the setting and scope of a valid question. Raise InputError with every problem."""
    problems: list[Problem] = []
    if question.top < 1:
        problems.append(Problem("top", question.top, "must be at least 1", "top: 5"))
    if question.stages not in STAGES:
        hint = nearest(question.stages, STAGES)
        problems.append(Problem("stages", question.stages, "is no way to cut stages", hint))
    if question.recommend not in RECOMMENDS:
        hint = nearest(question.recommend, RECOMMENDS)
        problems.append(Problem("recommend", question.recommend, "is no way to recommend", hint))
    if question.layers not in LAYERS:
        hint = nearest(question.layers, LAYERS)
        problems.append(Problem("layers", question.layers, "is no way to choose layouts", hint))
    for key in question.allow:
        if key not in ALLOWED:
            problems.append(Problem("allow", key, "is no key to allow", nearest(key, ALLOWED)))
    found = setting or attempted(lambda: setting_of(question.header), problems)
    keep = attempted(lambda: parse_keep(question.keep), problems)
    forbid = attempted(lambda: parse_forbid(question.forbid), problems)
    if question.layers == "ranges":
        problems += _range_problems(question, found)
    if question.solving is not None:
        stack = None if found is None else found.stack
        problems += solving_problems(question.solving, question.keep, stack)
    scope = None
    if found is not None:
        kept, left = keep or {}, forbid or {}
        scope = attempted(lambda: search_scope(kept, question.schedules, question.top, found, left), problems)
    if problems or found is None or scope is None:
        raise InputError(problems)
    anew = question.stages != "balanced"
    return found, replace(scope, whole=anew, wider=anew)


def _range_problems(question: PlanRequest, setting: Setting | None) -> Iterator[Problem]:
    """Yield problems of a search by ranges of layers."""
    if setting is not None and not setting.free_by_layer:
        another = "" if setting.stack.free_by_layer else ", or stack: meshwright"
        yield Problem("layers", question.layers, setting.same_by_layer, f"layers: uniform{another}")
    if question.stages != "balanced":
        rule = "a search by ranges of layers cuts stages itself"
        yield Problem("stages", question.stages, rule, "stages: balanced")


def setting_of(header: ShortPlan) -> Setting:
    """Load the nouns of a question. Raise InputError with the problems of all of them, and of the workload."""
    nouns = load_nouns(header)
    model, cluster, stack = nouns.model, nouns.cluster, nouns.stack
    problems = [*nouns.problems, *unsupported_workload(header)]
    workload = attempted(lambda: workload_of(header), [])
    if workload is not None and cluster is not None:
        problems += _cluster_problems(cluster, workload)
    if workload is not None and model is not None:
        problems += _length_problems(model.architecture, workload)
        problems += routing_problems(workload, model.architecture)
        problems += encoder_problems(workload, model.architecture)
    if workload is not None and workload.adapter is not None:
        problems += _adapter_problems(workload.adapter, workload, model, stack)
    if stack is not None and model is not None:
        problems += missing_model(model.architecture, stack)
    if workload is not None and workload.capacity is not None and stack is not None:
        problems += capacity_problems(workload.capacity, stack)
    if problems or model is None or cluster is None or stack is None or workload is None:
        raise InputError(problems)
    return Setting.of(model, cluster, workload, stack, header.dtypes)


def _adapter_problems(
    adapter: Adapter, workload: Workload, model: ModelGraph | None, stack: Stack | None
) -> Iterator[Problem]:
    """Yield problems with adapters that no plan could mend."""
    if model is not None:
        yield from model_problems(adapter, model)
    if stack is not None:
        of_stack = stack_problems(adapter, stack, workload.optimizer)
        yield from (problem for problem in of_stack if problem.severity == "error")


def _cluster_problems(cluster: Cluster, workload: Workload) -> Iterator[Problem]:
    """Yield problems that no plan could mend: several pools, a precision that the devices lack."""
    if len(cluster.pools) != 1:
        rule = "a cluster of several pools is not supported yet"
        yield Problem("cluster", cluster.name, rule, "a cluster of equal devices")
    elif workload.peak_precision not in cluster.pool.device.peak_flops:
        have = ", ".join(cluster.pool.device.peak_flops)
        rule = f"{cluster.pool.device.id} has no such matrix units"
        yield Problem("workload.precision", workload.precision, rule, f"one of {have}")


def _length_problems(arch: Architecture, workload: Workload) -> Iterator[Problem]:
    """Learned positions end somewhere."""
    if arch.positions == "learned" and workload.seq_len > arch.max_positions:
        rule = f"seq_len {workload.seq_len} > max_positions {arch.max_positions} of the model"
        yield Problem("workload.seq_len", workload.seq_len, rule, f"seq_len: {arch.max_positions}")


def infeasible(
    space: Space, found: RankedPlans, setting: Setting, scope: Scope, header: ShortPlan
) -> InfeasibleError:
    """Why nothing fits, and the smallest cluster that would do."""
    counts = _rejected(space, found)
    if found.unplayed:
        return _nothing_among_the_played(found, setting, counts)
    memory = [reason for reason in (FAR_TOO_LARGE, TOO_LARGE) if reason in counts]
    rules = [reason for reason in counts if reason not in memory]
    reasons = [f"{counts[reason]:,} plans: {reason}" for reason in memory + rules]
    if memory:
        reasons.insert(0, _leanest(space, found, setting))
        summary = memory_summary(space, header, setting)
    else:
        summary = _rule_summary(rules)
    verb = "fits" if memory else "is legal"
    message = f"No plan of {setting.model.name} {verb} on {setting.cluster.name}."
    refused = broken_by_every_plan(setting)
    hint = "; ".join(dict.fromkeys(problem.suggestion for problem in refused))
    return InfeasibleError(message, reasons, hint or smallest_cluster(setting, scope), summary)


def _rule_summary(rules: Sequence[str]) -> tuple[str, ...]:
    """Return the rules that removed most plans; what the question itself excludes only where nothing else did."""
    own = [rule for rule in rules if not rule.startswith(DUPLICATE)]
    return tuple([rule for rule in own if not rule.endswith(AS_REQUESTED)] or own)[:MOST_RULES]


def _nothing_among_the_played(
    found: RankedPlans, setting: Setting, counts: Mapping[str, int]
) -> InfeasibleError:
    """Not known whether anything fits: a plan that was not played might."""
    message = (
        f"No plan of {setting.model.name} that was played fits on {setting.cluster.name}; {found.unplayed:,} that may "
        "fit were not played."
    )
    reasons = [f"{count:,} plans: {reason}" for reason, count in counts.items()]
    hint = "keep more choices, for example --keep recompute=none --keep tp=8, so that all that is left can be played"
    return InfeasibleError(message, reasons, hint)


def _leanest(space: Space, found: RankedPlans, setting: Setting) -> str:
    """Return the excess of memory in words: the least peak, or the least bound if nothing was evaluated."""
    usable = usable_device_bytes(setting.cluster)
    states = float(state_memory_bound(space.base, setting).min())
    if len(found.plans):
        least, what = float(found.total_bytes.min()), "the leanest plan needs"
    elif states > usable:
        least, what = states, "states alone take at least"
    else:
        least, what = found.least_bytes, "the leanest plan needs at least"
    return f"{what} {format_bytes(least)} per device, usable are {format_bytes(usable)}"


def _staged(found: RankedPlans, question: PlanRequest, setting: Setting) -> RebalancedPlan:
    """Return the plans found, with the requested stages. Raise InputError."""
    if question.stages == "balanced":
        return RebalancedPlan(found, {}, found)
    from meshwright.verbs.plan.partition_stages import restage

    mixes = "recompute" not in parse_keep(question.keep)
    return restage(found, question.header, setting, question.stages, mixes=mixes)


def _rejected(space: Space, found: RankedPlans) -> dict[str, int]:
    """Reasons with counts, most frequent first."""
    counts = Counter(space.rejected)
    seen = len(found.plans) + found.overfull + found.slower + found.unplayed
    counts[FAR_TOO_LARGE] += len(space) - seen
    counts[TOO_LARGE] += int((~found.fits).sum()) + found.overfull
    counts[SLOWER] += found.slower
    counts[UNPLAYED] += found.unplayed
    return {reason: count for reason, count in counts.most_common() if count}
