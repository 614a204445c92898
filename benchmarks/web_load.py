"""The server under load: 20 users with questions of 70B size for two minutes, then 10,000 damaged requests.

    python benchmarks/web_load.py            prints the tables
    python benchmarks/web_load.py --write    also writes benchmarks/web-load.md

Users ask one question after another, each another batch; a search is lost where its answer is no plan. Damaged requests
are questions with bytes changed, cut off or repeated, keys with other values, and other paths, methods and headers.
"""

import asyncio
import json
import platform
import random
import re
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
USERS, SECONDS, DAMAGED, AT_ONCE = 20, 120, 10_000, 16
JSON = {"content-type": "application/json"}
PLAN = {
    "plan": 1,
    "model": "llama-3.2-1b",
    "cluster": "h100-sxm-80gb x 2",
    "workload": {"seq_len": 2048, "global_batch": 4},
    "stack": "megatron-core",
    "layout": {"dp_shard": 2},
}
QUESTIONS = {
    "plan": {
        "model": "llama-3.2-1b",
        "on": "h100-sxm-80gb x 2",
        "seq_len": 2048,
        "global_batch": 4,
        "top": 1,
    },
    "predict": {"plan": PLAN, "set": ["micro_batch=1"], "rates": {"memory_bandwidth": 0.5}},
    "check": {"text": json.dumps(PLAN)},
    "export": {"plan": PLAN, "to": "megatron"},
    "explain": {"plan": PLAN, "against": PLAN},
}
VALUES = [
    None,
    True,
    -1,
    0,
    2**40,
    1e300,
    "",
    "x",
    "../etc/passwd",
    "tp=2",
    [],
    ["tp=2"],
    {},
    {"a": 1},
    [[]] * 3,
    "9" * 500,
]


def resident_mib(pid: int) -> float:
    """Memory of a process and its children in MiB."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return (int(own[1]) / 1024 if own else 0.0) + sum(resident_mib(int(child)) for child in children)


async def user(client: httpx.AsyncClient, number: int, until: float, found: list[tuple[str, float]]) -> None:
    """One user: a question of another batch after each answer."""
    turn = 0
    while time.monotonic() < until:
        batch = 256 + 32 * ((7 * number + turn) % 16)
        question = {
            "model": "llama-3.1-70b",
            "on": "h100-sxm-80gb x 64",
            "seq_len": 8192,
            "global_batch": batch,
        }
        began = time.monotonic()
        response = await client.post("/api/plan", json=question)
        if response.status_code == 429:
            word = "asked to come again"
            await asyncio.sleep(int(response.headers["retry-after"]))
        else:
            good = response.status_code == 200 and response.json().get("plans")
            word = "answered" if good else f"lost ({response.status_code})"
        found.append((word, time.monotonic() - began))
        turn += 1


async def users(address: str) -> list[tuple[str, float]]:
    """What came of the questions of all users, with seconds."""
    found: list[tuple[str, float]] = []
    async with httpx.AsyncClient(base_url=address, timeout=300) as client:
        until = time.monotonic() + SECONDS
        await asyncio.gather(*(user(client, number, until, found) for number in range(USERS)))
    return found


def damaged(draw: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """A request that is not as it should be: method, path, body, headers."""
    verb = draw.choice([*QUESTIONS, "report", "run", "%2e%2e", "plan/"])
    question = json.loads(json.dumps(QUESTIONS.get(verb, QUESTIONS["predict"])))
    where = question
    while draw.random() < 0.4 and (inner := [value for value in where.values() if isinstance(value, dict)]):
        where = draw.choice(inner)
    if where and draw.random() < 0.7:
        where[draw.choice([*where, "x"])] = draw.choice(VALUES)
    elif where:
        del where[draw.choice(list(where))]
    body = bytearray(json.dumps(question).encode())
    for _ in range(draw.choice([0, 0, 1, 3])):
        place = draw.randrange(len(body) or 1)
        change = draw.choice(["cut", "flip", "repeat"])
        if change == "cut":
            del body[place:]
        elif change == "flip" and body:
            body[place % len(body)] = draw.randrange(256)
        else:
            body += body[:place]
    headers = dict(JSON)
    if draw.random() < 0.1:
        headers |= draw.choice(
            [
                {"origin": "http://x"},
                {"content-type": "text/plain"},
                {"cookie": "\x01=;;="},
                {"accept": "text/event-stream"},
            ]
        )
    return draw.choice(["POST"] * 9 + ["GET"]), f"/api/{verb}", bytes(body), headers


async def damage(address: str) -> Counter[int]:
    """Statuses of the damaged requests."""
    draw, statuses, gate = random.Random(20261127), Counter(), asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:

        async def send(request: tuple[str, str, bytes, dict[str, str]]) -> None:
            method, path, body, headers = request
            async with gate:
                response = await client.request(method, path, content=body, headers=headers)
            statuses[response.status_code] += 1
            if "Traceback" in response.text or '"status": 500' in response.text:
                statuses[500] += 1

        for at in range(0, DAMAGED, 500):
            await asyncio.gather(*(send(damaged(draw)) for _ in range(at, min(at + 500, DAMAGED))))
    return statuses


def main() -> None:
    """Print the tables, and write them if asked to. Exit with 1 where a search is lost or an answer is a 500."""
    command = [
        sys.executable,
        "-m",
        "meshwright",
        "web",
        "--port",
        "0",
        "--no-open",
        "--searches",
        "2",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        text = "".join(server.stdout.readline() for _ in range(3))
        address = json.loads(text)["address"]
        found = asyncio.run(users(address))
        before = resident_mib(server.pid)
        first = asyncio.run(damage(address))
        between = resident_mib(server.pid)
        second = asyncio.run(damage(address))
        after = resident_mib(server.pid)
        server.terminate()
        errors = server.stderr.read()
    words, seconds = Counter(word for word, _ in found), sorted(s for word, s in found if word == "answered")
    statuses = first + second
    lines = [
        "# The server under load",
        "",
        f"Written by `python benchmarks/web_load.py --write` on {date.today()}, Python {platform.python_version()}, "
        "two workers on a shared machine with 2 cores, the users beside them.",
        "",
        f"{USERS} users asked questions of 70B size for {SECONDS} s: "
        + ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
        + f"; median answer {seconds[len(seconds) // 2]:.1f} s, longest {seconds[-1]:.1f} s.",
        "",
        f"Then {DAMAGED:,} damaged requests, twice the same ones:",
        "",
        "| status | requests |",
        "|---|--:|",
        *(f"| {status} | {count:,} |" for status, count in sorted(statuses.items())),
        "",
        f"Tracebacks of the server: {errors.count('Traceback')}. Memory of all its processes: {before:.0f} MiB before, "
        f"{between:.0f} MiB after the first, {after:.0f} MiB after the second time.",
    ]
    print("\n".join(lines))
    if "--write" in sys.argv[1:]:
        (ROOT / "benchmarks" / "web-load.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(any(word.startswith("lost") for word in words) or 500 in statuses or "Traceback" in errors)


if __name__ == "__main__":
    main()
