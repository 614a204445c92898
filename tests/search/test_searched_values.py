"""A plan that is faster than the fastest one found has a value that the search says it left out.

Plans are drawn from the whole plan language: degrees, schedules with any knobs, written-out stages, recomputation by
layer, orders of ranks, forms of context parallelism, shares on the hosts.
"""

import random
from collections import Counter
from itertools import pairwise

import pytest

from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.plan_choice import format_choice
from meshwright.plans.context_parallel import CONTEXT_FORMS, Context, context_in_full
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import (
    DEFAULT_RANK_ORDER,
    Offload,
    Schedule,
    ShortLayout,
    ShortPipeline,
    ShortPlan,
    WorkloadSpec,
)
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.plans.resolve import Resolved
from meshwright.plans.rules.check_plan import check_plan
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.search.algorithms.exhaustive import TIE
from meshwright.search.space.legal_plans import divisors, factorisations
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of
from meshwright.verbs.predict.predict_plan import predicted

QUESTIONS = [
    ("llama-3.2-1b", "h100-sxm-80gb x 8", 2048, 32, "meshwright", "auto"),
    ("llama-3.2-1b", "a100-sxm-40gb x 8", 8192, 16, "generic", "auto"),
    ("llama-3.1-8b", "h100-sxm-80gb x 8", 4096, 64, "megatron-core", None),
    ("llama-3.1-8b", "a100-sxm-80gb x 16", 8192, 64, "megatron-core", None),
    ("llama-3.1-8b", "h100-sxm-80gb x 16", 8192, 32, "torchtitan", "auto"),
    ("llama-3.1-8b", "a100-sxm-40gb x 8", 4096, 32, "meshwright", "auto"),
    ("llama-3.1-8b", "h100-sxm-80gb x 16", 4096, 48, "megatron-zero-bubble", "auto"),
    ("qwen3-8b", "l40s x 16", 4096, 32, "deepspeed", None),
    ("llama-3.1-70b", "h100-sxm-80gb x 64", 8192, 128, "megatron-core", None),
    ("qwen3-30b-a3b", "h100-sxm-80gb x 16", 4096, 64, "megatron-core", None),
    ("mixtral-8x7b", "a100-sxm-80gb x 32", 4096, 64, "nemo", None),
    ("gpt-oss-20b", "mi300x x 8", 4096, 32, "maxtext", "auto"),
    ("qwen3-235b-a22b", "h100-sxm-80gb x 128", 4096, 256, "megatron-core", None),
]
DRAWN, FEW = 400, 40
"""Legal plans of each question that fit, in a proof (5,200 in all) and in a test run."""
MOST_TRIES = 60_000
DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")
PIPELINE = ("schedule", "micro_batch", "virtual_stages")
CHUNKS = (2, 2, 3, 4, 8)
KNOBS = {"memory_limit": (0.5, 0.6, 1.0, 1.5, 3.0), "unit": (2, 4, 8, 12), "in_flight": (2, 3, 4, 8)}
CONTEXTS = (
    *CONTEXT_FORMS,
    Context(form="ring", ulysses=2),
    Context(form="ring", pieces="contiguous"),
    Context(form="all-gather", ulysses=4),
)
RECOMPUTES = ("none", "selective", "full", ("mlp",), ("core_attn",), ("layernorm",), ("core_attn", "mlp"))


def drawn_plans(header, setting, count, rng, best):
    """Legal plans that fit, short ones and long ones, with their predicted step times; half of them near the best."""
    layouts = factorisations(setting.cluster.devices, 5).tolist()
    made = 0
    for _ in range(MOST_TRIES):
        short = _short(header, setting, rng, rng.choice(layouts))
        short = _near(best, short, rng) if rng.random() < 0.5 else short
        try:
            plan = _long(short, setting, rng) if rng.random() < 0.2 else short
            long = expand(plan, setting.model.architecture) if plan is short else plan
            problems = check_plan(long, setting.model, setting.cluster, setting.stack, stack_binds=True)
            if any(problem.severity == "error" for problem in problems):
                continue
            found = predicted(Resolved(long, short if plan is short else None, setting))
        except (InputError, InfeasibleError, ValueError):
            continue
        if found.fits:
            made += 1
            yield short, plan, found.step_time_s
        if made == count:
            return


def _short(header, setting, rng, degrees):
    names = dict(zip(("pp", "tp", "cp", "dp_replicate", "dp_shard"), degrees, strict=True))
    experts = setting.model.architecture.moe
    names |= {"ep": rng.choice((1, 2, 4, 8)), "etp": rng.choice((1, 1, 2))} if experts else {}
    order = rng.choice((DEFAULT_RANK_ORDER, DEFAULT_RANK_ORDER, tuple(rng.sample(DEFAULT_RANK_ORDER, 5))))
    name = rng.choice(tuple(SCHEDULES)) if names["pp"] > 1 else "1f1b"
    kind = SCHEDULES[name]
    knobs = {knob: rng.choice(values) for knob, values in KNOBS.items() if rng.random() < 0.15}
    knobs |= {"vocabulary": rng.choice(tuple(FORMS))} if names["pp"] > 1 and rng.random() < 0.3 else {}
    knobs |= {"step_validation": rng.choice(("before", "after"))} if rng.random() < 0.1 else {}
    offload = Offload(activations=rng.choice(("all", 0.5, 0.3)), ahead=rng.choice((1, 2, 3)))
    local = setting.workload.global_batch // (names["dp_replicate"] * names["dp_shard"])
    return header.model_copy(
        update={
            "layout": ShortLayout(
                **names,
                rank_order=order,
                sequence_parallel=rng.choice((None, None, False)) if names["tp"] > 1 else None,
                context=rng.choice(CONTEXTS) if names["cp"] > 1 and rng.random() < 0.5 else None,
            ),
            "pipeline": ShortPipeline(
                schedule=Schedule(name=name, **knobs) if knobs else name,
                micro_batch=rng.choice(divisors(local)) if local else 1,
                virtual_stages=rng.choice(CHUNKS) if kind.chunked else kind.fixed_chunks or 1,
            ),
            "sharding": rng.choice(("none", "zero1", "zero2", "zero3")),
            "recompute": rng.choice(RECOMPUTES),
            "offload": offload if rng.random() < 0.1 else None,
        }
    )


def _near(best, drawn, rng):
    """The best plan with a few choices of a drawn one."""
    layout = {name: getattr(drawn.layout, name) for name in DEGREES} if rng.random() < 0.3 else {}
    orders = ("rank_order", "sequence_parallel", "context")
    layout |= {name: getattr(drawn.layout, name) for name in orders if rng.random() < 0.2}
    pipeline = {name: getattr(drawn.pipeline, name) for name in PIPELINE} if rng.random() < 0.4 else {}
    others = {
        name: getattr(drawn, name) for name in ("sharding", "recompute", "offload") if rng.random() < 0.2
    }
    update = {
        "layout": best.layout.model_copy(update=layout),
        "pipeline": best.pipeline.model_copy(update=pipeline),
        "gather": None,
    }
    return best.model_copy(update=update | others)


def _long(short, setting, rng):
    """The plan with stages of its own, or layers that recompute different things."""
    layers = setting.model.architecture.layers
    long = expand(short, setting.model.architecture)
    if rng.random() < 0.5:
        return with_layer_recomputes(long, [rng.choice(("none", "selective", "full")) for _ in range(layers)])
    stages = len(long.pipeline.placement)
    cuts = sorted(rng.sample(range(1, layers), stages - 1)) if stages <= layers else []
    ends = [f"{first}..{last - 1}" for first, last in pairwise([0, *cuts, layers])]
    parts = [(end,) for end in ends]
    parts[0], parts[-1] = ("embed", *parts[0]), (*parts[-1], "head")
    return long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"stages": tuple(parts)})})


def values_of(short, plan, searched, layers):
    """The values of a plan by key, as a search lists them; those of knobs where their schedule was not searched."""
    layout, pipeline, choice = short.layout, short.pipeline, short.pipeline.choice
    values = {name: getattr(layout, name) for name in DEGREES}
    if short.sharding == "none":
        values |= {"dp_replicate": layout.dp_replicate * layout.dp_shard, "dp_shard": 1}
    stages = layout.pp * pipeline.virtual_stages
    even = pipeline.virtual_stages == 1 or SCHEDULES[choice.name].fixed_chunks
    even = even or any((layers + ends) % stages == 0 for ends in range(3))
    values |= {
        "micro_batch": pipeline.micro_batch,
        "virtual_stages": pipeline.virtual_stages if even else "unequal",
        "schedule": str(choice),
        "sharding": short.sharding,
    }
    named = {one.name: one for one in CHOICES.values() if one.searched}
    values |= {name: format_choice(one.of(short)) for name, one in named.items()}
    if layout.cp == 1:
        del values["context"]
    elif context_in_full(layout.context).pieces == "contiguous":
        values["context"] = "contiguous pieces"
    if values["schedule"] not in searched["schedule"]:
        values |= {knob: value for knob in KNOBS if (value := getattr(choice, knob)) is not None}
    if isinstance(plan, LongPlan):
        values["stages" if plan.pipeline.stages != "balanced" else "layers"] = "written out"
    return values


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda asked: f"{asked[0]} on {asked[1]}, {asked[4]}")
@pytest.mark.parametrize("count", [pytest.param(DRAWN, marks=pytest.mark.slow)])
def test_a_faster_plan_has_a_value_that_was_left_out(question, count):
    check_drawn(question, count)


@pytest.mark.parametrize("question", QUESTIONS[2:3], ids=["few plans"])
def test_a_few_faster_plans_have_a_value_that_was_left_out(question):
    check_drawn(question, FEW)


def check_drawn(question, count):
    model, cluster, seq_len, batch, stack, schedules = question
    workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
    header = ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=stack)
    setting, rng = setting_of(header), random.Random(repr(question))
    found = answer(PlanRequest(header, top=1, schedules=schedules), setting)
    searched = {one.key: one.values for one in found.space.searched}
    left_out = {one.key for one in found.space.left_out}
    listed = {(one.key, value) for one in found.space.left_out for value in one.values}
    least = found.fastest.report.step_time_s * (1 - found.gap) * (1 - TIE)
    seen, layers = Counter(), setting.model.architecture.layers
    for short, plan, step_s in drawn_plans(header, setting, count, rng, found.fastest.plan):
        seen["drawn"] += 1
        if step_s >= least:
            continue
        seen["faster"] += 1
        values = values_of(short, plan, searched, layers)
        unsearched = [key for key, value in values.items() if value not in searched.get(key, ())]
        excused = [key for key in unsearched if key in left_out]
        excused += [key for key, value in values.items() if (key, value) in listed]
        assert excused, (step_s, least, values)
    print(question, dict(seen), f"gap {found.gap:.3f}")
    assert seen["drawn"] == count


def test_what_was_searched_and_left_out_has_a_reason():
    header = ShortPlan(
        plan=1,
        model="llama-3.2-1b",
        cluster="h100-sxm-80gb x 4",
        workload=WorkloadSpec(seq_len=2048, global_batch=8),
        stack="meshwright",
    )
    data = answer(PlanRequest(header, top=1)).to_json()["space"]
    assert {"pp", "schedule", "recompute", "stages"} <= {row["key"] for row in data["searched"]}
    assert all(row["values"] and row["why"] for row in data["left_out"])
    (schedules,) = [row for row in data["left_out"] if row["key"] == "schedule"]
    assert {"zb-v", "1f1b+vocab-1", "zb-v (memory limit 0.5)"} <= set(schedules["values"])
