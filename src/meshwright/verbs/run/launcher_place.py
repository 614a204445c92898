"""Read this process's rank from a launcher's environment, for the command line."""

import os

from meshwright.errors import InputError
from meshwright.runtime.launch.launcher_environment import Place, launched_place


def place_here() -> Place | None:
    """Return the place that a launcher gave this process; None where there is none that can be read."""
    try:
        return launched_place(os.environ)
    except InputError:
        return None
