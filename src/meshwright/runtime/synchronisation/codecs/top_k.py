"""The largest elements of a stretch and their indices."""

import torch

from meshwright.program.synchronisation.kept_counts import index_bytes, kept_of
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.message_fields import (
    FieldReader,
    Message,
    index_field,
    packed,
    read_indices,
)


class TopK:
    """The codec; it keeps nothing."""

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        assert setting.compression.top_k is not None
        self.share = setting.compression.top_k

    def states(self) -> States:
        """Return nothing."""
        return {}

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the largest values and their indices."""
        places = values.abs().topk(kept_of(self.share, values.numel())).indices
        width = index_bytes(values.numel())
        return packed(values[places].to(self.setting.kept), index_field(places, width))

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values at their indices, and zeros elsewhere."""
        values = self.setting.zeros_of(number)
        kept, width = kept_of(self.share, values.numel()), index_bytes(values.numel())
        fields = FieldReader(payload)
        sent = fields.take(kept, self.setting.kept).to(values.dtype)
        values[read_indices(fields.take(kept * width, torch.uint8), width)] = sent
        return values
