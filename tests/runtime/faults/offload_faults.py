"""Faults of activations on the host."""

from injected_fault import Fault
from offloaded_plans import OFFLOADED

from meshwright.runtime.comm.host_link import Copy
from meshwright.runtime.executor.activation_offload import OffloadedPass


def activations_of_another_micro_batch():
    """Those that came back last, or its own the first time."""
    original, last = OffloadedPass.back, []

    def back(self):
        own, self.hosts = self.hosts, last.pop() if last else self.hosts
        last.append(own)
        original(self)

    OffloadedPass.back = back


def used_before_it_is_back():
    """The memory is there, and what was in it last."""
    original = Copy.end

    def end(self):
        targets = original(self)
        if self in coming:
            for target in targets:
                target.zero_()
        return targets

    coming: list[Copy] = []
    begun = OffloadedPass.back

    def back(self):
        begun(self)
        coming.append(self.coming)

    Copy.end, OffloadedPass.back = end, back


def never_comes_back():
    OffloadedPass.back = lambda self: None


OFFLOAD_FAULTS = (
    Fault(
        "a pass gets another micro-batch's activations back", OFFLOADED, activations_of_another_micro_batch
    ),
    Fault("activations are used before they are back", OFFLOADED, used_before_it_is_back),
    Fault(
        "activations stay on the host",
        OFFLOADED,
        never_comes_back,
        "named error",
        "what is needed is still on the host",
    ),
)
