"""Files of levels: what they hold, and what is refused with field, value, rule and suggestion."""

import pytest

from meshwright.errors import InputError
from meshwright.stack.serving.level_file import read_level_file

GOOD = """serving_levels: 1
runs: runs.csv
levels:
  - {model: llama-3.1-8b, device: h200-sxm-141gb, engine: vllm, tpot: {log_factor: 0.08, doubt: 0.03, rows: 12}}
"""


def problems(tmp_path, text):
    file = tmp_path / "levels.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_level_file(file)
    return error.value.problems


def test_a_file_by_hand_is_read(tmp_path):
    file = tmp_path / "levels.yaml"
    file.write_text(GOOD, encoding="utf-8")
    (one,) = read_level_file(file).levels
    assert one.group == ("llama-3.1-8b", "h200-sxm-141gb", "vllm")
    assert (one.tpot.log_factor, one.tpot.doubt, one.tpot.rows) == (0.08, 0.03, 12)
    assert one.ttft is one.throughput is None


@pytest.mark.parametrize(
    ("was", "becomes", "field"),
    [
        ("serving_levels: 1", "serving_levels: 2", "serving_levels"),
        ("runs: runs.csv\n", "", "runs"),
        ("engine: vllm", "engine: fast", "levels.0.engine"),
        ("0.08", "9.5", "levels.0.tpot.log_factor"),
        ("0.08", ".nan", None),
        ("doubt: 0.03", "doubt: 0", "levels.0.tpot.doubt"),
        ("rows: 12", "rows: 0", "levels.0.tpot.rows"),
        ("rows: 12", 'rows: "12"', "levels.0.tpot.rows"),
        ("tpot: {", "tpt: {", "levels.0.tpt"),
        (", tpot: {log_factor: 0.08, doubt: 0.03, rows: 12}", "", "levels.0"),
        ("levels:\n", "plan: 1\nlevels:\n", "plan"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_a_suggestion(tmp_path, was, becomes, field):
    found = problems(tmp_path, GOOD.replace(was, becomes))
    assert all(one.rule and one.suggestion for one in found)
    assert field is None or field in [one.field for one in found]


def test_a_group_stands_once(tmp_path):
    line = GOOD.splitlines(keepends=True)[-1]
    (one,) = problems(tmp_path, GOOD + line)
    assert (one.field, one.value) == ("levels.1", "llama-3.1-8b")
    assert "twice" in one.rule


def test_all_problems_come_at_once(tmp_path):
    wrong = GOOD.replace("vllm", "fast").replace("rows: 12", "rows: 0").replace("levels: 1", "levels: 3")
    assert len(problems(tmp_path, wrong)) == 3


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "# written by meshwright\nserving_levels: 1\nruns: x\n"])
def test_other_files_and_cut_ones_are_refused(tmp_path, text):
    (one,) = problems(tmp_path, text)
    assert one.suggestion


def test_a_missing_file_is_named():
    with pytest.raises(InputError, match=r"calibration = 'no\.yaml'"):
        read_level_file("no.yaml")
