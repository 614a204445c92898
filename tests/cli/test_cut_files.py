"""Files that commands write and read again: whole they work, cut off they are refused with exit code 2."""

import json

import pytest
from command_runs import QUESTION, TINY, refused, run, write

TEXT = "was written by meshwright and is cut off"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The plan that ``plan`` writes."""
    path = tmp_path_factory.mktemp("written") / "plan.yaml"
    assert run("plan", write(path.parent / "config.json", json.dumps(TINY)), *QUESTION, "-o", path).code == 0
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", ["predict", "describe", "check", "explain", "compare"])
def test_every_verb_refuses_a_plan_that_was_cut_off(written, verb, tmp_path):
    assert run("describe", write(tmp_path / "whole.yaml", written)).code == 0
    places = [written.index(word) for word in ("layout", "sharding", "recompute", "...\n")]
    for place in places if verb in ("predict", "describe") else places[-1:]:
        half = write(tmp_path / "half.yaml", written[:place])
        assert TEXT in refused(verb, half, *([half] if verb == "compare" else []))


def test_a_plan_in_the_long_form_is_printed_as_a_file_that_is_read(written, tmp_path):
    shown = run("describe", write(tmp_path / "short.yaml", written), "--long").out
    assert shown.startswith("# written by meshwright\nplan: 1\n")
    assert shown.endswith("\n...\n")
    assert run("predict", write(tmp_path / "long.yaml", shown)).code == 0
    assert TEXT in refused("predict", write(tmp_path / "half.yaml", shown[: len(shown) // 2]))


def test_a_key_without_a_value_is_refused(written, tmp_path):
    text = written.replace("recompute: none", "recompute:")
    assert text != written
    message = refused("predict", write(tmp_path / "plan.yaml", text))
    assert "recompute: has no value. Suggestion: give it a value, or take the key out" in message
