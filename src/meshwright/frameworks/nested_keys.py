"""Keys of nested mappings by their path, and the names among them that one release of a target knows.

The list of a target (``option_list``) holds one dotted name a line, sections by themselves too; ``optimizer.params.*``
stands for every key below ``optimizer.params``.
"""

from collections.abc import Iterator, Mapping

Path = tuple[str, ...]


def nested_keys(data: Mapping[str, object], above: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every key of ``data`` with its value, a section before what is in it."""
    for name, value in data.items():
        path = (*above, name)
        yield path, value
        if isinstance(value, Mapping):
            yield from nested_keys(value, path)


def is_known(path: Path, names: frozenset[str]) -> bool:
    """Return true if a release knows the key. A name with a dot in it is one name and no path."""
    if any("." in part for part in path):
        return False
    return ".".join(path) in names or any(
        ".".join((*path[:depth], "*")) in names for depth in range(1, len(path))
    )


def unknown_keys(
    data: Mapping[str, object], names: frozenset[str], above: Path = ()
) -> Iterator[tuple[Path, object]]:
    """Return the outermost keys of ``data`` that are not among ``names``, with their values."""
    for name, value in data.items():
        path = (*above, name)
        if not is_known(path, names):
            yield path, value
        elif isinstance(value, Mapping):
            yield from unknown_keys(value, names, path)
