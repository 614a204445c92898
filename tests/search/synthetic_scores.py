"""Scores of plans that cost nothing to make."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scored:
    """Scores that depend on nothing but the plan, so that they can be recomputed plan by plan."""

    step_s: np.ndarray
    total_bytes: np.ndarray
    fits: np.ndarray
