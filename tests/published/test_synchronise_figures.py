"""Published figures of systems that communicate less, computed from predictions of their example plans."""

import json

import pytest
from ruamel.yaml import YAML
from source_tree import ROOT

from meshwright import api
from meshwright.cost.synchronisation.link_rates import needed_bytes_per_s, utilisation_at
from meshwright.cost.synchronisation.round_time import round_seconds
from meshwright.plans.synchronisation.synchronisation import Synchronisation

EXAMPLES = ROOT / "examples" / "synchronise"


@pytest.fixture
def predicted(tmp_path):
    def predict(name, entries=None, **options):
        """Return the JSON of an example; ``entries`` replace its own ones."""
        plan = YAML(typ="safe").load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
        if entries is not None:
            plan["synchronise"] = entries
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return api.predict(path, **options).to_json()

    return predict


def sent(report, over="dp_replicate"):
    return sum(row["sent_bytes_per_step"] for row in report["synchronise"] if row["over"] == over)


def local(every, state="parameter", **keys):
    return {"state": state, "over": "dp_replicate", "every": every, **keys}


def test_desloc_sends_170_times_less_than_every_step_and_half_of_local_adam(predicted):
    """arXiv 2505.22549: 1/256 + 1/768 + 1/1536 exchanges of one state in a step."""
    found = predicted("des-loc")
    assert found["steps_per_round"] == 1536
    assert sent(predicted("des-loc", [local(1)])) / sent(found) == pytest.approx(170.67, abs=0.005)
    adam = predicted("des-loc", [local(256), local(256, "optimizer")])
    assert sent(adam) / sent(found) == pytest.approx(2.0, rel=1e-12)


def test_diloco_sends_500_times_less(predicted):
    """arXiv 2311.08105."""
    less = sent(predicted("diloco", [local(1)])) / sent(predicted("diloco"))
    assert less == pytest.approx(500, rel=1e-12)


def test_intellect_sends_400_times_less_but_for_scales(predicted):
    """arXiv 2412.01152: int8 in place of fp32, every 100 steps; each tensor has two scales of 4 bytes besides."""
    less = sent(predicted("intellect-1", [local(1)])) / sent(predicted("intellect-1"))
    assert less == pytest.approx(400, rel=1e-4)
    assert less < 400


@pytest.mark.parametrize(("exchange_s", "percent"), [(103, 95.7), (382, 85.6), (469, 82.9)])
def test_intellect_uses_what_is_left_of_38_minutes(exchange_s, percent):
    inner_s = 38 * 60
    found = 100 * inner_s / round_seconds(inner_s / 100, 100, 0, exchange_s)
    assert found == pytest.approx(percent, abs=0.051)


def test_co2_hides_its_exchange_behind_48_steps(predicted):
    """arXiv 2401.16265, and nothing with no delay."""
    found = predicted("co2")
    assert sum(row["exposed_s_per_step"] for row in found["synchronise"]) == 0
    assert found["utilisation"] == 1
    plain = predicted("co2", [local(48)])
    (row,) = plain["synchronise"]
    assert row["exposed_s_per_step"] == pytest.approx(row["exchange_s"] / 48)


def test_streaming_needs_a_hundredth_of_the_bandwidth(predicted):
    """arXiv 2501.18512: 95 % utilisation, against gradients that are exchanged in every step."""
    found = predicted("streaming-diloco")
    (row,) = [row for row in found["synchronise"] if row["over"] == "dp_replicate"]
    step_s = found["step_time_s"]
    said = YAML(typ="safe").load((EXAMPLES / "streaming-diloco.yaml").read_text(encoding="utf-8"))
    streaming = Synchronisation.model_validate(said["synchronise"][0])
    fragments = [row["largest_exchange_bytes"]] * 5
    every = Synchronisation.model_validate(local(1))
    gradients = [sent(predicted("streaming-diloco", [local(1)]))]
    rates = [needed_bytes_per_s(0.95, step_s, *of) for of in ((every, gradients), (streaming, fragments))]
    assert rates[0] / rates[1] >= 100
    for rate, of in zip(rates, ((every, gradients), (streaming, fragments)), strict=True):
        assert utilisation_at(rate, step_s, *of) == pytest.approx(0.95, rel=1e-6)
        assert utilisation_at(rate / 2, step_s, *of) < 0.95


def test_qsdp_sends_a_quarter_of_fp32_gradients_and_half_of_fp16_parameters(predicted):
    """arXiv 2302.02390: buckets of 1,024 with two scales. Norms and biases of a shard have shorter buckets."""
    exact, found = predicted("qsdp", []), predicted("qsdp")
    rows = [{row["state"]: row for row in of["synchronise"]} for of in (exact, found)]
    for state, less in (("parameter", 1.98), ("gradient", 3.97)):
        shares = [row[state]["encoded_bytes"] for row in rows]
        assert shares[0] / shares[1] == pytest.approx(less, rel=0.01)


def test_a_run_with_a_rule_counts_its_exchanges(predicted):
    """arXiv 2310.14423: 9,711 exchanges in 93,600 steps."""
    run = {"steps": 93_600, "lr": 0.008, "warmup_steps": 10_000, "schedule": "cosine", "lr_floor": 0.0}
    found = predicted("qsr", run=run)
    (row,) = found["synchronise"]
    assert found["steps_per_round"] == 93_600
    assert row["exchanges_per_step"] * 93_600 == pytest.approx(9_711)
    base = predicted("qsr")
    assert base["steps_per_round"] is None
    assert base["unit"] == "round"
    assert "base" in base["origin"]["synchronise"]
    assert base["synchronise"][0]["exchanges_per_step"] == 0.25
