"""The verb: JSON keys, exit codes, text, picture."""

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from example_run_tables import COLUMNS, random_rows, row, write
from typer.testing import CliRunner

from meshwright import api
from meshwright.cli.main import app
from meshwright.present.runs.validation import MOST_ROWS
from meshwright.present.svg.validation_scatter import MAX_SOURCES, scatter
from meshwright.units import format_seconds

ROW = [
    "run_id",
    "source",
    "predicted_step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "measured_step_time_s",
    "predicted_memory_gib",
    "measured_memory_gib",
    "predicted_fits",
    "measured_outcome",
    "remarks",
]
SUMMARY = {
    "coverage": None,
    "step_time": {
        "n",
        "mape",
        "median_ape",
        "bias",
        "p90_ape",
        "interval_coverage",
        "own_mfu_mape",
        "blind_mfu_mape",
    },
    "ranking": {
        "groups",
        "spearman_median",
        "pairs_right",
        "regret_mean",
        "regret_max",
        "best_of_3_regret_mean",
    },
    "memory": {"n", "mape", "bias"},
    "fits": {"n", "accuracy", "oom_called_fit", "fit_called_oom"},
}


def run(*arguments):
    return CliRunner().invoke(app, ["validate", *map(str, arguments)])


@pytest.fixture
def runs(table):
    rows = [row(source="one"), row(source="two", run_id="bad", tp=3), *random_rows(40, seed=1)]
    return write(table, [*rows, row(run_id="oom", outcome="oom")])


def test_json_has_the_public_keys(runs):
    done = run(runs, "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.output)
    assert [list(entry) for entry in data["rows"]] == [ROW] * len(data["rows"])
    assert {"run_id", "reason"} <= data["skipped"][0].keys()
    assert list(data["summary"]) == ["one", "two", "s", "all"]
    for figures in data["summary"].values():
        for name, keys in SUMMARY.items():
            assert name in figures
            assert keys is None or keys <= figures[name].keys()


def test_json_is_what_the_function_returns(runs):
    assert json.loads(run(runs, "--json").output) == api.validate(runs).to_json()


def test_rows_and_skipped_are_all_rows_in_order(runs):
    data = api.validate(runs).to_json()
    with runs.open(encoding="utf-8") as lines:
        names = [line["run_id"] for line in csv.DictReader(lines)]
    found = [entry["run_id"] for entry in data["rows"]]
    skipped = [entry["run_id"] for entry in data["skipped"]]
    assert sorted(found + skipped) == sorted(names)
    assert found == [name for name in names if name in set(found)]
    assert skipped == [name for name in names if name in set(skipped)]


def test_text_names_sources_and_reasons(runs):
    done = run(runs)
    assert done.exit_code == 0, done.output
    assert "two" in done.output
    assert re.search(r"heads % tp = 16 % 3 = 1.*\(bad\)", done.output)


def test_a_few_runs_are_printed_one_by_one(table):
    write(table, [row(run_id=f"run-{number}") for number in range(3)])
    done = run(table)
    data = json.loads(run(table, "--json").output)
    assert data["rows"]
    for entry in data["rows"]:
        (line,) = [line for line in done.output.splitlines() if line.startswith(f"{entry['run_id']} ")]
        error = entry["predicted_step_time_s"] / entry["measured_step_time_s"] - 1
        assert f"{error:+.1%}" in line
        assert format_seconds(entry["predicted_step_time_s"]) in line


def test_many_runs_are_not_printed_one_by_one(table):
    write(table, [row(run_id=f"run-{number}") for number in range(MOST_ROWS + 1)])
    assert "run-7" not in run(table).output


def test_a_table_without_any_prediction_is_an_answer(table):
    write(table, [row(device="abacus")])
    assert run(table).exit_code == 0
    assert json.loads(run(table, "--json").output)["summary"]["all"]["coverage"] == 0


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_wrong_input_is_2(tmp_path, form):
    empty = tmp_path / "empty.csv"
    empty.touch()
    for path in (empty, tmp_path, tmp_path / "absent.csv"):
        done = run(path, *form)
        assert done.exit_code == 2
        assert "Traceback" not in done.output


def test_a_picture_that_can_not_be_written_is_2(runs, tmp_path):
    assert run(runs, "--picture", tmp_path / "no" / "p.svg").exit_code == 2


def test_the_picture_is_svg_for_light_and_dark(runs, tmp_path):
    path = tmp_path / "p.svg"
    assert run(runs, "--picture", path).exit_code == 0
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in text
    assert "±10 %" in text


def test_a_point_on_the_diagonal_is_drawn_on_it():
    text = scatter({"<a>&": (np.array([1.0, 10.0]), np.array([1.0, 10.0]))}, "t")
    places = [
        tuple(map(float, point.split("h")[0].split()))
        for path in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}path")
        if "stroke-linecap" in path.attrib and path.attrib["d"].count("M") == 2
        for point in path.attrib["d"].split("M")[1:]
    ]
    assert len(places) == 2
    assert all(x + y == 520 for x, y in places)


@pytest.mark.parametrize("count", [0, 1, MAX_SOURCES + 5])
def test_pictures_of_none_and_of_many_sources(count):
    one = (np.array([2.0]), np.array([2.0]))
    ElementTree.fromstring(scatter({f"s{i}": one for i in range(count)}, "t"))


def test_names_with_signs_that_xml_forbids():
    one = (np.array([2.0]), np.array([2.0]))
    ElementTree.fromstring(scatter({"a\x01\x1b\ufffe&<b>": one}, "t\x00\udcff").encode())


def test_equal_points_are_drawn_once():
    many = (np.full(100_000, 3.0), np.full(100_000, 4.0))
    assert len(scatter({"s": many}, "t")) < 20_000


def test_the_documentation_lists_every_column():
    text = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert not [name for name in COLUMNS if f"`{name}`" not in text]
    keys = set().union(*(keys for keys in SUMMARY.values() if keys)) - {"n"} | {"coverage"}
    assert not [key for key in keys if f"`{key}`" not in text]
