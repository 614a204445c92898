from dataclasses import replace

import pytest
from lowered_programs import lowered, short_plan

from meshwright.program.program import matching_receive
from meshwright.schedules.action import Action

BASE = {"pp": 2, "dp_shard": 2, "tp": 2}


def program(layout=None, **keys):
    facts = keys.pop("facts", {})
    keys = {"sharding": "zero1"} | keys
    return lowered(short_plan(keys.pop("name", "dense"), layout or BASE, **keys), **facts).program


OTHERS = {
    "degrees": {"layout": {"pp": 2, "dp_shard": 4}},
    "order": {"layout": BASE | {"rank_order": ("cp", "tp", "pp", "dp_shard", "dp_replicate")}},
    "sequence_parallel": {"layout": BASE | {"sequence_parallel": False}},
    "sharding": {"sharding": "zero2"},
    "gather": {"sharding": "zero3", "gather": "per-layer"},
    "recompute": {"recompute": "full"},
    "micro_batch": {"pipeline": {"micro_batch": 2}},
    "schedule": {"pipeline": {"schedule": "gpipe"}},
    "sequence": {"workload": {"seq_len": 256}},
    "documents": {"workload": {"documents": 32}},
    "batch": {"workload": {"global_batch": 32}},
    "model": {"name": "moe"},
    "stack": {"stack": "meshwright"},
    "wire": {"facts": {"gradient_communication_bytes": 2}},
    "overlap": {"facts": {"overlap_parameter_gather": False}},
    "vocabulary": {"facts": {"vocab_multiple": 1}},
}


@pytest.mark.parametrize("change", OTHERS)
def test_signatures_of_different_programs_differ(change):
    assert program(**OTHERS[change]).signature() != program().signature()


def test_how_long_documents_are_changes_no_signature():
    short, long = (program(workload={"documents": length}) for length in (32, 64))
    assert short.signature() == long.signature()


def test_all_signatures_differ():
    signatures = [program(**change).signature() for change in OTHERS.values()]
    assert len(set(signatures)) == len(signatures)


def test_a_signature_sees_one_action_out_of_place():
    good = program()
    first, *rest = good.lists
    swapped = (first[1], first[0], *first[2:])
    assert replace(good, lists=(swapped, *rest)).signature() != good.signature()


def test_group_sizes_of_both_meshes_and_of_named_groups():
    sparse = program({"pp": 2, "dp_shard": 4, "tp": 2, "ep": 4, "etp": 2}, name="moe")
    sizes = {
        axes: sparse.group_size(axes)
        for axes in [("tp",), ("cp", "dp_shard"), ("ep",), ("etp",), ("edp_shard",)]
    }
    assert sizes == {("tp",): 2, ("cp", "dp_shard"): 4, ("ep",): 4, ("etp",): 2, ("edp_shard",): 1}
    assert sparse.group_size(("world",)) == 16
    assert sparse.group_size(("tied",)) == 2
    assert program({"tp": 2}, name="moe", sharding="none").group_size(("tied",)) == 1


def test_receives_of_sends():
    assert matching_receive(Action("SEND_F", 1, 3)) == Action("RECV_F", 2, 3)
    assert matching_receive(Action("SEND_B", 1, 3)) == Action("RECV_B", 0, 3)


def test_held_bytes_are_elements_times_their_size():
    sharded = program()
    for rank in range(2):
        for kind, size in (("parameter", 2), ("gradient", 4), ("optimizer", 12)):
            assert sharded.held_bytes(rank, kind) == size * sharded.held_elements(rank, kind)
        whole, piece = (sharded.held_elements(rank, kind) for kind in ("parameter", "optimizer"))
        assert whole <= 2 * piece <= whole + 2 * len(sharded.states)
