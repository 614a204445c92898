"""Predicted memory against PyTorch's FSDP2 memory tracker, for few layers of released models."""

from importlib import import_module

import pytest
from source_tree import ROOT

CASES = (
    {"model": "llama-3.2-1b", "layers": 2, "recompute": "full", "tp": 2},
    {"model": "qwen3-8b", "layers": 3, "recompute": "selective", "tp": 1},
    {"model": "gpt-7.5b", "layers": 3, "recompute": "none", "tp": 4},
)


@pytest.fixture
def oracle(monkeypatch):
    """The page's script, imported by the worker that asks it: PyTorch's tracker loads for seconds."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("memory_oracle")


@pytest.mark.quick_cases(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "{model} {recompute} tp {tp}".format(**case))
def test_the_ledger_is_what_the_tracker_counts(oracle, case):
    line = oracle.compared(oracle.Case(**case))
    errors = {part: line.error(name) for part, name in oracle.PARTS.items() if part != "buffers"}
    assert max(map(abs, errors.values())) <= oracle.LIMIT, errors
