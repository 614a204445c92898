"""The page of proofs covers what it claims. `make proof` writes it anew and fails where a plan is not equal."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from covering_plans import RECOMPUTED
from encoder_plans import ENCODERS
from expert_combinations import FAMILIES
from tiny_models import dense_names

from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    spec = spec_from_file_location("benchmark_verify", BENCHMARKS / "verify.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_compositions_have_every_family_schedule_sharding_and_recomputation(benchmark):
    plans = benchmark.compositions()
    assert len(plans) >= 40
    assert {plan.ranks for plan in plans} >= {2, 4, 8}

    def values(key):
        return {getattr(plan, key) for plan in plans}

    assert values("model") == {*dense_names(), *FAMILIES, *(plan.model for plan in ENCODERS)}
    schedules = set(load_stack(OWN_STACK).schedules)
    assert values("schedule") == schedules
    assert values("recompute") == set(RECOMPUTED)
    assert {plan.schedule for plan in plans if plan.pp > 1} == schedules
    gathers = {(plan.sharding, plan.gather) for plan in plans}
    three = {("zero3", gather) for gather in ("per-layer", "per-micro-batch", "per-step")}
    assert gathers >= {("none", None), ("zero1", None), ("zero2", None), *three}
    assert any(plan.stages and plan.pp > 1 for plan in plans)
    assert {plan.sequence_parallel for plan in plans if plan.tp > 1} == {True, False}


def test_the_page_that_is_kept_has_every_plan_and_fault_and_no_miss(benchmark):
    text = (BENCHMARKS / "verify.md").read_text(encoding="utf-8")
    lines = {" | ".join(line.split(" | ")[:2]) for line in text.splitlines()}
    missing = [p for p in benchmark.compositions() if f"| {p.model} | {benchmark.told(p)}" not in lines]
    assert not missing
    assert not [fault.name for fault in benchmark.FAULTS if f"| {fault.name} |" not in text]
    assert not [model for model, *_ in benchmark.LARGE if f"| {model} |" not in text]
    assert "**" not in text
