"""Output of nccl-tests made from times, in the forms of its releases and of rccl-tests."""

import json
from dataclasses import dataclass
from itertools import pairwise

TESTS = {
    "all-reduce": ("all_reduce", "AllReduce", "sum"),
    "all-gather": ("all_gather", "AllGather", "none"),
    "reduce-scatter": ("reduce_scatter", "ReduceScatter", "sum"),
    "all-to-all": ("alltoall", "AlltoAll", "none"),
    "send-receive": ("sendrecv", "SendRecv", "sum"),
}
SHARED = ("all-gather", "reduce-scatter", "all-to-all")
UNPROVED = ("all-to-all", "send-receive")


def bus_factor(collective, ranks):
    if collective == "send-receive":
        return 1.0
    return (2 if collective == "all-reduce" else 1) * (ranks - 1) / ranks


@dataclass
class Run:
    """A sweep: seconds by size. ``processes`` is 1 for all devices of a node in one."""

    collective: str
    times: dict[int, float]
    ranks: int = 8
    nodes: int = 1
    one_process: bool = True
    wrong: str = "0"

    def figures(self, size, seconds):
        algbw = size / seconds / 1e9
        return seconds * 1e6, algbw, algbw * bus_factor(self.collective, self.ranks)

    def count(self, size):
        return size // 4 // (self.ranks if self.collective in SHARED else 1)

    @property
    def factor(self):
        return max((later // size for size, later in pairwise(self.times)), default=2)

    @property
    def proofs(self):
        return self.wrong, "N/A" if self.collective in UNPROVED else self.wrong


def short(value, width):
    """As util.cu prints numbers: as many digits as there is room for."""
    texts = (f"{value:{width}.{digits}f}" for digits in (2, 1, 0))
    return next(text for text in texts if len(text) <= width)


def text(run, *, named=True, listed=True, settings=True, end=True):
    """The table, with what belongs around it."""
    test, _, redop = TESTS[run.collective]
    sizes = list(run.times)
    lines = [f"# Collective test starting: {test}_perf"] if named else []
    if settings:
        step = f"step: {run.factor}(factor)"
        lines.append(
            f"# nThread 1 nGpus 8 minBytes {sizes[0]} maxBytes {sizes[-1]} {step} warmup iters: 5 iters: 20"
        )
    if listed:
        lines += ["#", "# Using devices", *(member(run, rank) for rank in range(run.ranks))]
    lines += [
        "#                                                   out-of-place                       in-place",
        "#  size   count   type   redop   root   time   algbw   busbw  #wrong   time   algbw   busbw  #wrong",
        "#   (B)  (elements)                     (us)  (GB/s)  (GB/s)           (us)  (GB/s)  (GB/s)",
    ]
    for size, seconds in run.times.items():
        time, algbw, busbw = run.figures(size, seconds)
        figures = f"{short(time, 7)}  {short(algbw, 6)}  {short(busbw, 6)}"
        outside, inside = run.proofs
        count = run.count(size)
        row = f"{size:12} {count:12}  float  {redop:>6}   -1  {figures}  {outside:>5}  {figures}  {inside:>5}"
        lines.append(row)
    if end:
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", "#"]
    return "\n".join(lines) + "\n"


def member(run, rank):
    each = run.ranks // run.nodes
    pid = 1000 + (rank // each if run.one_process else rank)
    host, device = f"node-{rank // each}", rank % each
    name = f"device {device:2d} [0x{16 + device:x}] NVIDIA H100 80GB HBM3"
    return f"#  Rank {rank:2d} Group  0 Pid {pid:6d} on {host:>10} {name}"


def nccl_json(run):
    """``-J`` of nccl-tests, file version 3."""
    test, _, redop = TESTS[run.collective]
    processes = run.nodes if run.one_process else run.ranks
    results = []
    for size, seconds in run.times.items():
        time, algbw, busbw = run.figures(size, seconds)
        outside, inside = (None if proof == "N/A" else float(proof) for proof in run.proofs)
        figures = {"time": time, "alg_bw": algbw, "bus_bw": busbw}
        entry = {"size": size, "count": run.count(size), "type": "float", "redop": redop, "root": "    -1"}
        entry |= {"out_of_place": {**figures, "nwrong": outside}, "in_place": {**figures, "nwrong": inside}}
        results.append(entry | {"actual_iterations": 20, "experiment_name": ""})
    config = {"nthreads": 1, "ngpus": run.ranks // processes, "step_factor": run.factor}
    config |= {"minimum_bytes": min(run.times), "maximum_bytes": max(run.times), "devices": [{}] * processes}
    return json.dumps(
        {
            "version": 3,
            "args": [f"./build/{test}_perf_mpi", "-b", "8"],
            "env": ["SECRET=1"],
            "config": config,
            "results": results,
            "end_time": "2026-01-01 00:00:00",
        }
    )


def rccl_records(run):
    """What rccl-tests knows of each measurement, with MPI."""
    _, name, redop = TESTS[run.collective]
    processes = run.nodes if run.one_process else run.ranks
    for size, seconds in run.times.items():
        time, algbw, busbw = run.figures(size, seconds)
        for place, proof in enumerate(run.proofs):
            yield {
                "numCycle": 0,
                "name": name,
                "nodes": 1,
                "ranks": processes,
                "ranksPerNode": processes,
                "gpusPerRank": run.ranks // processes,
                "size": size,
                "type": "float",
                "redop": redop,
                "inPlace": place,
                "time": time,
                "algBw": algbw,
                "busBw": busbw,
                "wrong": proof,
            }


def rccl_json(run):
    """``-Z json`` of rccl-tests since 2025."""
    return "[\n" + ",\n".join(map(json.dumps, rccl_records(run))) + "\n]\n"


def rccl_lines(run):
    """``-Z json`` of rccl-tests in 2024."""
    return "".join(json.dumps(record) + "\n" for record in rccl_records(run))


def rccl_csv(run):
    """``-Z csv`` of rccl-tests with MPI, whose head lacks a column."""
    head = (
        "numCycle,collective,ranks,rankspernode,gpusperrank,size,type,redop,inplace,time,algbw,busbw,#wrong\n"
    )
    quoted = ('"{}"'.format, str)
    rows = (
        ",".join(quoted[not isinstance(v, str)](v) for v in record.values()) for record in rccl_records(run)
    )
    return head + "".join(row + "\n" for row in rows)


def proposed_json(run):
    """``--json`` as proposed for nccl-tests, after what a launcher prints."""
    _, _, redop = TESTS[run.collective]
    sizes = {}
    for size, seconds in run.times.items():
        time, algbw, busbw = run.figures(size, seconds)
        entry = {"count": run.count(size), "type": "float", "redop": redop, "root": "-1"}
        for place, proof in zip(("oop", "ip"), run.proofs, strict=True):
            entry |= {f"{place}_time": time, f"{place}_algbw": algbw, f"{place}_busbw": busbw}
            entry[f"{place}_error"] = proof
        sizes[str(size)] = entry
    data = {"identifier": "nccl-tests structured output", "version": "2.26.6", "benchmark": [sizes]}
    return "WARNING: no OpenFabrics device\nNCCL version 2.26.6\n" + json.dumps(data) + "\n"
