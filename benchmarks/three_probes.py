"""The whole road on machines whose constants are hidden: measure, probe, log, ingest, calibrate, predict.

    python benchmarks/three_probes.py            prints the table
    python benchmarks/three_probes.py --write    also writes benchmarks/three-probes.md

Every machine is the cost model with constants drawn at random, and nobody tells the calibration which. It is "measured"
(``synthetic_measurement.py``) and imported as a cluster file; it "runs" three probe jobs of 20 steps, with slow first
steps and 2 % noise, and prints them as Megatron logs do; the logs are ingested, the cluster is calibrated on them, from
the usual constants and from the measured ones, and plans that were not run are predicted with each. This shows that the
road is whole and how much each part of it tells; it says nothing about the cost model itself, whose form the machines
share.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from synthetic_measurement import KEPT, synthetic_results

from meshwright import __version__, api
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.constant_values import with_values
from meshwright.cost.constants import constants, kernels
from meshwright.ingestion.measured_cluster.cluster_file import cluster_from
from meshwright.measurement.results import read_results
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.plans.setting import Setting
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer
from meshwright.verbs.probe.probe_jobs import STEPS, Probe, probes

MACHINES = 24
JUDGED = 16
NOISE = 0.02
RANGES = {
    "gemm_efficiency": (0.75, 1.05),
    "nic_efficiency": (0.4, 1.1),
    "hbm_efficiency": (0.8, 1.05),
    "overlap_slowdown": (0.5, 1.5),
    "host_s_per_layer": (0.5, 4.0),
}
"""Hidden constants over ours; each is drawn evenly from its range."""
HERE = Path(__file__).parent


class Known(NamedTuple):
    """Mean error of plans that were not run, and the one that ``calibrate`` expects of a run that was left out."""

    error: float
    expected: float | None


PLANS = (
    """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 32
workload: {seq_len: 8192, global_batch: 128}
layout: {dp_shard: 16, tp: 2}
sharding: zero1
""",
    """plan: 1
model: llama-3.1-70b
cluster: h100-sxm-80gb x 64
workload: {seq_len: 8192, global_batch: 128}
layout: {pp: 4, dp_shard: 2, tp: 8}
sharding: zero1
""",
    """plan: 1
model: gpt-7.5b
cluster: a100-sxm-80gb x 64
workload: {seq_len: 2048, global_batch: 512}
layout: {dp_shard: 16, tp: 4}
sharding: zero1
""",
)


def hidden_constants(setting: Setting, rng: np.random.Generator) -> dict[str, float]:
    """Ours, each times its draw."""
    ours = constants() | {
        "gemm_efficiency": kernels(setting.cluster.pool.device.id).gemm_efficiency,
        "host_s_per_layer": setting.stack.host_s_per_layer,
    }
    return {name: ours[name] * rng.uniform(low, high) for name, (low, high) in RANGES.items()}


def seconds(plans: list[ShortPlan], setting: Setting, values: dict[str, float]) -> np.ndarray:
    """Step times of plans on the machine with ``values``."""
    cluster = replace(
        setting.cluster, calibration=tuple((dict(setting.cluster.calibration) | values).items())
    )
    return evaluate(from_shorts(plans), with_values(replace(setting, cluster=cluster), {})).step_s


def megatron_log(job: Probe, step_s: float, rng: np.random.Generator) -> str:
    """What Megatron prints of such a run: its arguments, a line per iteration, the first ones slow."""
    plan = job.plan
    arguments = {
        "tensor_model_parallel_size": plan.layout.tp,
        "pipeline_model_parallel_size": plan.layout.pp,
        "context_parallel_size": plan.layout.cp,
        "micro_batch_size": plan.pipeline.micro_batch,
        "global_batch_size": plan.workload.global_batch,
        "seq_length": plan.workload.seq_len,
    }
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in sorted(arguments.items())]
    lines.append("-------------------- end of arguments ---------------------")
    for step in range(1, STEPS + 1):
        slow = 8.0 if step == 1 else 1.3 if step == 2 else 1.0
        took = 1e3 * step_s * slow * float(np.exp(rng.normal(0, NOISE)))
        lines.append(
            f" [2026-01-01 00:00:{step:02}] iteration {step:8}/{STEPS:8} | consumed samples: "
            f"{step * plan.workload.global_batch:12} | elapsed time per iteration (ms): {took:.1f} | "
            f"global batch size: {plan.workload.global_batch:5} | lm loss: 1.1E+01 |"
        )
    return "\n".join(lines) + "\n"


def machine(text: str, seed: int) -> dict[str, Known]:
    """What is known of a machine in four ways, and how far off plans that were not run are with each."""
    rng = np.random.default_rng(seed)
    resolved = resolve(parse_plan(text))
    setting = resolved.setting
    hidden = hidden_constants(setting, rng)
    jobs = probes(resolved, 3).jobs
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.yaml"
        cluster.write_text(measured_file(setting, hidden, rng), encoding="utf-8")
        logs = list(_written(Path(folder), jobs, setting, hidden, rng))
        table = Path(folder) / "runs.csv"
        table.write_text(api.ingest(logs).table(), encoding="utf-8")
        probed, both = api.calibrate(table), api.calibrate(table, on=str(cluster))
        measured = dict(load_cluster(str(cluster)).calibration)
    ran = [job.plan for job in jobs]
    ranked = answer(PlanRequest(resolved.short, top=JUDGED + len(ran)), setting).proposals
    unseen = [proposal.plan for proposal in ranked if proposal.plan not in ran][:JUDGED]
    truth = seconds(unseen, setting, hidden)

    def known(values: Mapping[str, float], expected: float | None = None) -> Known:
        return Known(float(np.abs(seconds(unseen, setting, values) / truth - 1).mean()), expected)

    return {
        "nothing": known({}, probed.error_before),
        "measured": known(measured, both.error_before),
        "three probes": known(dict(probed.values) if probed.helps else {}, probed.error_after),
        "measured, and three probes": known(
            measured | (dict(both.values) if both.helps else {}), both.error_after
        ),
    }


def measured_file(setting: Setting, hidden: Mapping[str, float], rng: np.random.Generator) -> str:
    """The cluster file that ``measure`` writes of such a machine, by way of the text of its results."""
    results = read_results(synthetic_results(setting.cluster, hidden, NOISE, rng).to_text())
    return cluster_from(results, setting.cluster).text


def _written(
    folder: Path, jobs: tuple[Probe, ...], setting: Setting, hidden: dict[str, float], rng
) -> Iterator[str]:  # type: ignore[no-untyped-def]
    for job in jobs:
        (step_s,) = seconds([job.plan], setting, hidden)
        log = folder / job.name / "probe.log"
        log.parent.mkdir()
        log.write_text(megatron_log(job, float(step_s), rng), encoding="utf-8")
        (log.parent / "plan.yaml").write_text(job.files["plan.yaml"], encoding="utf-8")
        yield str(log)


def page() -> str:
    """The table with its explanation."""
    lines = []
    for text in PLANS:
        machines = [machine(text, seed) for seed in range(MACHINES)]
        plan, nothing = parse_plan(text), np.array([found["nothing"].error for found in machines])
        for name in machines[0]:
            errors = np.array([found[name].error for found in machines])
            expected = np.mean([found[name].expected for found in machines])
            worse = float((errors > nothing + 1e-9).mean())
            lines.append(
                f"| {plan.model} | {plan.cluster} | {name} | {errors.mean():.1%} | {errors.max():.1%} | {worse:.0%} | "
                f"{expected:.1%} |"
            )
            print(lines[-1], flush=True)
    ranges = ", ".join(f"`{name}` × {low:g} to {high:g}" for name, (low, high) in RANGES.items())
    return f"""# Calibration by measurement and three probe runs, tested on hidden constants

Mean error of the predicted step time of {JUDGED} plans that were not run, over {MACHINES} machines per plan. **The
machines are synthetic; nothing here was measured.** A machine is the cost model with hidden constants
({ranges}).
*Measured*: its kernels and collectives as `measure` writes them, with {NOISE:.0%} noise, imported as a cluster file;
what training keeps of a bare kernel is the usual × {KEPT[0]:g} to {KEPT[1]:g}, drawn for every constant.
*Three probes*: `probe`, `ingest` and `calibrate` on three 20-step logs with {NOISE:.0%} noise; together with the
measured cluster it is `calibrate --on`. `measure` sees no overlap and no host time; `calibrate` knows three of the
constants. *Expected* is what `calibrate` itself said of runs left out.
By version {__version__} on {date.today().isoformat()}; made by
`python benchmarks/three_probes.py --write`.

| model | cluster | known | error | worst | machines worse than with nothing | expected |
| --- | --- | --- | --: | --: | --: | --: |
{chr(10).join(lines)}

The machines share the form of the cost model, so these errors are what is left when the form is right: on a real
machine they are a part of the error. [Accuracy](../docs/accuracy.md) has those of real runs.
"""


def main(options: list[str]) -> None:
    """Print the page, and write it where asked."""
    text = page()
    if "--write" in options:
        (HERE / "three-probes.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
