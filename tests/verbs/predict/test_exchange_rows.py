"""Rows of what replicas exchange, with and without entries, and the step that they are a part of."""

import json

import pytest

from meshwright import api
from meshwright.program.synchronisation.encoded_bytes import encoded_bytes
from meshwright.program.synchronisation.rank_exchanges import RankExchanges, unit_stretches
from meshwright.simulate.plan_estimate import lowered
from meshwright.verbs.load_plan import load
from meshwright.verbs.predict.run_rates import WITHOUT_RULE

ROW = [
    *("state", "over", "every", "exchanges_per_step", "encoded_bytes", "sent_bytes_per_step"),
    *("largest_exchange_bytes", "exchange_s", "window_s", "exposed_s_per_step"),
]
LOCAL = {"state": "parameter", "over": "dp_replicate", "every": 12}
GRADIENT = {"state": "gradient", "over": "dp_replicate"}


@pytest.fixture
def file_of(tmp_path):
    def write(layout, *entries, cluster="a100-sxm-40gb x 8", batch=64, **keys):
        plan = {
            "plan": 1,
            "model": "gpt2",
            "cluster": cluster,
            "workload": {"seq_len": 1024, "global_batch": batch},
            "stack": "meshwright",
            "layout": layout,
            "pipeline": {"micro_batch": 2},
            "synchronise": list(entries),
        }
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan | keys), encoding="utf-8")
        return path

    return write


@pytest.fixture
def predicted(file_of):
    return lambda *args, **keys: api.predict(file_of(*args, **keys)).to_json()


def by_place(report):
    return {(row["state"], row["over"]): row for row in report["synchronise"]}


def elements(path):
    """The elements of all tensors on the first rank, whole."""
    resolved = load(path)
    messages = RankExchanges(lowered(resolved.long, resolved.setting), 0)
    return sum(unit.layout.size for unit in messages.units.distinct() if unit.trained)


@pytest.mark.parametrize(
    ("layout", "keys", "rows"),
    [
        ({"dp_replicate": 8}, {}, [("gradient", "dp_replicate")]),
        ({"dp_shard": 8}, {"sharding": "zero1"}, [("parameter", "dp_shard"), ("gradient", "dp_shard")]),
        (
            {"dp_shard": 4, "dp_replicate": 2},
            {"sharding": "zero3"},
            [("parameter", "dp_shard"), ("gradient", "dp_shard"), ("gradient", "dp_replicate")],
        ),
        ({"tp": 4, "pp": 2}, {}, []),
    ],
)
def test_plans_without_entries_have_the_rows_of_their_sharding(predicted, layout, keys, rows):
    found = predicted(layout, **keys)
    assert found["unit"] == "step"
    assert found["steps_per_round"] == 1
    assert sorted(by_place(found)) == sorted(rows)
    exposed = 0.0
    for row in found["synchronise"]:
        assert list(row) == ROW
        assert row["every"] == 1
        assert row["window_s"] == 0
        assert row["largest_exchange_bytes"] == row["encoded_bytes"]
        assert isinstance(row["encoded_bytes"], int)
        assert 0 <= row["exposed_s_per_step"] <= found["breakdown_s"]["dp"]
        exposed += row["exposed_s_per_step"]
    assert found["utilisation"] == pytest.approx(1 - exposed / found["step_time_s"])
    assert "codec" not in found["breakdown_s"]


def test_bytes_of_gradients_and_parameters_are_those_of_the_collectives(predicted, file_of):
    whole = elements(file_of({"dp_replicate": 8}))
    (row,) = predicted({"dp_replicate": 8})["synchronise"]
    assert row["encoded_bytes"] == pytest.approx(4 * whole, rel=1e-3)
    assert row["sent_bytes_per_step"] == pytest.approx(2 * 7 / 8 * row["encoded_bytes"])
    rows = by_place(predicted({"dp_shard": 8}, sharding="zero3"))
    gradient, parameter = rows["gradient", "dp_shard"], rows["parameter", "dp_shard"]
    times = parameter["exchanges_per_step"]
    assert times == 2 * 64 / (2 * 8)
    assert parameter["encoded_bytes"] == pytest.approx(2 * whole / 8, rel=2e-3)
    assert parameter["sent_bytes_per_step"] == pytest.approx(times * 7 * parameter["encoded_bytes"])
    assert gradient["sent_bytes_per_step"] == pytest.approx(
        gradient["exchanges_per_step"] * 7 / 8 * gradient["encoded_bytes"]
    )


@pytest.mark.parametrize(
    ("codec", "sends"),
    [
        ({"quantise": "int8", "bucket": 512}, 2 * 7 / 8),
        ({"ternary": {}}, 7),
        ({"low_rank": 4}, 2 * 7 / 8),
        ({"top_k": 0.01}, 7),
        ({"sketch": {"width": 0.1}}, 2 * 7 / 8),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_encoded_gradients_are_one_message_of_a_rank(predicted, file_of, codec, sends):
    entry = GRADIENT | {"compress": codec}
    found, path = predicted({"dp_replicate": 8}, entry), file_of({"dp_replicate": 8}, entry)
    (row,) = found["synchronise"]
    resolved = load(path)
    program = lowered(resolved.long, resolved.setting)
    said = program.synchronise[0].compress
    units = [unit for unit in RankExchanges(program, 0).units.distinct() if unit.trained]
    whole = sum(encoded_bytes(said, stretch) for unit in units for stretch in unit_stretches(unit, 0))
    assert row["encoded_bytes"] == pytest.approx(whole, rel=1e-12)
    assert row["sent_bytes_per_step"] == pytest.approx(sends * whole, rel=1e-12)
    assert found["unit"] == "step"
    assert found["breakdown_s"]["codec"] > 0
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_time_s"])


def test_codecs_over_two_axes_have_messages_of_their_own(predicted):
    """A reduce-scatter of codes, then a gather of the largest elements of what came."""
    entries = [
        GRADIENT | {"compress": {"top_k": 0.01}},
        GRADIENT | {"over": "dp_shard", "compress": {"quantise": "int4"}},
    ]
    rows = by_place(predicted({"dp_replicate": 4, "dp_shard": 2}, *entries, sharding="zero1"))
    assert {over for _, over in rows} == {"dp_replicate", "dp_shard"}
    largest, codes = rows["gradient", "dp_replicate"], rows["gradient", "dp_shard"]
    assert largest["sent_bytes_per_step"] == pytest.approx(3 * largest["encoded_bytes"])
    assert codes["sent_bytes_per_step"] == pytest.approx(codes["encoded_bytes"] / 2)
    elements_of_rank = codes["encoded_bytes"]  # half a byte for each of two shards
    assert largest["encoded_bytes"] == pytest.approx(0.01 * elements_of_rank * (4 + 4), rel=0.02)


def test_entries_between_islands_have_means_over_a_round(predicted):
    moments = {"state": "optimizer", "over": "dp_replicate", "every": 8}
    found = predicted({"dp_replicate": 8}, LOCAL | {"fragments": 3, "delay": 2}, moments)
    rows = by_place(found)
    assert [*rows] == [(state, "dp_replicate") for state in ("parameter", "first_moment", "second_moment")]
    assert found["unit"] == "round"
    assert found["steps_per_round"] == 24
    parameter, first, second = rows.values()
    assert first | {"state": ""} == second | {"state": ""}
    assert parameter["exchanges_per_step"] == pytest.approx(1 / 12)
    assert first["exchanges_per_step"] == pytest.approx(1 / 8)
    assert parameter["encoded_bytes"] == first["encoded_bytes"]
    assert parameter["encoded_bytes"] / 3 < parameter["largest_exchange_bytes"] < parameter["encoded_bytes"]
    for row in rows.values():
        assert list(row) == ROW
        each = row["exchanges_per_step"] * 2 * 7 / 8 * row["encoded_bytes"]
        assert row["sent_bytes_per_step"] == pytest.approx(each)
    exposed = sum(row["exposed_s_per_step"] for row in rows.values())
    assert exposed == pytest.approx(found["breakdown_s"]["dp"])
    assert first["exposed_s_per_step"] == pytest.approx(first["exchange_s"] / 8, rel=1e-3)
    assert parameter["window_s"] == pytest.approx(2 * found["step_time_s"], rel=0.02)
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_time_s"])
    assert found["utilisation"] == pytest.approx(1 - exposed / found["step_time_s"])


def test_only_longer_periods_make_rounds(predicted):
    found = predicted({"dp_replicate": 8}, LOCAL | {"every": 1})
    assert (found["unit"], found["steps_per_round"]) == ("step", 1)
    assert found["synchronise"][0]["exchanges_per_step"] == 1


def test_an_exchange_between_islands_takes_their_links(predicted):
    """Islands of two nodes wait for network cards, those of one node do not; the island's own exchanges stay."""
    near, far = (
        predicted(
            {"dp_replicate": 2, "dp_shard": shard},
            LOCAL,
            sharding="zero1",
            cluster=f"a100-sxm-40gb x {2 * shard}",
        )
        for shard in (4, 8)
    )
    exchanges = [by_place(of)["parameter", "dp_replicate"]["exchange_s"] for of in (near, far)]
    assert exchanges[1] > 3 * exchanges[0]
    assert by_place(far)["gradient", "dp_shard"]["exchange_s"] < exchanges[1]


def test_codecs_and_outer_steps_take_time_on_the_device(predicted):
    plain = predicted({"dp_replicate": 8}, LOCAL)
    coded = predicted({"dp_replicate": 8}, LOCAL | {"compress": {"quantise": "int4"}})
    adam = predicted({"dp_replicate": 8}, LOCAL | {"outer": {"adam": {"lr": 1}}})
    assert plain["breakdown_s"]["codec"] == 0 < coded["breakdown_s"]["codec"]
    assert plain["breakdown_s"]["optimizer"] < adam["breakdown_s"]["optimizer"]
    assert coded["synchronise"][0]["exchange_s"] < plain["synchronise"][0]["exchange_s"]


def test_centroids_wait_in_the_part_of_experts(tmp_path):
    plan = {
        "plan": 1,
        "model": "qwen1.5-moe-a2.7b",
        "cluster": "a100-sxm-80gb x 16",
        "workload": {"seq_len": 1024, "global_batch": 64},
        "stack": "meshwright",
        "layout": {"dp_shard": 16, "ep": 4},
        "sharding": "zero1",
        "pipeline": {"micro_batch": 2},
        "synchronise": [{"state": "expert_token", "over": "ep", "compress": {"lsh": {}}}],
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    found = api.predict(tmp_path / "plan.json").to_json()
    rows = by_place(found)
    tokens = rows.pop(("expert_token", "ep"))
    assert tokens["exposed_s_per_step"] == pytest.approx(found["breakdown_s"]["ep"], rel=1e-6)
    assert sum(row["exposed_s_per_step"] for row in rows.values()) <= found["breakdown_s"]["dp"]


def test_what_exchanges_keep_is_in_the_memory_of_the_worst_rank(predicted):
    found = predicted({"dp_replicate": 8}, LOCAL | {"outer": {"nesterov": {"lr": 0.7}}})
    memory, (row,) = found["memory_bytes"], found["synchronise"]
    assert memory["synchronise"] == 2 * row["encoded_bytes"]
    assert "synchronise" not in predicted({"dp_replicate": 8})["memory_bytes"]


@pytest.mark.parametrize(
    ("entry", "remarked"),
    [(LOCAL, True), (LOCAL | {"every": {"qsr": {"base": 4, "alpha": 0.0175}}}, False), (None, True)],
)
def test_learning_rates_that_no_rule_reads_are_remarked(file_of, entry, remarked):
    path = file_of({"dp_replicate": 8}, *(() if entry is None else (entry,)))
    found = api.predict(path, run={"steps": 100, "lr": 0.008})
    assert (WITHOUT_RULE in found.remarks) == remarked
    assert WITHOUT_RULE not in api.predict(path).remarks
