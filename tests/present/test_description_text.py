import pytest
from rendered_text import HOSTILE, rendered, with_hostile_text

from meshwright import api
from meshwright.cluster.catalog import device_ids
from meshwright.model.zoo_names import zoo_names
from meshwright.present.description import render_description
from meshwright.stack.load import stack_names

SHORT = """\
plan: 1
model: mixtral-8x7b
cluster: h100-sxm-80gb x 32
workload: {seq_len: 4096, global_batch: 64}
layout: {pp: 16, dp_shard: 2, ep: 2}
sharding: zero1
"""


@pytest.mark.quick_cases(16)
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


MIXED = """\
pools:
- {name: fast, device: h100-sxm-80gb, count: 16}
- {name: slow, device: a100-sxm-80gb, count: 8}
- {name: old, device: v100-sxm2-32gb, count: 8}
- {name: small, device: a10, count: 8}
- {name: last, device: l4, count: 8}
tiers: [{name: pod, devices: 128, oversubscription: 4}]
"""
LINKED = """\
pools: [{device: h100-sxm-80gb, count: 32}]
links: {pairs: [{nodes: [0, 1], relative: 0.5}]}
"""


def described(tmp_path, text):
    file = tmp_path / "cluster.yaml"
    file.write_text(text, encoding="utf-8")
    return api.describe(str(file))


def rows_of(text, title):
    """The lines of a table, in words, by their first word."""
    lines = text[text.index(f"\n{title} ") :].split("\n\n")[0].splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines if line.strip()}


def test_pools_and_their_nodes_are_tables(tmp_path):
    text = rendered(render_description, described(tmp_path, MIXED))
    pools, nodes = rows_of(text, "pools"), rows_of(text, "nodes")
    assert pools["name"] == ["fast", "slow", "old", "small"]
    assert pools["count"] == ["16", "8", "8", "8"]
    assert nodes["name"][:2] == ["dgx-h100", "dgx-a100"]
    rest = text[text.index("\npools ") + 1 :]
    assert rows_of(rest, "pools")["name"] == ["last"]
    assert ["pod", "128", "4"] in [line.split() for line in text.splitlines()]


def test_links_are_a_matrix_where_nodes_are_few(tmp_path):
    data = described(tmp_path, LINKED)
    text = rendered(render_description, data)
    assert rows_of(text, "links")["slowest_gbit_per_s_per_node"] == ["1,600"]
    assert ["0", "1", "0.5", "1", "1"] in [line.split() for line in text.splitlines()]
    many = data | {"links": data["links"] | {"relative": [[1.0] * 40] * 40}}
    assert "40 × 40 shares" in rendered(render_description, many)


def test_blocks_operators_and_parameters_are_tables():
    text = rendered(render_description, api.describe("llama-3.1-8b"))
    assert "chain: embed, 32 × dense, head\n" in text
    assert rows_of(text, "blocks")["dense"][:3] == ["layer", "32", "218.11"]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "self_attn.q_proj.weight 4096×4096 qkv" in lines
    assert "qkv Linear tensor inputs 4096, outputs 6144, split column, saves_input" in lines


@pytest.mark.parametrize("name", ["deepseek-v3", "minimax-text-01", "gb200 x 64", "megatron-core"])
def test_no_line_is_wider_than_100_columns(tmp_path, name):
    texts = [rendered(render_description, api.describe(name))]
    texts += [rendered(render_description, described(tmp_path, file)) for file in (MIXED, LINKED)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 100


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
    plain = api.describe(name)
    data = with_hostile_text(plain) | {"kind": plain["kind"]}
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
