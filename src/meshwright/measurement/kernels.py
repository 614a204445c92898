"""Time the kernels of a transformer on one device: matrix products, attention, a memory-bound pass, a launch.

On a CPU also a layer of the runtime with few tokens (``layer_host_time.py``): there launching does not hide.

Products have the shapes of layers of hidden size 4,096 and 8,192 on a GPU, of 512 to 1,024 on a CPU, from few rows to
many: few rows show the memory's rate, many the arithmetic's. Attention is causal SDPA, forward, and forward with
backward, with one kernel at a time because frameworks choose differently: ``flash`` is FlashAttention 2 (on a CPU
torch's own), ``cudnn`` is NVIDIA's, the class of FlashAttention 3 on Hopper. FLOPs of causal attention are half of the
square's: 2·b·h·s²·d forward; a step is 3.5 of it. The pass adds two tensors into a third; the launch adds to one
number.

Every device does the same at the same time, as in training: they share power, and on a CPU the memory's bus.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from meshwright.measurement.layer_host_time import HIDDEN, TOKENS, layer_timing
from meshwright.measurement.results import AttentionKernel, KernelKind, Precision
from meshwright.measurement.timing import BLOCK_S, Timing, Work, host_timed, timed

DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}
ATTENTION_KERNELS: dict[AttentionKernel, SDPBackend] = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
STEP_FLOPS = 3.5
"""FLOPs of forward and backward over forward: five products in the backward pass against two (FlashAttention 2)."""

PRODUCTS: dict[tuple[str, Precision], tuple[tuple[int, int, int], ...]] = {
    ("cuda", "bf16"): (
        (16, 8192, 8192),
        (128, 4096, 4096),
        (1024, 4096, 4096),
        (4096, 4096, 14336),
        (8192, 4096, 4096),
        (8192, 4096, 14336),
        (8192, 14336, 4096),
        (8192, 8192, 1024),
        (8192, 8192, 8192),
    ),
    ("cpu", "bf16"): (
        (4, 2048, 8192),
        (16, 2048, 2048),
        (128, 1024, 1024),
        (512, 512, 1408),
        (512, 1024, 1024),
        (1024, 1024, 1024),
    ),
    ("cpu", "fp32"): ((512, 1024, 1024), (1024, 1024, 1024)),
}
ATTENTIONS = {
    "cuda": ((16, 32, 1024, 128), (4, 32, 4096, 128), (1, 32, 16384, 128)),
    "cpu": ((1, 4, 256, 64), (1, 4, 512, 64)),
}
PASS_BYTES = {"cuda": 2**31, "cpu": 2**27}
MOST_OF_MEMORY = 0.2
"""Fraction of the memory that a pass may use."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A timed kernel: kind, dtype, attention kernel, shape, and the FLOPs and bytes of one execution."""

    kind: KernelKind
    dtype: Precision
    shape: tuple[int, ...]
    flops: float
    moved_bytes: float
    kernel: AttentionKernel = ""


def kernels_of(device_kind: str, memory_bytes: int) -> tuple[Kernel, ...]:
    """Return the kernels to time on devices of a kind with so much memory."""
    return (
        *(
            _product(dtype, shape)
            for (kind_of_device, dtype), shapes in PRODUCTS.items()
            if kind_of_device == device_kind
            for shape in shapes
        ),
        *(
            _attention(kind, kernel, shape)
            for kernel in ATTENTION_KERNELS
            if kernel == "flash" or device_kind == "cuda"
            for shape in ATTENTIONS[device_kind]
            for kind in ("attention", "attention-step")
        ),
        _pass(int(min(PASS_BYTES[device_kind], MOST_OF_MEMORY * memory_bytes))),
        Kernel("launch", "fp32", (1,), 1.0, 8.0),
        *([_layer()] if device_kind == "cpu" else []),
    )


def time_kernel(
    kernel: Kernel, device: torch.device, budget_s: float, least_s: float = BLOCK_S
) -> Timing | None:
    """Time the kernel on this device, in blocks of ``least_s``; return None if torch has no such attention kernel."""
    if kernel.kind == "layer":
        return layer_timing(budget_s)
    work = BUILDERS[kernel.kind](kernel, device)
    if kernel.kernel and not _is_available(work):
        return None
    if kernel.kind == "launch":
        return host_timed(work, device, budget_s)
    return timed(work, device, budget_s, least_s)


def _product(dtype: Precision, shape: tuple[int, int, int]) -> Kernel:
    m, k, n = shape
    moved = DTYPES[dtype].itemsize * (m * k + k * n + m * n)
    return Kernel("matmul", dtype, shape, 2.0 * m * k * n, float(moved))


def _attention(kind: KernelKind, kernel: AttentionKernel, shape: tuple[int, int, int, int]) -> Kernel:
    batch, heads, tokens, size = shape
    forward = 2.0 * batch * heads * tokens**2 * size
    tensors = 4.0 * batch * heads * tokens * size * DTYPES["bf16"].itemsize
    factors = (STEP_FLOPS, 3.0) if kind == "attention-step" else (1.0, 1.0)
    return Kernel(kind, "bf16", shape, factors[0] * forward, factors[1] * tensors, kernel)


def _pass(total_bytes: int) -> Kernel:
    """Return c = a + b with three tensors of ``total_bytes`` together."""
    elements = total_bytes // (3 * DTYPES["fp32"].itemsize)
    return Kernel("pass", "fp32", (elements,), float(elements), 3.0 * elements * DTYPES["fp32"].itemsize)


def _layer() -> Kernel:
    """Return forward and backward of a layer of few tokens: its ten square matrices are read thrice."""
    weights = 10.0 * HIDDEN**2
    return Kernel("layer", "bf16", (TOKENS, HIDDEN), 6 * weights * TOKENS, 6 * weights)


def _build_product(kernel: Kernel, device: torch.device) -> Work:
    m, k, n = kernel.shape
    a, b = _random((m, k), kernel, device), _random((n, k), kernel, device)
    out = torch.empty((m, n), dtype=a.dtype, device=device)
    return lambda: torch.mm(a, b.t(), out=out)


def _build_attention(kernel: Kernel, device: torch.device) -> Work:
    backend = ATTENTION_KERNELS[kernel.kernel]
    q, k, v = (_random(kernel.shape, kernel, device) for _ in range(3))
    is_step = kernel.kind == "attention-step"
    gradient = _random(kernel.shape, kernel, device) if is_step else None
    for tensor in (q, k, v):
        tensor.requires_grad_(is_step)

    def work() -> None:
        with sdpa_kernel(backend):
            out = scaled_dot_product_attention(q, k, v, is_causal=True)
        if gradient is not None:
            torch.autograd.grad(out, (q, k, v), gradient)

    return work


def _build_pass(kernel: Kernel, device: torch.device) -> Work:
    a, b = _random(kernel.shape, kernel, device), _random(kernel.shape, kernel, device)
    out = torch.empty_like(a)
    return lambda: torch.add(a, b, out=out)


def _build_launch(kernel: Kernel, device: torch.device) -> Work:
    number = torch.zeros(kernel.shape, dtype=DTYPES[kernel.dtype], device=device)
    return lambda: number.add_(1)


BUILDERS: dict[KernelKind, Callable[[Kernel, torch.device], Work]] = {
    "matmul": _build_product,
    "attention": _build_attention,
    "attention-step": _build_attention,
    "pass": _build_pass,
    "launch": _build_launch,
}


def _random(shape: tuple[int, ...], kernel: Kernel, device: torch.device) -> torch.Tensor:
    """Return normal numbers: zeros would take less power, and so less time, than training's values."""
    return torch.randn(shape, dtype=DTYPES[kernel.dtype], device=device)


def _is_available(work: Work) -> bool:
    """Return whether torch has the kernel for this device, shape and dtype: it raises RuntimeError otherwise."""
    try:
        work()
    except RuntimeError:
        return False
    return True
