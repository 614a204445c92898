"""Runs that go on without late replicas: what they report, and what they train."""

import pytest

pytest.importorskip("torch")

from combine_plans import combined
from training_runs import SEQUENCES, small_run


def run_of(folder, entry=None, replicas=2):
    """A plan of replicas that take their sequences one by one."""
    return small_run(
        folder,
        ranks=replicas,
        layout={"dp_replicate": replicas},
        synchronise=[] if entry is None else [entry],
        pipeline={"micro_batch": 1},
    )


def test_sequences_of_late_replicas_are_counted(tmp_path):
    run = run_of(tmp_path, combined(**{"with": {"quorum": 1}}))
    data = run.train("out", steps=3).to_json()
    steps = [row for row in run.metrics("out") if "loss" in row and "step_time_s" in row]
    assert [row["sequences_not_seen"] for row in steps] == [SEQUENCES // 2] * 3
    assert data["sequences_not_seen"] == 3 * SEQUENCES // 2
    assert all(loss > 0 for loss in data["losses"])


def test_coded_gradients_train_what_data_parallelism_trains(tmp_path):
    plain, coded = (
        run_of(tmp_path / name, entry).train("out", steps=3).to_json()
        for name, entry in (("plain", None), ("coded", combined(combine={"coded": {"tolerate": 1}})))
    )
    assert coded["losses"] == pytest.approx(plain["losses"], rel=1e-9)
    assert coded["gradient_norms"] == pytest.approx(plain["gradient_norms"], rel=1e-9)
    assert coded["sequences_not_seen"] == 0
    assert plain["sequences_not_seen"] is None


def test_a_dynamic_quorum_trains_and_reports_how_many_were_late(tmp_path):
    run = run_of(tmp_path, combined(combine="median", **{"with": {"quorum": "dynamic"}}))
    data = run.train("out", steps=6).to_json()
    assert len(data["losses"]) == 6
    assert 0 <= data["sequences_not_seen"] <= 6 * SEQUENCES // 2
