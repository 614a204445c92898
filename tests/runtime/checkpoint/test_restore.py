"""A run that was saved and goes on in new processes is the run that was never interrupted, to the bit."""

import json
import re

import pytest

pytest.importorskip("torch")

from checkpoint_runs import FACTS, SMALLEST, held, on_ranks, resumed, run_on, saved
from layout_plans import Ranged, layout
from local_plans import Small, small
from safetensors import safe_open
from tiny_models import tiny

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.checkpoint import latest_checkpoint, restore_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.manifest import facts_of, read_manifest
from meshwright.runtime.state.shard_pieces import Piece, whole_tensors

LLAMA, TIED = tiny("llama", num_hidden_layers=2), tiny("gemma2", num_hidden_layers=2)
EXPERTS = small(
    tiny("deepseek_v3", num_hidden_layers=2, bias_update_speed=0.01),
    sharding="zero1",
    dp_shard=2,
    tp=2,
    ep=2,
    etp=2,
)
RANGED = Ranged(
    "llama",
    (
        ("a", layout(dp_shard=2, cp=2, sharding="zero3", gather="per-layer")),
        ("b", layout(dp_shard=2, tp=2, sequence_parallel=True, sharding="zero1")),
    ),
    tuple("aabbab"),
    ("none", "full", "none", "none"),
)
TABLES = Ranged(
    "gemma2",
    (
        ("a", layout(dp_shard=2, tp=2, sequence_parallel=True, sharding="zero1")),
        ("b", layout(dp_shard=2, cp=2, sharding="zero3", gather="per-layer")),
    ),
    tuple("aaabbb"),
    pp=2,
    stages=(2, 2),
)
SHARES = RANGED.with_shares(((1, 3), (3, 1)), ((3, 0, 1, 4), (1, 3)))
PLANS = {
    "uneven shares of the batch and of the states": (
        "bf16",
        Small(SHARES.lowered()[1], SHARES.lowered()[0], 8),
    ),
    "a table in two layouts": ("bf16", Small(TABLES.lowered()[1], TABLES.lowered()[0], 4)),
    "layers of two layouts": ("bf16", Small(RANGED.lowered()[1], RANGED.lowered()[0], 4)),
    "stages with split passes": ("fp64", small(LLAMA, {"schedule": "zb-h1"}, pp=2)),
    "steps that are validated afterwards": (
        "bf16",
        small(
            LLAMA,
            {"schedule": {"name": "zb-h1", "step_validation": "after"}},
            sharding="zero1",
            pp=2,
            dp_shard=2,
        ),
    ),
    "tensor parallel": ("bf16", small(tiny("gpt2", n_layer=1), tp=2, sequence_parallel=False)),
    "replicas": ("fp32", small(LLAMA, dp_replicate=2)),
    "sharded optimizer": ("bf16", small(LLAMA, sharding="zero1", dp_shard=2)),
    "gathered layer by layer": ("fp32", small(LLAMA, sharding="zero3", gather="per-layer", dp_shard=2)),
    "a table of two stages, in shards": ("bf16", small(TIED, sharding="zero1", pp=2, dp_shard=2)),
    "a table of one rank": ("fp32", small(TIED, {"schedule": "v-half", "virtual_stages": 2}, pp=2)),
    "layers of two ranks, in shards": (
        "bf16",
        small(
            tiny("qwen3", num_hidden_layers=2),
            {"schedule": "dualpipe", "virtual_stages": 2},
            sharding="zero2",
            pp=2,
            dp_shard=2,
        ),
    ),
    "shares of a tied table, in shards": (
        "bf16",
        small(TIED, {"schedule": {"name": "1f1b", "vocabulary": "vocab-2"}}, "zero1", pp=2, dp_shard=2),
    ),
    "replicas of shards": ("bf16", small(SMALLEST, sharding="zero3", dp_shard=2, dp_replicate=2)),
    "experts on a mesh of their own, whose corrections move": ("bf16", EXPERTS),
    "experts in another order": (
        "bf16",
        small(
            tiny("mixtral", num_hidden_layers=2),
            sharding="zero1",
            dp_shard=4,
            ep=2,
            expert_order=((5, 1, 0, 3, 4, 2), (3, 0, 1, 2, 5, 4)),
        ),
    ),
    "shards of tp ranks": (
        "fp64",
        small(tiny("qwen3", num_hidden_layers=1), sharding="zero3", tp=2, dp_shard=2),
    ),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", list(PLANS))
def test_a_resumed_run_is_the_same_run(name, tmp_path):
    precision, case = PLANS[name]
    whole = run_on(case, tmp_path, precision)
    path = latest_checkpoint(tmp_path)
    assert path == tmp_path / "step-00000003"
    again = resumed(case, path, precision)
    for (results, state), (later, same, facts) in zip(whole, again, strict=True):
        assert results[3:] == later
        assert state == same
        assert facts == {**facts_of(read_manifest(path)), **FACTS}
    assert (facts["step"], facts["signature"]) == (3, case.program.signature())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name", ["gathered layer by layer", "sharded optimizer", "steps that are validated afterwards"]
)
def test_saving_does_not_change_the_run(name, tmp_path):
    precision, case = PLANS[name]
    assert run_on(case, tmp_path, precision) == run_on(case, tmp_path, precision, save=False)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "name",
    [
        "a table of two stages, in shards",
        "layers of two ranks, in shards",
        "layers of two layouts",
        "shards of tp ranks",
        "experts on a mesh of their own, whose corrections move",
    ],
)
def test_files_hold_every_value_once_and_say_where_it_belongs(name, tmp_path):
    precision, case = PLANS[name]
    state = run_on_and_saved_last(case, tmp_path, precision)
    path = latest_checkpoint(tmp_path)
    stored = [of_file for file in sorted(path.glob("*.safetensors")) for of_file in read_stretches(file)]
    names = [name for name, *_ in stored]
    assert len(names) == len(set(names))
    assert {name: value for of_rank in state for name, value in of_rank.items()} == {
        name: piece.values.numpy().tobytes() for name, piece in stored
    }
    for kind in ("parameter", "first_moment", "second_moment"):
        wholes = whole_tensors(piece for name, piece in stored if name.startswith(f"{kind}/"))
        assert sum(whole.numel() for whole in wholes.values()) == case.model.parameters


def run_on_and_saved_last(case, folder, precision):
    def work(rank, steps):
        steps([1, 2])
        save_checkpoint(folder, rank, FACTS)
        return held(rank)[1]

    return on_ranks(case, work, precision)


def read_stretches(file):
    """(name, piece) of everything in a file, by what the file itself says."""
    with safe_open(file, framework="pt") as handle:
        shapes = json.loads(handle.metadata()["meshwright"])
        for name in handle.keys():  # noqa: SIM118 - it is no dict
            _, parameter, cut, place = name.split("/")
            of = shapes[f"{parameter}/{cut}"]
            start, stop = map(int, place.split("-"))
            values = handle.get_tensor(name)
            assert stop - start == len(values)
            cuts = () if cut == "whole" else tuple(read_cut(*re.split("[:-]", one)) for one in cut.split(","))
            yield name, Piece(parameter, tuple(of["whole_shape"]), tuple(of["shape"]), cuts, start, values)


def read_cut(dim, start, stop=None):
    if stop is not None:
        return Cut(int(dim), int(start), int(stop))
    rows = tuple(map(int, start.split("+")))
    return Cut(int(dim), 0, len(rows), rows)


def test_a_run_that_goes_back_to_a_checkpoint_takes_the_same_way_again(tmp_path):
    _, case = PLANS["sharded optimizer"]

    def work(rank, steps):
        path = save_checkpoint(tmp_path, rank, {})
        first = steps([1, 2]), held(rank)
        restore_checkpoint(path, rank)
        return first, (steps([1, 2]), held(rank))

    for first, second in on_ranks(case, work):
        assert first == second


def test_equal_states_make_equal_files(tmp_path):
    one, other = saved(tmp_path / "a"), saved(tmp_path / "b")
    names = sorted(path.name for path in one.iterdir())
    assert names == ["manifest.json", "manifest.json.sha256", "rank-00000.safetensors"]
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)
