"""Find a model's local configuration from its name: a folder with a ``config.json``, or such a file.

Finds what ``model/load.py`` would read, without reading it and without a hub request.
"""

from pathlib import Path

from meshwright.model.zoo_names import zoo_names


def model_path(name: str) -> Path | None:
    """Return the full path of the folder or file that a name means; None for a zoo model, a hub id, or nothing."""
    if not name or name in zoo_names():
        return None
    try:
        path = Path(name).expanduser()
        there = path.is_file() or (path / "config.json").is_file()
        return path.resolve() if there else None
    except (OSError, ValueError, RuntimeError):
        return None
