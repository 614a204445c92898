"""Words that nobody knows, in tables of runs: the nearest known one is taken, and the row says so."""

import pytest
from example_run_tables import GOOD, row, write

from meshwright import api
from meshwright.calibration.usable_runs import usable_runs
from meshwright.validation.read_run_table import Run, read_runs


def run(tmp_path, **cells):
    (found,) = read_runs(write(tmp_path / "runs.csv", [row(**cells)], (*GOOD, "fp8_recipe", "attention")))
    assert isinstance(found, Run), found
    return found


@pytest.mark.parametrize(
    ("column", "word", "read"),
    [
        ("sharding", "zero0", "none"),
        ("sharding", "HSDP", "zero3"),
        ("recompute", "op", "selective"),
        ("recompute", "selective (per-op SAC)", "selective"),
        ("recompute", "layer", "full"),
    ],
)
def test_others_words_need_no_remark(tmp_path, column, word, read):
    found = run(tmp_path, **{column: word})
    assert getattr(found.chosen, column) == read
    assert found.remarks == ()


@pytest.mark.parametrize(
    ("word", "recipe"), [("fp8-cs", "current"), ("FP8-DS", "delayed"), ("fp8-sc", "blockwise")]
)
def test_a_precision_says_its_recipe(tmp_path, word, recipe):
    found = run(tmp_path, precision=word).given
    assert (found.precision, found.fp8_recipe) == ("fp8", recipe)
    assert run(tmp_path, precision="fp8", fp8_recipe=recipe).given == found


@pytest.mark.parametrize(
    ("column", "word", "part", "read"),
    [
        ("sharding", "zero-3", "chosen", "zero3"),
        ("precision", "bf-16", "given", "bf16"),
        ("precision", "xyzzy", "given", None),
        ("attention", "flash-2", "given", "flash2"),
        ("recompute", "fulll", "chosen", "full"),
        ("recompute", "mlp, magic", "chosen", ("mlp",)),
        ("fp8_recipe", "row-wise", "given", "rowwise"),
    ],
)
def test_unknown_words_take_the_nearest_one_with_a_remark(tmp_path, column, word, part, read):
    found = run(tmp_path, **{column: word})
    assert getattr(getattr(found, part), column) == read
    (remark,) = found.remarks
    assert remark.startswith(f"{column} = {word!r} ")


def test_an_unknown_schedule_is_the_nearest_one(tmp_path):
    found = run(tmp_path, schedule="1f1bb")
    assert found.chosen.schedule.name == "1f1b"
    assert found.remarks == ("schedule = '1f1bb' is unknown and taken as 1f1b",)
    assert run(tmp_path, schedule="qqqq").chosen.schedule is None


def test_the_row_and_the_calibration_say_what_was_guessed(tmp_path):
    path = write(tmp_path / "runs.csv", [row(schedule="1f1bb"), row(run_id="q")], GOOD)
    first, second = api.validate(path).to_json()["rows"]
    assert first["remarks"] == ["schedule = '1f1bb' is unknown and taken as 1f1b"]
    assert second["remarks"] == []
    assert usable_runs(read_runs(path)).remarks == ("r: schedule = '1f1bb' is unknown and taken as 1f1b",)
