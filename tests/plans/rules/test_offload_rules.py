"""Rules of activations on the hosts: who keeps them there, and what is known of the way and of the room."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, NODE, STACK, changed, cluster, graph, long_plan

from meshwright.errors import InputError
from meshwright.plans.files.meshwright_file import END
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, offloads_activations=True)
KNOWN = replace(NODE, host_bytes_per_s=64e9, host_memory_bytes=2**41)
HALF = {"activations": 0.5}


def problems(plan, stack=ABLE, node=KNOWN):
    machines = cluster(64)
    pools = (replace(machines.pool, node=node),)
    return check_plan(plan, graph(DENSE), replace(machines, pools=pools), stack)


def test_a_stack_that_can_offloads_to_hosts_that_are_known():
    assert problems(long_plan(offload=HALF)) == []


def test_nothing_is_asked_of_plans_that_offload_nothing():
    for offload in (None, {"activations": "none"}):
        assert problems(long_plan(offload=offload), STACK, NODE) == []


def test_a_stack_that_can_not_is_named_with_one_that_can():
    (problem,) = problems(long_plan(offload=HALF), STACK)
    assert (problem.field, problem.value) == ("offload.activations", 0.5)
    assert problem.rule == "test-stack@1.0 does not keep activations of passes on the host"
    assert problem.suggestion == "take offload out, or stack: meshwright"


def test_hosts_of_which_nobody_has_spoken_are_asked_for_all_at_once():
    link, memory = problems(long_plan(offload=HALF), node=NODE)
    assert link.field == "cluster.pools.0.node.host_gbyte_per_s_per_device"
    assert memory.field == "cluster.pools.0.node.host_memory_gib"
    assert "a cluster file whose node has host_memory_gib" in memory.suggestion
    assert {problem.severity for problem in (link, memory)} == {"error"}


def test_one_micro_batch_on_shared_pipeline_rank_is_legal_and_gains_nothing():
    (problem,) = problems(long_plan({"dp_shard": 64}, offload=HALF))
    assert problem.severity == "warning"
    assert problem.rule == "nothing goes out: no pass waits for its backward pass while 3 others run"


def test_shared_pipeline_rank_offloads_where_all_forward_passes_come_first():
    gpipe = {"schedule": "gpipe"}
    plan = long_plan({"dp_shard": 64}, offload=HALF, pipeline=gpipe, workload={"global_batch": 512})
    assert problems(plan) == []


@pytest.mark.parametrize("offload", [{"activations": "all"}, {"activations": 0.25, "ahead": 3}, None])
def test_both_forms_say_it_and_files_keep_it(offload):
    long = long_plan(offload=offload)
    assert expand(shorten(long), DENSE) == long
    assert parse_plan(dump_plan(long)) == long
    assert (long.offload is None) == (offload is None)


@pytest.mark.parametrize(
    ("offload", "field"),
    [
        ({"activations": 0}, "offload.activations"),
        ({"activations": 1.5}, "offload.activations"),
        ({"activations": "some"}, "offload.activations"),
        ({"activations": True}, "offload.activations"),
        ({"ahead": 0}, "offload.ahead"),
        ({"weights": "all"}, "offload.weights"),
        ({"parameters": 1.5}, "offload.parameters"),
        ({"optimizer": -0.1}, "offload.optimizer"),
        ({"optimizer": "some"}, "offload.optimizer"),
        ("all", "offload"),
    ],
)
def test_what_is_no_choice_of_it_is_named(offload, field):
    text = (
        dump_plan(changed(long_plan())).removesuffix(f"{END}\n")
        + f"offload: {offload if isinstance(offload, str) else flow(offload)}\n{END}\n"
    )
    with pytest.raises(InputError) as caught:
        parse_plan(text)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert all(problem.suggestion for problem in caught.value.problems)


def flow(mapping):
    """A mapping as YAML has it on a line."""
    return "{" + ", ".join(f"{key}: {str(value).lower()}" for key, value in mapping.items()) + "}"


def test_the_default_is_none_at_all():
    assert Offload().rule.share == 0
    assert Offload(activations="all").rule.share == 1


def test_a_vocabulary_spread_over_one_rank_is_refused_with_offload_too():
    spread = {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}
    able = replace(ABLE, vocabularies=("vocab-1",))
    (problem,) = problems(long_plan({"dp_shard": 64}, offload=HALF, pipeline=spread), able)
    assert problem.field == "pipeline.schedule.vocabulary"
