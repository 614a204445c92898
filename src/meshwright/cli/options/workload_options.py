"""``--seq-len`` and ``--global-batch``: whole numbers, with ``k`` for 1024."""

import typer

from meshwright.units import count_in_k


def size_option(name: str, meaning: str) -> typer.models.OptionInfo:
    """Return the option of this name; its help is what the number means and an example with ``k``."""
    text = f"{meaning.removesuffix('.')}; 8k is 8192."
    option: typer.models.OptionInfo = typer.Option(name, parser=parse_size, metavar="N", help=text)
    return option


def parse_size(text: str | int) -> int:
    """Return a whole number; a remark says what a number with ``k`` is. Raise BadParameter."""
    in_k = count_in_k(str(text))
    if in_k is not None:
        typer.echo(f"Remark: {text} is {in_k} (k is 1024).", err=True)
        return in_k
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number such as 8192 or 8k") from None
