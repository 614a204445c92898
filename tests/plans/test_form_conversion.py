from math import gcd, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import DENSE, LATENT, SPARSE, changed, long_plan, short_plan, short_plans

from meshwright.errors import PlanError
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.short import ShortPlan

architectures = st.sampled_from((DENSE, SPARSE, LATENT))


@settings(max_examples=80, deadline=None)
@given(short_plans(), architectures)
def test_shorten_is_the_inverse_of_expand(short, architecture):
    long = expand(short, architecture)
    back = shorten(long)
    assert back is not None
    assert expand(back, architecture) == long
    assert shorten(expand(back, architecture)) == back


@settings(max_examples=80, deadline=None)
@given(short_plans(), architectures)
def test_both_meshes_of_the_long_form_cover_the_same_ranks(short, architecture):
    layout = expand(short, architecture).layouts["main"]
    ranks = prod((short.layout.dp_replicate, short.layout.dp_shard, short.layout.cp, short.layout.tp))
    grid, mesh = layout.grid, layout.experts
    assert prod((grid.dp_replicate, grid.dp_shard, grid.cp, grid.tp)) == ranks
    assert (mesh is not None) == (architecture.moe is not None or short.layout.ep * short.layout.etp > 1)
    if mesh is not None and ranks % (mesh.ep * mesh.etp) == 0:
        assert mesh.ep * mesh.etp * mesh.edp_shard * mesh.edp_replicate == ranks


def test_defaults():
    long = long_plan()
    layout = long.layouts["main"]
    assert layout.sequence_parallel is True
    assert layout.experts is None
    assert long.gather == "per-layer"
    assert list(long.layers) == ["embed", "0..15", "head"]
    assert {rule.layout for rule in long.layers.values()} == {"main"}
    assert long.pipeline.placement == (0, 1, 2, 3)
    assert long.pipeline.stages == "balanced"
    assert expand(short_plan({"dp_shard": 8}), DENSE).layouts["main"].sequence_parallel is False


def test_virtual_stages_go_round():
    pipeline = {"schedule": "interleaved-1f1b", "virtual_stages": 3}
    long = long_plan({"pp": 2}, pipeline=pipeline)
    assert long.pipeline.placement == (0, 1, 0, 1, 0, 1)
    assert (long.pipeline.ranks, long.pipeline.virtual_stages, long.pipeline.usual) == (2, 3, True)


def test_a_v_schedule_goes_there_and_back():
    long = long_plan({"pp": 4}, pipeline={"schedule": "v-half", "virtual_stages": 2})
    assert long.pipeline.placement == (0, 1, 2, 3, 3, 2, 1, 0)
    assert long.pipeline.usual


@pytest.mark.parametrize(
    ("sharding", "sharded"),
    [
        ("none", ""),
        ("zero1", "optimizer"),
        ("zero2", "optimizer gradient"),
        ("zero3", "optimizer gradient parameter"),
    ],
)
def test_zero_names_are_states(sharding, sharded):
    long = long_plan(sharding=sharding)
    assert long.sharding == sharding
    for kind in ("parameter", "gradient", "optimizer"):
        assert getattr(long.states, kind) == (("dp_shard", "cp") if kind in sharded.split() else ())


def test_without_sharding_every_replica_is_in_dp_replicate():
    grid = long_plan({"dp_replicate": 2, "dp_shard": 8}, sharding="none").layouts["main"].grid
    assert (grid.dp_replicate, grid.dp_shard) == (16, 1)


@pytest.mark.parametrize(
    ("sharding", "pp", "given_gather", "expected"),
    [
        ("zero3", 4, None, "per-step"),
        ("zero3", 1, None, "per-layer"),
        ("zero2", 4, None, "per-layer"),
        ("zero3", 4, "per-micro-batch", "per-micro-batch"),
    ],
)
def test_gather(sharding, pp, given_gather, expected):
    assert long_plan({"pp": pp}, sharding=sharding, gather=given_gather).gather == expected


@pytest.mark.parametrize(
    ("layout", "sharding", "expected"),
    [
        # ranks of a stage 4·8·1·2 = 64, ep·etp = 8: edp = 8, of which gcd(8, 4) = 4 are replicas
        ({"dp_replicate": 4, "dp_shard": 8, "tp": 2, "ep": 8}, "zero1", (8, 1, 2, 4)),
        ({"dp_replicate": 4, "dp_shard": 8, "tp": 2, "ep": 8}, "none", (8, 1, 1, 8)),
        ({"dp_replicate": 3, "dp_shard": 4, "tp": 2, "ep": 8, "etp": 1}, "zero3", (8, 1, 1, 3)),
        ({"dp_shard": 8, "tp": 4, "ep": 2, "etp": 4}, "zero1", (2, 4, 4, 1)),
        ({"dp_shard": 2}, "zero1", (1, 1, 2, 1)),
    ],
)
def test_the_mesh_of_the_experts(layout, sharding, expected):
    mesh = expand(short_plan(layout, sharding=sharding), SPARSE).layouts["main"].experts
    assert (mesh.ep, mesh.etp, mesh.edp_shard, mesh.edp_replicate) == expected
    if sharding != "none":
        edp = mesh.edp_shard * mesh.edp_replicate
        assert mesh.edp_replicate == gcd(edp, layout.get("dp_replicate", 1))


def test_degrees_beyond_reason_are_refused_before_they_take_memory():
    plan = short_plan({"pp": 2**20, "dp_shard": 2**20}, pipeline={"virtual_stages": 2**20})
    with pytest.raises(PlanError) as caught:
        expand(plan, DENSE)
    assert [problem.field for problem in caught.value.problems] == ["layout", "pipeline.virtual_stages"]
    assert "1048576·1·1048576·1·1 = 1099511627776 > 1048576" in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"layers": {"embed": {"layout": "main"}, "0..15": {"layout": "main"}}},
        {"layers": {"embed": {"layout": "main"}, "0..007": {"layout": "main"}, "head": {"layout": "main"}}},
        {"states": {"optimizer": ("dp_shard",)}},
        {"pipeline": {"placement": (0, 1, 1, 0), "schedule": {"name": "1f1b"}}},
        {
            "pipeline": {
                "placement": (0,),
                "stages": (("embed", "0..15", "head"),),
                "schedule": {"name": "1f1b"},
            }
        },
        {"sequence": {"policy": "hdp", "capacity_tokens": 8192}},
        {"groups": {"fast": {"devices": "*"}}},
    ],
)
def test_what_the_short_form_cannot_say_stays_long(keys):
    assert shorten(changed(long_plan(), **keys)) is None
    assert isinstance(shorten(changed(long_plan())), ShortPlan)


def test_shorten_takes_any_layout_name_but_main_as_long():
    plan = long_plan()
    renamed = changed(plan, layouts={"other": plan.layouts["main"].model_dump()})
    assert shorten(renamed) is None
