"""Schedules as text say what their JSON says."""

import pytest
from rendered_text import HOSTILE, rendered

from meshwright import api
from meshwright.present.schedule_tables import MOST_RANKS, render_compared, render_schedule, render_schedules
from meshwright.schedules.generators import SCHEDULES
from meshwright.verbs.schedule.schedule_request import ScheduleRequest


def schedule(name, **options):
    return api.schedule(name, ScheduleRequest(**options)).to_json()


def test_a_small_schedule_shows_its_figures_and_its_lists():
    data = schedule("zb-h1", stages=4, micro_batches=8, times="1,1,1,0.1")
    text = rendered(render_schedule, data, ["lists.csv"])
    assert "zb-h1: 4 ranks, 8 micro-batches" in text
    assert f"makespan {data['makespan']:g}" in text
    assert "messages 48, 1 times those of 1f1b" in text
    assert all(" ".join(row) in text for row in data["actions"])
    assert "Written: lists.csv" in text
    rows = [line.split() for line in text.splitlines() if line.endswith(("  8", " 16"))]
    assert [row[-2] for row in rows] == [f"{peak:.4g}" for peak in data["peak_memory"]]


def test_a_single_rank_has_no_volume_and_uneven_stages_a_range(tmp_path):
    path = tmp_path / "stages.csv"
    path.write_text("F,I,W\n1,1,1\n3,2,1\n", encoding="utf-8")
    assert "times those of 1f1b" not in rendered(
        render_schedule, schedule("1f1b", stages=1, micro_batches=2), []
    )
    data = schedule("1f1b", stages=2, micro_batches=2, stage_times=str(path))
    assert "F 1–3, I 1–2, W 1 of a stage" in rendered(render_schedule, data, [])


def test_of_many_ranks_the_ends_are_shown_and_no_lists():
    data = schedule("1f1b", stages=100, micro_batches=100)
    text = rendered(render_schedule, data, [])
    assert "0F0" not in text
    assert "…" in text
    ranks = [line.split()[0] for line in text.splitlines() if line.endswith((" 100", " 200"))]
    assert len(ranks) == MOST_RANKS
    assert (ranks[0], ranks[-1]) == ("0", "99")


def test_names_of_files_are_no_markup():
    data = schedule("1f1b", stages=2, micro_batches=2) | {"schedule": HOSTILE}
    assert HOSTILE in rendered(render_schedule, data, [HOSTILE])
    compared = {"rows": [data]}
    assert HOSTILE in rendered(render_compared, compared, HOSTILE)


@pytest.mark.parametrize("limit", [None, 9.0])
def test_schedules_beside_each_other(limit):
    asked = ScheduleRequest(stages=4, micro_batches=8, memory_limit=limit)
    data = api.compare_schedules(("gpipe", "1f1b", "zb-v"), asked).to_json()
    text = rendered(render_compared, data, None)
    for row in data["rows"]:
        (line,) = [line for line in text.splitlines() if line.startswith(row["schedule"])]
        assert f" {row['makespan']:g} " in line
        assert (line.endswith("yes"), line.endswith("no")) == (
            limit is not None and row["fits"],
            limit is not None and not row["fits"],
        )


def test_latencies_stand_where_makespans_are_equal():
    asked = ScheduleRequest(stages=8, micro_batches=16)
    data = api.compare_schedules(("zb-h2", "zb-v", "dualpipe"), asked).to_json()
    lines = rendered(render_compared, data, None).splitlines()
    shown = [line.split()[2:4] for line in lines if line.startswith(("zb-", "dualpipe "))]
    assert shown == [["48", "55"], ["48", "51.5"], ["51", "51"]]
    assert lines[0] == "8 ranks, 16 micro-batches"
    assert "parameters" in lines[1]


def test_a_bubble_that_is_published_otherwise_has_a_note():
    asked = ScheduleRequest(stages=4, micro_batches=8)
    data = api.compare_schedules(("1f1b", "gpipe", "dualpipe"), asked).to_json()
    text = rendered(render_compared, data, None)
    assert "Note on gpipe: its paper divides the bubble by the whole time" in text
    assert "Note on dualpipe: its paper" in text
    assert "on 1f1b: " not in text
    assert "its paper" in rendered(render_schedule, schedule("dualpipe", stages=4, micro_batches=8), [])


def test_stages_in_parts_or_merged_are_named(tmp_path):
    path = tmp_path / "stages.csv"
    path.write_text("F,I,W\n" + "1,1,1\n" * 8, encoding="utf-8")
    asked = ScheduleRequest(stages=4, micro_batches=8, stage_times=str(path))
    text = rendered(render_compared, api.compare_schedules(("1f1b", "zb-v"), asked).to_json(), None)
    assert "Note on 1f1b: each of its 4 stages is 2 of the given ones." in text
    assert "on zb-v: " not in text
    path.write_text("F,I,W\n" + "1,1,1\n" * 4, encoding="utf-8")
    text = rendered(render_compared, api.compare_schedules(("1f1b", "zb-v"), asked).to_json(), None)
    assert "Note on zb-v: each of its 8 stages takes half of a given one." in text


def test_peaks_of_many_ranks_are_cut_in_the_middle():
    data = api.compare_schedules(("1f1b",), ScheduleRequest(stages=16, micro_batches=16)).to_json()
    assert "32 30 28 26 … 6 4 2" in rendered(render_compared, data, None)


def test_the_table_of_all_has_a_line_for_each_and_cuts_no_heading():
    text = rendered(render_schedules, api.schedules())
    assert all(any(line.startswith(f"{name} ") for line in text.splitlines()) for name in SCHEDULES)
    assert "messages" in text.splitlines()[0]
    assert "8 ranks and 32 micro-batches" in text
    assert all(kind.summary.split()[-1] in text for kind in SCHEDULES.values())
