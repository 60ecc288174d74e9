"""A secret ends where a request begins: what is behind that door has never seen one."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import disk
import pytest
from devicekit import Laptop, every_version, settled, texts_of
from pydantic import TypeAdapter, ValidationError

from memory_anchor import extensions
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Caller, Layer, MemoryType
from memory_anchor.domain.requests import requests as asks
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.domain.rights import purge_digest
from memory_anchor.domain.versions import Draft
from memory_anchor.extensions.knowledge.requests import KnowledgePush
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.use_cases.memory import MemoryAnchor

TOKEN = "ghp_" + "Wd5Xk8Qm2Zt7Rv4Np9Lb3Hc6Jf1Sg0YaTeUi"
SAID = f"<private>the cellar door</private> the token is {TOKEN}"
REDACTED = "the token is [redacted:token]"
EXACT = {
    "names that identify": "after what conversation agent account_id user_id conversation_id project_id agent_id "
    "project target trigger character user collection mime source path device by variant vectors_from "
    "RunJob.name ShowLorebook.name PreviewHook.client "
    "RemoveLorebook.name ScanLorebook.name",
    "paths and commands": "file ref folder converter",
    "what is hashed or signed": "request_id seen said signature AddAccessKey.* DecideProposal.* ApproveProposal.* "
    "RejectProposal.*",
    "what a purge looks for": "PreviewPurge.text Purge.text",
    "bytes of a book": "AddLorebook.content",
    "read message by message, or line by line as requests": "messages tools lines projects aliases",
}
"""Why a field stays as it was given -> its fields, with their request where others of the name are clean."""


BRING_REQUESTS = [
    f"{path.parent.name}.{path.stem}"
    for path in sorted(Path(extensions.__file__).parent.glob("*/r*.py"))
    if path.stem in ("requests", "rows")
]


def every_request() -> list[type[BaseRequest]]:
    for module in (asks, *(import_module(f"memory_anchor.extensions.{name}") for name in BRING_REQUESTS)):
        assert module
    found, waiting = [], [BaseRequest]
    while waiting:
        model = waiting.pop()
        found.append(model)
        waiting += [one for one in model.__subclasses__() if one.__module__.startswith("memory_anchor")]
    return found[1:]


def stays(model: type[BaseRequest], name: str) -> bool:
    """Return whether a field keeps a secret. Asserts that no refusal shows it."""
    field = model.model_fields[name]
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[(field.annotation, *field.metadata, "")])
    for given in (SAID, [SAID], {"x": [SAID]}, [[1, SAID]], {"kind": "event", "ref": SAID}, [{"name": TOKEN}]):
        read: Any = None
        try:
            read = getattr(model.read({**dict.fromkeys(model.required(), "x"), name: given}, "it"), name)
        except BadInput as refused:
            assert TOKEN[4:16] not in str(refused) and "cellar" not in str(refused)
            with suppress(ValidationError, AttributeError):
                read = adapter.validate_python(given)
        if TOKEN in repr(read) or "cellar" in repr(read):
            return True
    return False


def test_every_text_of_a_request_is_cleaned_unless_a_reason_says_why_it_stays() -> None:
    """Rule safety.door: a new field is clean, or stands here with its reason."""
    listed = {one for names in EXACT.values() for one in names.split()}
    fields = [(model, name) for model in every_request() for name in model.model_fields]
    kept = {(model, name) for model, name in fields if stays(model, name)}

    unlisted = {
        f"{one.__name__}.{name}"
        for one, name in kept
        if not listed & {name, f"{one.__name__}.{name}", f"{one.__name__}.*"}
    }

    assert unlisted == set()
    assert len(kept) < len(fields) / 2


FULL: dict[str, Any] = {
    "content": f"Deploys go through staging; {SAID}",
    "key": f"deploys {TOKEN}",
    "tags": ["deploy", {"name": f"by {TOKEN}", "weight": 2}],
    "importance": 0.4,
    "visibility": "project",
    "files": [f"src/{TOKEN}.py:3-9", "src/app.py"],
    "request_id": TOKEN,
    "sentiment": -0.5,
    "decay": {"half_life_days": 3},
    "sources": [{"kind": "file", "ref": TOKEN, "title": SAID, "locator": {"line_start": 1, "line_end": 2}}],
    "scope": {"account_id": "local", "user_id": "me"},
    "author": f"jane {TOKEN}",
    "written_at": "2026-05-01T10:00:00Z",
}
BODIES: list[tuple[type[BaseRequest], dict[str, Any]]] = [
    (asks.SaveMemory, {**FULL, "type": "decision", "confidence": 0.95, "replaces": "abc"}),
    (asks.LogEvent, {**FULL, "when": "2026-05-01", "where": SAID, "who": [SAID], "ttl_days": 0}),
    (
        asks.SearchMemory,
        {"query": SAID, "layers": ["event_log"], "tags": ["a"], "as_of": "2026-01-02"},
    ),
    (asks.ForgetMemory, {"id": TOKEN, "reason": SAID}),
    (asks.RememberConversation, {"messages": [{"role": "user", "content": SAID, "password": "hunter2secret"}]}),
    (KnowledgePush, {"name": f"https://a.example/?token={TOKEN}", "text": SAID, "into": "docs"}),
    (KnowledgePush, {"name": "a.md", "base64": base64.b64encode(SAID.encode()).decode()}),
    (KnowledgePush, {"name": "a.pdf", "base64": base64.b64encode(b"%PDF\xff\xfe\x00" * 9).decode()}),
]


@pytest.mark.parametrize(("model", "given"), BODIES)
def test_a_body_is_read_as_the_same_request_and_holds_no_secret(model: type[BaseRequest], given: Any) -> None:
    """Rule safety.door: what is sent or waits on disk is made from the clean request, and nothing else is lost."""
    request = model.read(given, "it")
    body: Json = json.loads(json.dumps(request.as_body()))

    again = model.read(body, "it")  # type: ignore[arg-type]

    assert again.as_body() == body
    whole = json.dumps(body) + base64.b64decode(str(again.as_body().get("base64", ""))).decode("latin-1")
    assert TOKEN[4:] not in whole and "cellar" not in whole and "hunter2" not in whole
    lost = {"request_id", "id", "messages"}
    assert again.canonical() | dict.fromkeys(lost) == request.canonical() | dict.fromkeys(lost)


def test_the_kinds_that_were_removed_are_known_from_every_field() -> None:
    """Rule safety.door: `redactions` of a request, in the order of the kinds; a clean one has none."""
    request = asks.SaveMemory.of("The port is 8080.", key="password=hunter2secret", tags=[TOKEN])

    assert request.redactions == ("token", "password")
    assert asks.SaveMemory.of("The port is 8080.", request_id=TOKEN).redactions == ()
    assert asks.LogEvent.like(request).redactions == request.redactions


@pytest.mark.parametrize("field", ["content", "key", "tags", "files"])
def test_the_outcome_of_a_write_names_what_was_removed(anchor: MemoryAnchor, field: str) -> None:
    """Rule safety.door: whichever field it stood in."""
    given = {"content": "The mirror is in rack nine.", field: f"rack nine {TOKEN}"}
    assert anchor.save_memory(**given).redactions == ("token",)
    assert anchor.log_event(**given).redactions == ("token",)


def test_a_repeat_is_recognised_by_the_clean_request(anchor: MemoryAnchor) -> None:
    """Rule safety.door x idempotency x replaces: the same words are one write; other secrets make no other words."""
    old = anchor.save_memory("The staging token rotates weekly.")
    said = {"content": f"The staging token rotates daily; it is {TOKEN}", "replaces": old.id, "request_id": "r1"}
    first = anchor.save_memory(**said)
    again = anchor.save_memory(**said)
    told_clean = anchor.save_memory(**{**said, "content": "The staging token rotates daily; it is [redacted:token]"})

    assert first == again == told_clean
    assert first.redactions == ("token",)
    assert [one.content for one in anchor.curation.listing(status="active")] == [
        "The staging token rotates daily; it is [redacted:token]"
    ]
    with pytest.raises(BadInput):
        anchor.save_memory(**{**said, "content": "The staging token rotates yearly."})


def test_a_secret_said_on_one_device_is_in_no_version_on_another(tmp_path: Path, no_sync: None) -> None:
    """Rule safety.door x sync: what travels is the clean request, also of edits and of what was forgotten."""
    folder = tmp_path / "shared"
    folder.mkdir()
    one, other = Laptop(tmp_path / "laptop", ManualClock()), Laptop(tmp_path / "desktop", ManualClock())
    for device, name in ((one, "laptop"), (other, "desktop")):
        device.join(folder, name)
    kept = one.anchor.save_memory(f"The mirror is in rack nine; {SAID}", tags=[TOKEN], key=SAID)
    gone = one.anchor.log_event(f"The mirror moved; {SAID}", where=SAID)
    one.anchor.forget(gone.id, reason=SAID)
    settled([one, other])
    one.clock.advance(minutes=1)
    one.anchor.curation.edit(kept.id, content=f"The mirror is in rack ten; {SAID}")
    settled([one, other])

    for core in (one.core, other.core):
        stored = repr(every_version(core))
        assert REDACTED in stored and TOKEN[4:] not in stored and "cellar" not in stored
        assert disk.holding(core.data_dir, TOKEN[4:], "cellar") == []
    assert texts_of(one.core) == texts_of(other.core)
    one.close()
    other.close()


def test_a_purge_finds_a_secret_as_it_was_said_and_writes_it_nowhere(core: Core, anchor: MemoryAnchor) -> None:
    """Rule safety.door x purge: what an earlier version stored is looked for in its own words, not in clean ones."""
    anchor.save_memory(f"The mirror is in rack nine; {SAID}")
    leaked = core.services.facts.save(
        anchor.actor,
        Draft(f"The old key of the mirror is {TOKEN}", Layer.VERIFIED_FACT, MemoryType.FACT),
        None,
        gate=anchor.project.gate,
    )
    human = core.anchor(replace(anchor.actor, caller=Caller.HUMAN))

    preview = human.maintenance.preview_purge(text=TOKEN)
    done = human.maintenance.purge(text=TOKEN, seen=purge_digest(preview["memories"]))

    assert [one["id"] for one in preview["memories"]] == [leaked.id]
    assert TOKEN not in json.dumps(done)
    assert disk.holding(core.data_dir, TOKEN[4:]) == []
    assert [one.content for one in anchor.curation.listing()] == [f"The mirror is in rack nine;  {REDACTED}"]


def test_a_private_part_across_the_parts_of_a_summary_is_in_none_of_them(anchor: MemoryAnchor) -> None:
    """Rule safety.door: a summary is cleaned before it is cut into events; so is half a secret at a cut."""
    long = "We moved the mirror. " * 370 + f"<private>{'the cellar door ' * 60}</private> Then we left. {TOKEN} "
    Hooks().answer(anchor, "PostCompact", {"compact_summary": long + "Done at noon. " * 100})

    events = anchor.curation.listing(layer="event_log")
    assert len(events) == 2
    stored = repr(events)
    assert "Done at noon." in stored and "cellar" not in stored and TOKEN[4:12] not in stored
