"""Real measurements with gloo on this host, some of which pretends to be two."""

import math
import subprocess
import sys
from itertools import pairwise

import pytest

pytest.importorskip("torch")

import torch

from meshwright.errors import InputError
from meshwright.measurement.collectives import KINDS, SMALLEST_BYTES, sizes
from meshwright.measurement.kernels import ATTENTION_KERNELS, kernels_of, time_kernel
from meshwright.measurement.measure_machine import PARTS, MeasurementOptions, measure, measure_locally, shares
from meshwright.measurement.rank_groups import collective_rounds, pair_rounds
from meshwright.measurement.results import read_results
from meshwright.runtime.launch.forked_ranks import run_locally

HOSTS = ("left", "left", "right", "right")


def silent(what, part):
    pass


@pytest.fixture(scope="module")
def rehearsal():
    """Four ranks on two hosts by name, with what was heard of the progress."""
    heard = []
    wish = MeasurementOptions(budget_s=0.4, operation_s=30.0, hosts=HOSTS)
    return measure_locally(wish, 4, lambda what, part: heard.append((what, part))), heard


def test_every_group_is_measured_with_every_kind_and_growing_sizes(rehearsal):
    results, _ = rehearsal
    wanted = [*collective_rounds(HOSTS), *pair_rounds(HOSTS, 100)]
    assert [group for played in wanted for group in played.groups] == list(results.groups)
    for group in results.groups:
        of = [time for time in results.collectives if time.group == group.name]
        assert {time.kind for time in of} == set(KINDS[group.scope])
        for kind in KINDS[group.scope]:
            swept = [time.bytes for time in of if time.kind == kind]
            assert swept == sorted(set(swept))
            assert swept[0] == SMALLEST_BYTES or group.scope.endswith("pair")
            assert len(swept) >= (1 if group.scope.endswith("pair") else 4)


def test_every_time_is_positive_and_moves_bytes_at_a_credible_rate(rehearsal):
    results, _ = rehearsal
    for time in results.collectives:
        assert time.seconds > 1e-7
        assert time.repeats >= 1
        assert time.bytes / time.seconds < 1e12
    for kernel in results.kernels:
        assert len(kernel.seconds) == 4
        assert all(0 < s < 60 for s in kernel.seconds)
        assert all(math.isfinite(s) and s >= 0 for s in kernel.spread_s)


def test_all_kernels_of_a_cpu_are_timed(rehearsal):
    results, _ = rehearsal
    wanted = [(k.kind, k.dtype, k.shape) for k in kernels_of("cpu", min(results.machine.memory_bytes))]
    assert [(k.kind, k.dtype, k.shape) for k in results.kernels] == wanted
    large, small = (
        next(k for k in results.kernels if k.shape == shape and k.dtype == "fp32")
        for shape in ((1024, 1024, 1024), (512, 1024, 1024))
    )
    assert large.flops == 2 * small.flops == 2 * 1024**3


def test_the_machine_is_described(rehearsal):
    results, _ = rehearsal
    machine = results.machine
    assert (machine.device_kind, machine.backend, machine.hosts) == ("cpu", "gloo", HOSTS)
    assert machine.torch == torch.__version__
    assert len(set(machine.memory_bytes)) == 1
    assert results.took_s > 0
    assert read_results(results.to_text()) == results


def test_what_the_budget_cut_is_said(rehearsal):
    """0.4 s are not enough for 64 MiB."""
    results, _ = rehearsal
    assert max(time.bytes for time in results.collectives) < 2**26
    assert any("no time was left" in cut and "rails of 2 nodes" in cut for cut in results.unfinished)


def test_progress_grows_from_nothing_and_names_what_is_done(rehearsal):
    _, heard = rehearsal
    parts = [part for _, part in heard]
    assert parts[0] == 0
    assert parts == sorted(parts)
    assert parts[-1] < 1
    words = " ".join(what for what, _ in heard)
    assert all(word in words for word in ("kernels: matmul", "inside hosts", "2 nodes", "pairs of hosts"))


@pytest.mark.slow
def test_a_single_process_measures_its_kernels_alone():
    results = measure(0.01, processes=1)
    assert results.collectives == results.groups == ()
    assert {kernel.kind for kernel in results.kernels} == {
        "matmul",
        "attention",
        "attention-step",
        "pass",
        "launch",
        "layer",
    }
    assert results.unfinished == ()


def test_a_kernel_that_torch_lacks_is_no_time():
    """NVIDIA's attention does not run on a CPU."""
    assert "cudnn" in ATTENTION_KERNELS
    cudnn = [kernel for kernel in kernels_of("cuda", 2**34) if kernel.kernel == "cudnn"]
    small = min(cudnn, key=lambda kernel: kernel.flops)

    def work(place, store, tell):
        return time_kernel(small, torch.device("cpu"), 0.1)

    assert run_locally(work, 1, 60.0, silent) is None


def test_kernels_of_a_gpu_fit_in_its_memory():
    for gib in (8, 80):
        kernels = kernels_of("cuda", gib * 2**30)
        assert max(kernel.moved_bytes for kernel in kernels) < gib * 2**30
        assert {kernel.dtype for kernel in kernels if kernel.kind == "matmul"} == {"bf16"}


def test_a_step_of_attention_is_three_and_a_half_forward_passes():
    kernels = kernels_of("cuda", 2**36)
    forward = {k.shape: k.flops for k in kernels if k.kind == "attention"}
    assert forward
    assert {k.shape: k.flops / 3.5 for k in kernels if k.kind == "attention-step"} == pytest.approx(forward)


def test_sizes_grow_by_four():
    for kind in ("cpu", "cuda"):
        found = sizes(kind)
        assert found[0] == 4096
        assert all(b == 4 * a for a, b in pairwise(found))


def test_parts_that_are_not_there_leave_their_time_to_the_others():
    whole = shares(100.0, dict.fromkeys(PARTS, True))
    assert sum(whole.values()) == pytest.approx(100)
    single = shares(100.0, {"kernels": True, "node": True, "across": False, "pairs": False})
    assert single["across"] == single["pairs"] == 0
    assert single["kernels"] + single["node"] == pytest.approx(100)
    assert single["kernels"] > whole["kernels"]


def test_wrong_wishes_are_refused_together():
    with pytest.raises(InputError) as error:
        measure(0.0, processes=0)
    assert {problem.field for problem in error.value.problems} == {"budget_s", "processes"}
    with pytest.raises(InputError, match="600"):
        measure(601.0)


def test_processes_belong_to_whoever_launched(monkeypatch):
    for name, value in {
        "RANK": 0,
        "WORLD_SIZE": 2,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "a",
        "MASTER_PORT": 1,
    }.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(InputError, match="torchrun has started 2 processes"):
        measure(1.0, processes=4)


@pytest.mark.slow
def test_a_process_that_used_torch_with_threads_can_measure() -> None:
    """OpenMP's threads are lost in a fork; a rank that waited for them would never end."""
    script = (
        "import torch; torch.set_num_threads(2); torch.ones(800, 800).mm(torch.ones(800, 800))\n"
        "from meshwright.measurement.measure_machine import MeasurementOptions, measure_locally\n"
        "print(len(measure_locally(MeasurementOptions(0.1), 1, lambda what, part: None).kernels))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) > 0
