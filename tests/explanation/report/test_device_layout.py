"""Devices on nodes: the groups of a picture are those of the mesh, and every device is listed or counted."""

from dataclasses import replace

import pytest
from planning_questions import TWO_LAYOUTS

from meshwright.cluster.load import load_cluster
from meshwright.explanation.report.device_layout import MOST_COLUMNS, MOST_NODES, device_layout
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.program.lowering.lower_plan import lower

CASES = [
    ("llama-3.1-8b", 8, {"pp": 2, "tp": 2, "dp_shard": 2}),
    ("llama-3.1-8b", 64, {"pp": 4, "tp": 2, "cp": 2, "dp_replicate": 2, "dp_shard": 2}),
    ("mixtral-8x7b", 64, {"pp": 4, "dp_shard": 16, "ep": 8}),
    ("llama-3.1-70b", 512, {"pp": 2, "tp": 4, "dp_shard": 64}),
    ("llama-3.1-70b", 640, {"pp": 80, "tp": 8}),
]


def program_of(model, devices, layout):
    plan = {
        "plan": 1,
        "model": model,
        "cluster": f"h100-sxm-80gb x {devices}",
        "workload": {"seq_len": 4096, "global_batch": 512},
        "stack": "meshwright",
        "layout": layout,
        "sharding": "zero1",
    }
    return lowered(resolve(ShortPlan.model_validate(plan)))


def lowered(resolved):
    setting = resolved.setting
    nouns = setting.model, setting.cluster, setting.workload, setting.stack
    return lower(resolved.long, *nouns), setting.cluster


@pytest.mark.parametrize(("model", "devices", "layout"), CASES, ids=str)
def test_devices_are_listed_or_counted(model, devices, layout):
    program, cluster = program_of(model, devices, layout)
    found = device_layout(program, cluster)
    columns = found["pipeline_ranks"]
    assert found["devices"] == devices
    assert sum(1 + column["like"] for column in columns) == layout.get("pp", 1)
    assert len(columns) <= max(MOST_COLUMNS, 8)
    of_column = devices // layout.get("pp", 1)
    for column in columns:
        listed = [device for node in column["nodes"] for device in node["devices"]]
        nodes = len(column["nodes"]) + column["further_nodes"]
        assert len(column["nodes"]) <= MOST_NODES + 1
        assert nodes * found["devices_per_node"] >= of_column
        assert (len(listed) == of_column) == (column["further_nodes"] == 0)
    layers = load_model(model).architecture.layers
    assert sum(column["layers"] * (1 + column["like"]) for column in columns) == layers


@pytest.mark.parametrize(("model", "devices", "layout"), CASES, ids=str)
def test_indices_are_those_of_the_mesh(model, devices, layout):
    program, cluster = program_of(model, devices, layout)
    found = device_layout(program, cluster)
    sizes = {axis["axis"]: axis["size"] for axis in found["axes"]}
    assert {axis: size for axis, size in layout.items() if axis != "etp"} == {
        axis: size for axis, size in sizes.items() if not axis.startswith("edp")
    }
    for column in found["pipeline_ranks"]:
        for node in column["nodes"]:
            for device in node["devices"]:
                rank = device["device"]
                assert rank // found["devices_per_node"] == node["node"]
                assert device.get("pp", 0) == column["pipeline_rank"]
                own = program.parts.only.grid.coordinates(rank) | program.parts.only.expert_grid.coordinates(
                    rank
                )
                assert {axis: own[axis] for axis in sizes} == {axis: device[axis] for axis in sizes}
    for axis in found["axes"]:
        steps = {b - a for a, b in zip(axis["first_group"], axis["first_group"][1:], strict=False)}
        assert steps == {axis["stride"]}


def test_nodes_follow_their_order():
    program, cluster = program_of("llama-3.1-8b", 16, {"pp": 2, "tp": 8})
    ordered = replace(program.parts.only, node_order=(1, 0))
    found = device_layout(replace(program, parts=replace(program.parts, every=(ordered,))), cluster)
    nodes = [column["nodes"][0] for column in found["pipeline_ranks"]]
    assert [node["node"] for node in nodes] == [1, 0]
    assert [node["devices"][0]["device"] for node in nodes] == [8, 0]


def test_a_wide_fast_domain_is_a_node():
    program, _ = program_of("llama-3.1-8b", 64, {"pp": 2, "tp": 8, "dp_shard": 4})
    found = device_layout(program, load_cluster("gb200 x 64"))
    assert (found["nodes"], found["devices_per_node"]) == (1, 64)


def test_axes_of_two_layouts_name_their_layout():
    found = device_layout(*lowered(resolve(parse_plan(TWO_LAYOUTS))))
    axes = {axis["axis"]: (axis["mesh"], axis["size"]) for axis in found["axes"]}
    own = {"wide: tp": ("wide", 2), "wide: dp_shard": ("wide", 4), "sharded: dp_shard": ("sharded", 8)}
    assert axes == own | {"pp": ("wide", 2)}
    device = found["pipeline_ranks"][1]["nodes"][0]["devices"][3]
    assert device == {"device": 11, "wide: tp": 1, "wide: dp_shard": 1, "sharded: dp_shard": 3, "pp": 1}
    assert [part["blocks"] for part in found["parts"]] == ["embed, 0..15", "16..19", "20..31, head"]
    assert [change["to"] for change in found["reshards"]] == ["sharded"]
