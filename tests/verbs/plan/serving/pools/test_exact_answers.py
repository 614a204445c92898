"""On small spaces the search's best plan is the best of all plans, priced one by one."""

from math import isclose

import numpy as np
import pytest
from searched_spaces import every_plan, family, found, limits

from meshwright.search.serving.candidate_table import OBJECTIVES, Goal

DENSE, SPARSE = ("llama-3.1-8b", "h100-sxm-80gb"), ("qwen3-30b-a3b", "h100-sxm-80gb")
LONG = (60_000, 200)
"""Few of these sequences have room, so that every concurrency can be tried."""
CASES = [
    (DENSE, "vllm", 4, limits(*LONG), 48),
    (DENSE, "sglang", 4, limits(*LONG, tpot_s=0.012), 48),
    (DENSE, "tensorrt-llm", 4, limits(*LONG, ttft_s=12.0), 48),
    (DENSE, "vllm", 4, limits(*LONG, ttft_s=9.0, tpot_s=0.02), 48),
    (DENSE, "tensorrt-llm", 4, limits(4000, 500, concurrency=12), 12),
    (DENSE, "vllm", 4, limits(4000, 500, concurrency=12, tpot_s=0.0075), 12),
    (DENSE, "sglang", 3, limits(4000, 500, concurrency=7, ttft_s=1.0), 7),
    (DENSE, "vllm", 4, limits(4000, 500, rate_per_s=4.0, ttft_s=1.0, tpot_s=0.02), 0),
    (DENSE, "tensorrt-llm", 4, limits(4000, 500, rate_per_s=6.0, tpot_s=0.012), 0),
    (DENSE, "vllm", 4, limits(4000, 1, ttft_s=1.0), 40),
    (DENSE, "vllm", 4, limits(4000, 1, rate_per_s=9.0, ttft_s=1.0), 0),
    (SPARSE, "vllm", 4, limits(4000, 500, concurrency=4, tpot_s=0.01), 4),
    (SPARSE, "tensorrt-llm", 4, limits(4000, 500, rate_per_s=6.0, ttft_s=2.0), 0),
    (SPARSE, "sglang", 2, limits(60_000, 200, ttft_s=14.0), 20),
]
QUESTIONS = [
    (case, objective)
    for case, (*_, asked, _) in enumerate(CASES)
    for objective in OBJECTIVES
    if objective != "latency" or asked.concurrency is not None or asked.rate_per_s is not None
]
"""A searched concurrency is searched for throughput or cost."""


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("case", "objective"), QUESTIONS)
def test_the_best_plan_is_the_best_of_all(case, objective):
    model, stack, devices, asked, most = CASES[case]
    one = family(*model, stack, devices)
    every, _ = every_plan(one, asked, devices, most)
    goal = Goal(objective, 2.0, asked.rate_per_s is not None)
    answer = found([one], asked, devices, objective)
    assert len(every) > 0
    assert len(answer.table) > 0
    best = np.max(goal.score(*every.T))
    assert isclose(goal.scores(answer.table)[0], best, rel_tol=1e-6)
