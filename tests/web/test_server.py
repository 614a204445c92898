"""The server: documents are those of the verbs, searches can be followed, cancelled, queued and ended."""

import asyncio
import json
import re
import subprocess
import sys

import pytest
from encoder_cases import CONFIGS, INPUTS
from served import LONG, SMALL, ask, client

from meshwright import api
from meshwright.present.plan_answers.layout_text import plan_words
from meshwright.web.questions import read_question
from meshwright.web.workers import QueueFullError, WorkerPool

SIZES = {"seq_len": 2048, "global_batch": 4}


def as_json(document):
    return json.loads(json.dumps(document))


def without_time(document):
    return {key: value for key, value in document.items() if key != "search_time_s"}


def test_documents_are_those_of_the_verbs():
    async def work():
        async with client() as found:
            planned = await ask(found, "plan", SMALL)
            wanted = api.plan("llama-3.2-1b", on="h100-sxm-80gb x 2", **SIZES, top=2).to_json()
            assert without_time(planned.json()) == without_time(as_json(wanted))
            plan = planned.json()["plans"][0]["plan"]
            predicted = await ask(found, "predict", {"plan": plan, "tokens": "1T"})
            assert predicted.json() == as_json(api.predict(plan, tokens="1T").to_json())
            assert predicted.headers["meshwright-exit-code"] == "0"
            exported = await ask(found, "export", {"plan": plan, "to": "megatron"})
            assert exported.json() == as_json(api.export(plan, to="megatron"))
            checked = await ask(found, "check", {"text": json.dumps(plan)})
            assert checked.json()["step_time_s"] == predicted.json()["step_time_s"]
            explained = await ask(found, "explain", {"plan": plan, "against": plan})
            assert explained.json()["against"]["ratio"] == 1
            reported = await ask(found, "report", {"plan": plan, "search": False})
            assert reported.json()["predict"] == as_json(api.predict(plan).to_json())
            page = await found.get(
                "/report", params={"question": json.dumps({"plan": plan, "search": False})}
            )
            assert page.text.startswith("<!DOCTYPE html>")
            assert "unsafe" not in page.headers["content-security-policy"]
            text = (await found.post("/plan.yaml", json={"plan": plan, "to": "megatron"})).text
            again = await ask(found, "predict", {"plan": text})
            assert again.json()["step_time_s"] == predicted.json()["step_time_s"]
            slower = await ask(found, "predict", {"plan": plan, "rates": {"memory_bandwidth": 0.5}})
            assert slower.json()["step_time_s"] > predicted.json()["step_time_s"]

    asyncio.run(work())


@pytest.mark.parametrize("name", INPUTS)
def test_a_model_with_an_encoder_is_asked_about_with_its_inputs(name):
    async def work():
        async with client() as found:
            question = SMALL | {"model": json.dumps(CONFIGS[name]), "stack": "generic"}
            without = await ask(found, "plan", question)
            assert [one["field"] for one in without.json()["problems"]] == [
                f"workload.{key}" for key in INPUTS[name]
            ]
            planned = await ask(found, "plan", question | INPUTS[name])
            workload = planned.json()["plans"][0]["plan"]["workload"]
            assert {key: workload[key] for key in INPUTS[name]} == INPUTS[name]

    asyncio.run(work())


def test_wrong_and_infeasible_questions_have_their_documents():
    async def work():
        async with client() as found:
            wrong = await ask(found, "plan", SMALL | {"on": "h100-sxm-80gb x 0"})
            assert wrong.status_code == 422
            assert wrong.json()["error"] == "wrong input"
            assert wrong.headers["meshwright-exit-code"] == "2"
            large = await ask(found, "plan", SMALL | {"model": "llama-3.1-405b"})
            assert large.status_code == 200
            assert large.headers["meshwright-exit-code"] == "1"
            assert "No plan" in large.json()["error"]
            rate = await ask(found, "predict", {"plan": {}, "rates": {}})
            assert rate.status_code == 422
            page = await found.get("/report", params={"question": '{"plan": {"model": "x"}}'})
            assert page.status_code == 422
            assert "catalogue" in page.text

    asyncio.run(work())


def events(text):
    for block in filter(None, text.split("\n\n")):
        event, data = block.split("\n")
        yield event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_search_tells_how_far_it_is_with_the_best_plan_so_far():
    async def work():
        question = {
            "model": "llama-3.1-70b",
            "on": "h100-sxm-80gb x 64",
            "seq_len": 8192,
            "global_batch": 512,
        }
        async with client() as found:
            response = await ask(found, "plan", question, accept="text/event-stream")
            *progress, (name, answer) = events(response.text)
            assert name == "answer"
            assert answer["status"] == 200
            for name in ("plans", "pareto_memory"):
                plans = [one["plan"] for one in answer["document"][name]]
                assert plans
                assert answer["words"][name] == list(map(plan_words, plans))
            assert any(re.match(r"best [\d.]+ s pp\d", data["what"]) for _, data in progress)
            assert all(kind == "progress" and 0 <= data["part"] <= 1 for kind, data in progress)

    asyncio.run(work())


def test_a_search_can_be_cancelled_and_ends_at_its_limit():
    async def work():
        async with client() as found:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ask(found, "plan", LONG), 1)
            assert (await ask(found, "plan", SMALL)).status_code == 200
        async with client(limit_s=8.0) as found:
            late = await ask(found, "plan", LONG)
            assert late.status_code == 503
            assert late.headers["retry-after"]
            assert (await ask(found, "plan", SMALL)).status_code == 200

    asyncio.run(work())


def test_beyond_the_queue_a_question_may_come_again():
    async def work():
        async with client(queue=1, limit_s=2.0) as found:
            running = [asyncio.ensure_future(ask(found, "plan", LONG)) for _ in range(2)]
            await asyncio.sleep(0.5)
            refused = await ask(found, "plan", SMALL)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            plan = {"plan": 1}
            assert (await ask(found, "predict", {"plan": plan})).status_code == 422  # beside the searches
            assert [one.status_code for one in await asyncio.gather(*running)] == [503, 503]

    asyncio.run(work())


def test_a_worker_that_ends_is_replaced():
    async def work():
        pool = WorkerPool(1, 0, 60.0)
        try:
            (worker,) = pool._workers
            question = read_question("plan", json.dumps(SMALL).encode())
            task = asyncio.ensure_future(pool.answer("plan", question, lambda what, part: None))
            await asyncio.sleep(0.1)
            with pytest.raises(QueueFullError):
                await pool.answer("plan", question, lambda what, part: None)
            worker._process.kill()
            assert (await task).status == 500
            assert (await pool.answer("plan", question, lambda what, part: None)).status == 200
        finally:
            pool.close()

    asyncio.run(work())


def test_the_server_loads_nothing_heavy():
    code = "import sys, meshwright.web.start_server; print({'torch', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
