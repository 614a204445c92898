"""Choose the colour of every kind of action; kinds without an entry in ``PAINTS`` are grey.

Lightness says which pass it is, so that F, B, I and W stay apart in print without colour and for readers who see fewer
colours: each has a band of its own, and passes of the vocabulary lie between. Hue says it again: forward passes are
cold, backward passes warm. Inside its band a colour gets lighter with the chunk of the rank; the second way of a
bidirectional schedule has a hue of its own and the lighter half of the band.
"""

from dataclasses import dataclass

from meshwright.present.schedule_picture.colour_conversion import colour


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """A kind's words in the legend, its hues on the first and second way, its chroma and band of lightness."""

    words: str
    hues: tuple[float, float]
    strength: float
    band: tuple[float, float]


PAINTS: dict[str, Paint] = {
    "F": Paint(words="forward", hues=(250, 300), strength=0.11, band=(0.61, 0.77)),
    "B": Paint(words="backward", hues=(20, 345), strength=0.12, band=(0.34, 0.44)),
    "I": Paint(words="backward, input", hues=(40, 355), strength=0.15, band=(0.5, 0.57)),
    "W": Paint(words="backward, weights", hues=(85, 105), strength=0.12, band=(0.845, 0.915)),
    "S": Paint(words="vocabulary, logits", hues=(180, 180), strength=0.11, band=(0.79, 0.83)),
    "T": Paint(words="vocabulary, gradients", hues=(300, 300), strength=0.11, band=(0.45, 0.49)),
}
OTHER = "other"
GREY = Paint(words="other", hues=(0, 0), strength=0.0, band=(0.60, 0.70))

ALONE = 0.5
"""Where in its band the colour of a rank's only chunk lies."""
HALVES = ((0.0, 0.35), (0.65, 1.0))
"""The parts of a band that the first and the second way have, where there are two."""


@dataclass(frozen=True, slots=True, order=True)
class Tone:
    """The colour of an action: its kind, its ``way`` of so many, and its ``chunk`` on the rank."""

    kind: str
    way: int = 0
    ways: int = 1
    chunk: int = 0
    chunks: int = 1

    @property
    def name(self) -> str:
        """The tone's class in a style sheet: equal names are equal colours in every picture."""
        way = f"-way{self.way}of{self.ways}" if self.ways > 1 else ""
        chunk = f"-{self.chunk}of{self.chunks}" if self.chunks > 1 else ""
        return f"{self.kind}{way}{chunk}"

    @property
    def fill(self) -> str:
        """The colour, as ``#rrggbb``."""
        paint = PAINTS.get(self.kind, GREY)
        low, high = HALVES[min(self.way, 1)] if self.ways > 1 else (0.0, 1.0)
        alone = ALONE if self.ways == 1 else self.way  # the ends of the band, where one chunk has a half
        part = self.chunk / (self.chunks - 1) if self.chunks > 1 else alone
        dark, light = paint.band
        lightness = dark + (light - dark) * (low + (high - low) * part)
        return colour(lightness, paint.strength, paint.hues[min(self.way, 1)])


def kind_shown(kind: str) -> str:
    """Return the row of the table that a kind is drawn by."""
    return kind if kind in PAINTS else OTHER
