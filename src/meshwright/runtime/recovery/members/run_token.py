"""The token that processes need to meet in a run: MESHWRIGHT_TOKEN, else a random one in the output folder."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.progress.lossy_console import lossy_console

ADDRESS = "address"
"""The file of the output folder that has the address where others join, as long as the run lasts."""
VARIABLE = "MESHWRIGHT_TOKEN"
FILE = "token"
TOKEN_BYTES = 32
MODE = 0o600


def made_token(output: Path, environ: Mapping[str, str] = os.environ) -> tuple[bytes, str]:
    """Return a run's token, and where others find it: the variable's, else a new one in ``output/token``, mode 600."""
    if given := environ.get(VARIABLE):
        return _checked(given, VARIABLE), VARIABLE
    text, path = secrets.token_hex(TOKEN_BYTES), output / FILE
    output.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w", encoding="ascii") as file:
        file.write(text + "\n")
    return text.encode(), str(path)


def token_to_join(output: Path, environ: Mapping[str, str] = os.environ) -> tuple[bytes, str]:
    """Return the token of the run to join, and where it is from. Raises InputError if there is none."""
    if given := environ.get(VARIABLE):
        return _checked(given, VARIABLE), VARIABLE
    path = output / FILE
    try:
        return _checked(path.read_text(encoding="utf-8").strip(), str(path)), str(path)
    except (OSError, UnicodeDecodeError) as error:
        rule = f"no token: the variable is not set, and {path} cannot be read"
        suggestion = f"-o with the folder of the run to join, or set {VARIABLE}"
        raise InputError(Problem(VARIABLE, None, rule, suggestion)) from error


def _checked(text: str, where: str) -> bytes:
    if not text:
        raise InputError(Problem(where, text, "the token is empty", "openssl rand -hex 32"))
    return text.encode()


def print_address(address: Address, token: bytes, origin: str) -> None:
    """Print on standard error where others join a run, and its token unless they have it from the variable."""
    where = f"that of {VARIABLE}" if origin == VARIABLE else f"{token.decode()}, also in {origin}"
    text = f"Others join with --join {address}; the token is {where}."
    lossy_console().print(text, markup=False, highlight=False, soft_wrap=True)
