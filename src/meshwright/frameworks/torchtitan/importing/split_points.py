"""The stages of release 0.1.0: the first layer of each stage but the first one.

Source: torchtitan 0.1.0, ``models/llama3/infra/pipeline.py``: a stage holds the layers from its split point to the next
one; the embedding is in the first stage, norm and head in the last.
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from meshwright.errors import Problem
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.torchtitan.importing.release_keys import Given
from meshwright.frameworks.torchtitan.options import MODULES


def stage_modules(
    given: Given | None, facts: Mapping[str, Fact], problems: list[Problem]
) -> dict[str, GivenOption]:
    """Return the modules of every stage as today's option; nothing and a problem where the points are no stages."""
    points = [] if given is None else given.value if isinstance(given.value, list) else [given.value]
    if given is None or not points:
        return {}
    layers = facts.get("model.layers")
    if layers is None:
        rule = "stages are read for the models that torchtitan has by name only"
        problems.append(Problem(given.key, str(points)[:80], rule, "model.flavor", "warning"))
        return {}
    matches = [re.fullmatch(r"layers\.([0-9]{1,6})", str(point)) for point in points]
    starts = [int(match[1]) for match in matches if match]
    bounds = [0, *starts, layers.value]
    if len(starts) < len(points) or any(first >= last for first, last in pairwise(bounds)):
        rule = f"must be first layers of stages, in order, below layers.{layers.value}"
        even = [f"layers.{layers.value * i // (len(points) + 1)}" for i in range(1, len(points) + 1)]
        problems.append(Problem(given.key, str(points)[:80], rule, ", ".join(even)[:200]))
        return {}
    names = [[f"layers.{layer}" for layer in range(*bound)] for bound in pairwise(bounds)]
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", "output"]
    return {MODULES: GivenOption(MODULES, tuple(map(",".join, names)), 0)}
