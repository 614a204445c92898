"""Write a SkyPilot 0.14.1 task on equal nodes, started with ``sky launch`` from the folder of the scripts.

``workdir: .`` copies that folder to every node and ``run`` starts there. Sources: SkyPilot 0.14.1,
``utils/schemas.py`` (task and resources), ``skylet/constants.py`` (names of the variables), ``task.py``.
"""

import re
from collections.abc import Mapping

from meshwright.launchers.accelerators import skypilot_name
from meshwright.launchers.launch_script import Job
from meshwright.launchers.launcher import IMAGE, file_top
from meshwright.launchers.yaml_text import yaml_documents

RUN = """\
# The first node is where the others meet.
export MASTER_ADDR="$(head -n1 <<<"${SKYPILOT_NODE_IPS}")"
export NNODES="${SKYPILOT_NUM_NODES}" RDZV_ID="${SKYPILOT_TASK_ID}"
exec bash launch.sh
"""


def skypilot(top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return ``job.sky.yaml``; ``scripts`` lie in the same folder and are copied with it."""
    remarks = (
        "SkyPilot 0.14.1. In the folder of this file: sky launch job.sky.yaml",
        f"Set first: the image ({IMAGE}), with what launch.sh starts in it; variables of launch.sh go under envs.",
        "Arguments of launch.sh go behind it in run.",
    )
    task = {
        "name": _task_name(job.name),
        "num_nodes": job.nodes,
        "resources": {
            "accelerators": f"{skypilot_name(job)}:{job.devices_per_node}",
            "image_id": f"docker:{IMAGE}",
        },
        "workdir": ".",
        "run": RUN,
    }
    return {"job.sky.yaml": yaml_documents(file_top(top, *remarks), [task])}


def _task_name(name: str) -> str:
    """Return a legal SkyPilot name: letters and digits with single separators between them."""
    return "-".join(re.findall(r"[A-Za-z0-9]+(?:[._][A-Za-z0-9]+)*", name)) or "job"
