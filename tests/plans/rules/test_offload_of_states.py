"""Rules of model states on the hosts: shares, shardings and hosts that they need, all named at once."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, NODE, cluster, graph, long_plan

from meshwright.plans.rules.check_plan import check_plan
from meshwright.stack.load import load_stack

KNOWN = replace(NODE, host_bytes_per_s=64e9, host_memory_bytes=2**41, host_memory_bytes_per_s=6e11)


def problems(plan, stack, node=KNOWN):
    machines = cluster(64)
    machines = replace(machines, pools=(replace(machines.pool, node=node),))
    found = check_plan(plan, graph(DENSE), machines, load_stack(stack))
    return [problem for problem in found if problem.field.startswith(("offload", "cluster"))]


@pytest.mark.parametrize(
    ("stack", "sharding", "offload"),
    [
        ("generic", "none", {"optimizer": 0.3, "parameters": "all"}),
        ("generic", "zero2", {"optimizer": "all"}),
        ("deepspeed", "zero1", {"optimizer": "all"}),
        ("deepspeed", "zero3", {"optimizer": 0.5, "parameters": "all"}),
        ("megatron-core", "zero1", {"optimizer": 0.5}),
        ("megatron-bridge", "zero1", {"optimizer": "all"}),
        ("torchtitan", "zero3", {"optimizer": "all", "parameters": "all"}),
        ("accelerate", "zero3", {"optimizer": "all", "parameters": 1.0}),
        ("nemo", "zero1", {"optimizer": 0.0, "parameters": "none"}),
    ],
)
def test_stacks_keep_on_the_host_what_they_can(stack, sharding, offload):
    assert problems(long_plan({"dp_shard": 64}, sharding=sharding, offload=offload), stack) == []


@pytest.mark.parametrize(
    ("stack", "sharding", "offload", "rule"),
    [
        ("deepspeed", "zero2", {"optimizer": 0.5}, "does so with sharding zero3 only"),
        (
            "deepspeed",
            "zero3",
            {"parameters": 0.5},
            "any share of the optimizer's states with all of the par",
        ),
        ("megatron-core", "zero3", {"optimizer": 1.0}, "does so with sharding zero1 only"),
        ("megatron-core", "zero3", {"parameters": "all"}, "keeps any share of the optimizer's states on the"),
        ("torchtitan", "zero3", {"optimizer": "all"}, "all of the optimizer's states with all of the param"),
        ("nemo", "zero1", {"optimizer": "all"}, "keeps no model states on the host"),
    ],
)
def test_a_stack_that_can_not_says_what_it_can(stack, sharding, offload, rule):
    (problem,) = problems(long_plan({"dp_shard": 64}, sharding=sharding, offload=offload), stack)
    assert rule in problem.rule
    assert problem.suggestion
    assert problem.severity == "error"


def test_hosts_of_which_nobody_has_spoken_are_asked_for_all_at_once():
    found = problems(long_plan(offload={"optimizer": "all"}), "generic", NODE)
    where = "cluster.pools.0.node"
    keys = ("host_gbyte_per_s_per_device", "host_memory_gib", "host_memory_gbyte_per_s")
    assert [problem.field for problem in found] == [f"{where}.{key}" for key in keys]
    found = problems(long_plan(sharding="none", offload={"parameters": "all"}), "generic", NODE)
    assert [problem.field for problem in found] == [f"{where}.{key}" for key in keys[:2]]
