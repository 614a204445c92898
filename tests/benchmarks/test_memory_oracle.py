"""Predicted memory against PyTorch's FSDP2 memory tracker, for few layers of released models."""

import sys

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from memory_oracle import LIMIT, PARTS, Case, compared

CASES = (
    Case(model="llama-3.2-1b", layers=2, recompute="full", tp=2),
    Case(model="qwen3-8b", layers=3, recompute="selective", tp=1),
    Case(model="gpt-7.5b", layers=3, recompute="none", tp=4),
)


@pytest.mark.quick_cases(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model} {case.recompute} tp {case.tp}")
def test_the_ledger_is_what_the_tracker_counts(case):
    line = compared(case)
    errors = {part: line.error(name) for part, name in PARTS.items() if part != "buffers"}
    assert max(map(abs, errors.values())) <= LIMIT, errors
