"""Rows of a table that can not be used are named with the reason, in JSON, in the text and in the refusal."""

import csv
import json

import pytest
from typer.testing import CliRunner

from meshwright.calibration.usable_runs import usable_runs
from meshwright.cli.main import app
from meshwright.validation.read_run_table import Run, read_runs

GOOD = {
    "model": "llama-3.1-8b",
    "seq_len": "8192",
    "global_batch": "64",
    "device": "h100-sxm-80gb",
    "devices": "16",
    "tp": "2",
    "dp": "8",
    "sharding": "zero1",
    "stack": "megatron-core",
    "step_time_s": "3.6",
}
BAD = {
    "out of memory": ({"outcome": "oom"}, "ran out of memory"),
    "no time": ({"step_time_s": ""}, "step_time_s: not given"),
    "no such device": ({"device": "h101"}, "device = 'h101'"),
    "degrees": ({"tp": "4"}, "pp·dp·cp·tp = 1·8·1·4 = 32 ≠ 16 devices"),
    "model": ({"model": "nobody-7b"}, "layers"),
    "task": ({"task": "serve"}, "task: serve is not priced yet"),
}


def table(path, *rows):
    columns = ["run_id", *GOOD, "outcome", "task"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({"run_id": name, **GOOD, **changes} for name, changes in rows)
    return path


def good(count):
    plans = ({"tp": "2", "dp": "8"}, {"tp": "4", "dp": "4"}, {"tp": "1", "dp": "16"}, {"tp": "8", "dp": "2"})
    return [(f"good {number}", plan) for number, plan in enumerate(plans[:count])]


def calibrated(path, *words):
    return CliRunner().invoke(app, ["calibrate", str(path), *words])


def test_every_row_is_used_or_skipped_with_its_reason(tmp_path):
    rows = [*good(2), *((name, changes) for name, (changes, _) in BAD.items()), *good(4)[2:]]
    items = list(read_runs(table(tmp_path / "runs.csv", *rows)))
    usable = usable_runs(items)
    assert [run.run_id for run in usable.skipped] == list(BAD)
    for run in usable.skipped:
        assert BAD[run.run_id][1] in run.reason
    assert sum(len(found.plans) for found in usable.observations) == 4
    runs = [item for item in items if isinstance(item, Run)]
    assert sum(len(found.plans) for found in usable_runs(runs).observations) == 4


def test_the_answer_lists_them_in_json_and_in_the_text(tmp_path):
    rows = [*good(3), *((name, changes) for name, (changes, _) in BAD.items())]
    path = table(tmp_path / "runs.csv", *rows)
    data = json.loads(calibrated(path, "--json").stdout)
    assert data["runs"] == 3
    assert [row.keys() for row in data["skipped"]] == [{"run_id", "reason"}] * len(BAD)
    assert [row["run_id"] for row in data["skipped"]] == list(BAD)
    text = calibrated(path).stdout
    assert f"{len(BAD)} runs were not used" in text
    assert all(row["run_id"] in text and row["reason"][:60] in text for row in data["skipped"])


def test_a_table_without_such_rows_says_nothing_of_them(tmp_path):
    path = table(tmp_path / "runs.csv", *good(3))
    assert json.loads(calibrated(path, "--json").stdout)["skipped"] == []
    assert "not used" not in calibrated(path).stdout


def test_of_many_the_first_are_listed(tmp_path):
    many = [(f"bad {number}", {"step_time_s": ""}) for number in range(50)]
    text = calibrated(table(tmp_path / "runs.csv", *good(3), *many)).stdout
    assert "bad 0" in text
    assert "bad 49" not in text
    assert "30 more" in text


def test_where_too_few_are_left_the_refusal_says_why(tmp_path):
    path = table(tmp_path / "runs.csv", *good(2), *((f"{n}", {"step_time_s": ""}) for n in range(9)))
    done = calibrated(path, "--json")
    assert done.exit_code == 2
    few, why = json.loads(done.stdout)["problems"]
    assert "2 runs can be used" in few["rule"]
    assert why["severity"] == "warning"
    assert why["value"] == "0, 1, 2, 3, 4 and 4 more"
    assert "step_time_s: not given" in why["rule"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["\x1b[31mred", "[bold]x[/bold]", "a" * 500])
def test_names_of_other_people_are_safe_to_print(tmp_path, name):
    done = calibrated(table(tmp_path / "runs.csv", *good(3), (name, {"step_time_s": ""})))
    assert done.exit_code in (0, 1)
    assert "\x1b[31m" not in done.stdout
