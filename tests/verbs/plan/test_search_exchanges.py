"""Plans whose replicas communicate less are searched on request; their loss is said not to be predicted."""

import pytest
from planning_questions import header

from meshwright.errors import InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.synchronisation.exchange_text import LOSS_NOT_PREDICTED, LOSS_REMARK, entries_text
from meshwright.present.plan_answers.layout_text import proposal_layout_words, synchronise_lines
from meshwright.verbs.plan.plan_on_cluster import PlanRequest
from meshwright.verbs.plan.search_exchanges import answer_allowing, candidates, with_islands

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
    assert all(any(LOSS_NOT_PREDICTED in remark for remark in one.report.remarks) for one in less)
    plans = [one.to_json() for one in found.proposals]
    lines = synchronise_lines(plans)
    assert lines[-1].strip() == LOSS_REMARK
    assert not synchronise_lines([one for one in plans if not one["plan"]["synchronise"]])
    for number, (one, data) in enumerate(zip(found.proposals, plans, strict=True), 1):
        assert ("+synchronise" in proposal_layout_words(data)) == bool(one.plan.synchronise)
        named = [line for line in lines if str(number) in line.partition(":")[0].replace(",", "").split()]
        assert [entries_text(one.plan.synchronise) in line for line in named] == [True] * bool(
            one.plan.synchronise
        )
    for one in less:
        (reason,) = [reason for reason in one.reasons if reason.field == "synchronise"]
        assert LOSS_NOT_PREDICTED in reason.text
        assert reason.text in one.to_yaml()
        assert parse_plan(one.to_yaml()) == one.plan
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
