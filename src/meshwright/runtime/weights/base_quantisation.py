"""Quantise frozen matrices to int8 or NF4, cut the result for a rank, and open it again.

A matrix is (outputs, inputs), or (experts, outputs, inputs). All arithmetic is in fp32.

``int8``: a row is divided by its scale, largest magnitude / 127, and rounded.
``nf4`` (QLoRA; Dettmers et al., arXiv 2305.14314, sections 2 and 3): 64 inputs of a row are a block. They are divided
by the largest magnitude and become the nearest of 16 quantiles of a normal distribution (appendix E), two in a byte.
The scales are quantised too: 256 rows' scales of the same inputs share one in fp32, their largest; each is a byte, its
quotient with that times 255. (QLoRA takes 256 scales in the order of memory and subtracts their mean. Here a cut of the
inputs never splits a group, and one of the outputs only where 256 rows are no multiple of its parts: then both ranks
hold the group's scale.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.workload.base_types import NF4_BLOCK, NF4_SHARED_BLOCKS

Pieces = Mapping[str, torch.Tensor]
"""The tensors that a quantised matrix is stored as, by name."""
NF4_CODES = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The code book of NF4."""
INT8_MOST, SCALE_MOST = 127, 255


@dataclass(frozen=True)
class Quantiser:
    """A quantised type: ``pieces`` of a whole matrix, and the matrix of a rank's pieces.

    ``runs`` are the numbers of rows and of inputs that one element of each piece stands for. ``opened`` takes the
    pieces and the place of their first row in its group.
    """

    pieces: Callable[[torch.Tensor], Pieces]
    opened: Callable[[Pieces, int], torch.Tensor]
    runs: Mapping[str, tuple[int, int | None]]

    def cut(self, pieces: Pieces, cuts: Sequence[Cut]) -> dict[str, torch.Tensor]:
        """Return the part of the pieces that belongs to a part of the matrix."""
        return {name: _cut(piece, cuts, *self.runs[name]) for name, piece in pieces.items()}


def _cut(piece: torch.Tensor, cuts: Sequence[Cut], rows: int, inputs: int | None) -> torch.Tensor:
    for dim, start, stop, chosen in cuts:
        of_matrix = dim - (piece.dim() if inputs is not None else piece.dim() + 1)
        run = {-1: inputs, -2: rows}.get(of_matrix, 1)
        if chosen is not None:
            piece = piece[list(chosen)]
        elif run is not None:
            piece = piece.narrow(dim, start // run, -(-stop // run) - start // run)
    return piece


def first_row(cuts: Sequence[Cut], dims: int) -> int:
    """Return the place of a part's first output in its group of rows."""
    return next((cut.start for cut in cuts if cut.dim == dims - 2), 0) % NF4_SHARED_BLOCKS


def _int8_pieces(whole: torch.Tensor) -> Pieces:
    wide = whole.to(torch.float32)
    scales = wide.abs().amax(-1) / INT8_MOST
    divisors = torch.where(scales == 0, 1.0, scales)[..., None]
    return {
        "scales": scales,
        "codes": (wide / divisors).round_().clamp_(-INT8_MOST, INT8_MOST).to(torch.int8),
    }


def _int8_opened(pieces: Pieces, first: int) -> torch.Tensor:
    return pieces["codes"].to(torch.float32) * pieces["scales"][..., None]


def _nf4_pieces(whole: torch.Tensor) -> Pieces:
    blocks = whole.to(torch.float32).unflatten(-1, (-1, NF4_BLOCK))
    scales = blocks.abs().amax(-1)
    book = torch.tensor(NF4_CODES, device=whole.device)
    normal = blocks / torch.where(scales == 0, 1.0, scales)[..., None]
    codes = torch.bucketize(normal, (book[1:] + book[:-1]) / 2).to(torch.uint8).flatten(-2)
    rows = scales.shape[-2]
    padded = torch.nn.functional.pad(scales, (0, 0, 0, -rows % NF4_SHARED_BLOCKS))
    shared = padded.unflatten(-2, (-1, NF4_SHARED_BLOCKS)).amax(-2)
    of_row = _by_row(shared, rows, 0)
    quotients = scales / torch.where(of_row == 0, 1.0, of_row)
    return {
        "shared": shared,
        "codes": codes[..., 0::2] | codes[..., 1::2] << 4,
        "scales": (quotients * SCALE_MOST).round_().to(torch.uint8),
    }


def _nf4_opened(pieces: Pieces, first: int) -> torch.Tensor:
    codes, scales = pieces["codes"], pieces["scales"]
    book = torch.tensor(NF4_CODES, device=codes.device)
    both = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    scale = scales.to(torch.float32) / SCALE_MOST * _by_row(pieces["shared"], scales.shape[-2], first)
    return (book[both.to(torch.int64)].unflatten(-1, (-1, NF4_BLOCK)) * scale[..., None]).flatten(-2)


def _by_row(shared: torch.Tensor, rows: int, first: int) -> torch.Tensor:
    """Return the shared scale of each row of blocks."""
    groups = torch.arange(first, first + rows, device=shared.device) // NF4_SHARED_BLOCKS
    return shared.index_select(-2, groups)


QUANTISERS: Mapping[str, Quantiser] = {
    "int8": Quantiser(pieces=_int8_pieces, opened=_int8_opened, runs={"scales": (1, None), "codes": (1, 1)}),
    "nf4": Quantiser(
        pieces=_nf4_pieces,
        opened=_nf4_opened,
        runs={"shared": (NF4_SHARED_BLOCKS, NF4_BLOCK), "codes": (1, 2), "scales": (1, NF4_BLOCK)},
    ),
}
"""The quantiser of each type."""


def rounded(whole: torch.Tensor, storage: str) -> torch.Tensor:
    """Return a matrix as it is after it was stored in a quantised type, in its own dtype."""
    quantiser = QUANTISERS[storage]
    return quantiser.opened(quantiser.pieces(whole), 0).to(whole.dtype)
