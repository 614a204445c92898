"""Names of models that mean a configuration on this machine: a folder with a ``config.json``, or such a file.

What ``model/load.py`` would read, found without reading it and without asking a hub.
"""

from pathlib import Path

from meshwright.model.load import zoo_names


def model_path(name: str) -> Path | None:
    """The whole path of the folder or file that a name means; None for a zoo model, a hub id, or nothing."""
    if not name or name in zoo_names():
        return None
    try:
        path = Path(name).expanduser()
        there = path.is_file() or (path / "config.json").is_file()
        return path.resolve() if there else None
    except (OSError, ValueError, RuntimeError):
        return None
