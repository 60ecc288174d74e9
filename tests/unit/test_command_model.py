"""A program as language model: run in the background, bounded, and believed no more than any other."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from memory_anchor.adapters.language_models import ModelLimits
from memory_anchor.adapters.other_models import CommandModel, last_json_object
from memory_anchor.base.request_gate import in_background
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.domain.model import Actor, Scope
from memory_anchor.front.doctor import probe
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.app import build_core, make_model
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, memory_store


class Answer(BaseModel):
    word: str


def program(folder: Path, body: str) -> str:
    """Return the command line of a program with this body; `asked` is its standard input."""
    file = folder / "program.py"
    file.write_text(f"import json, os, sys, time\nasked = sys.stdin.read()\n{body}\n", encoding="utf-8")
    return f"{sys.executable} {file}"


def model(folder: Path, body: str, **more: int) -> CommandModel:
    made = make_model(
        "command", ModelLimits(ManualClock()), command=program(folder, body), runs_a_day=more.get("runs", 9)
    )
    assert isinstance(made, CommandModel)
    return made


def word_from(command: CommandModel, *, seconds: float = 20.0) -> str:
    return command.fill(Answer, system="Say a word.", prompt="Which word?", deadline_s=seconds)[0].word


def test_a_program_gets_the_prompt_on_its_input_and_its_json_is_the_answer(tmp_path: Path) -> None:
    """Rule models.command: any program; nothing of ours in its environment, an empty folder, no argument."""
    body = (
        "names = [n for n in os.environ if n.startswith('MEMORY_ANCHOR')]\n"
        "print('thinking {', json.dumps({'word': ' '.join([*names, *os.listdir('.'), str('Which word?' in asked), "
        "str('JSON Schema' in asked), str(len(sys.argv))])}))"
    )
    os.environ["MEMORY_ANCHOR_SECRET_OF_OURS"] = "x"
    try:
        with in_background():
            assert word_from(model(tmp_path, body)) == "MEMORY_ANCHOR_READ_ONLY True True 1"
    finally:
        del os.environ["MEMORY_ANCHOR_SECRET_OF_OURS"]


@pytest.mark.parametrize(
    "printed",
    [
        '{"word": "a"}',
        'log {not json}\n```json\n{"word": "a"}\n```\n',
        '{"type": "result", "result": "Here you are: {\\"word\\": \\"a\\"}"}',
    ],
)
def test_words_around_the_answer_and_a_clients_envelope_are_taken_off(printed: str) -> None:
    """Rule models.command: `claude -p --output-format json` wraps, `codex exec` talks."""
    assert json.loads(last_json_object(printed)) == {"word": "a"}


def test_it_is_never_asked_inside_an_agents_call(tmp_path: Path) -> None:
    """Rule models.command: only jobs and answered hooks run it; a call goes by rules and says so."""
    with pytest.raises(Unavailable, match="only jobs and answered hooks"):
        word_from(model(tmp_path, "open('ran', 'w')"))

    ran = tmp_path / "ran"
    command = program(tmp_path, f"open({str(ran)!r}, 'a').write('x'); print(json.dumps({{'memories': []}}))")
    own = {"codex": {"extraction": {"mode": "factual", "trigger": "per-turn"}}}
    settings = Settings.model_validate({"llm": {"kind": "command", "command": command}, "agents": own})
    core = build_core(
        settings, data_dir=tmp_path / "d", clock=ManualClock(), store=memory_store(), embedder=HashEmbedder()
    )
    here = core.anchor(Actor(scope=Scope(agent="codex", conversation="c")))
    talk = [{"role": "user", "content": "We decided to use PostgreSQL 16 for billing."}] * 2

    _, notes = here.remember_conversation(talk, mode="factual")
    assert not ran.exists()
    assert any("only jobs and answered hooks" in note for note in notes)

    transcript = tmp_path / "t.json"
    transcript.write_text(json.dumps(talk), encoding="utf-8")
    Hooks().in_background(here, "Stop", {"transcript_path": str(transcript)})
    assert ran.exists()


@pytest.mark.slow
def test_what_hangs_is_ended_with_what_it_started_and_costs_its_deadline_only(tmp_path: Path) -> None:
    """Rule models.command: limited in time."""
    child = tmp_path / "child"
    starts = f"import time; time.sleep(3); open({str(child)!r}, 'w')"
    body = f"import subprocess\nsubprocess.Popen([sys.executable, '-c', {starts!r}])\ntime.sleep(60)"
    began = time.monotonic()
    with in_background(), pytest.raises(Unavailable, match="in time"):
        word_from(model(tmp_path, body), seconds=1.0)
    assert time.monotonic() - began < 20
    time.sleep(3)
    assert not child.exists()


def test_runs_a_day_and_the_size_of_a_text_are_limited(tmp_path: Path) -> None:
    """Rule models.command: limited in runs and size; junk and failures leave rules in charge."""
    limited = model(tmp_path, "print(json.dumps({'word': 'a'}))", runs=2)
    with in_background():
        assert [word_from(limited), word_from(limited)] == ["a", "a"]
        with pytest.raises(Unavailable, match="runs_a_day"):
            word_from(limited)
        with pytest.raises(Unavailable, match="bytes"):
            model(tmp_path, "").fill(Answer, system="", prompt="字" * 100_000, deadline_s=5)
    with pytest.raises(BadInput, match="command is empty"):
        make_model("command", ModelLimits(ManualClock()))


@pytest.mark.parametrize(
    ("llm", "status", "words"),
    [
        ({"kind": "none"}, "ok", "rules"),
        ({"kind": "anthropic"}, "failed", "api_key"),
        ({"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}, "ok", "127.0.0.1"),
        ({"kind": "command", "command": "no-such-program-here -p"}, "failed", "no program"),
        ({"kind": "command", "command": f"{sys.executable} -c pass"}, "ok", "50 of 50 runs"),
    ],
)
def test_doctor_says_of_each_kind_whether_it_could_be_asked(
    tmp_path: Path, llm: object, status: str, words: str
) -> None:
    """Rule doctor.model: known without asking."""
    core = build_core(
        Settings.model_validate({"llm": llm}),
        data_dir=tmp_path,
        clock=ManualClock(),
        store=memory_store(),
        embedder=None,
    )
    (check,) = [one for one in probe(core) if one.name == "language model"]
    assert (check.state, words in check.finding) == (status, True), check


def test_a_program_that_fails_or_talks_only_is_unavailable(tmp_path: Path) -> None:
    """Rule models.command: rules do the work then; the sentence names the program, not its words."""
    for body in ("sys.exit(3)", "print('I would rather not')"):
        with in_background(), pytest.raises(Unavailable) as failed:
            word_from(model(tmp_path, body), seconds=5)
        assert "rather" not in str(failed.value)
