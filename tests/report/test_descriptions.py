import pytest
from rendered import HOSTILE, rendered, with_hostile_text

from meshwright import api
from meshwright.cluster.catalog import device_ids
from meshwright.model.load import zoo_names
from meshwright.report.descriptions import render_description
from meshwright.stack.load import stack_names

SHORT = """\
plan: 1
model: mixtral-8x7b
cluster: h100-sxm-80gb x 32
workload: {seq_len: 4096, global_batch: 64}
layout: {pp: 16, dp_shard: 2, ep: 2}
sharding: zero1
"""


@pytest.mark.parametrize("name", zoo_names())
def test_every_model_of_the_zoo(name):
    data = api.describe(name)
    text = rendered(render_description, data)
    assert f"{data['parameters']:,}" in text
    assert f"name: {name}\n" in text


@pytest.mark.parametrize("name", device_ids())
def test_every_device_as_a_cluster(name):
    text = rendered(render_description, api.describe(f"{name} x 24"))
    assert text.startswith("kind: cluster\n")
    assert name in text


@pytest.mark.parametrize("name", stack_names())
def test_every_stack(name):
    text = rendered(render_description, api.describe(name))
    assert f"name: {name}\n" in text


@pytest.mark.parametrize("long", [False, True])
def test_a_plan(tmp_path, long):
    file = tmp_path / "plan.yaml"
    file.write_text(SHORT, encoding="utf-8")
    text = rendered(render_description, api.describe(str(file), long=long))
    assert ("layouts:" in text) == long
    assert "model: mixtral-8x7b" in text
    file.write_text(text, encoding="utf-8")
    assert api.predict(file).fits in (True, False)  # what is printed is a plan file again


@pytest.mark.parametrize("name", ["deepseek-v3", "gb200 x 8", "torchtitan"])
def test_markup_in_texts_is_printed_as_it_stands(name):
    data = with_hostile_text(api.describe(name))
    data |= {HOSTILE: 1, "nested": {HOSTILE: [{HOSTILE: HOSTILE}]}, "mixed": [{"a": 1}, HOSTILE, None]}
    text = rendered(render_description, data)
    assert text.count(HOSTILE) >= 6


def test_numbers_lists_and_gaps():
    data = {"long": list(range(100)), "rows": [{"a": i} for i in range(60)], "none": None, "yes": True}
    text = rendered(render_description, data | {"large": 70_553_706_496, "small": 0.125, "empty": []})
    assert "… (100)" in text
    assert "… 20 more" in text
    assert "none: –\n" in text
    assert "yes: yes\n" in text
    assert "large: 70,553,706,496 (70.55 B)\n" in text
    assert "small: 0.125\n" in text
