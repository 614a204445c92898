"""Predict the mean step of a plan whose peers leave and join, for each routing of micro-batches.

A peer is a set of ranks with one whole copy of a stage's states. It leaves ``per_hour`` times an hour, and another one
is in its place ``down_s`` later. Passes, messages and the rest of a step have the prices of the plan's own simulated
step. A row is the mean over ``SEEDS`` runs, its low and high are an 80 % interval of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb, gcd, isfinite
from statistics import fmean, quantiles
from typing import Any

from meshwright.cost.operators.pass_prices import Prices, message_seconds
from meshwright.cost.operators.price_plans import program_prices
from meshwright.errors import InputError, Problem
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.program.program import Program
from meshwright.simulate.churn.paths.conflict_search import search_paths
from meshwright.simulate.churn.paths.path_problem import PathProblem
from meshwright.simulate.churn.peers import Work
from meshwright.simulate.churn.steps_under_churn import ROUTINGS, ChurnSetting, Steps
from meshwright.simulate.churn.work_of_program import program_work, routed_lists
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.simulate.simulator import simulate
from meshwright.units import HOUR_S

SEEDS, LEAVES, MOST_STEPS = 8, 12, 5000
"""Runs of each routing; peers that leave in a run, on average, and the steps that it has at most."""
RUNS_PER_LEAVE, PASSES_IN_ALL, MOST_PASSES = 4, 300_000, 2**14
"""Steps that are simulated for each peer that leaves; passes of all runs together; and the most of one step."""
MOST_PATHS, TREE_NODES = 2000, 500
"""Paths of a micro-batch up to which the best ones are searched, and the nodes of the search's tree."""


@dataclass(frozen=True, slots=True)
class AssumedChurn:
    """Every peer leaves ``per_hour`` times; ``skip_share`` of the stages are left out by SkipPipe's paths."""

    per_hour: float
    down_s: float
    skip_share: float
    slowdown: float = 1.0


def churn_rows(plan: LongPlan, setting: Setting, churn: AssumedChurn) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each routing, and their origin. Raise InputError for plans that cannot be routed."""
    problems = [*unroutable(plan)]
    if problems:
        raise InputError(problems)
    program, simulation = lower_and_simulate(plan, setting)
    prices = program_prices(program, setting)
    if program.split:
        raise InputError(_problem_of_schedule(plan, "splits backward passes; routing needs whole ones"))
    routed_s = simulate(replace(program, lists=routed_lists(program)), prices).step_s
    work = program_work(program, prices, simulation.step_s - routed_s, churn.slowdown)
    found = ChurnSetting(
        work=work,
        replicas=copies(plan),
        micro_batches=program.micro_batches,
        passes_s=churn.slowdown * routed_s,
        per_s=churn.per_hour / HOUR_S,
        down_s=churn.down_s,
        move_s=churn.slowdown * _move_s(program, prices),
        patterns=skip_patterns(work, churn.skip_share),
        compulsory=_ends(work),
    )
    passes = 2 * work.stages * found.replicas * found.micro_batches
    if passes > MOST_PASSES:
        rule = f"simulating churn of {passes} passes in a step > {MOST_PASSES}"
        hint = f"workload.global_batch={setting.workload.global_batch * MOST_PASSES // passes}"
        raise InputError(Problem("assume.churn_per_hour", churn.per_hour, rule, hint))
    long_s = _run_s(found, passes)
    rows = [_row(name, [run(found, seed, long_s) for seed in range(SEEDS)]) for name, run in ROUTINGS.items()]
    return rows, _origin(found, churn, long_s)


def copies(plan: LongPlan) -> int:
    """Return the peers of a stage: the whole copies of its states."""
    (layout,) = plan.layouts.values()
    states = layout.states or plan.states
    sharded = any((states.parameter, states.gradient, states.optimizer))
    return layout.grid.dp_replicate * (1 if sharded else layout.grid.dp_shard)


def unroutable(plan: LongPlan) -> Iterator[Problem]:
    """Yield why micro-batches of a plan cannot go to any peer of a stage."""
    pipeline, stages = plan.pipeline, len(plan.pipeline.placement)
    if len(plan.layouts) > 1:
        rule = "peers of all stages must be alike, so that routing needs one layout"
        yield Problem("layouts", len(plan.layouts), rule, "one layout for all layers")
        return
    (layout,) = plan.layouts.values()
    if stages == 1:
        rule = "a pipeline of one stage has no path around a lost peer: stages >= 2"
        yield Problem("pipeline.stages", stages, rule, "pp=2")
    elif pipeline.ranks != stages or pipeline.chains > 1:
        yield _problem_of_schedule(
            plan, f"has {stages} stages on {pipeline.ranks} pipeline ranks; routing needs one on each"
        )
    if plan.choice.vocabulary is not None:
        rule = "every micro-batch needs all pipeline ranks where the vocabulary is spread over them"
        yield Problem("layers.head.vocabulary", plan.choice.vocabulary, rule, "no pp in vocabulary")
    if plan.in_chunks:
        yield Problem(
            "offload.manager", "chunks", "peers that move states in chunks are not routed", "leave it out"
        )
    if plan.synchronise:
        rule = "routing needs the gradients of every step from all replicas, with equal parameters"
        yield Problem("synchronise", len(plan.synchronise), rule, "leave it out")
    if layout.batch_share:
        yield Problem(
            "batch_share", layout.batch_share, "routing needs micro-batches of one size", "leave it out"
        )
    states = layout.states or plan.states
    if layout.grid.dp_replicate > 1 and "dp_replicate" in (
        *states.parameter,
        *states.gradient,
        *states.optimizer,
    ):
        rule = "states sharded over dp_replicate leave no peer with a whole copy of its stage"
        yield Problem("states", "dp_replicate", rule, "shard over dp_shard alone")


def skip_patterns(work: Work, share: float) -> tuple[tuple[int, ...], ...]:
    """Return the stages of paths that leave out a share of the stages, each optional one equally often.

    First and last stage, which have the embedding and the head, are on all of them.
    """
    optional = [stage for stage in range(work.stages) if stage not in _ends(work)]
    left_out = min(round(share * work.stages), len(optional))
    if not left_out:
        return (tuple(range(work.stages)),)
    paths = len(optional) // gcd(len(optional), left_out)
    if comb(len(optional), left_out) <= MOST_PATHS:
        problem = _path_problem(work, left_out, paths, paths * (len(optional) - left_out) // len(optional))
        found = search_paths(problem, TREE_NODES)
        if found is not None:
            return tuple(timed.path for timed in found.timed)
    out = [
        {optional[(path * left_out + at) % len(optional)] for at in range(left_out)} for path in range(paths)
    ]
    return tuple(tuple(stage for stage in range(work.stages) if stage not in these) for these in out)


def _path_problem(work: Work, left_out: int, paths: int, each: int) -> PathProblem:
    stages = range(work.stages)
    return PathProblem(
        stage_of=tuple(stages),
        forward_s=work.forward_s,
        backward_s=work.backward_s,
        message_s=tuple(
            tuple(
                work.forward_message_s[one] if one < other else work.backward_message_s[one]
                for other in stages
            )
            for one in stages
        ),
        starts=(0,) * paths,
        visits=work.stages - left_out,
        compulsory=_ends(work),
        least=each,
        most=each,
        memory=paths,
    )


def _ends(work: Work) -> frozenset[int]:
    return frozenset({0, work.stages - 1})


def _move_s(program: Program, prices: Prices) -> float:
    """Return the seconds in which a peer reads the states of the largest stage from another one."""
    size = max(
        program.held_bytes(rank, "parameter") + program.held_bytes(rank, "optimizer")
        for rank in range(program.pipeline_ranks)
    )
    return float(message_seconds(prices.mesh, prices.local.forms, size))


def _run_s(setting: ChurnSetting, passes: int) -> float:
    """Return how long a run is simulated: until some peers have left, as far as that is quick."""
    if not setting.per_s:
        return 0.0
    affordable = PASSES_IN_ALL / (SEEDS * 2 * RUNS_PER_LEAVE * passes)
    leaves = max(1.0, min(LEAVES, affordable))
    peers = setting.replicas * setting.work.stages
    return min(leaves / (setting.per_s * peers), MOST_STEPS * setting.step_s)


def _row(routing: str, runs: list[Steps]) -> dict[str, Any]:
    means = [run.mean_s for run in runs]
    ended = all(map(isfinite, means))
    ends = quantiles(means, n=10, method="inclusive") if ended else [None]
    return {
        "routing": routing,
        "step_time_s": fmean(means) if ended else None,
        "step_time_low_s": ends[0],
        "step_time_high_s": ends[-1],
        "load_ratio": fmean(run.load_ratio for run in runs) if ended else None,
    }


def _origin(setting: ChurnSetting, churn: AssumedChurn, long_s: float) -> str:
    work, patterns = setting.work, setting.patterns
    visits = f"{len(patterns[0])} of {work.stages} stages"
    return (
        f"simulated: {SEEDS} runs of {max(long_s, setting.step_s) / HOUR_S:,.3g} hours; assumed: each of "
        f"{setting.replicas} × {work.stages} peers leaves {churn.per_hour:g} times an hour and is replaced after "
        f"{churn.down_s:g} s; skip visits {visits}; null where a step does not end"
    )


def _problem_of_schedule(plan: LongPlan, rule: str) -> Problem:
    return Problem("pipeline.schedule", plan.choice.name, rule, "schedule: 1f1b")
