"""Real steps on the host that this runs on, beside what was predicted for them, and what three probes tell.

    python benchmarks/local_steps.py            prints the page
    python benchmarks/local_steps.py --write    also writes benchmarks/local-steps.md

As far as the host allows, ranks that have a core each run under SCHED_RR, so that other work on it waits.
The host is measured as a cluster of two devices of one thread each, and as one of four that share its cores; plans of
a small model are predicted for these clusters and trained by the runtime, a few steps each, in shuffled rounds. Then
three plans, chosen as ``probe`` chooses, are trained for 20 steps, the constants of ``calibrate`` are fitted to them,
and the plans that were no probes are predicted again. Nothing here is chosen by its result; there is no threshold.
"""

import os
import platform
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np

from meshwright import __version__
from meshwright.calibration.calibrate_cluster import ClusterCalibration, fit_cluster_constants
from meshwright.calibration.observations import Observation
from meshwright.cluster.cluster import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.ingestion.measured_cluster.cluster_file import cluster_from
from meshwright.measurement.measure_machine import MeasurementOptions, measure_locally
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.files.plan_file import dump_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.plans.setting import Setting
from meshwright.runtime.emulation.time_scale import into_real_time
from meshwright.search.nearby.diverse_subset import diverse_subset
from meshwright.validation.error_metrics import bias, mape, spearman
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.probe.probe_jobs import STEPS as PROBE_STEPS
from meshwright.verbs.run.run_request import RunRequest as RunWish
from meshwright.verbs.run.train import trained

HERE = Path(__file__).parent
MODEL = HERE.parent / "examples" / "small-llama"
WORKLOAD = {"seq_len": 256, "global_batch": 8}
MEASURE_S = 30.0
STEPS, ROUNDS, WARM_UP, SEED = 10, 2, 3, 0
PROBES = 3

DP, SHARDED = {"layout": {"dp_replicate": 2}}, {"layout": {"dp_shard": 2}}
PP, TP = {"layout": {"pp": 2}}, {"layout": {"tp": 2}}
TWO: Mapping[str, Mapping[str, object]] = {
    "dp": DP,
    "dp, 4 at once": {**DP, "pipeline": {"micro_batch": 4}},
    "zero1": {**SHARDED, "sharding": "zero1"},
    "zero1, 4 at once": {**SHARDED, "sharding": "zero1", "pipeline": {"micro_batch": 4}},
    "zero1, full recompute": {**SHARDED, "sharding": "zero1", "recompute": "full"},
    "zero2": {**SHARDED, "sharding": "zero2"},
    "zero3": {**SHARDED, "sharding": "zero3"},
    "pp, 1f1b": {**PP, "pipeline": {"schedule": "1f1b"}},
    "pp, 1f1b, 2 at once": {**PP, "pipeline": {"schedule": "1f1b", "micro_batch": 2}},
    "pp, gpipe": {**PP, "pipeline": {"schedule": "gpipe"}},
    "pp, interleaved": {**PP, "pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2}},
    "pp, zb-h1": {**PP, "pipeline": {"schedule": "zb-h1"}},
    "pp, full recompute": {**PP, "recompute": "full"},
    "tp": TP,
    "tp, 4 at once": {**TP, "pipeline": {"micro_batch": 4}},
    "tp without sequence parallelism": {"layout": {"tp": 2, "sequence_parallel": False}},
    "tp, selective recompute": {**TP, "recompute": "selective"},
}
FOUR: Mapping[str, Mapping[str, object]] = {
    "dp": {"layout": {"dp_replicate": 4}},
    "zero1": {"layout": {"dp_shard": 4}, "sharding": "zero1"},
    "zero3": {"layout": {"dp_shard": 4}, "sharding": "zero3"},
    "hsdp": {"layout": {"dp_replicate": 2, "dp_shard": 2}, "sharding": "zero3"},
    "pp 2, dp 2": {"layout": {"pp": 2, "dp_replicate": 2}},
    "pp 2, dp 2, zero1": {"layout": {"pp": 2, "dp_shard": 2}, "sharding": "zero1"},
    "pp 2, dp 2, zb-h1": {"layout": {"pp": 2, "dp_replicate": 2}, "pipeline": {"schedule": "zb-h1"}},
    "tp 2, dp 2": {"layout": {"tp": 2, "dp_replicate": 2}},
    "tp 2, dp 2, zero3": {"layout": {"tp": 2, "dp_shard": 2}, "sharding": "zero3"},
    "pp 2, tp 2": {"layout": {"pp": 2, "tp": 2}},
    "pp 2, tp 2, full recompute": {"layout": {"pp": 2, "tp": 2}, "recompute": "full"},
    "pp 4": {"layout": {"pp": 4}},
    "pp 4, gpipe": {"layout": {"pp": 4}, "pipeline": {"schedule": "gpipe"}},
}


@dataclass(frozen=True)
class Case:
    """A plan with its prediction; ``seconds`` are the measured steps, without warm-up."""

    name: str
    resolved: Resolved
    predicted_s: float
    seconds: tuple[float, ...] = ()

    @property
    def short(self) -> ShortPlan:
        """The plan."""
        assert self.resolved.short is not None
        return self.resolved.short

    @property
    def measured_s(self) -> float:
        """Median of the steps."""
        return median(self.seconds)

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s


def measured_cluster(folder: Path, ranks: int) -> str:
    """The file of this host as so many devices."""
    results = measure_locally(MeasurementOptions(MEASURE_S), ranks, lambda what, part: None)
    path = folder / f"host-of-{ranks}.yaml"
    path.write_text(cluster_from(results).text, encoding="utf-8")
    return str(path)


def cases(cluster: str, plans: Mapping[str, Mapping[str, object]]) -> list[Case]:
    """Plans for a cluster, predicted."""
    header = {"plan": 1, "model": str(MODEL), "cluster": cluster, "workload": WORKLOAD, "stack": "meshwright"}
    found = {name: resolve(ShortPlan.model_validate(header | keys)) for name, keys in plans.items()}
    return [Case(name, resolved, predicted(resolved).step_time_s) for name, resolved in found.items()]


def measured(folder: Path, wanted: list[Case]) -> list[Case]:
    """The cases with their steps: rounds over all of them, each in an order of its own."""
    order = random.Random(SEED)
    seconds: dict[str, list[float]] = {case.name: [] for case in wanted}
    for turn in range(ROUNDS):
        for case in order.sample(wanted, len(wanted)):
            seconds[case.name] += steps_of(folder / f"{turn} {case.name}", case, STEPS)
    return [replace(case, seconds=tuple(seconds[case.name])) for case in wanted]


def steps_of(folder: Path, case: Case, steps: int) -> tuple[float, ...]:
    """Seconds of each step of a run, without the first ones."""
    found = trained(case.resolved, RunWish(options={"steps": steps, "output": folder}, cpu=True))
    assert found is not None
    return found.outcome.step_times_s[WARM_UP:]


def calibrated(folder: Path, known: list[Case]) -> tuple[list[Case], ClusterCalibration]:
    """Three probes, as ``probe`` chooses them, run for themselves; and what ``calibrate`` makes of them."""
    ranked = sorted(known, key=lambda case: case.predicted_s)
    by_plan = {dump_plan(case.short): case for case in ranked}
    plans = diverse_subset(ranked[0].short, [case.short for case in ranked[1:]], PROBES)
    probes = [by_plan[dump_plan(plan)] for plan in plans]
    seconds = [median(steps_of(folder / f"probe {case.name}", case, PROBE_STEPS)) for case in probes]
    observations = [
        Observation(case.resolved.setting, from_shorts([case.short]), np.array([step_s]), ("own",))
        for case, step_s in zip(probes, seconds, strict=True)
    ]
    return probes, fit_cluster_constants(observations)


def again(case: Case, cluster: Cluster) -> Case:
    """The case, predicted for a cluster that is known better."""
    setting = case.resolved.setting
    known = Setting(setting.model, cluster, setting.workload, setting.stack)
    return replace(case, predicted_s=predicted(replace(case.resolved, setting=known)).step_time_s)


def errors(found: list[Case]) -> str:
    """How far predictions are off, in a sentence."""
    times = np.array([[case.predicted_s, case.measured_s] for case in found])
    ratios = times[:, 0] / times[:, 1]
    off, rank = abs(ratios - 1), spearman(times[:, 0], times[:, 1])
    return (
        f"{len(found)} plans: mean error {mape(ratios):.1%}, median {np.median(off):.1%}, largest {off.max():.1%}; "
        f"bias {bias(ratios):+.1%}; Spearman {'–' if rank is None else f'{rank:.2f}'}"
    )


def table(found: list[Case], later: Mapping[str, Case], probes: list[str]) -> Iterator[str]:
    """One line per plan."""
    yield "| plan | predicted ms | after probes ms | measured ms | 10 % to 90 % | predicted / measured | after |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for case in found:
        low, high = np.quantile(case.seconds, (0.1, 0.9)) * 1e3
        known = later[case.name]
        name = f"{case.name} (probe)" if case.name in probes else case.name
        yield (
            f"| {name} | {case.predicted_s * 1e3:.0f} | {known.predicted_s * 1e3:.0f} | {case.measured_s * 1e3:.0f} | "
            f"{low:.0f} to {high:.0f} | {case.ratio:.2f} | {known.ratio:.2f} |"
        )


def section(folder: Path, ranks: int, plans: Mapping[str, Mapping[str, object]], title: str) -> Iterator[str]:
    """A cluster of this host: its plans, before and after the probes."""
    policy = "SCHED_RR" if ranks <= (os.cpu_count() or 1) and into_real_time() else "the usual scheduler"
    folder = folder / f"{ranks} ranks"
    folder.mkdir()
    path = measured_cluster(folder, ranks)
    found = measured(folder, cases(path, plans))
    probes, calibration = calibrated(folder, found)
    better = replace(load_cluster(path), calibration=calibration.cluster.calibration)
    later = {case.name: again(case, better) for case in found}
    names = [case.name for case in probes]
    others = [case for case in found if case.name not in names]
    constants = ", ".join(
        f"{name} {calibration.present[name]:.3g} → {value:.3g}" for name, value in calibration.values.items()
    )
    yield from (f"## {title}", "", *table(found, later, names), "")
    yield f"* Measured under {policy}. As measured and predicted: {errors(found)}."
    yield f"* Probes: {', '.join(names)}, {PROBE_STEPS} steps each; {constants}."
    yield f"* Without the probes' plans, before: {errors(others)}."
    yield f"* Without the probes' plans, after: {errors([later[case.name] for case in others])}."
    helps = "helps" if calibration.helps else "would not help, and the verb refuses it"
    yield (
        f"* `calibrate` expects of a run that was left out {calibration.error_before:.1%} before and "
        f"{calibration.error_after:.1%} after: it {helps}."
    )
    yield ""


def page() -> str:
    """The page that is kept under ``benchmarks/``."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [
            *section(folder, 4, FOUR, "Four ranks that share the cores"),
            *section(folder, 2, TWO, "Two ranks of one thread"),
        ]
    load = f"load average {before:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    sections = "\n".join(parts)
    return f"""# Local steps

Steps that the runtime took on one host, beside their predictions. Made by
`python benchmarks/local_steps.py --write`, version {__version__}, {date.today().isoformat()};
{os.cpu_count()} cores, {platform.machine()}, {load}.

Model: `examples/{MODEL.name}` in bf16, {WORKLOAD["global_batch"]} sequences of {WORKLOAD["seq_len"]} tokens, synthetic
data. Each plan: {ROUNDS} runs of {STEPS} steps in shuffled order, the first {WARM_UP} of each left out, median of the
rest. The cluster is what `measure` found in {MEASURE_S:.0f} s with as many processes. There is no threshold: a host
with other work on it, which the load average tells, says little of a prediction, and its spread says how little.

{sections}
## Calibration by three probes

`calibrate` moves compute, network cards and host time. On one host nothing crosses network cards, and latency and
bandwidth of collectives between its processes are none of the three: where those err, as under tp, or where ranks share
cores and one's waiting is another's time to compute, probes mend little.
"""


def main(options: list[str]) -> None:
    """Print the page, and write it where asked."""
    text = page()
    print(text)
    if "--write" in options:
        (HERE / "local-steps.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
