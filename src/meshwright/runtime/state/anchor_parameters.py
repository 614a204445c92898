"""Put the anchor that stands for the model of all islands in the place of the parameters, and back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from meshwright.program.synchronisation.model_anchor import exported_entry
from meshwright.runtime.state.parameter_lifecycle import StepStates


@contextmanager
def anchored_model(states: StepStates) -> Iterator[None]:
    """Inside the block the parameters are those of the anchor; every rank enters it between two steps.

    Behind it they are what they were, to the bit. Without islands nothing changes. Needs memory for a copy.
    """
    synchroniser = states.synchroniser
    entry = exported_entry(synchroniser.plan.program)
    found = [
        (message, exchange.anchor)
        for (number, _), of in synchroniser.fragments.items()
        for message, exchange in zip(of.messages, of.exchanges, strict=True)
        if number == entry and exchange.anchor is not None
    ]
    own = [synchroniser.local(message) for message, _ in found]

    def put(values: list[torch.Tensor]) -> None:
        for (message, _), given in zip(found, values, strict=True):
            synchroniser.set_local(message, given)
        if entry is not None:
            states.renew()

    put([anchor for _, anchor in found])
    try:
        yield
    finally:
        put(own)
