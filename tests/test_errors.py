"""Problems speak the language of a plan file, and are JSON."""

import json
from math import inf, nan

import pytest

from meshwright.errors import Problem, heading


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "tp"),
        (True, "tp = true"),
        (4, "tp = 4"),
        (0.5, "tp = 0.5"),
        (nan, "tp = nan"),
        ("zb-v", "tp = 'zb-v'"),
        (("pp", "tp"), "tp = [pp, tp]"),
        (["a: b", None, False], "tp = ['a: b', null, false]"),
        ({"parameter": (), "order": ("tp", 2)}, "tp = {parameter: [], order: [tp, 2]}"),
        ("/data/" + "x" * 90 + "/plan.yaml", "tp = '/data/" + "x" * 31 + "..." + "x" * 27 + "/plan.yaml'"),
    ],
)
def test_a_value_reads_as_a_plan_file_has_it(value, text):
    assert heading("tp", value) == text
    assert (
        str(Problem("tp", value, "must be another", "tp: 1")) == f"{text}: must be another. Suggestion: tp: 1"
    )


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, ("a", None)), [1, ["a", None]]),
        ({"a": (True,)}, {"a": [True]}),
        (inf, "inf"),
        (b"a", "b'a'"),
        (None, None),
    ],
)
def test_a_value_is_json(value, plain):
    data = Problem("f", value, "r").to_json()
    assert json.loads(json.dumps(data, allow_nan=False))["value"] == plain
