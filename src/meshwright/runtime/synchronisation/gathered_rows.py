"""Gather the messages of all ranks of an exchange, and decode each by itself: a row for every rank."""

import torch

from meshwright.program.synchronisation.exchange_legs import row_leg
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.leg import Leg, Legs
from meshwright.runtime.synchronisation.message_fields import as_bytes
from meshwright.runtime.synchronisation.pending_exchange import PendingExchange


def gathered_rows(encoded: EncodedSum, pending: PendingExchange) -> Legs[torch.Tensor]:
    """Yield the leg of an exchange that has begun, and return all rows: (rank, element), stretches side by side."""
    setting = encoded.setting
    numbers = [number for number, one in enumerate(setting.stretches) if one.elements]
    parts = [
        pending.messages[number] if number in pending.messages else as_bytes(pending.buffers[number])
        for number in numbers
    ]
    sizes = [len(part) for part in parts]
    planned = row_leg(encoded.compression, setting.stretches, encoded.ranks)
    message, received = torch.cat(parts), [sum(sizes)] * encoded.ranks
    gathered = yield Leg(planned.kind, message, planned.logical_bytes, received=tuple(received))

    def decoded(rank: int, number: int, payload: torch.Tensor) -> torch.Tensor:
        if number in pending.messages:
            assert encoded.messages is not None
            return encoded.messages.decode(number, payload, pending.key.of_rank(rank))
        return payload.clone().view(setting.real)

    rows = [
        torch.cat([decoded(rank, n, part) for n, part in zip(numbers, payload.split(sizes), strict=True)])
        for rank, payload in enumerate(gathered.split(received))
    ]
    return torch.stack(rows)
