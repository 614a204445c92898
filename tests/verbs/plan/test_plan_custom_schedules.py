"""Searches among the plans that lists of one's own fit, and what is said where no plan does."""

import pytest
from planning_questions import header, planned

from meshwright import api
from meshwright.errors import InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.generators import SCHEDULES
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer

ASKED = ("llama-3.2-1b", "h100-sxm-80gb x 8")
OPTIONS = {"batch": 32, "stack": "meshwright"}


@pytest.fixture
def mine(tmp_path):
    """ZB-V's lists for two ranks and eight micro-batches."""
    path = tmp_path / "mine.csv"
    path.write_text(format_csv(SCHEDULES["zb-v"].lists(2, 8, 2)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_plans_of_lists_are_those_of_the_schedule_that_they_came_from(mine):
    """ZB-V's lists look at no times: its plans of this size have them."""
    found = planned(*ASKED, f"schedule={mine}", "recompute=none", **OPTIONS)
    named = planned(*ASKED, "schedule=zb-v", "pp=2", "recompute=none", **OPTIONS)
    batch = OPTIONS["batch"]
    sizes = [
        (p.plan.layout.dp_replicate * p.plan.layout.dp_shard * p.plan.pipeline.micro_batch)
        for p in found.proposals
    ]
    assert {(p.plan.layout.pp, p.plan.pipeline.virtual_stages) for p in found.proposals} == {(2, 2)}
    assert {batch // size for size in sizes} == {8}
    assert found.considered == found.feasible + sum(found.rejected.values())
    assert "mine.csv has lists of 2 pipeline ranks and 8 micro-batches" in found.rejected
    of_size = [
        p.report.step_time_s
        for p in named.proposals
        if batch // (p.plan.layout.dp_replicate * p.plan.layout.dp_shard * p.plan.pipeline.micro_batch) == 8
    ]
    times = [p.report.step_time_s for p in found.proposals]
    assert all(any(time == pytest.approx(other, rel=1e-9) for other in times) for time in of_size)


def test_a_plan_finds_its_lists_from_its_own_folder(mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    best = planned(*ASKED, "schedule=mine.csv", **OPTIONS).proposals[0]
    ((path, text),) = best.files(tmp_path / "plans" / "best.yaml").items()
    path.write_text(text, encoding="utf-8")
    assert parse_plan(text).pipeline.schedule.file == "../mine.csv"
    monkeypatch.chdir("/")
    assert api.predict(path).step_time_s == best.report.step_time_s


@pytest.mark.parametrize(
    ("kept", "changes", "message"),
    [
        (("pp=4",), {}, "keep.pp = 4: mine.csv has pp = 2. Suggestion: --keep pp=2"),
        (("virtual_stages=1",), {}, "keep.virtual_stages = 1: mine.csv has virtual_stages = 2"),
        (("memory_limit=0.4",), {}, "rank 0 holds"),
        (("unit=4",), {}, "keep.unit = 4"),
        (
            (),
            {"batch": 30},
            "has 8 micro-batches, which do not divide global_batch = 30. Suggestion: --global-batch 32",
        ),
        ((), {"stack": "megatron-core"}, "runs schedules by name, not lists of one's own"),
        ((), {"cluster": "h100-sxm-80gb x 7"}, "which do not divide 7 devices"),
    ],
)
def test_what_no_plan_can_have_is_said_with_the_number_in_the_way(mine, kept, changes, message):
    changes = {"cluster": ASKED[1]} | OPTIONS | changes
    question = PlanRequest(header(ASKED[0], **changes), (f"schedule={mine}", *kept))
    with pytest.raises(InputError) as caught:
        answer(question)
    assert message in str(caught.value)


def test_lists_that_are_wrong_or_missing_are_named(mine, tmp_path):
    mine.write_text(mine.read_text().replace("0F0", "0F1", 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"mine.csv, line 1"):
        planned(*ASKED, f"schedule={mine}", **OPTIONS)
    with pytest.raises(InputError, match=r"keep.schedule = .*none.csv.*: cannot be read"):
        planned(*ASKED, f"schedule={tmp_path / 'none.csv'}", **OPTIONS)
    mine.write_text("0F0,0B0", encoding="utf-8")
    with pytest.raises(InputError, match="lists of one pipeline rank"):
        planned(*ASKED, f"schedule={mine}", **OPTIONS)
