"""The memory as a library (docs/builders.md): three lines, typed answers, one store however many use it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from labs import until
from serving import core_to_serve, key_for, serving

import memory_anchor
from memory_anchor import AsyncMemory, Memory, errors
from memory_anchor.runtime import engine, wire
from memory_anchor.testing import ManualClock

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "builders.md").read_text("utf-8"), re.M | re.S)


@pytest.fixture(autouse=True)
def _words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory("support-bot", path=tmp_path / "data") as made:
        yield made


@pytest.fixture
def served(tmp_path: Path, project: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    with ExitStack() as stack:
        core = stack.enter_context(core_to_serve(tmp_path / "server", project, clock))
        base = stack.enter_context(serving(core)).base
        key, _ = key_for(core, "acme")
        monkeypatch.setenv("MEMORY_URL", base)
        monkeypatch.setenv("MEMORY_KEY", key)
        yield stack.enter_context(Memory("support-bot", url=base, key=key))


@pytest.fixture(params=["here", "over http"])
def either(request: pytest.FixtureRequest) -> Memory:
    found: Memory = request.getfixturevalue("memory" if request.param == "here" else "served")
    return found


@pytest.mark.parametrize("example", range(len(EXAMPLES)))
def test_each_example_of_the_page_runs(example: int, served: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    """Page builders: five examples, each by itself, without a key or a network."""
    exec(compile(EXAMPLES[example], f"example {example}", "exec"), {"__name__": "__main__"})  # noqa: S102

    assert capsys.readouterr().out.strip()
    Memory().close()


def test_what_is_saved_is_found_with_its_type_and_time(either: Memory) -> None:
    saved = either.save("Refunds over 500 need a second signature", type="rule", tags=["refunds"])
    logged = either.log("Refund 41 failed: card expired", who="bot", when=datetime(2026, 11, 1, tzinfo=UTC))

    hit = either.search("who signs refunds over 500?")[0]
    assert (hit.id, hit.text, hit.type, hit.tags) == (
        saved.id,
        "Refunds over 500 need a second signature",
        "instruction",
        ("refunds",),
    )
    assert hit.when is not None and hit.when.tzinfo is not None and str(hit).startswith("Refunds over 500")
    event = either.events("2026-11-01", "2026-11-02")[0]
    assert (event.id, event.who, event.text) == (logged.id, ("bot",), "Refund 41 failed: card expired")
    assert [one.id for one in either.list(layer="L3")] == [saved.id]


def test_a_correction_is_read_in_the_history_and_forgetting_hides(either: Memory) -> None:
    old = either.save("Refunds are paid within 14 days", type="rule")
    new = either.save("Refunds are now paid within 7 days", type="rule", replaces=str(old.id))

    assert new.outcome == "superseded" and either.get(str(old.id)).status == "superseded"
    assert either.history(str(new.id))[-1].content == "Refunds are now paid within 7 days"
    assert "7 days" in str(either.context("within how many days are refunds paid?", budget=600))
    assert either.forget(str(new.id)).status == "archived" and not either.search("refunds paid within days")


def test_one_user_reads_nothing_of_another(either: Memory) -> None:
    """Rule scope: what is saved, logged or remembered for a named user is that user's."""
    either.save("Prefers answers by email", type="preference", user="u-17")
    either.log("Called about order 41", user="u-17")
    either.remember([{"role": "user", "content": "I prefer phone calls to letters, always."}], user="u-17")

    assert len(either.search("email answers, phone calls, order 41", user="u-17", limit=9)) >= 2
    assert not either.search("email answers, phone calls, order 41", user="u-18", limit=9)
    assert not either.events(user="u-18") and not either.list(user="u-18")


def test_what_cannot_be_done_is_our_error_in_one_sentence(either: Memory) -> None:
    with pytest.raises(errors.NotFound):
        either.get("0000000000000")
    with pytest.raises(errors.BadInput, match="allowed"):
        either.save("x", type="nonsense")
    with pytest.raises(errors.BadInput):
        either.search("x", limit=0)
    with pytest.raises(memory_anchor.MemoryAnchorError):
        either.save("")
    with pytest.raises(TypeError, match="usr"):
        either.search("x", usr="u-17")  # type: ignore[call-arg]


def test_answers_print_what_they_say_and_nothing_else(memory: Memory) -> None:
    saved = memory.save("We use uv", type="decision")

    assert repr(saved).startswith("Written(outcome='added', id='") and "target_id" not in repr(saved)
    assert "weak=False" not in repr(memory.search("uv")) and str(memory.search("zebra crossing")) != ""
    assert str(memory.constitution()) == "" and memory.constitution().warnings


def test_async_has_the_same_methods(tmp_path: Path) -> None:
    public = {name for name in vars(Memory) if not name.startswith("_")}

    async def life() -> list[str]:
        async with AsyncMemory("bot", path=tmp_path / "data") as memory:
            await asyncio.gather(*(memory.log(f"event {n}") for n in range(8)))
            return [event.content for event in await memory.events(limit=9)]

    assert public <= set(vars(AsyncMemory))
    assert sorted(asyncio.run(life())) == [f"event {n}" for n in range(8)]


def test_two_memories_of_a_process_share_one_store_until_the_last_is_closed(tmp_path: Path) -> None:
    first, second = Memory("bot", path=tmp_path / "data"), Memory("bot", path=tmp_path / "data", user="u-1")
    first.save("We ship on Fridays", visibility="project")
    second.search("ship")
    first.close()

    assert second.search("when do we ship")[0].text == "We ship on Fridays"
    second.close()
    assert engine.status(tmp_path / "data") is None
    assert first.search("when do we ship")[0].text == "We ship on Fridays"
    first.close()


def child(data: Path, code: str, **more: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DATA": str(data), **more}
    start = f"import os\nfrom memory_anchor import Memory\nmemory = Memory('bot', path=os.environ['DATA'])\n{code}"
    return subprocess.Popen([sys.executable, "-c", start], env=env, stdout=subprocess.PIPE, text=True)


def test_other_processes_and_commands_use_the_store_that_a_program_owns(tmp_path: Path) -> None:
    with Memory("bot", path=tmp_path / "data") as memory:
        memory.save("We ship on Fridays")
        other = child(tmp_path / "data", "memory.log('seen'); print(memory.search('when do we ship')[0].text)")
        assert other.communicate(timeout=60)[0] == "We ship on Fridays\n"
        assert memory.events()[0].content == "seen"


def test_a_forked_child_writes_through_its_parent(tmp_path: Path) -> None:
    code = """
memory.log('parent')
pid = os.fork()
if pid == 0:
    memory.log('child')
    os._exit(0)
os.waitpid(pid, 0)
print(sorted(event.content for event in memory.events()))
"""
    assert child(tmp_path / "data", code).communicate(timeout=60)[0] == "['child', 'parent']\n"


def test_the_store_is_taken_over_while_a_program_goes_on_writing(tmp_path: Path) -> None:
    """Rule lost: an engine is asked to stop in the middle; each write is stored once, and the program goes on."""
    data = tmp_path / "data"
    with Memory("bot", path=data) as memory:
        memory.log("begin")
        until(lambda: engine.status(data), "the store is served")
        threads = [threading.Thread(target=lambda n=n: [memory.log(f"{n}/{i}") for i in range(10)]) for n in range(6)]
        for thread in threads:
            thread.start()
        wire.ask(str(data), "stop", wire.Preamble(), timeout_s=5)
        for thread in threads:
            thread.join(60)
        stored = [event.content for event in memory.events(limit=200)]

    assert sorted(stored) == sorted(["begin", *(f"{n}/{i}" for n in range(6) for i in range(10))])


def test_importing_the_library_loads_nothing_heavy() -> None:
    """Rule late: `from memory_anchor import Memory` loads no model, store, web framework or pydantic."""
    code = "import sys; from memory_anchor import Memory; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.split())

    assert loaded & {"memory_anchor"} and not loaded & {
        "pydantic",
        "numpy",
        "fastapi",
        "mcp",
        "typer",
        "anyio",
        "asyncio",
    }


def test_the_library_approves_nothing() -> None:
    """Rule L0: no method changes the constitution, accepts, purges or unpauses."""
    public = {name for name in vars(Memory) if not name.startswith("_")}

    assert public == {
        *("save", "log", "remember", "forget", "search", "events", "list", "get", "history", "context"),
        *("constitution", "close"),
    }


@pytest.mark.slow
def test_fifty_threads_lose_and_double_nothing(tmp_path: Path) -> None:
    """Issue library: 50 threads x 200 writes in one process, then 4 processes x 20 threads over one store."""
    data = tmp_path / "data"
    work = (
        "import threading\nname, threads, each = [os.environ['NAME'], *map(int, os.environ['SIZE'].split())]\n"
        "def write(n):\n    for i in range(each): memory.log(f'{name} {n} {i}')\n"
        "all = [threading.Thread(target=write, args=(n,)) for n in range(threads)]\n"
        "[one.start() for one in all]; [one.join() for one in all]"
    )
    alone = child(data, work, NAME="alone", SIZE="50 200")
    assert alone.wait(600) == 0
    many = [child(data, work, NAME=f"p{p}", SIZE="20 25") for p in range(4)]
    assert [one.wait(600) for one in many] == [0] * 4
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MEMORY_ANCHOR_DATA_DIR": str(data),
        "MEMORY_ANCHOR_SCOPE__PROJECT": "bot",
    }
    export = [sys.executable, "-m", "memory_anchor", "export", "-"]
    lines = subprocess.run(export, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = {f"alone {n} {i}" for n in range(50) for i in range(200)}
    wanted |= {f"p{p} {n} {i}" for p in range(4) for n in range(20) for i in range(25)}

    stored = [json.loads(line).get("content") for line in lines]
    kept = [content for content in stored if content in wanted]
    assert len(kept) == len(set(kept)) == len(wanted)
