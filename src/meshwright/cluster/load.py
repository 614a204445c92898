"""Load a cluster from the shorthand, a path to a cluster file, or the text of one."""

from pathlib import Path

from meshwright.cluster.catalog import device_id, is_device
from meshwright.cluster.cluster import Cluster
from meshwright.cluster.file_errors import with_examples
from meshwright.cluster.file_schema import UNKNOWN, ClusterFile
from meshwright.cluster.file_to_cluster import unfold
from meshwright.cluster.plausibility import implausible_figures
from meshwright.cluster.shorthand import EXAMPLE, parse_shorthand
from meshwright.errors import InputError, Problem
from meshwright.plans.files.meshwright_file import FileKind, read_keys
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_text import read_file

CLUSTER = FileKind(
    "cluster",
    ("name", "pools", "tiers", "failures_per_1000_node_days", "source"),
    dict.fromkeys(("power_w", "usd_per_device_hour", "failures_per_1000_node_days"), UNKNOWN),
    form="pools: [{device: h100-sxm-80gb, count: 64}]",
)
SUFFIXES = (".yaml", ".yml")
HINT = f"check the path, or write {EXAMPLE[5:]}"


def load_cluster(text_or_path: str | Path) -> Cluster:
    """Load ``DEVICE x COUNT [@ NODE]``, a path of a cluster file, or its text: several lines, or JSON.

    Raises InputError with every problem; warnings of ``plausibility.implausible_figures`` do not stop it.
    """
    if isinstance(text_or_path, Path):
        return parse_cluster(
            read_file(text_or_path, "cluster", f"check the path, or write {EXAMPLE[5:]}"), str(text_or_path)
        )
    if "\n" in text_or_path or text_or_path.lstrip().startswith("{"):
        return parse_cluster(text_or_path)
    path = Path(text_or_path)
    if path.suffix in SUFFIXES or "/" in text_or_path:
        return parse_cluster(read_file(path, "cluster", HINT), text_or_path)
    cluster = parse_shorthand(text_or_path)
    if cluster is None:
        rule = "is neither `DEVICE x COUNT`, `DEVICE x COUNT @ NODE` nor a .yaml file"
        example = f"write {device_id(text_or_path)} x 8" if is_device(text_or_path) else EXAMPLE
        raise InputError(Problem("cluster", text_or_path, rule, example))
    return cluster


def parse_cluster(text: str, where: str = "cluster") -> Cluster:
    """Return the cluster that the text of a cluster file describes. Raises InputError with every problem."""
    problems: list[Problem] = []
    try:
        data = read_keys(text, where, CLUSTER, problems)
        cluster = unfold(validated(ClusterFile, data, others=problems))
    except InputError as error:
        raise InputError(with_examples(error.problems)) from None
    errors = [problem for problem in implausible_figures(cluster) if problem.severity == "error"]
    if errors:
        raise InputError(errors)
    return cluster
