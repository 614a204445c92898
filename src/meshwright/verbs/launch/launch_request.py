"""The request for a launch, and its check against the target: every problem at once, before any file is written."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import InputError, Problem, nearest
from meshwright.launchers.job_nodes import Storage
from meshwright.launchers.kubernetes import MOUNT
from meshwright.verbs.launch.launch_targets import SYSTEMS, System

Words = Sequence[tuple[str, str | None]]
"""Options of ``meshwright run`` as they are spelled, each with its value; None for a flag."""
PATHS = ("--data", "--tokenizer", "--cache", "--init", "--export", "--out")
OTHER_KIND = {
    "--emulate": "emulates a step, and a launched job trains",
    "--set": "changes the plan, and the job runs the plan of its file",
    "--resume": "says where to resume, and a job that is started again resumes from its newest checkpoint",
}
BUCKET = re.compile(r"[a-z][a-z0-9]*://[A-Za-z0-9][\w.-]*(?:/[\w.+=@-]+)*/?").fullmatch
PATH = re.compile(r"(?:/[\w.+=@-]+)+/?").fullmatch
IMAGE = re.compile(r"[a-z0-9][\w.:/@-]*").fullmatch
BUCKET_PATH = "/storage"
"""Where a bucket is mounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A system, and options of the job. ``words``: those of ``run``; ``address``: of a Ray cluster.

    ``dry``: the files are written, and nothing is started.
    """

    on: str
    words: Words = ()
    storage: str | None = None
    image: str | None = None
    address: str | None = None
    dry: bool = False

    @property
    def system(self) -> System:
        """Return the target of a checked request."""
        return SYSTEMS[self.on]

    @property
    def remote(self) -> bool:
        """Return true if ranks see other files than this machine."""
        return self.system.containers

    def given(self, option: str) -> str | None:
        """Return the last value of an option of ``run``; None if it is not given."""
        return next((value for name, value in reversed(self.words) if name == option), None)

    def has(self, option: str) -> bool:
        """Return whether an option of ``run`` is given."""
        return any(name == option for name, _ in self.words)


def check_request(request: LaunchRequest) -> None:
    """Raise InputError with every problem of a request."""
    problems = list(_problems(request))
    if problems:
        raise InputError(problems)


def _problems(request: LaunchRequest) -> Iterator[Problem]:
    if request.on not in SYSTEMS:
        rule = f"no target of launch; there are {', '.join(SYSTEMS)}"
        yield Problem("on", request.on, rule, nearest(request.on, SYSTEMS))
        return
    yield from _storage_problems(request)
    yield from _cluster_problems(request)
    yield from _option_problems(request)


def _storage_problems(request: LaunchRequest) -> Iterator[Problem]:
    value = request.storage
    if value is None:
        return
    if "://" in value:
        if not request.system.buckets:
            rule = f"{request.on} mounts no buckets; checkpoints are committed by renaming a folder"
            yield Problem("storage", value, rule, "a path that all nodes see, or --on skypilot")
        elif not BUCKET(value):
            yield Problem("storage", value, "a bucket is SCHEME://NAME/FOLDER", "s3://my-bucket/runs")
    elif not PATH(value if request.remote else str(Path(value).resolve())):
        rule = "must be an absolute path of letters, digits and . _ + = @ -, the same on every node"
        yield Problem("storage", value, rule, "--storage /shared/runs")
    elif request.remote and any(value.rstrip("/") == own for own in (MOUNT, "/dev/shm", "/etc", "/dev")):
        yield Problem("storage", value, "is a folder that containers have already", "--storage /shared")


def _cluster_problems(request: LaunchRequest) -> Iterator[Problem]:
    if request.image is not None and not request.system.containers:
        rule = f"{request.on} starts no containers"
        yield Problem("image", request.image, rule, "leave image out: nodes must have meshwright[run]")
    elif request.image is not None and not IMAGE(request.image):
        rule = "is no name of an image: REGISTRY/NAME:TAG in lower case"
        yield Problem("image", request.image, rule, "--image ghcr.io/my-group/meshwright:0.1.0")
    if request.address is not None and not request.system.addresses:
        rule = f"{request.on} has no address: its own program knows the cluster"
        yield Problem("address", request.address, rule, "leave address out, or --on ray")
    if request.dry:
        return
    if request.system.images and request.image is None:
        rule = f"{request.on} starts containers, and no image is named that has meshwright[run]"
        yield Problem("image", None, rule, "--image NAME, or --dry-run")
    if request.remote and request.storage is None and not request.has("--out"):
        rule = f"ranks on {request.on} need a folder that all see and that outlives the job, for checkpoints"
        yield Problem("storage", None, rule, "--storage /shared/runs, or --dry-run")
    if not request.has("--steps"):
        rule = "how many steps to train must be said behind --"
        yield Problem("steps", None, rule, "-- --steps 1000, or --dry-run")


def _option_problems(request: LaunchRequest) -> Iterator[Problem]:
    for name, value in request.words:
        if name in OTHER_KIND and (name, value) != ("--resume", "auto"):
            yield Problem(name, value, OTHER_KIND[name], "leave it out")
        if name in PATHS and value is not None and request.remote and _is_relative(name, value):
            rule = f"is looked for in the containers of {request.on}, where a relative path means nothing"
            where = request.storage if request.storage and "://" not in request.storage else BUCKET_PATH
            yield Problem(name, value, rule, f"{name} {where.rstrip('/')}/{Path(value).name}")


def _is_relative(name: str, value: str) -> bool:
    return not value.startswith("/") and not (name == "--tokenizer" and "/" not in value)


def storage_of(request: LaunchRequest, size_bytes: int) -> Storage | None:
    """Return the storage of a checked request."""
    value = request.storage
    if value is None:
        return None
    if "://" in value:
        return Storage(path=BUCKET_PATH, bucket=value.rstrip("/"))
    path = value if request.remote else str(Path(value).resolve())
    return Storage(path=path.rstrip("/"), size_bytes=size_bytes)


def words_on_nodes(request: LaunchRequest) -> list[str]:
    """Return the options as one list, with the paths of this machine made absolute where the nodes see them."""
    found: list[str] = []
    for name, value in request.words:
        is_path = name in PATHS and value is not None and not request.remote
        if is_path and (name != "--tokenizer" or Path(str(value)).exists()):
            value = str(Path(str(value)).expanduser().resolve())
        found += [name] if value is None else [name, value]
    return found
