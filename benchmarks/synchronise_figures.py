"""Published figures of systems that communicate less, beside what this project computes for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import cos, log, pi
from pathlib import Path

from meshwright.plans.synchronisation.compression import Budget, Compression
from meshwright.plans.synchronisation.periods import LearningRates, Periods
from meshwright.plans.synchronisation.synchronisation import PeriodRule, Quadratic, Synchronisation
from meshwright.program.synchronisation.encoded_bytes import exchange_bytes
from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS
from meshwright.program.synchronisation.stretch import Stretch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "synchronise"
MIB = 2**20


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, ours, and what ours was computed from."""

    system: str
    what: str
    published: str
    computed: str
    origin: str


def resnet18() -> tuple[Stretch, ...]:
    """Return the tensors of ResNet-18 for CIFAR-10: kernels as (outputs, inputs · places), norms, the classifier."""
    widths, tensors = (64, 128, 256, 512), [(64, 27)]
    inputs = 64
    for stage, width in enumerate(widths):
        for block in range(2):
            tensors += [(width, inputs * 9), (width, width * 9)]
            if block == 0 and stage:
                tensors.append((width, inputs))
            inputs = width
    kernels = [
        Stretch(f"kernel {number}", rows * columns, (1, rows, columns))
        for number, (rows, columns) in enumerate(tensors)
    ]
    norms = [
        Stretch(f"norm {number}.{kind}", rows)
        for number, (rows, _) in enumerate(tensors)
        for kind in ("weight", "bias")
    ]
    return (*kernels, *norms, Stretch("classifier", 5120, (1, 10, 512)), Stretch("classifier.bias", 10))


def powersgd_mib(compression: Compression | None, steps: int = 24) -> float:
    """Return MiB of an epoch's gradients of ResNet-18."""
    return steps * exchange_bytes(compression, resnet18()) / MIB


def qsr_exchanges(steps: int = 93_600, warm_up: int = 10_000, peak: float = 0.008) -> int:
    """Return the exchanges of the quadratic rule over the paper's schedule: a cosine to 0 behind a linear warm-up."""

    def rate(step: int) -> float:
        done = step - 1
        if done < warm_up:
            return peak * (done + 1) / warm_up
        return peak * (1 + cos(pi * (done - warm_up) / (steps - warm_up))) / 2

    entry = Synchronisation(
        state="parameter", over="dp_replicate", every=PeriodRule(qsr=Quadratic(base=4, alpha=0.0175))
    )
    periods = Periods(entry, LearningRates(rate, steps, warm_up))
    return sum(1 for _ in periods.exchanges(steps))


def figures() -> Iterator[Figure]:
    """Yield all figures that follow from counts alone."""
    less, local = f"{desloc(None):.2f}", f"{desloc(3 / 256):.2f}"
    yield Figure("DES-LOC", "times less than data parallelism", "170.67", less, "periods 256, 768, 1536")
    yield Figure("DES-LOC", "times less than Local Adam", "2", local, "the same")
    half = ", ".join(f"{log(0.5) / log(beta):.{digits}f}" for beta, digits in ((0.9, 2), (0.999, 1)))
    yield Figure("MT-DAO", "0.9 to the power of 32 steps", "0.0343", f"{0.9**32:.4f}", "arithmetic")
    yield Figure("MT-DAO", "half-life of β = 0.9 and 0.999, steps", "6.58, 692.8", half, "arithmetic")
    yield from _quadratic_rule()
    ranks = ", ".join(f"{powersgd_mib(Compression(low_rank=rank)):.1f}" for rank in (1, 2, 4))
    found = f"{ranks} of {powersgd_mib(None):,.0f}"
    what = "MiB of an epoch of ResNet-18, ranks 1, 2, 4, of whole gradients"
    yield Figure("PowerSGD", what, "4.2, 7.5, 14.2 of 1,023", found, "24 steps")
    uniform, budget = (powersgd_mib(Compression(low_rank=of)) for of in (4, Budget(budget=4)))
    found = f"{budget:.2f} of {uniform:.2f}"
    yield Figure(
        "L-GreCo", "MiB of the same with the budget of rank 4", "≤ uniform", found, "assumed spectrum"
    )
    codes = str(len(set(QUANTISED_FORMATS["tree8"].codes)))
    yield Figure("8-bit", "numbers of the type", "256", codes, "its table")
    whole = (Stretch("weight", 2**24),)
    eight = exchange_bytes(Compression(quantise="int8", bucket=1024), whole)
    found = ", ".join(f"{width * 2**24 / eight:.2f}" for width in (4, 2))
    yield Figure("QSDP", "times fewer bytes than fp32, bf16", "3.97, 1.98", found, "buckets of 1,024")


def _quadratic_rule() -> Iterator[Figure]:
    count = qsr_exchanges()
    yield Figure(
        "QSR", "exchanges in 93,600 steps", "9,711", f"{count:,}", "cosine to 0, warm-up 10,000, peak 0.008"
    )
    hours = (26.7 - 20.2) / (1 - count / 93_600)
    origin = "not a prediction: the difference of the published times at this share of exchanges"
    yield Figure("QSR", "hours of exchanges that 26.7 h → 20.2 h imply", "–", f"{hours:.1f}", origin)


def desloc(local: float | None) -> float:
    """Return how many times less DES-LOC sends in a step than an exchange in each one, or than ``local`` exchanges."""
    each = 1 / 256 + 1 / 768 + 1 / 1536
    return 1 / each if local is None else local / each
