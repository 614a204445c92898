"""Plans whose replicas communicate less are searched on request; their loss is said not to be predicted."""

import pytest
from planning_questions import header

from meshwright.errors import InputError
from meshwright.verbs.plan.plan_on_cluster import PlanRequest
from meshwright.verbs.plan.search_exchanges import NOT_PREDICTED, answer_allowing, candidates, with_islands

NOUNS = {"model": "llama-3.2-1b", "cluster": "h100-sxm-80gb x 16", "stack": "meshwright"}


KEEP = ("cp=1", "pp=1", "offload=none", "sharding=zero1")
"""Few plans, among which the recommended ones are."""


def asked(*allow, **nouns):
    return PlanRequest(header(**NOUNS | nouns), KEEP, allow=allow)


def test_without_leave_no_plan_has_entries():
    assert not any(one.plan.synchronise for one in answer_allowing(asked()).proposals)


@pytest.mark.parametrize("allow", [("local",), ("compress",), ("local,compress",)])
def test_with_leave_a_plan_with_entries_is_shown_and_its_loss_is_not_predicted(allow):
    found = answer_allowing(asked(*allow))
    less = [one for one in found.proposals if one.plan.synchronise]
    assert less
    assert all(any(NOT_PREDICTED in remark for remark in one.report.remarks) for one in less)
    states = {entry.state for one in less for entry in one.plan.synchronise}
    assert states <= {"parameter", "gradient"}
    first = found.proposals[0]
    if first.plan.synchronise:
        usual = min(one.report.step_time_s for one in found.proposals if not one.plan.synchronise)
        assert first.report.step_time_s * found.tie_ratio < usual


def test_a_slow_network_makes_local_steps_the_recommended_plan():
    found = answer_allowing(asked("local", cluster="a100-pcie-40gb x 16"))
    quickest = found.fastest
    assert quickest.report.step_time_s == min(one.report.step_time_s for one in found.proposals)


def test_other_stacks_are_refused_by_name():
    with pytest.raises(InputError) as error:
        answer_allowing(asked("local", stack="megatron-core"))
    assert [one.field for one in error.value.problems] == ["allow"]


def test_islands_lie_in_fast_domains():
    plan = answer_allowing(asked()).proposals[0].plan
    split = with_islands(plan, 2)
    ranks = plan.layout.dp_replicate * plan.layout.dp_shard
    assert split.layout.dp_replicate * split.layout.dp_shard == ranks
    entries = [one.synchronise for one in candidates(plan, ["local", "compress"], 2)]
    assert all(entries)
