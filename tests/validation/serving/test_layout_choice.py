"""The choice among layouts, by hand and against the definitions."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.validation.serving.layout_choice import judge, layout_figures, layout_groups
from meshwright.validation.serving.serving_row import ServingInputs, ServingMeasured, ServingRow, Workers

INPUTS = ServingInputs(
    model="llama-3.1-8b",
    device="h100-sxm-80gb",
    devices=1,
    engine="vllm",
    release="",
    weights="fp8",
    kv=None,
    workers=(),
    input_tokens=1000,
    output_tokens=1000,
    concurrency=None,
    rate_per_s=None,
)


def run(throughput, tp=1, replicas=1, source="s", **changes):
    workers = (Workers(does="serve", replicas=replicas, layout=ReplicaLayout(tp=tp)),)
    return ServingRow(
        id="r",
        source=source,
        inputs=replace(INPUTS, devices=tp * replicas, workers=workers, **changes),
        measured=ServingMeasured(ttft_s=None, tpot_s=None, output_tokens_per_s_per_device=throughput),
    )


def choice(rows, predicted):
    (group,) = layout_groups(rows, np.array(predicted, dtype=float))
    return judge(group)


def test_a_choice_by_hand():
    found = choice([run(100, tp=1), run(120, tp=2), run(60, tp=4)], [90, 80, 10])
    assert found.regret == pytest.approx(120 / 100 - 1)
    assert found.largest_tp_regret == pytest.approx(120 / 60 - 1)
    assert found.smallest_regret == pytest.approx(120 / 100 - 1)
    assert (found.right, found.counted) == (2, 3)


def test_figures_by_hand():
    best = choice([run(100, tp=1), run(120, tp=2)], [1, 2])
    close = choice([run(100, tp=1), run(104, tp=2)], [2, 1])
    figures = layout_figures([best, close])
    assert figures == {
        "groups": 2,
        "top1": 0.5,
        "within_5_percent": 1.0,
        "regret_mean": pytest.approx(0.02),
        "pairs_right": 1.0,
        "largest_tp_regret_mean": 0.0,
        "smallest_regret_mean": pytest.approx(0.12),
    }


def test_no_groups_have_no_figures():
    assert layout_figures([]) == {"groups": 0} | dict.fromkeys(
        (
            "top1",
            "within_5_percent",
            "regret_mean",
            "pairs_right",
            "largest_tp_regret_mean",
            "smallest_regret_mean",
        )
    )


def test_runs_of_one_layout_are_averaged():
    (group,) = layout_groups([run(100), run(200), run(90, tp=2)], np.array([3.0, 3.0, 1.0]))
    assert group.measured.tolist() == [150, 90]
    assert group.predicted.tolist() == [3, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "other"},
        {"release": "1"},
        {"kv": "fp8"},
        {"weights": None},
        {"input_tokens": 2},
        {"output_tokens": 2},
        {"concurrency": 8},
        {"rate_per_s": 1.0},
        {"model": "llama-3.1-70b"},
        {"device": "b200"},
    ],
)
def test_other_workloads_are_other_groups(changes):
    assert not layout_groups([run(100), run(100, tp=2, **changes)], np.ones(2))


def test_one_layout_is_no_group():
    assert not layout_groups([run(100), run(120)], np.ones(2))


def test_runs_without_either_throughput_are_left_out():
    assert not layout_groups([run(100), run(None, tp=2)], np.ones(2))
    assert not layout_groups([run(100), run(120, tp=2)], np.array([1, np.nan]))


def test_replicas_are_another_layout_and_fewer_devices_the_smaller_one():
    found = choice([run(80, tp=2), run(100, tp=1, replicas=2), run(90, tp=1, replicas=4)], [3, 2, 1])
    assert found.smallest_regret == 0
    assert found.largest_tp_regret == pytest.approx(100 / 80 - 1)


def test_equal_predictions_choose_the_smaller_layout():
    assert choice([run(80, tp=4), run(100, tp=2)], [1, 1]).regret == 0


throughputs = st.sampled_from([10.0, 10.4, 10.6, 12.0, 20.0])
layouts = st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 3]))
groups = st.dictionaries(layouts, st.tuples(throughputs, throughputs), min_size=2, max_size=9)


@settings(deadline=None, max_examples=80)
@given(groups)
def test_figures_are_those_of_the_definitions(group):
    found = choice(
        [run(measured, tp, replicas) for (tp, replicas), (measured, _) in group.items()],
        [predicted for _, predicted in group.values()],
    )
    best = max(measured for measured, _ in group.values())

    def chosen(key):
        return min(group, key=lambda layout: (key(layout), layout[0] * layout[1], layout[0]))

    def regret(layout):
        return best / group[layout][0] - 1

    assert found.regret == pytest.approx(regret(chosen(lambda layout: -group[layout][1])))
    assert found.largest_tp_regret == pytest.approx(regret(chosen(lambda layout: -layout[0])))
    assert found.smallest_regret == pytest.approx(regret(chosen(lambda layout: layout[0] * layout[1])))
    pairs = [sorted(pair) for pair in combinations(group.values(), 2)]
    counted = [(low, high) for low, high in pairs if high[0] > 1.05 * low[0]]
    assert found.counted == len(counted)
    assert found.right == sum(high[1] > low[1] for low, high in counted)
