"""The remark on a nearby global batch, against answers for that batch."""

import re
from dataclasses import replace

import pytest
from cluster_questions import question

from meshwright.economy.budget_and_deadline import Limits
from meshwright.verbs.plan.clusters.choose_cluster import choose
from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest

ON = ("h100-sxm-80gb x 10", "h100-sxm-80gb x 12")
REMARK = re.compile(
    r"global batch (\d+) in place of (\d+) opens (.+), whose fastest plan is ([\d.]+)% better"
)


def answered(batch, on=ON, limits=Limits(), tokens="10B"):  # noqa: B008
    header = question().header
    workload = header.workload.model_copy(update={"global_batch": batch})
    asked = replace(question(), header=header.model_copy(update={"workload": workload}))
    return choose(asked, ClusterChoiceRequest(on, "cost", limits, tokens))


def remarks(found):
    return [match for text in found.proposals[0].report.remarks if (match := REMARK.match(text))]


@pytest.mark.parametrize("tokens", ["10B", None])
def test_it_names_a_batch_with_a_better_count(tokens):
    found = answered(22, tokens=tokens)
    (remark,) = remarks(found)
    batch, before, cluster, gain = remark.groups()
    assert before == "22"
    assert 22 * 0.875 <= int(batch) <= 22 * 1.125
    other = answered(int(batch), on=(cluster,), tokens=tokens)

    def per_sequence(of, sequences):
        standing = next(one for one in of.standings if one.offer.on == of.fastest.plan.cluster)
        return standing.course.costs(of.fastest.report.step_time_s).usd / (1 if tokens else sequences)

    here, there = per_sequence(found, 22), per_sequence(other, int(batch))
    assert 100 * (1 - there / here) == pytest.approx(float(gain), abs=0.1)


def test_nothing_is_said_where_no_batch_is_better():
    assert remarks(answered(24)) == []


def test_it_keeps_the_limits():
    days = answered(22).standings[0].costs.days
    hardly = Limits(power_kw=13)
    assert days > 0
    found = answered(22, on=("h100-sxm-80gb x 8", *ON), limits=hardly)
    assert all(remark.group(3).endswith("x 8") for remark in remarks(found))
