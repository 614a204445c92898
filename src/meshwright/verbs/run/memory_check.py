"""Check that the memory of this host suffices for the ranks of a run, before anything starts.

On accelerators, and on the device of one's own that a plan was made for, the answer is the Report's ``fits``. On CPUs
the ranks share the host's memory; they hold the Report's ledger, rank by rank, in the dtypes of the run
(``runtime/precision.py``): masters, gradients and moments are counted in fp32, activations in 16 bit, and fp32 and fp64
runs hold multiples of that. Ignored on CPUs: the interpreters themselves, and what an allocator keeps back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.cluster.catalog import device_ids
from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.runtime.launch.host_memory import free_host_bytes
from meshwright.units import format_bytes
from meshwright.verbs.predict.predict_plan import predicted

STATES, PASSING = ("gradients", "optimizer", "buffers"), ("activations", "working")
WIDE_BYTES, COMPUTE_BYTES = 4, 2
"""Bytes of an element in which the ledger counts ``STATES`` and ``PASSING``."""
SUGGESTION = (
    "a smaller model, batch or sequence, more sharding or recomputation; --force starts it all the same"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Where a run will be: on accelerators or on CPUs, and how many of its ranks this host has at least."""

    accelerated: bool
    ranks_here: int


def check_memory(resolved: Resolved, precision: str, room: HostDevices, *, force: bool) -> list[str]:
    """Return remarks on the memory of a run that starts anyway. Raise InfeasibleError with the figures."""
    try:
        report = predicted(resolved)
    except InputError:  # playing it would take too long: nothing is known
        return []
    found = list(_too_little(report, resolved, precision, room))
    if found and not force:
        raise InfeasibleError("The run does not fit; nothing was started.", found, SUGGESTION)
    return found


def _too_little(report: Report, resolved: Resolved, precision: str, room: HostDevices) -> Iterator[str]:
    device = resolved.setting.cluster.pool.device
    if not report.fits and (room.accelerated or device.id not in device_ids()):
        memory, chance = report.memory_bytes, report.fits_probability
        yield (
            f"{format_bytes(memory['total'])} are predicted on the fullest device; {device.id} has "
            f"{format_bytes(memory['capacity'])}"
            + (f" (it fits with probability {chance:.2f})" if chance is not None else "")
        )
    free = None if room.accelerated else free_host_bytes()
    held = held_bytes(report.memory_bytes, resolved.setting.cluster.devices, precision, room.ranks_here)
    if free is not None and held > free:
        ranks = "the rank" if room.ranks_here == 1 else f"{room.ranks_here} ranks"
        yield (
            f"{ranks} will hold {format_bytes(held)} in {precision} on this host, of whose memory "
            f"{format_bytes(free)} are free"
        )


def held_bytes(memory: Mapping[str, Any], devices: int, precision: str, ranks: int) -> float:
    """Return the bytes that ``ranks`` of a plan's ``devices`` hold: all of them, or the fullest ones."""
    stages = memory["stages"]
    each = [_of_rank(stage, precision) for stage in stages]
    return sum(each) * devices / len(stages) if ranks == devices else max(each) * ranks


def _of_rank(ledger: Mapping[str, Any], precision: str) -> float:
    """Return the bytes that one rank of a stage holds."""
    from meshwright.runtime.precision import PRECISIONS

    dtypes = PRECISIONS[precision]
    states = sum(ledger[key] for key in STATES) * dtypes.statistic.itemsize / WIDE_BYTES
    passing = sum(ledger[key] for key in PASSING) * dtypes.compute.itemsize / COMPUTE_BYTES
    copies = ledger["parameters"] if dtypes.mixed else 0
    return float(states + passing + copies)
