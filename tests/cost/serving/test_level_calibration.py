"""Levels of a user's runs in a file, and back."""

from meshwright.cost.serving.level_calibration import levels_text, read_levels
from meshwright.cost.serving.levels import Effect, Group, LevelTable, shipped_levels


def test_a_written_file_is_read_as_the_same_levels(tmp_path):
    file = tmp_path / "levels.yaml"
    file.write_text(levels_text(shipped_levels()), encoding="utf-8")
    assert read_levels(file) == shipped_levels()


def test_metrics_without_runs_stay_out_of_the_file(tmp_path):
    table = LevelTable({Group("m", "d", "vllm"): {"ttft": Effect(-0.25, 0.125, 3)}}, "runs.csv")
    text = levels_text(table)
    assert "tpot" not in text
    file = tmp_path / "levels.yaml"
    file.write_text(text, encoding="utf-8")
    assert read_levels(file) == table
