"""A cluster from what a person gives: the shorthand, a path to a cluster file, or the text of one."""

from pathlib import Path

from meshwright.cluster.dump import dump_cluster
from meshwright.cluster.graph import Cluster
from meshwright.cluster.sanity import doubts
from meshwright.cluster.schema import ClusterFile
from meshwright.cluster.shorthand import EXAMPLE, parse_shorthand
from meshwright.cluster.unfold import unfold
from meshwright.errors import InputError, Problem
from meshwright.plan.problems import validated
from meshwright.plan.text import read_file, read_mapping

__all__ = ["dump_cluster", "load_cluster"]

SUFFIXES = (".yaml", ".yml")
HINT = f"check the path, or write {EXAMPLE[5:]}"


def load_cluster(text_or_path: str | Path) -> Cluster:
    """``DEVICE x COUNT [@ NODE]``, a path of a cluster file, or its text (several lines).

    Raises InputError with every problem; warnings of ``sanity.doubts`` do not stop it.
    """
    if isinstance(text_or_path, Path):
        return parse_cluster(
            read_file(text_or_path, "cluster", f"check the path, or write {EXAMPLE[5:]}"), str(text_or_path)
        )
    if "\n" in text_or_path:
        return parse_cluster(text_or_path)
    path = Path(text_or_path)
    if path.suffix in SUFFIXES or "/" in text_or_path:
        return parse_cluster(read_file(path, "cluster", HINT), text_or_path)
    cluster = parse_shorthand(text_or_path)
    if cluster is None:
        rule = "is neither `DEVICE x COUNT`, `DEVICE x COUNT @ NODE` nor a .yaml file"
        raise InputError(Problem("cluster", text_or_path, rule, EXAMPLE))
    return cluster


def parse_cluster(text: str, where: str = "cluster") -> Cluster:
    """The cluster that the text of a cluster file describes. Raises InputError with every problem."""
    cluster = unfold(validated(ClusterFile, read_mapping(text, where)))
    errors = [problem for problem in doubts(cluster) if problem.severity == "error"]
    if errors:
        raise InputError(errors)
    return cluster
