"""The question of a plan that serves, checked: every problem at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, isfinite

from meshwright.cluster.catalog_prices import ON_DEMAND
from meshwright.cost.serving.level_calibration import given_levels
from meshwright.cost.serving.levels import Level, LevelTable, level_of
from meshwright.economy.cluster_offers import Offer, offers
from meshwright.economy.tokens_and_assumptions import TrainingTerms, parse_terms
from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.serving.conflicts_of_keys import contradictions
from meshwright.plans.serving.engine_names import engine_problems
from meshwright.plans.serving.expand_pools import serving_workload
from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS
from meshwright.plans.serving.rules.request_limits import REQUEST_RULES
from meshwright.plans.serving.rules.serving_rule_input import ServingRuleInput
from meshwright.plans.serving.serving_file import ServingWorkloadSpec
from meshwright.plans.serving.serving_plan import ServingPlan
from meshwright.search.serving.candidate_table import OBJECTIVES, ServingObjective
from meshwright.stack.serving.serving_stack import ENGINES, GENERIC_ENGINE, NamedEngine
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits

COMPARED = tuple(name for name in ENGINES if name != GENERIC_ENGINE)
"""Engines that are compared where none is asked for."""
OPTION_OF = {
    "workload.rate_per_s": "rate",
    "workload.objectives.ttft_ms": "max_ttft_ms",
    "workload.objectives.tpot_ms": "max_tpot_ms",
}
"""Options by the keys of a plan that they are, where the names differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRequest:
    """The options of a question. ``concurrency`` and ``rate`` None: the concurrency is searched.

    ``allow_quantise``: number formats that weights and caches may have besides the released ones. ``stack`` None: the
    engines are compared. ``objective`` None: cost at a rate, else throughput. ``calibration``: a file of levels.
    """

    model: str
    on: tuple[str, ...]
    input_tokens: int | None
    output_tokens: int | None
    concurrency: int | None = None
    rate: float | None = None
    max_ttft_ms: float | None = None
    max_tpot_ms: float | None = None
    allow_quantise: tuple[str, ...] = ()
    stack: str | None = None
    objective: str | None = None
    top: int = 5
    price: str = ON_DEMAND
    assume: tuple[str, ...] = ()
    calibration: str | None = None

    @property
    def workload(self) -> dict[str, object]:
        """Return the workload as a plan file has it."""
        limits = {"ttft_ms": self.max_ttft_ms, "tpot_ms": self.max_tpot_ms}
        given = {name: value for name, value in limits.items() if value is not None}
        values = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "concurrency": self.concurrency,
            "rate_per_s": None if self.rate is None else float(self.rate),
            "objectives": given or None,
        }
        return {"task": "serve"} | {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class CheckedServingRequest:
    """A question with nothing wrong in it. Clusters of ``offers`` have the prices that are asked for."""

    request: ServingRequest
    model: ModelGraph
    offers: tuple[Offer, ...]
    terms: TrainingTerms
    workload: ServingWorkloadSpec
    stacks: tuple[str, ...]
    objective: ServingObjective
    levels: LevelTable | None = None

    def level(self, stack: str, device: str) -> Level:
        """Return the level of the model on a device under an engine."""
        return level_of(self.model.name, device, NamedEngine.of(stack).name, self.levels)

    @property
    def limits(self) -> LoadLimits:
        """Return load and limits for the search; a searched concurrency is 1 where latency is the objective."""
        workload = serving_workload(self.workload)
        goals = workload.objectives
        load = (workload.concurrency, workload.rate_per_s)
        return LoadLimits(
            lengths=workload.lengths,
            concurrency=1 if load == (None, None) and self.objective == "latency" else load[0],
            rate_per_s=load[1],
            ttft_s=inf if goals.ttft_ms is None else goals.ttft_ms / 1e3,
            tpot_s=inf if goals.tpot_ms is None else goals.tpot_ms / 1e3,
        )


def check_serving_request(request: ServingRequest, wrong: Iterable[Problem] = ()) -> CheckedServingRequest:
    """Check the question. Raise InputError with every problem, the ones in ``wrong`` first."""
    problems: list[Problem] = [*wrong, *_option_problems(request)]
    model = attempted(lambda: load_model(request.model), problems)
    offered = attempted(lambda: offers(request.on), problems)
    terms = attempted(lambda: parse_terms(None, request.assume, request.price), problems)
    levels = attempted(lambda: given_levels(request.calibration), problems)
    workload = _workload(request, problems)
    if workload is not None:
        problems += _length_problems(workload, model)
    problems += _unpredicted(model, offered or ())
    if offered is not None and terms is not None:
        problems += terms.unknown_families([one.cluster for one in offered])
        problems += terms.churn_problems()
        offered = tuple(Offer(one.on, terms.on(one.cluster)) for one in offered)
        problems += _price_problems(request, offered)
    if problems or model is None or offered is None or terms is None or workload is None:
        raise InputError(problem for at, problem in enumerate(problems) if problem not in problems[:at])
    stacks = COMPARED if request.stack is None else (request.stack,)
    objective = request.objective or ("cost" if request.rate is not None else "throughput")
    named: ServingObjective = next(name for name in OBJECTIVES if name == objective)
    return CheckedServingRequest(request, model, offered, terms, workload, stacks, named, levels)


def _option_problems(request: ServingRequest) -> Iterator[Problem]:
    if request.top < 1:
        yield Problem("top", request.top, "must be at least 1", "top: 5")
    if request.objective is not None and request.objective not in OBJECTIVES:
        rule = "is no objective of plans that serve"
        yield Problem("objective", request.objective, rule, nearest(request.objective, OBJECTIVES))
    if request.stack is not None:
        yield from engine_problems(request.stack)
    known = (*WEIGHT_FORMATS, *KV_FORMATS)
    for name in request.allow_quantise:
        if name not in known:
            yield Problem("allow_quantise", name, "is no number format", nearest(name, known))


def _workload(request: ServingRequest, problems: list[Problem]) -> ServingWorkloadSpec | None:
    """Return the workload; add what is missing or out of range, and keys that contradict each other."""
    found: list[Problem] = []
    for name in ("input_tokens", "output_tokens"):
        if getattr(request, name) is None:
            option = f"--{name.replace('_', '-')} 1000"
            found.append(Problem(name, None, "is missing: requests of a plan that serves need it", option))
    found += contradictions({"workload": request.workload})
    workload = attempted(lambda: validated(ServingWorkloadSpec, request.workload), found)
    problems += (_of_option(problem) for problem in found)
    return None if found else workload


def _of_option(problem: Problem) -> Problem:
    """Return a problem of a workload's key as one of the option."""
    field = problem.field.removeprefix("workload.")
    full = problem.field if problem.field.startswith("workload.") else f"workload.{problem.field}"
    return Problem(OPTION_OF.get(full, field), problem.value, problem.rule, problem.suggestion)


def _length_problems(workload: ServingWorkloadSpec, model: ModelGraph | None) -> Iterator[Problem]:
    arch = None if model is None else model.architecture
    plan = ServingPlan("", "", "", serving_workload(workload), {})
    for rule in REQUEST_RULES:
        for problem in rule(ServingRuleInput(plan, arch, None)):
            if problem.severity == "error":
                yield _of_option(problem)


def _unpredicted(model: ModelGraph | None, offered: tuple[Offer, ...]) -> Iterator[Problem]:
    """Yield what no prediction of a plan that serves knows yet."""
    if model is not None and model.architecture.encoder is not None:
        rule = "serving a model with an encoder is not predicted yet"
        yield Problem("model", model.architecture.name, rule, "a decoder alone")
    for offer in offered:
        if len(offer.cluster.pools) > 1:
            rule = "serving on a cluster of unlike devices is not predicted yet"
            yield Problem("cluster", offer.on, rule, "a cluster of one kind of device")


def _price_problems(request: ServingRequest, offered: tuple[Offer, ...]) -> Iterator[Problem]:
    """Yield devices without a price where kinds of devices are compared by cost."""
    kinds = {offer.cluster.pool.device.id: offer for offer in offered if len(offer.cluster.pools) == 1}
    by_cost = request.objective == "cost" or (request.objective is None and request.rate is not None)
    if not by_cost or len(kinds) < 2:
        return
    for name, offer in kinds.items():
        price = offer.cluster.pool.usd_per_device_hour
        if price is None or not isfinite(price.value):
            yield Problem(
                "objective",
                "cost",
                f"no price is known of {name}",
                f"--assume {name}:usd_per_device_hour=2.5",
            )
