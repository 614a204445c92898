"""Traces made by hand in the form that torch.profiler writes. Times in microseconds."""

import gzip
import json
from itertools import count

COMPUTE = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
CORRELATIONS = count(1)


def step(number, start, length):
    return [event("user_annotation", f"ProfilerStep#{number}", start, length, 1, 1)]


def annotation(name, start, length):
    return [event("user_annotation", name, start, length, 1, 1)]


def operator(name, start, length, thread=1):
    return [event("cpu_op", name, start, length, 1, thread)]


def kernel(name, start, length, stream=7, launch=None, returned=None, **said):
    """A kernel, or a copy where its name says so, with its launch if that is in the trace."""
    link = next(CORRELATIONS)
    place = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    args = {"device": 0, "stream": stream, "correlation": link, **said}
    events = [event(place, name, start, length, 0, stream, args)]
    if launch is not None:
        length = 0 if returned is None else returned - launch
        events.append(event("cuda_runtime", "cudaLaunchKernel", launch, length, 1, 1, {"correlation": link}))
    return events


def collective(name, size, ranks=None, description=None, group="0"):
    """What a communication kernel says of itself."""
    said = {"Collective name": name, "Group size": size, "Process Group Name": group}
    said |= {} if description is None else {"Process Group Description": description}
    return said | ({} if ranks is None else {"Process Group Ranks": str(list(ranks))})


def event(place, name, start, length, process, thread, args=None):
    times = {"ts": start, "dur": length, "pid": process, "tid": thread}
    return {"ph": "X", "cat": place, "name": name, **times, "args": args or {}}


def trace_text(events, **header):
    known = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    return json.dumps({**known, **header, "traceEvents": events, "traceName": "trace.json"})


def written(folder, events, name="trace.json", **header):
    path = folder / name
    text = trace_text(events, **header).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    return path
