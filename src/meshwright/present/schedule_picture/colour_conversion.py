"""Colours by perceived lightness, strength and hue, as hexadecimal sRGB.

OKLab (Ottosson, "A perceptual color space for image processing", 2020): equal steps of lightness look equal, so that a
table can promise that its colours stay apart in print without colour. A colour that no screen shows loses strength
until one does.
"""

from math import cos, radians, sin

INKS = ("#000000", "#ffffff")
_MIXES = ((0.3963377774, 0.2158037573), (-0.1055613458, -0.0638541728), (-0.0894841775, -1.2914855480))
_PRIMARIES = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)
WEAKER = 0.005


def colour(lightness: float, strength: float, hue: float) -> str:
    """``#rrggbb`` of lightness 0 (black) to 1 (white), chroma ``strength`` and ``hue`` in degrees."""
    while not all(-1e-4 <= part <= 1.0001 for part in _linear(lightness, strength, hue)) and strength > 0:
        strength = max(0.0, strength - WEAKER)
    shown = [_gamma(min(1.0, max(0.0, part))) for part in _linear(lightness, strength, hue)]
    return "#" + "".join(f"{round(255 * part):02x}" for part in shown)


def luminance(hexadecimal: str) -> float:
    """Return the relative luminance of a colour, 0 to 1 (WCAG 2.2)."""
    parts = [int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink_on(background: str) -> str:
    """Black or white, whichever contrasts more (WCAG 2.2: (L₁ + 0.05) / (L₂ + 0.05))."""
    light = luminance(background) + 0.05
    return INKS[0] if light / 0.05 >= 1.05 / light else INKS[1]


def _linear(lightness: float, strength: float, hue: float) -> tuple[float, float, float]:
    a, b = strength * cos(radians(hue)), strength * sin(radians(hue))
    long, middle, short = ((lightness + u * a + v * b) ** 3 for u, v in _MIXES)
    red, green, blue = (x * long + y * middle + z * short for x, y, z in _PRIMARIES)
    return red, green, blue


def _gamma(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
