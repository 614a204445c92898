"""What routers chose in a run is in a file that ``plan`` and ``predict`` read."""

from array import array

import pytest
from tiny_models import tiny_config
from training_runs import SEQ_LEN, SEQUENCES, small_run

from meshwright import api
from meshwright.workload.expert_counts_file import read_counts_or_pairs, read_expert_counts

STEPS = 2
LAYOUTS = {
    "one rank": (1, {"layout": {}}),
    "experts over ranks": (2, {"layout": {"dp_shard": 2, "ep": 2}, "sharding": "zero1"}),
    "cut sequences": (4, {"layout": {"pp": 2, "tp": 2, "ep": 2}, "pipeline": {"micro_batch": 1}}),
}


def counts_of(folder, layout):
    ranks, keys = LAYOUTS[layout]
    run = small_run(folder, ranks=ranks, family="qwen3_moe", **keys)
    run.train("out", steps=STEPS)
    return run, folder / "out" / "routing.csv"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "one rank"])
def test_every_layout_counts_the_same_choices(layout, tmp_path):
    _, alone = counts_of(tmp_path / "alone", "one rank")
    _, file = counts_of(tmp_path / "cut", layout)
    counts, expected = read_expert_counts(file, "file"), read_expert_counts(alone, "file")
    assert counts == expected
    chosen = {sum(row) / (STEPS * SEQUENCES * SEQ_LEN) for row in counts}
    assert chosen == {tiny_config("qwen3_moe")["num_experts_per_tok"]}
    assert any(len(set(row)) > 1 for row in counts)
    pairs, theirs = (
        read_counts_or_pairs(one.with_name("routing-pairs.csv"), "file")
        for one in (file, alone.parent / file.name)
    )
    assert pairs == theirs
    assert pairs.counts == counts
    table = array("d", pairs.values)[: pairs.experts**2]
    (others,) = chosen
    for expert, count in enumerate(counts[0]):
        row = table[expert * pairs.experts : (expert + 1) * pairs.experts]
        assert sum(row) == others * count


def test_a_prediction_reads_them(tmp_path):
    run, file = counts_of(tmp_path, "experts over ranks")
    even = api.predict(run.path, settings=["workload.routing=balanced"])
    found = api.predict(run.path, settings=[f"workload.routing={file}"])
    assert found.breakdown_s["compute"] > even.breakdown_s["compute"]


def test_a_model_without_experts_counts_nothing(tmp_path):
    small_run(tmp_path).train("out", steps=1)
    assert not (tmp_path / "out" / "routing.csv").exists()


def dropped(folder, layout, capacity):
    ranks, keys = LAYOUTS[layout]
    run = small_run(folder, ranks=ranks, family="qwen3_moe", capacity=capacity, **keys)
    return run.train("out", steps=STEPS).to_json()["dropped_choices"]


def test_every_layout_tells_the_share_of_choices_without_a_place(tmp_path):
    few = {"factor": 0.6, "scope": "sequence"}
    shares = {layout: dropped(tmp_path / layout, layout, few) for layout in LAYOUTS}
    assert len(set(shares.values())) == 1
    assert 0.4 <= shares["one rank"] < 1


def test_places_for_all_drop_nothing_and_without_a_capacity_nothing_is_told(tmp_path):
    assert dropped(tmp_path / "wide", "one rank", {"factor": 16.0}) == 0
    assert dropped(tmp_path / "none", "one rank", None) is None
