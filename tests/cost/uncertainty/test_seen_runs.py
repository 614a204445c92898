"""The ranges of the runs behind the constants."""

import pytest

from meshwright.cost.uncertainty.seen_runs import Scale, SeenRuns, seen_runs

RUNS = SeenRuns(10, Scale(8, 1, 400, 1024), Scale(64, 8, 400, 4096))


@pytest.mark.parametrize(
    ("devices", "doublings"), [(1, 3.0), (4, 1.0), (8, 0.0), (30, 0.0), (64, 0.0), (256, 2.0)]
)
def test_distance_from_a_range_in_doublings(devices, doublings):
    assert RUNS.doublings_beyond(Scale(devices, 1, 400, 2048), "devices") == doublings


def test_every_kind_lies_inside_the_range_of_all_of_its_models():
    table = seen_runs()
    for kind, runs in table.items():
        everything = next(
            one for key, one in table.items() if key.stack == "any" and key.models == kind.models
        )
        assert everything.runs >= runs.runs
        for name in ("devices", "nodes", "nic_gbit_per_s", "seq_len"):
            assert everything.doublings_beyond(runs.least, name) == 0
            assert everything.doublings_beyond(runs.most, name) == 0
