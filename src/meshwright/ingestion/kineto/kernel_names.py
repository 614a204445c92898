"""Classify kernels and operators by name; the first match wins.

Names are those of CUDA, cuBLAS and cuBLASLt (``nvjet``), cuDNN, CUTLASS, FlashAttention, Triton (``triton_poi`` is a
pointwise kernel), Tensile (``Cijk``), NCCL and RCCL, and of torch's operators in a trace of a CPU. An unknown name is
``other``; a fused kernel counts as its largest part.
"""

import re
from collections.abc import Mapping

COMMUNICATION, COPY, GEMM, ATTENTION, ELEMENTWISE = (
    "communication",
    "copy",
    "GEMM",
    "attention",
    "elementwise",
)
OTHER_KIND = "other"

KERNELS: Mapping[str, re.Pattern[str]] = {
    COPY: re.compile(r"^Mem(cpy|set)"),
    COMMUNICATION: re.compile(
        r"nccl|rccl|nvshmem|mscclpp|deep_?ep|cross_device_reduce|multimem"
        r"|(?<![a-z])(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)",
        re.IGNORECASE,
    ),
    ATTENTION: re.compile(r"flash|fmha|attention|sdpa|_attn|(?<![a-z])mha_", re.IGNORECASE),
    GEMM: re.compile(
        r"(?<!fb)gemm|cutlass|cublas|nvjet|^Cijk_|xmma|matmul|splitKreduce|conv(?!ert)|wgrad|dgrad|winograd|scudnn"
        r"|^triton_(tem|mm)",
        re.IGNORECASE,
    ),
    ELEMENTWISE: re.compile(
        r"elementwise|pointwise|^triton_poi|CatArray|dropout|multi_tensor_apply|copy_kernel|swiglu|gelu|silu|rope",
        re.IGNORECASE,
    ),
}
"""Kinds of work on a device, by name pattern."""

OPERATORS: Mapping[str, re.Pattern[str]] = {
    COMMUNICATION: re.compile(r"^(nccl|gloo|mpi|ucc):|^_?c10d(_functional)?::|^record_param_comms"),
    ATTENTION: re.compile(r"attention|flash"),
    GEMM: re.compile(
        r"^aten::_?(addmm|mm|bmm|baddbmm|addbmm|addmv|mv|matmul|linear|grouped_mm|conv)|^mkldnn::.*linear"
    ),
    COPY: re.compile(r"^aten::(copy_|_to_copy|clone|contiguous)$"),
    ELEMENTWISE: re.compile(
        r"^aten::(add|sub|mul|div|pow|exp|neg|sqrt|rsqrt|gelu|silu|relu|tanh|sigmoid|where)"
    ),
}
"""Kinds of operators of a CPU, by name pattern."""

HOST_COPY = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost|Host -> |-> Host")
PEER_COPY = re.compile(r"PtoP|Peer")
OPTIMIZER_KERNEL = re.compile(r"adam", re.IGNORECASE)

COLLECTIVES: Mapping[str, str] = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "dispatch": "all-to-all",
    "combine": "all-to-all",
    "sendrecv": "send-receive",
    "send": "send-receive",
    "recv": "send-receive",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "reduce": "reduce",
}
"""Collectives by parts of their names in lower case without separators, the most specific first."""
FROM_KERNEL: Mapping[str, str] = {"send-receive": "exchange"}
"""Kind by kernel alone: NCCL runs all-to-all as sends and receives, so its kernel does not tell them apart."""


def kind_of(name: str, kinds: Mapping[str, re.Pattern[str]]) -> str:
    """Return the kind of a kernel (``KERNELS``) or operator (``OPERATORS``)."""
    return next((kind for kind, pattern in kinds.items() if pattern.search(name)), OTHER_KIND)


def collective_kind(name: str, kernel: str) -> str:
    """Return the kind of a collective from the trace's name for it, else from its kernel; empty if neither tells."""
    kind = _collective(name)
    if kind:
        return kind
    guessed = _collective(kernel)
    return FROM_KERNEL.get(guessed, guessed)


def _collective(name: str) -> str:
    plain = name.partition("(")[0].lower().replace("_", "").replace("-", "")
    return next((kind for part, kind in COLLECTIVES.items() if part in plain), "")
