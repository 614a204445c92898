"""TernGrad (arXiv 1705.07878): s·sign(v)·b, where s is the largest magnitude and b is 1 with probability |v|/s.

The mean of what is sent is v. With ``clip`` values are first cut to so many standard deviations of the stretch. Each
rank sends its own s (assumed: the paper shares the largest s of all ranks, to sum codes).
"""

import torch

from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.message_fields import (
    FieldReader,
    Message,
    packed,
    packed_codes,
    unpacked_codes,
)

BITS = 2
POSITIVE, NEGATIVE = 1, 2


class Ternary:
    """The codec; it keeps nothing."""

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting

    def states(self) -> States:
        """Return nothing."""
        return {}

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the scale and the codes of a stretch."""
        options = self.setting.compression.ternary
        assert options is not None
        if options.clip is not None:
            bound = float(options.clip) * values.std(correction=0)
            values = values.clamp(-bound, bound)
        scale = values.abs().amax(dim=0, keepdim=True)
        draw = key.generator(self.setting.device, self.setting.stretches[number].name)
        noise = torch.rand(values.shape, generator=draw, dtype=values.dtype, device=values.device)
        sent = noise * scale < values.abs()
        codes = torch.where(values < 0, NEGATIVE, POSITIVE).to(torch.uint8) * sent
        return packed(scale, packed_codes(codes, BITS))

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values of a stretch."""
        fields = FieldReader(payload)
        scale = fields.take(1, self.setting.real)
        rest = fields.take(len(payload) - fields.position, torch.uint8)
        codes = unpacked_codes(rest, BITS, self.setting.stretches[number].elements)
        signs = (codes == POSITIVE).to(self.setting.real) - (codes == NEGATIVE).to(self.setting.real)
        return signs * scale
