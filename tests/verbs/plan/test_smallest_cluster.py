"""The cluster that would do: no smaller count of devices fits."""

import pytest
from planning_questions import header

from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer


def refused(model, count, task):
    """Return the suggestion for a number of H100s; None where a plan fits."""
    asked = header(model, f"h100-sxm-80gb x {count}", seq_len=4096, batch=64)
    workload = asked.workload.model_copy(update={"task": task})
    try:
        answer(PlanRequest(asked.model_copy(update={"workload": workload}), top=1))
    except InfeasibleError as error:
        return error.suggestion
    return None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("model", "count", "task", "counts"),
    [
        ("llama-3.1-70b", 1, "lora", range(2, 9)),
        ("llama-3.1-70b", 8, "pretrain", range(16, 64, 8)),
        ("llama-3.1-405b", 8, "pretrain", range(16, 256, 8)),
    ],
)
def test_no_smaller_count_does(model, count, task, counts):
    least = next(count for count in counts if refused(model, count, task) is None)
    suggestion = refused(model, count, task)
    assert suggestion == (
        f"h100-sxm-80gb x {least} would do (the smallest larger count; beyond one node, whole nodes)"
    )
