"""Plans of lists that somebody wrote: priced, played, emulated and refused as plans of a name are."""

from pathlib import Path

import pytest

from meshwright import api
from meshwright.cost.plan_report import closed_form
from meshwright.errors import InputError, UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.plans.files.plan_file import load_plan
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.verbs.import_ import ImportRequest
from meshwright.verbs.schedule.schedule_request import ScheduleRequest
from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions

RANKS, COUNT = 4, 8
PLAN = """plan: 1
model: llama-3.2-1b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 2048, global_batch: 16}
stack: meshwright
layout: {pp: 4, dp_shard: 2}
sharding: zero1
pipeline: {schedule: SCHEDULE, virtual_stages: CHUNKS}
"""
SWAPPED = """0F2,0F0,0F1,0F3,0B2,0F5,0B0,0F4,0B1,0F6,0B3,0F7,0B5,0B4,0B6,0B7
1F0,1F2,1F1,1B2,1F3,1B0,1F4,1B1,1F5,1B3,1F6,1B5,1F7,1B4,1B6,1B7
2F2,2F0,2B2,2F1,2B0,2F3,2B1,2F5,2B3,2F4,2B5,2F6,2B4,2F7,2B6,2B7
3F2,3B2,3F0,3B0,3F1,3B1,3F3,3B3,3F5,3B5,3F4,3B4,3F6,3B6,3F7,3B7
"""
"""1F1B with forward passes of neighbours swapped, another pair on each rank."""


def plan_file(folder, text=SWAPPED, chunks=1, schedule="{file: mine.csv}"):
    folder.mkdir(exist_ok=True)
    (folder / "mine.csv").write_text(text)
    path = folder / "plan.yaml"
    path.write_text(PLAN.replace("SCHEDULE", schedule).replace("CHUNKS", str(chunks)))
    return path


def with_messages(name):
    """The lists of a schedule with the messages between its stages, as torch writes them."""
    made = api.schedule(name, ScheduleRequest(stages=RANKS, micro_batches=COUNT)).made
    return format_csv(insert_messages(made.lists, made.shape.placement))


def test_a_file_with_messages_costs_what_its_passes_cost(tmp_path):
    bare = plan_file(tmp_path / "bare", schedule="1f1b")
    sent = plan_file(tmp_path / "sent", with_messages("1f1b"))
    assert api.predict(sent).step_time_s == pytest.approx(api.predict(bare).step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "right", "rule"),
    [
        ("1RECV_F7,", "", "a message that is missing"),
        ("0SEND_F0,", "0SEND_F0,0SEND_F0,", "a message that nobody needs"),
        ("1RECV_F0,1F0", "1F0,1RECV_F0", "stands at"),
    ],
)
def test_plans_and_schedule_refuse_a_file_for_the_same_message(tmp_path, wrong, right, rule):
    text = with_messages("1f1b")
    assert wrong in text
    path = plan_file(tmp_path, text.replace(wrong, right, 1))
    with pytest.raises(InputError) as of_plan:
        api.predict(path)
    with pytest.raises(InputError) as of_lists:
        api.schedule(str(tmp_path / "mine.csv"), ScheduleRequest())
    plain = [(problem.value, problem.rule) for problem in of_plan.value.problems]
    assert plain == [(problem.value, problem.rule) for problem in of_lists.value.problems]
    assert rule in plain[0][1]
    found = api.check(path, ImportRequest()).to_json()
    assert not found["ok"]
    assert any(rule in problem["rule"] for problem in found["problems"])
    assert of_plan.value.problems[0].field.endswith(f"mine.csv, line {1 + int(plain[0][0][0])}")


MIXED = "0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1I1,1W1\n"


def test_a_file_that_no_plan_can_have_is_played_with_a_note(tmp_path):
    (tmp_path / "mixed.csv").write_text(MIXED)
    found = api.schedule(str(tmp_path / "mixed.csv"), ScheduleRequest()).to_json()
    assert found["note"].startswith("no plan can have these lists: ")
    assert "others are split" in found["note"]


def chunks_of(kind):
    return kind.fixed_chunks or (2 if kind.chunked else 1)


@pytest.mark.parametrize("name", [name for name, kind in SCHEDULES.items() if not kind.automatic])
def test_lists_of_a_schedule_cost_what_the_schedule_costs(tmp_path, name):
    """A form of a schedule may differ from playing its lists; both are played here, which they are at this size."""
    kind = SCHEDULES[name]
    chunks = chunks_of(kind)
    mine = plan_file(tmp_path / "mine", format_csv(kind.lists(RANKS, COUNT, chunks)), chunks)
    named = plan_file(tmp_path / "named", chunks=chunks, schedule=name)
    of_mine, of_name = api.predict(mine), api.predict(named)
    assert of_mine.step_time_s == pytest.approx(of_name.step_time_s, rel=1e-9)
    assert of_mine.memory_bytes == of_name.memory_bytes


@pytest.mark.parametrize("name", [*SCHEDULES, "swapped"])
def test_forms_and_the_simulated_program_agree(tmp_path, name):
    kind = SCHEDULES.get(name)
    chunks = chunks_of(kind) if kind else 1
    text = format_csv(kind.lists(RANKS, COUNT, chunks)) if kind else SWAPPED
    resolved = api.load(plan_file(tmp_path, text, chunks))
    form, played = (
        closed_form(resolved.short, resolved.setting),
        simulated_estimate(resolved.long, resolved.setting),
    )
    assert sum(form.parts.values()) == pytest.approx(sum(played.parts.values()), rel=0.03)
    assert form.ledgers == played.ledgers


@pytest.mark.parametrize(("name", "form"), [("1f1b", "vocab-1"), ("zb-v", "vocab-2"), ("zb-h1", "vocab-2")])
def test_a_plans_lists_with_a_spread_vocabulary_come_out_and_go_in(tmp_path, name, form):
    chunks = chunks_of(SCHEDULES[name])
    named = plan_file(tmp_path / "named", chunks=chunks, schedule=f"{{name: {name}, vocabulary: {form}}}")
    text = api.lists(named)
    assert "S0" in text
    mine = plan_file(tmp_path / "mine", text, chunks, f"{{file: mine.csv, vocabulary: {form}}}")
    assert api.lists(mine) == text
    assert api.predict(mine).step_time_s == pytest.approx(api.predict(named).step_time_s, rel=1e-9)
    assert api.predict(mine).memory_bytes == api.predict(named).memory_bytes
    resolved = api.load(mine)
    form_s, played = (
        closed_form(resolved.short, resolved.setting),
        simulated_estimate(resolved.long, resolved.setting),
    )
    assert sum(form_s.parts.values()) == pytest.approx(sum(played.parts.values()), rel=0.03)
    with pytest.raises(InputError, match="has passes of a vocabulary that is spread"):
        api.load(plan_file(tmp_path / "bare", text, chunks))


def test_a_spread_vocabulary_must_be_as_the_lists_have_it(tmp_path):
    named = plan_file(tmp_path / "named", schedule="{name: 1f1b, vocabulary: vocab-2}")
    cells = [line.split(",") for line in api.lists(named).splitlines()]
    late = [[c for kind in (False, True) for c in row if ("T" in c) == kind] for row in cells]
    text = "".join(",".join(row) + "\n" for row in late)
    assert api.load(plan_file(tmp_path / "late", text, schedule="{file: mine.csv, vocabulary: vocab-2}"))
    with pytest.raises(InputError, match=r"with its 2 barriers the ranks of mine\.csv wait for each other"):
        api.load(plan_file(tmp_path / "mine", text, schedule="{file: mine.csv, vocabulary: vocab-1}"))
    with pytest.raises(InputError, match="has no passes of a vocabulary that is spread"):
        api.load(plan_file(tmp_path / "without", schedule="{file: mine.csv, vocabulary: vocab-1}"))


def test_the_trace_has_the_passes_in_the_order_of_the_file(tmp_path):
    trace = api.trace(plan_file(tmp_path))
    passes = [
        sorted(
            (e["ts"], e["name"])
            for e in trace["traceEvents"]
            if e["ph"] == "X" and e["pid"] == rank and e["tid"] == 0
        )
        for rank in range(RANKS)
    ]
    names = [[name for _, name in of_rank if name[1] in "FB" and name[-1].isdigit()] for of_rank in passes]
    assert names == [line.split(",") for line in SWAPPED.splitlines()]


def test_a_list_of_the_solver_is_a_plan_that_is_emulated(tmp_path):
    found = api.solve_schedule(
        ScheduleRequest(stages=2, micro_batches=COUNT, times="1,1.2,0.7"),
        ScheduleSearchOptions(time_budget=1.0, method="local"),
    )
    path = plan_file(tmp_path, found.csv())
    path.write_text(
        path.read_text().replace("pp: 4, dp_shard: 2", "pp: 2, dp_shard: 2").replace("x 8", "x 4")
    )
    emulated = api.emulate(path)
    assert [[str(a) for a in actions if a.kind in "FBIW"] for actions in emulated.local.lists] == [
        line.split(",") for line in found.csv().splitlines()
    ]
    assert emulated.difference >= -1e-9


@pytest.mark.slow
def test_settings_and_checks_keep_the_lists(tmp_path, monkeypatch):
    path = plan_file(tmp_path)
    assert api.predict(path, settings=["recompute=full"]).hfu > api.predict(path).hfu
    with pytest.raises(InputError, match="has 8 micro-batches"):
        api.predict(path, settings=["global_batch=32"])
    monkeypatch.chdir(tmp_path)
    named = plan_file(tmp_path / "named", schedule="1f1b")
    changed = api.load(named, ["schedule={file: mine.csv}"])
    assert changed.long.choice == api.load("plan.yaml").long.choice
    checked = api.check(path, ImportRequest()).to_json()
    assert checked["ok"]
    assert checked["plan"]["pipeline"]["schedule"].keys() == {"file", "sha256"}
    described = api.describe(str(path), long=True)
    assert described["plan"]["pipeline"]["schedule"]["sha256"] == changed.long.choice.written.sha256
    assert "pipeline.schedule.sha256" not in described["given"]


@pytest.mark.parametrize("target", TARGETS)
def test_exporters_refuse_lists_by_name(tmp_path, target):
    with pytest.raises(UnsupportedError) as caught:
        api.export(plan_file(tmp_path), to=target)
    assert "pipeline.schedule.file" in {problem.field for problem in caught.value.problems}


def test_a_table_of_runs_has_no_column_for_lists(tmp_path):
    path = plan_file(tmp_path)
    (tmp_path / "log.txt").write_text("".join(f'{{"step": {n}, "step_time_s": 2.0}}\n' for n in range(30)))
    with pytest.raises(InputError, match=r"pipeline.schedule.file = .*has no column"):
        api.ingest([str(tmp_path / "log.txt")], plan=str(path))


@pytest.mark.slow
def test_a_probe_finds_the_lists_from_its_own_folder(tmp_path):
    made = api.probe(plan_file(tmp_path), top=1)
    (text,) = [job.files["plan.yaml"] for job in made.jobs[:1]]
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "plan.yaml").write_text(text)
    assert load_plan(tmp_path / "job" / "plan.yaml").pipeline.schedule.file == str(tmp_path / "mine.csv")
    assert api.load(tmp_path / "job" / "plan.yaml").long.choice.lists(RANKS, COUNT, 1)


def test_the_example_is_a_schedule_of_its_own(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "own-schedule" / "plan.yaml"
    choice = api.load(example).long.choice
    assert choice.kind.split
    assert not any(
        choice.lists(2, COUNT, 2) == kind.lists(2, COUNT, 2) for kind in SCHEDULES.values() if kind.allows(2)
    )
