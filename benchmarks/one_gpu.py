"""What only an accelerator can show, on one: kernels, training steps and equality, beside what was predicted.

    python benchmarks/one_gpu.py FOLDER                 all of it, about 15 minutes on a large GPU
    python benchmarks/one_gpu.py FOLDER --only kernels  a part of it: kernels, trainings or proofs
    python benchmarks/one_gpu.py FOLDER --predict       what the catalogue predicts, before anything is measured
    python benchmarks/one_gpu.py FOLDER --small --cpu   a rehearsal with tiny models on a CPU, which says nothing

Each result is a line of ``FOLDER/results.jsonl`` as soon as it is known; a case that fails leaves its error there, and
the next one begins. ``FOLDER/page.md`` lays them side by side. The cluster file that was measured is
``FOLDER/measured.yaml``; trainings that find it there do not measure again. Nothing is fitted to the trainings.

A training is the runtime's own step on text in bytes. Its time is the median behind the warm-up; the host waits for the
device in every step, as in ``run``. Memory is the most that the allocator gave to tensors behind the loading of
parameters. No checkpoint is written.
"""

import argparse
import json
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from one_gpu_cases import PROOFS, TRAININGS, Case
from one_gpu_page import page

from meshwright import __version__
from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes, hardware_times_for
from meshwright.errors import MeshwrightError
from meshwright.ingestion.device_names import device_of
from meshwright.ingestion.measured_cluster.cluster_file import cluster_from
from meshwright.ingestion.measured_cluster.kernel_constants import BACKWARD, CLASSES
from meshwright.measurement.measure_machine import MeasurementOptions, measure_locally
from meshwright.measurement.results import KernelTime
from meshwright.plans.resolve import Resolved
from meshwright.plans.shrink.small_plans import small_plans
from meshwright.program.lowering.lower_plan import lower
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.open_data import DataNeeds, open_data
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import ProgressCallback, run_locally
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.training.data_micro_batches import counted_labels, micro_batches
from meshwright.runtime.training.optimizer_values import optimizer_options
from meshwright.runtime.training.options import TrainingOptions
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.runtime.weights.random_tensors import RandomTensors
from meshwright.units import GIB
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.verify import program_of

TEXT = Path(__file__).parent.parent / "examples" / "persuasion-volume-one.txt"
CATALOGUE = "h200-sxm-141gb"
"""The device of predictions where the one that is here has no name in the catalogue."""
MEASURE_S, WARM_UP, LIMIT_S, SEED = 60.0, 4, 240.0, 0
PARTS = ("kernels", "trainings", "proofs")
Line = dict[str, Any]


class Results:
    """The lines of a folder, appended one by one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / "results.jsonl"

    def add(self, part: str, name: str, found: Mapping[str, Any]) -> None:
        """Write a line, and show it."""
        line = json.dumps({"part": part, "name": name, **found})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line[:400], flush=True)

    def lines(self) -> list[Line]:
        """All that was written, the newest of each name."""
        if not self.path.exists():
            return []
        read = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return list({(line["part"], line["name"]): line for line in read}.values())

    @property
    def measured(self) -> Path | None:
        """The cluster file that was measured, if it was."""
        path = self.folder / "measured.yaml"
        return path if path.exists() else None

    def catalogue(self) -> str:
        """The device of the catalogue that was measured, as a cluster of one."""
        machines = [line for line in self.lines() if line["part"] == "machine"]
        return f"{machines[-1]['catalogue'] if machines else CATALOGUE} x 1"


def kernels(results: Results, budget_s: float) -> None:
    """Measure this device as a cluster of one, and lay each kernel beside the catalogue's forms."""
    found = measure_locally(MeasurementOptions(budget_s), 1, lambda what, part: None)
    machine = found.machine
    known = device_of(machine.device_names[0], machine.memory_bytes[0] / GIB)
    on_cpu = machine.device_kind == "cpu"
    facts = {"device": machine.device_names[0], "memory_bytes": machine.memory_bytes[0]}
    facts |= {"catalogue": known or CATALOGUE, "is_catalogues": known is not None}
    now = datetime.now(UTC).date().isoformat()
    facts |= {"torch": torch.__version__, "version": __version__, "date": now, "rehearsal": on_cpu}
    results.add("machine", "machine", facts)
    base = load_cluster(results.catalogue())
    forms = hardware_times_for(base.pool, "bf16")
    for kernel in found.kernels:
        seconds = kernel_seconds(forms, kernel)
        row = {"kind": kernel.kind, "kernel": kernel.kernel, "dtype": kernel.dtype, "shape": kernel.shape}
        row |= {"flops": kernel.flops, "moved_bytes": kernel.moved_bytes, "predicted_s": seconds}
        row |= {"measured_s": median(kernel.seconds), "spread_s": max(kernel.spread_s)}
        results.add("kernel", f"{kernel.name}", row)
    cluster = cluster_from(found, None if on_cpu else base)
    (results.folder / "measured.yaml").write_text(cluster.text, encoding="utf-8")
    (results.folder / "measured.json").write_text(found.to_text(), encoding="utf-8")
    results.add("fitted", "fitted", {"findings": cluster.findings, "unfinished": found.unfinished})


def kernel_seconds(forms: HardwareTimes, time: KernelTime) -> float | None:
    """What the cost model's form says of a kernel in a training step; None where it has no form."""
    if time.kind == "matmul":
        return float(forms.gemm(*time.shape)) if time.dtype == "bf16" else None
    if time.kind == "pass":
        return float(forms.pass_(time.moved_bytes))
    if time.kind == "launch":
        return None
    batch, heads, tokens, size = time.shape
    flops, moved = 2.0 * batch * heads * tokens**2 * size, 8.0 * batch * heads * tokens * size
    kernel, c = CLASSES[time.kernel], forms.constants
    forward = float(forms.flash(flops, moved, kernel))
    if time.kind == "attention":
        return forward
    return forward + float(forms.flash(flops * c["attention_backward_flops"], 2 * moved, kernel, c[BACKWARD]))


def predictions(results: Results, case: Case, *, small: bool) -> Line:
    """The case by the catalogue's device and by the one that was measured, or why there is no prediction."""
    if case.precision != "bf16":
        return {}
    found: dict[str, Line] = {}
    wrong: dict[str, str] = {}
    measured = results.measured
    for name, cluster in (("catalogue", results.catalogue()), ("measured", measured and str(measured))):
        if not cluster:
            continue
        try:
            report = predicted(case.resolved(results.folder, cluster, small=small))
        except MeshwrightError as error:
            wrong[name] = str(error)
            continue
        low, high = report.step_time_low_s, report.step_time_high_s
        found[name] = {"step_s": report.step_time_s, "low_s": low, "high_s": high, "mfu": report.mfu}
        found[name] |= {"memory_bytes": report.memory_bytes, "breakdown_s": report.breakdown_s}
    return {"predicted": found, "not_predicted": wrong}


def training(resolved: Resolved, case: Case, *, cpu: bool, steps: int, out: Path) -> Line:
    """Steps of a plan on one rank, in a process of their own: seconds, losses, norms and memory."""
    setting, plan = resolved.setting, resolved.long
    workload = setting.workload
    options = TrainingOptions(
        steps=steps,
        warmup_steps=2,
        lr=3e-4,
        seed=SEED,
        data=(str(TEXT),),
        tokenizer="bytes",
        cache=out / "tokens",
    )
    vocab = setting.model.architecture.vocab
    needs = DataNeeds(vocab=vocab, seq_len=workload.seq_len, global_batch=workload.global_batch)
    data = open_data(options, needs)
    program = lower(plan, setting.model, setting.cluster, workload, setting.stack)
    job = Job(program, setting.model, case.precision, optimizer_options(options), accelerated=not cpu)

    def work(place: Place, store: dist.Store, tell: ProgressCallback) -> Line:
        began = perf_counter()
        with rank_of(job, place, store, RandomTensors(setting.model, SEED)) as rank:
            device = rank.communicator.device
            memory = _Memory(device)
            found: Line = {"loading_s": perf_counter() - began, "states_bytes": memory.begin()}
            times, losses, norms, peaks = [], [], [], []
            for step in range(steps):
                began = perf_counter()
                batch = whole_batch(data.training, step)
                result = rank.interpreter.step(
                    micro_batches(batch, program, place.rank, counted_labels(batch), device),
                    options.learning_rate(step) / options.lr,
                )
                times.append(perf_counter() - began)
                rank.communicator.log.clear()
                assert result is not None
                losses.append(result.loss)
                norms.append(result.norm)
                peaks.append(memory.peak())
            return found | {
                "times_s": times,
                "losses": losses,
                "norms": norms,
                "peak_bytes": peaks[-1],
                "first_peak_bytes": peaks[0],
                "reserved_bytes": memory.reserved(),
                "tokens": workload.seq_len * workload.global_batch,
            }

    found = run_locally(work, 1, LIMIT_S, lambda what, part: None)
    assert isinstance(found, dict)
    behind = sorted(found["times_s"][min(WARM_UP, steps // 2) :])
    at = (median(behind), behind[len(behind) // 10], behind[-1 - len(behind) // 10])
    return found | dict(zip(("step_s", "step_low_s", "step_high_s"), at, strict=True))


class _Memory:
    """What the allocator of an accelerator has given; None on a CPU, whose allocator counts nothing."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.counts = device, device.type == "cuda"

    def begin(self) -> int | None:
        """Look for the most from now on; the bytes that tensors have."""
        if not self.counts:
            return None
        torch.cuda.reset_peak_memory_stats(self.device)
        return torch.cuda.memory_allocated(self.device)

    def peak(self) -> int | None:
        """The most that they had."""
        return torch.cuda.max_memory_allocated(self.device) if self.counts else None

    def reserved(self) -> int | None:
        """The most that the allocator took of the device for that."""
        return torch.cuda.max_memory_reserved(self.device) if self.counts else None


def proof(results: Results, name: str, *, cpu: bool) -> Line:
    """Small plans of a model on one device, in fp64 on the accelerator, against plain PyTorch on the CPU."""
    resolved = Case(name, name, 2048, 1, 4, "selective").resolved(
        results.folder, f"{CATALOGUE} x 1", small=False
    )
    worst: list[Line] = []
    for small in small_plans(resolved.long, resolved.setting.model, 1).plans:
        trial = VerifyCase(program_of(small, resolved.setting.stack), small.model)
        outcome = run_case(trial, lambda what, part: None, accelerated=not cpu)
        worst.append({"plan": small.text, **outcome.to_json()})
    return {"plans": worst, "equal": all(one["equal"] for one in worst)}


def attempts(results: Results, options: argparse.Namespace) -> Iterator[tuple[str, str, Any]]:
    """What is to be done: part, name, and the function that does it and returns a line."""
    small, cpu = options.small, options.cpu
    if "trainings" in options.only:
        for case in TRAININGS:
            steps = 4 if small else case.steps

            def trained(case: Case = case, steps: int = steps) -> Line:
                found = predictions(results, case, small=small)
                if options.predict:
                    return found
                resolved = case.resolved(results.folder, results.catalogue(), small=small)
                return found | training(resolved, case, cpu=cpu, steps=steps, out=results.folder)

            yield "training", case.name, trained
    if "proofs" in options.only and not options.predict:
        for name in PROOFS:
            yield "proof", name, lambda name=name: proof(results, name, cpu=cpu)


def main() -> None:
    """Do what was asked, line by line, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--predict", action="store_true", help="measure nothing")
    parser.add_argument("--small", action="store_true", help="tiny models, few steps")
    parser.add_argument("--cpu", action="store_true", help="leave accelerators alone")
    options = parser.parse_args()
    results = Results(options.folder)
    if "kernels" in options.only and not options.predict:
        kernels(results, 5.0 if options.small else MEASURE_S)
    for part, name, attempt in attempts(results, options):
        try:
            found = attempt()
        except Exception as error:  # the next one is to begin whatever happened to this one
            found = {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-2000:]}
        results.add(part, name, found)
    (results.folder / "page.md").write_text(page(results.lines()), encoding="utf-8")


if __name__ == "__main__":
    main()
