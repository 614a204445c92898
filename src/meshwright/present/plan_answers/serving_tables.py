"""Print the Report of a plan that serves: latencies, throughput, pools, memory, money and energy, with origins."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import console, gib, percent, plain_table
from meshwright.present.plan_answers.explanation import print_sentences, render_explanation
from meshwright.units import format_seconds

LIMITS = {
    "compute": "the arithmetic of its devices",
    "memory_bandwidth": "the bandwidth of its devices' memory",
    "kv_room": "room for the cache of keys and values",
    "max_sequences": "max_sequences",
    "ttft": "the limit on the time to the first token",
    "tpot": "the limit on the time per token",
    "capacity": "its capacity: requests come faster than they are served",
    "handover": "the way of caches from pool to pool, or of caches and weights between layouts",
}
PARTS = {
    "prefill": "prefill of the own prompt",
    "engine": "engine, outside iterations",
    "handover": "cache on its way, or change of the layout",
    "buffered": "waiting for a place to decode",
    "waiting": "waiting for others",
    "decode": "decoding",
}
LEDGER = ("parameters", "kv", "activations", "buffers")


def render_serving_report(data: dict[str, Any]) -> None:
    """Print a serving plan's Report in its JSON form."""
    out, serving = console(), data["serving"]
    rate, one = serving["output_tokens_per_s"], serving["output_tokens_per_s_per_device"]
    out.print(f"[bold]{rate:,.0f} output tokens/s[/bold] ({data['kind']}), {one:,.1f} per device")
    print_latencies(out, serving)
    out.print(f"What limits it is {LIMITS[serving['limited_by']]}.")
    print_parts(out, data)
    print_pools(out, serving)
    print_pool_memory(out, data)
    print_prices(out, data)
    out.print("\n[bold]Origin[/bold]")
    for name, text in data["origin"].items():
        out.print(f"  {name}: [dim]{escape(text)}[/dim]")


def render_any_explanation(data: dict[str, Any], plan: str, other: str | None) -> None:
    """Print an explanation of a plan of any kind in its JSON form; ``other``: the plan it is compared with."""
    if data["predict"]["unit"] != "request":
        render_explanation(data, plan, other)
        return
    out = console()
    print_sentences(out, plan, data["summary"])
    print_parts(out, data["predict"])
    rates = [one["text"] for one in data["sensitivity"]]
    print_sentences(out, "How its requests answer to the cluster (predicted again with each change)", rates)
    choices = [one["text"] for one in data["choices"]]
    print_sentences(out, "Plans one step away, with the same load (predicted)", choices)


def print_latencies(out: Console, serving: dict[str, Any]) -> None:
    """Print the mean times of a request, with their intervals."""
    table = plain_table("mean of requests", "predicted", "80 %")
    for name, key in (("time to first token", "ttft"), ("time per further token", "tpot")):
        table.add_row(name, _seconds(serving[f"{key}_s"]), _interval(serving, key))
    table.add_row("latency of a request", _seconds(serving["request_latency_s"]), "")
    out.print(table)


def print_parts(out: Console, data: dict[str, Any]) -> None:
    """Print where the time of a mean request goes."""
    whole = data["step_time_s"]
    if whole is None:
        return
    table = plain_table("where", "time", "share")
    for name, seconds in sorted(data["breakdown_s"].items(), key=lambda item: -item[1]):
        if seconds:
            table.add_row(PARTS[name], format_seconds(seconds), percent(seconds / whole))
    out.print("\n[bold]Time[/bold] of a mean request")
    out.print(table)


def print_pools(out: Console, serving: dict[str, Any]) -> None:
    """Print what each pool does, and idle devices."""
    table = plain_table(
        "pool", "does", "replicas", "devices", "decode at once", "iteration", "used", "room, tokens"
    )
    for name, pool in serving["pools"].items():
        table.add_row(
            escape(name),
            pool["does"],
            str(pool["replicas"]),
            str(pool["devices"]),
            f"{pool['batch']:,.1f}",
            _seconds(pool["iteration_s"]),
            percent(pool["utilisation"]),
            f"{pool['kv_capacity_tokens']:,}",
        )
    out.print("\n[bold]Pools[/bold]; figures of one replica")
    out.print(table)
    if serving["idle_devices"]:
        out.print(f"Devices that no pool uses: {serving['idle_devices']}")


def print_pool_memory(out: Console, data: dict[str, Any]) -> None:
    """Print the ledger of each pool's fullest device."""
    memory = data["memory_bytes"]
    table = plain_table("GiB on a device of", *LEDGER, "total")
    for name, ledger in memory["pools"].items():
        table.add_row(escape(name), *(gib(ledger[kind]) for kind in LEDGER), gib(ledger["total"]))
    verdict = "fits" if data["fits"] else "[bold red]does not fit[/bold red]"
    out.print(f"\n[bold]Memory[/bold] of {gib(memory['capacity'])} GiB: {verdict}")
    out.print(table)


def print_prices(out: Console, data: dict[str, Any]) -> None:
    """Print price and energy if they are known."""
    serving = data["serving"]
    if serving["usd_per_million_output_tokens"] is not None:
        per_million = serving["usd_per_million_output_tokens"]
        hourly = f"${data['usd_per_hour']:,.2f} per hour"
        out.print(f"\n[bold]Money[/bold]: {hourly}, ${per_million:,.2f} per million output tokens")
    if serving["joules_per_output_token"] is not None:
        out.print(
            f"[bold]Energy[/bold]: at most {serving['joules_per_output_token']:,.2f} J per output token"
        )


def _seconds(value: float | None) -> str:
    """Return seconds as text; a time that does not exist is none."""
    return "none" if value is None else format_seconds(value)


def _interval(serving: dict[str, Any], key: str) -> str:
    low, high = serving[f"{key}_low_s"], serving[f"{key}_high_s"]
    return (
        "no interval" if low is None or high is None else f"{format_seconds(low)} to {format_seconds(high)}"
    )
