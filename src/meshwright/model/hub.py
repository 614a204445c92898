"""Fetch a model's ``config.json`` from the Hugging Face hub, through ``huggingface_hub`` (the extra ``hub``).

The library's cache, endpoint, credentials and ``HF_HUB_OFFLINE`` apply. One request without retries asks the hub first:
where it does not answer, the file is read from the cache or refused at once.
"""

import importlib
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem, near_names
from meshwright.model.zoo_names import zoo_names

CONFIG = "config.json"
DENIED = (401, 403, 404)
"""HTTP statuses of a repository or file that is absent, private or gated; the hub does not tell them apart."""
LONGEST_REASON = 100


def fetch_config(repository: str) -> bytes:
    """Return the bytes of ``config.json`` in the hub repository ``org/name``.

    Raises InputError if the library is not installed, or the file is not available (absent, gated, offline).
    """
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        rule = "a hub id needs the package huggingface_hub, which is not installed"
        suggestion = f"pip install 'meshwright[hub]', or {_instead(repository)}"
        raise InputError(Problem("model", repository, rule, suggestion)) from error
    try:
        return Path(_config_path(hub, repository)).read_bytes()
    except (OSError, ValueError, hub.errors.HTTPError) as error:
        rule = f"its config.json cannot be had: {_reason(error)}"
        raise InputError(Problem("model", repository, rule, _instead(repository))) from error


def _config_path(hub: Any, repository: str) -> str:
    """Return where the file lies on this machine, after a download where that is needed."""
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, CONFIG))
    except (OSError, hub.errors.HTTPError):
        cached = hub.try_to_load_from_cache(repository, CONFIG)
        if not isinstance(cached, str):
            raise
        return cached
    return str(hub.hf_hub_download(repository, CONFIG))


def _reason(error: Exception) -> str:
    """Return the cause in a few words."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in DENIED:
        return f"the hub has no such model, or you have no access to it (HTTP {status})"
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    short = text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " …"
    return f"the hub does not answer ({short})"


def _instead(repository: str) -> str:
    """Return what to give in place of the hub id."""
    near = near_names(repository.partition("/")[2], zoo_names(), alike=0.65)
    alternative = f", or use {near[0]}, which needs no network" if near else ""
    return f"download its config.json and give the path{alternative}"
