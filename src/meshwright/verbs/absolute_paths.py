"""Make the file names in a plan absolute, so that it means the same in any folder.

``plans/resolve.py`` reads relative names from the plan's folder or the present one; a plan that is written elsewhere
has neither. What is no file keeps its name: models of the zoo and of hubs, clusters in short, stacks, even where a
file or folder happens to be called so.
"""

from pathlib import Path

from meshwright.model.local_path import model_path
from meshwright.plans.files.custom_schedule_file import renamed
from meshwright.plans.files.plan_file import Plan
from meshwright.plans.forms.short import ShortPlan

SUFFIXES = (".yaml", ".yml")


def with_whole_paths(plan: Plan) -> Plan:
    """Return the plan with absolute paths of the files that exist."""
    found = {
        "model": model_path(plan.model),
        "cluster": file_path(plan.cluster),
        "stack": file_path(plan.stack),
    }
    whole = plan.model_copy(update={name: str(path) for name, path in found.items() if path})
    lists = plan.pipeline.choice.written if isinstance(plan, ShortPlan) else plan.choice.written
    return renamed(whole, str(Path(lists.file).resolve())) if lists and lists.file else whole


def file_path(name: str) -> Path | None:
    """Return the absolute path of the file that a cluster or stack is read from; None for other names."""
    try:
        path = Path(name)
        is_read = path.suffix in SUFFIXES or "/" in name
        return path.resolve() if is_read and path.is_file() else None
    except (OSError, ValueError):
        return None
