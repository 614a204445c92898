"""Searching clusters of several sizes together, against searching each by itself."""

import pytest
from cluster_questions import MODEL
from planning_questions import header

from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.clusters.search_clusters import search_clusters
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, checked

QUESTIONS = {
    "dense": (MODEL, "megatron-core", "h100-sxm-80gb", (2, 12, 24), ("cp=1", "recompute=none"), None),
    "some without forms": (
        MODEL,
        "meshwright",
        "h100-sxm-80gb",
        (2, 4),
        ("recompute=none", "cp=1"),
        "1f1b,zb-h1",
    ),
    "experts": (
        "mixtral-8x7b",
        "megatron-core",
        "h200-sxm-141gb",
        (8, 16),
        ("micro_batch=1", "cp=1", "virtual_stages=1"),
        None,
    ),
}


def questions(name):
    """The question on each size of cluster."""
    model, stack, device, sizes, keep, schedules = QUESTIONS[name]
    for size in sizes:
        nouns = header(model, f"{device} x {size}", batch=24, stack=stack)
        yield PlanRequest(nouns, keep, 3, schedules=schedules)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_each_cluster_by_itself(name):
    asked = [(question, *checked(question, None)) for question in questions(name)]
    together = search_clusters([(question, scope, setting) for question, setting, scope in asked])
    for (question, setting, _), known in zip(asked, together, strict=True):
        try:
            alone = answer(question, setting).to_json()
        except InfeasibleError:
            assert not len(known.staged.found.ranking)
            continue
        found = answer(question, setting, known=known).to_json()
        for one in (found, alone):
            del one["search_time_s"]
        assert rounded(found) == rounded(alone)


def rounded(data):
    """The same data with numbers of ten digits: arrays of other lengths may differ in the last one."""
    if isinstance(data, dict):
        return {key: rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [rounded(value) for value in data]
    return float(f"{data:.10g}") if isinstance(data, float) else data
