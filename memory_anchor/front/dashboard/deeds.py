"""What a page's forms do. Whatever changes a memory is signed with the passphrase that came with that very form.

A deed returns where to go next; what became of it is a notice there. Each names the version that was shown, so what
changed meanwhile, in another tab too, is refused and shown anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from memory_anchor.errors import BadInput, MemoryAnchorError
from memory_anchor.front.cli.care import stamps
from memory_anchor.front.dashboard import beside
from memory_anchor.front.dashboard.access import Session
from memory_anchor.front.dashboard.said import Words
from memory_anchor.json_values import Json, Record, items, record, records, text

if TYPE_CHECKING:
    from memory_anchor.identity.approval import Signer

Form = Mapping[str, str]
Deed = Callable[[Form, Session, Words], str]
ITEMS_MAX = 50
SETTLES = ("keep_new", "keep_old", "merge")


def _signer(form: Form, session: Session) -> Signer:
    return beside.signer(session, form.get("passphrase", ""), tell=beside.session_tells(session))


def _say(session: Session, kind: str, said: str, **more: Json) -> None:
    session.notices.append({"kind": kind, "said": said, **more})


def decide(form: Form, session: Session, words: Words) -> str:
    """Carry out every choice of the inbox, one after the other; what fails is told and leaves the rest alone."""
    picked = {name.removeprefix("choice."): what for name, what in form.items() if name.startswith("choice.")}
    chosen = [(name, what) for name, what in picked.items() if what]
    if not chosen:
        raise BadInput(words("inbox.nothing_chosen"))
    human, done = _signer(form, session), dict.fromkeys(("accept", "reject", "settle"), 0)
    began = words.now.isoformat()
    for name, what in chosen[:ITEMS_MAX]:
        call = "settle" if what in SETTLES else what
        if call not in done:
            raise BadInput(f"choice is {what[:40]!r}; allowed are accept, reject, {', '.join(SETTLES)}")
        seen = form.get(f"seen.{name}", "").split()
        resolution = what if call == "settle" else None
        content = _edited(form, name, seen) if call == "accept" else None
        try:
            beside.ask(call, human=human, id=name, seen=seen, resolution=resolution, content=content)
            done[call] += 1
        except MemoryAnchorError as error:
            _say(session, "bad", str(error), id=name)
    if any(done.values()):
        told = [words(f"inbox.done_{what}", n=many) for what, many in done.items() if many]
        session.last = {"said": words("list.join").join(told), "since": began, "by": _who(chosen[0][0])}
        _say(session, "good", text(session.last["said"]), undo=True)
    return "/"


def _edited(form: Form, name: str, seen: list[str]) -> str | None:
    """Return the text that was typed in place of the one shown, None for the same."""
    text = form.get(f"text.{name}")
    if text is None or not seen:
        return None
    version = seen[0].partition("@")[2].partition(":")[0]
    shown = stamps([{"id": name, "version": int(version) if version.isdecimal() else 0, "content": text}])
    return None if shown == seen else text


def _who(name: str) -> str:
    """Return the name under which the human's own versions stand in a memory's history."""
    return str(record(items(beside.ask("history", id=name)["steps"])[-1])["by"]).partition(":")[2]


def undo(form: Form, session: Session, words: Words) -> str:
    """Take back what this session's human did last."""
    if session.last is None:
        raise BadInput(words("undo.nothing"))
    human = _signer(form, session)
    done = beside.ask("undo", human=human, agent=session.last["by"], since=session.last["since"], apply=True)
    session.last = None
    _say(session, "good", words("undo.done", n=len(items(done["steps"]))))
    for left in records(done["left"]):
        _say(session, "warning", f"{left['id']}: {left['reason']}", id=left["id"])
    return "/"


def change(form: Form, session: Session, words: Words) -> str:
    """Edit, pin, unpin, forget, restore or judge one memory."""
    name, what = form.get("id", ""), form.get("deed", "")
    given: dict[str, Json]
    match what:
        case "edit":
            given = {"content": form.get("content", ""), "expected_version": int(form.get("version") or 0)}
        case "forget":
            given = {"reason": form.get("reason", "")}
        case "judge":
            given = {"epistemic": form.get("epistemic", ""), "shown_by": form.get("shown_by", "")}
        case "pin" | "unpin" | "restore":
            given = {}
        case _:
            raise BadInput(f"deed is {what[:40]!r}; allowed are edit, pin, unpin, forget, restore, judge")
    human = _signer(form, session)
    if form.get("seen") != stamps(records(beside.ask("sides", id=name)["memories"])[:1])[0]:
        raise BadInput(words("memory.changed_since"))
    began = words.now.isoformat()
    done = beside.ask(what, human=human, id=name, **given)
    if done["outcome"] == "skipped":
        _say(session, "warning", text(done["reason"]))
    else:
        session.last = {"said": words(f"memory.done_{what}"), "since": began, "by": _who(name)}
        _say(session, "good", text(session.last["said"]), undo=True)
    return f"/memory/{name}"


def purge(form: Form, session: Session, words: Words) -> tuple[Record, str]:
    """Show what a purge would erase, or erase just that; return the preview or the certificate, and which it is."""
    ids, text = form.get("ids", "").split(), form.get("text", "")
    if bool(ids) == bool(text.strip()):
        raise BadInput(words("purge.names_nothing"))
    human = _signer(form, session)
    given: Record = {"ids": ids, "text": "" if ids else text}
    if not form.get("seen"):
        return {**beside.ask("purge_preview", human=human, **given), **given}, "preview"
    if form.get("sure") != "yes":
        raise BadInput(words("purge.not_sure"))
    return beside.ask("purge", human=human, seen=form["seen"], **given), "erased"


def proposal(form: Form, session: Session, words: Words) -> str:
    """Confirm or close a proposal for the constitution, as it was shown."""
    verdict = form.get("verdict", "")
    if verdict not in ("approve", "reject"):
        raise BadInput(f"verdict is {verdict[:40]!r}; allowed are approve, reject")
    if not form.get("seen"):
        raise BadInput(words("proposal.not_shown"))
    done = beside.decide(
        form.get("id", ""),
        verdict,
        session=session,
        typed=form.get("passphrase", ""),
        seen=form["seen"],
        reason=form.get("reason", "") or words("proposal.no_reason"),
    )
    _say(session, "good", words(f"proposal.{done['status']}", n=done["confirmations"], of=done["required"]))
    return "/"


def pause(form: Form, session: Session, words: Words) -> str:
    """Stop agents from writing, or let them go on, which only a human does."""
    if form.get("off"):
        beside.ask("pause", human=_signer(form, session), off=True)
        _say(session, "good", words("health.resumed"))
    else:
        beside.ask("pause", lasting=form.get("lasting", ""))
        _say(session, "good", words("health.paused"))
    return "/health"


def backup(_: Form, session: Session, words: Words) -> str:
    """Write a backup into the folder of backups."""
    done = beside.new_backup()
    _say(session, "good", words("health.backed_up", n=done["versions"], file=done["file"]))
    return "/health"


def job(form: Form, session: Session, words: Words) -> str:
    """Run one job now."""
    done = beside.ask("jobs_run", name=form.get("name", ""))
    _say(session, "good", words("health.job_done", name=done["job"], n=done["changed"]))
    return "/health"


def sync(form: Form, session: Session, words: Words) -> str:
    """Read what changed in one source of knowledge, for a moment."""
    beside.ask("knowledge_sync", source=form.get("source", ""))
    _say(session, "good", words("knowledge.synced"))
    return "/knowledge"


def drop(form: Form, session: Session, words: Words) -> str:
    """Remove a source of knowledge and all that came of it."""
    beside.ask("knowledge_remove", human=_signer(form, session), source=form.get("source", ""))
    _say(session, "good", words("knowledge.removed"))
    return "/knowledge"
