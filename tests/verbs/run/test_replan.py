"""Plans for the devices that are left of a run."""

import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.cluster.load import load_cluster
from meshwright.errors import InfeasibleError
from meshwright.verbs.load_plan import load
from meshwright.verbs.run.replan import replanned

BATCH = {"workload": {"seq_len": 24, "global_batch": 6}, "pipeline": {"micro_batch": 1}}


def test_the_batch_stays_and_the_devices_are_those_that_are_left(tmp_path):
    resolved = load(small_run(tmp_path, ranks=4, layout={"dp_replicate": 4}).path)
    found = replanned(resolved, 3, tmp_path)
    cluster = load_cluster(tmp_path / f"cluster-{found.setting.cluster.devices}.yaml")
    assert found.setting.cluster.devices == cluster.devices <= 3
    assert found.setting.workload == resolved.setting.workload
    assert found.setting.stack.name == "meshwright"


def test_exactly_so_many_devices_where_a_launcher_has_started_them(tmp_path):
    resolved = load(small_run(tmp_path, ranks=4, layout={"dp_replicate": 4}).path)
    assert replanned(resolved, 2, tmp_path, all_of_them=True).setting.cluster.devices == 2


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"dtypes": {"gradient": "bf16"}}, "dtypes of its own"),
        ({"synchronise": [{"state": "parameter", "over": "dp_replicate", "every": 2}]}, "synchronise"),
    ],
)
def test_what_a_search_does_not_choose_is_named(tmp_path, keys, reason):
    resolved = load(small_run(tmp_path, ranks=2, layout={"dp_replicate": 2}, **keys).path)
    with pytest.raises(InfeasibleError, match=reason):
        replanned(resolved, 1, tmp_path)


def test_nothing_that_fits_has_a_reason_for_each_number_of_devices(tmp_path, monkeypatch):
    def nothing(question, setting):
        raise InfeasibleError(f"No plan fits on {setting.cluster.devices}.")

    monkeypatch.setattr("meshwright.verbs.run.replan.answer", nothing)
    resolved = load(small_run(tmp_path, ranks=3, layout={"dp_replicate": 3}, **BATCH).path)
    with pytest.raises(InfeasibleError, match="on the 2 devices that are left") as caught:
        replanned(resolved, 2, tmp_path)
    assert caught.value.reasons == ("2 devices: No plan fits on 2.", "1 devices: No plan fits on 1.")
    assert caught.value.suggestion
