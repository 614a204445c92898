"""Errors in cluster files: keys written by habit have what to write here, and a complete file is shown that works."""

import re

import pytest
from source_tree import ROOT

from meshwright.cluster.file_errors import HABITS, MINIMAL_FILE
from meshwright.cluster.load import load_cluster, parse_cluster
from meshwright.errors import InputError
from meshwright.plans.files.yaml_text import read_mapping


def problems_of(text):
    with pytest.raises(InputError) as error:
        parse_cluster(text)
    return error.value.problems


def test_the_file_that_is_shown_is_complete():
    assert parse_cluster(MINIMAL_FILE + "\n").devices == 64
    shown = problems_of("colour: 1\n")[-1].suggestion
    assert shown.endswith(f"a complete file: {MINIMAL_FILE}")
    assert sum("complete file" in problem.suggestion for problem in problems_of("a: 1\nb: 2\nc: 3\n")) == 1


@pytest.mark.parametrize("key", [key for keys in HABITS for key in keys])
def test_keys_of_other_tools_have_what_to_write_here(key):
    hint = next(words for keys, words in HABITS.items() if key in keys)
    (problem,) = problems_of(f"pools: [{{device: h100-sxm-80gb, count: 8, {key}: 8}}]\n")
    assert problem.suggestion.startswith(hint)
    top = next(one for one in problems_of(f"{key}: 8\npools: [{{device: h100-sxm-80gb, count: 8}}]\n"))
    assert top.suggestion.startswith(f"in a pool, {hint}")


def test_what_is_suggested_is_understood():
    for hint in HABITS.values():
        written = re.match(r"[\w]+: (\{.*\}|[\w.-]+)", hint)
        if written is None or hint.startswith("count: the"):
            continue
        pool = {"device": "h100-sxm-80gb", "count": "64"} | dict([written[0].split(": ", 1)])
        text = ", ".join(f"{key}: {value}" for key, value in pool.items())
        assert parse_cluster(f"pools: [{{{text}}}]\n").devices == 64


def test_keys_of_a_pool_at_the_top_are_sent_there():
    found = problems_of("device: h100-sxm-80gb\ncount: 8\n")
    assert [problem.field for problem in found] == ["pools", "device", "count"]
    assert "belongs to a pool" in found[1].suggestion


def test_files_of_the_page_are_clusters():
    text = (ROOT / "docs" / "cluster-files.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml[^\n]*\n(.*?)```", text, re.DOTALL)
    assert parse_cluster(block).pool.node.nic_bytes_per_s == pytest.approx(1600e9 / 8)
    for line in re.findall(r"`(pools: \[.*?\])`", text):
        assert parse_cluster(line + "\n").devices == 64
        assert read_mapping(line, "line")
    assert load_cluster(MINIMAL_FILE + "\n").devices == 64
