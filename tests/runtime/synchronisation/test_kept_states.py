"""Bytes of the ledger against the tensors of the runtime, and what is in flight."""

import pytest
import torch
from lowered_programs import lowered, short_plan

from meshwright.cluster.load import load_cluster
from meshwright.plans.synchronisation.periods import Periods
from meshwright.plans.synchronisation.synchronisation import Synchronisation, exchanged_between_steps
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.kept_bytes import kept_bytes_of, pending_elements
from meshwright.program.synchronisation.rank_exchanges import RankExchanges
from meshwright.program.synchronisation.unit_legs import unit_shard, unit_shards
from meshwright.runtime.synchronisation.encoded_shards import EncodedShards
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.simulate.memory_ledger import peak_host_bytes, rank_ledger

CPU = torch.device("cpu")
LOCAL = {"state": "parameter", "over": "dp_replicate", "every": 12}
GRADIENT = {"state": "gradient", "over": "dp_replicate"}
CODECS = (
    {"quantise": "int8", "error_feedback": True},
    {"ternary": {}, "error_feedback": True},
    {"low_rank": 3, "error_feedback": True},
    {"low_rank": {"budget": 3}},
    {"dct": {"chunk": 50, "keep": 5}},
    {"select": {"keep": 0.25, "momentum": 0.0}},
    {"top_k": 0.01, "error_feedback": True, "layers": "2..4"},
    {"random_k": 0.01},
    {"sketch": {"width": 0.1}, "error_feedback": True},
)
LAYOUTS = (
    {"dp_replicate": 2, "dp_shard": 2},
    {"pp": 2, "tp": 2, "dp_replicate": 2},
)


def program(layout, *entries, **keys):
    return lowered(short_plan("dense", layout, synchronise=entries, stack="meshwright", **keys)).program


def numbers(states):
    return sum(4 * tensor.numel() for tensor in states.values())


def codec_states(found, pipeline_rank):
    """Bytes in fp32 of the codecs' tensors between islands, made as the runtime makes them."""
    rank = found.parts.members(pipeline_rank)[0]
    total = 0
    for number in exchanged_between_steps(found.synchronise, found.loose):
        said = found.synchronise[number]
        for fragment in range(int(said.fragment_rule.count)):
            for one in RankExchanges(found, rank).messages(number, fragment):
                total += numbers(EncodedSum(said.compress, one.stretches, 2, torch.float32, CPU).states())
    return total


def unit_states(found, pipeline_rank):
    """Bytes in fp32 of the codecs' tensors inside steps."""
    rank, total = found.parts.members(pipeline_rank)[0], 0
    for unit in (one for one in RankUnits(found, rank).distinct() if one.trained):
        for state in ("gradient", "parameter"):
            for axis, entry in entries_by_axis(found.synchronise, found.loose, state).items():
                said = found.synchronise[entry].compress
                if axis in unit.layout.mesh.shard and unit.layout.parts > 1:
                    of = EncodedShards(said, unit_shards(unit), 0, torch.float32, CPU)
                elif axis in unit.layout.mesh.axes and state == "gradient":
                    of = EncodedSum(said, unit_shard(found, rank, unit), 2, torch.float32, CPU)
                else:
                    continue
                total += numbers(of.states())
    return total


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("codec", CODECS, ids=lambda options: next(iter(options)))
def test_codecs_between_islands_keep_what_the_ledger_has(codec, layout):
    found = program(layout, LOCAL | {"compress": codec, "fragments": 3})
    kept_any = codec.get("error_feedback") or {"low_rank", "dct", "select"} & {*codec}
    for rank in range(found.pipeline_ranks):
        kept = kept_bytes_of(found, rank).on_device
        codecs = sum(kept[kind] for kind in ("residual", "momentum", "factor"))
        assert codecs == codec_states(found, rank)
        assert bool(codecs) == bool(kept_any)


@pytest.mark.parametrize("codec", CODECS, ids=lambda options: next(iter(options)))
def test_codecs_inside_steps_keep_what_the_ledger_has(codec):
    found = program({"pp": 2, "dp_replicate": 2}, GRADIENT | {"compress": codec})
    for rank in range(found.pipeline_ranks):
        assert kept_bytes_of(found, rank).device == unit_states(found, rank)


@pytest.mark.parametrize(
    "codec", [one for one in CODECS if "low_rank" not in one], ids=lambda one: next(iter(one))
)
def test_codecs_of_shards_keep_what_the_ledger_has(codec):
    found = program({"dp_shard": 4}, GRADIENT | {"over": "dp_shard", "compress": codec}, sharding="zero3")
    assert kept_bytes_of(found, 0).device == unit_states(found, 0)


@pytest.mark.parametrize(
    ("outer", "moments"),
    [
        (None, 0),
        ({"sgd": {"lr": 1}}, 0),
        ({"nesterov": {"lr": 0.7}}, 1),
        ({"momentum": {"lr": 1}}, 1),
        ({"adam": {"lr": 1}}, 2),
    ],
)
@pytest.mark.parametrize("keep", ["device", "host"])
def test_anchor_and_outer_moments_have_four_bytes_an_element(outer, moments, keep):
    entry = LOCAL | {"keep": keep} | ({"outer": outer} if outer else {})
    found = program({"dp_replicate": 2, "dp_shard": 2}, entry, sharding="zero1")
    owned = found.held_elements(0, "optimizer")
    kept = kept_bytes_of(found, 0)
    assert (kept.host if keep == "host" else kept.device) == 4 * owned * (1 + moments)
    assert (kept.device if keep == "host" else kept.host) == 0
    ledger = rank_ledger(found, 0, load_cluster("h100-sxm-80gb x 4"))
    assert ledger.get("synchronise", 0) == kept.device
    assert peak_host_bytes(found, 0) == kept.host


def test_moments_have_no_anchor_and_plans_without_entries_keep_nothing():
    moments = {"state": "optimizer", "over": "dp_replicate", "every": 24}
    both, alone = (program({"dp_replicate": 2}, LOCAL, *more) for more in ((moments,), ()))
    assert kept_bytes_of(both, 0) == kept_bytes_of(alone, 0)
    assert "synchronise" not in rank_ledger(
        program({"dp_replicate": 2}), 0, load_cluster("h100-sxm-80gb x 2")
    )


def test_results_are_pending_for_the_fragments_in_flight():
    found = program({"dp_replicate": 2}, LOCAL | {"delay": 12, "own": "fresh", "outer": {"sgd": {"lr": 1}}})
    kept = kept_bytes_of(found, 0).on_device
    assert kept["pending"] == 2 * kept["anchor"]
    some = program({"dp_replicate": 2}, LOCAL | {"delay": 2, "fragments": 4})
    messages = [RankExchanges(some, 0).messages(0, fragment) for fragment in range(4)]
    sizes = [sum(one.elements for one in of) for of in messages]
    assert kept_bytes_of(some, 0).on_device["pending"] == 4 * max(sizes)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("delay", range(11))
def test_elements_in_flight_are_those_of_the_due_steps(count, delay):
    entry = Synchronisation.model_validate(LOCAL | {"every": 10, "delay": delay, "fragments": count})
    sizes = [3, 50, 7, 400, 1000][:count]
    due = list(Periods(entry).exchanges(60))
    most = max(
        sum(sizes[one.fragment] for one in due if one.begin < step <= one.end) for step in range(30, 50)
    )
    assert pending_elements(entry, sizes) == most
