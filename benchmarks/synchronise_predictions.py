"""Predicted figures of systems that communicate less, beside the published ones."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from synchronise_figures import EXAMPLES, Figure

from meshwright import api
from meshwright.cost.synchronisation.link_rates import needed_bytes_per_s
from meshwright.cost.synchronisation.round_time import round_seconds
from meshwright.plans.synchronisation.synchronisation import Synchronisation

GIVEN_INNER_S, GIVEN_EXCHANGES_S = 38 * 60.0, (103.0, 382.0, 469.0)
"""INTELLECT-1: seconds of 100 inner steps, and of an exchange in the US, between continents, and with all."""


def predictions() -> Iterator[Figure]:
    """Yield the figures that need a prediction."""
    exact = _sent("diloco", {"every": 1, "outer": None})
    yield Figure(
        "DiLoCo", "times fewer bytes", "500", f"{exact / _sent('diloco', {}):.0f}", "every 1 and every 500"
    )
    plain = _sent("intellect-1", {"every": 1, "compress": None})
    less = plain / _sent("intellect-1", {})
    yield Figure(
        "INTELLECT-1", "times fewer bytes", "400", f"{less:.1f}", "fp32 every step; int8 with its scales"
    )
    used = ", ".join(
        f"{100 * GIVEN_INNER_S / round_seconds(GIVEN_INNER_S / 100, 100, 0, exchange):.1f}"
        for exchange in GIVEN_EXCHANGES_S
    )
    yield Figure(
        "INTELLECT-1",
        "utilisation, %",
        "95.7, 85.6, 82.9",
        used,
        "38 min of steps; 103, 382, 469 s an exchange",
    )
    co2 = _report("co2", {})
    exposed = sum(row["exposed_s_per_step"] for row in co2["synchronise"])
    yield Figure("CO2", "exposed seconds of an exchange, τ = 48", "0", f"{exposed:.3g}", "128 A100")
    yield _streaming()
    dense, less = (_report("lsh-moe", change)["step_time_s"] for change in (None, {}))
    origin = "45 % of a step in exchanges, as the paper has; model, links, lengths and a fifth as buckets are assumed"
    yield Figure("LSH-MoE", "times faster", "1.28–2.2", f"{dense / less:.2f}", origin)


def _report(name: str, changes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the prediction of an example, its first entry changed; None: without entries."""
    plan = YAML(typ="safe").load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    entry = {**plan["synchronise"][0], **(changes or {})}
    kept = {key: value for key, value in entry.items() if value is not None}
    plan["synchronise"] = [] if changes is None else [kept]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return api.predict(path).to_json()


def _sent(name: str, changes: dict[str, Any]) -> float:
    """Return the bytes that a rank sends in a step between islands."""
    rows = _report(name, changes)["synchronise"]
    return sum(row["sent_bytes_per_step"] for row in rows if row["over"] == "dp_replicate")


def _streaming() -> Figure:
    """Return how many times less bandwidth Streaming DiLoCo needs than data parallelism at 95 % utilisation.

    Both at the predicted step time. Data parallelism hides nothing; fragments may take their delay, and queue.
    """
    said = YAML(typ="safe").load((EXAMPLES / "streaming-diloco.yaml").read_text(encoding="utf-8"))
    streaming = Synchronisation.model_validate(said["synchronise"][0])
    report = _report("streaming-diloco", {})
    (row,) = [row for row in report["synchronise"] if row["over"] == "dp_replicate"]
    every = {"compress": None, "fragments": 1, "every": 1, "delay": 0, "merge": 1.0}
    exact = Synchronisation(state="parameter", over="dp_replicate")
    sizes = [row["largest_exchange_bytes"]] * int(streaming.fragment_rule.count)
    needed = [
        needed_bytes_per_s(0.95, report["step_time_s"], entry, sent)
        for entry, sent in ((exact, [_sent("streaming-diloco", every)]), (streaming, sizes))
    ]
    return Figure(
        "Streaming DiLoCo",
        "times less bandwidth at 95 % utilisation",
        "≥ 100",
        f"{needed[0] / needed[1]:,.0f}",
        "played rounds: a fragment every 20 steps, 5 of them to arrive; fp32 in every step",
    )
