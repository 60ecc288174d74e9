"""Sessions of agents: read once, kept, found by what was said and done, shown where they belong."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from sessionkit import DAY, Machine, Told, id_of

from memory_anchor.domain.rights import purge_digest
from memory_anchor.extensions.sessions import reading
from memory_anchor.extensions.sessions.agents import find
from memory_anchor.extensions.sessions.archive import SessionsFile
from memory_anchor.extensions.sessions.names import FILE
from memory_anchor.extensions.sessions.readers import claude_code
from memory_anchor.extensions.sessions.reading import FILE_BYTES_MAX, look
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import human_of, signed_call


def harbour(name: str = "harbour", cwd: str = "/w/tidepool") -> Told:
    told = Told(name, cwd)
    told.user("The tests of the harbour predictions hang on my machine. Can you run them?")
    told.thinks("The zeppelin must be anchored first.")
    told.runs("pytest tests/harbour", "ImportError: cannot import name 'StationGrid'\n3 errors", code=2)
    told.says("The compiled extension is missing. Let me build it in place.")
    told.runs("make ext && uv run pytest tests/harbour", "118 passed in 9.4s")
    return told.edits("/w/tidepool/leapfix.py", "def shift(rows):", "# not dead\ndef shift(rows):")


def test_what_was_said_and_what_was_run_is_found_with_a_citation(machine: Machine) -> None:
    """Rule sessions.search: {session, agent, project, when, text, citation}, best first."""
    machine.keeps(harbour())
    machine.keeps(Told("rules", "/w/modou", "codex").user("以后提交信息一律用中文。").says("好的，记住了。"))

    done = machine.adopt()
    (first, *_) = machine.found("why did the harbour tests fail with StationGrid")
    (chinese, *_) = machine.found("提交信息用什么语言")

    assert done["read"] == 2 and done["problems"] == []
    assert first["session"] == id_of("harbour") and first["agent"] == "claude-code" and first["project"] == "tidepool"
    assert first["when"].startswith("2026-03-02T09:") and "make ext && uv run pytest tests/harbour" in first["text"]
    assert first["citation"]["kind"] == "conversation" and first["citation"]["trust"] == "untrusted"
    assert chinese["session"] == id_of("rules") and chinese["agent"] == "codex"


def test_a_citation_opens_where_its_passage_begins(machine: Machine) -> None:
    """Rule citations: what is cited can be looked at, with what came after it."""
    told = harbour()
    for number in range(30):
        told.says(f"TranscriptStep {number}: " + "nothing to see here. " * 12)
    machine.keeps(told.says("The buoy network was down since Tuesday."))
    machine.adopt()

    (hit, *_) = machine.found("buoy network down")
    opened = machine.json("sessions", "show", hit["citation"]["ref"])

    assert opened["session"] == id_of("harbour") and "buoy network" in opened["passages"][0]["text"]
    assert len(machine.json("sessions", "show", id_of("harbour")[:8])["passages"]) > 3


def test_thinking_and_what_the_client_inserted_are_never_read(machine: Machine) -> None:
    """Rule readers: only what was said and done."""
    told = harbour().user("<system-reminder>the albatross file changed</system-reminder>")
    told.lines.append({"type": "user", "isMeta": True, "message": {"role": "user", "content": "an ocelot caveat"}})
    told.lines.append({"type": "summary", "summary": "A pangolin was found", "leafUuid": id_of("elsewhere/3")})
    machine.keeps(told)
    machine.adopt()

    for word in ("zeppelin", "albatross", "ocelot", "pangolin"):
        assert machine.texts(word) == []


def test_a_summary_names_the_session_of_its_message_alone(machine: Machine) -> None:
    """Rule readers: `summary` lines count by their leafUuid, in whatever file they stand."""
    told, other = harbour(), harbour("other").user("Something else.")
    told.lines.append({"type": "summary", "summary": "Flaky imports", "leafUuid": other.lines[-1]["uuid"]})
    machine.keeps(told)
    machine.keeps(other)
    machine.adopt()

    titles = {one["session"]: one["title"] for one in machine.json("sessions", "list")["sessions"]}

    assert titles[id_of("other")] == "Flaky imports" and titles[id_of("harbour")].startswith("The tests of the harbour")


def sub_agent(parent: Path, name: str, said: str) -> None:
    """Keep what a sub agent of the harbour's session did where Claude Code keeps it."""
    side = Told("harbour", "/w/tidepool").user(said)
    for line in side.lines:
        line |= {"isSidechain": True, "agentId": name}
    path = parent.with_suffix("") / "subagents" / f"agent-{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(side.text(), encoding="utf-8")


@pytest.mark.parametrize("leaf", ["", None, 7])
def test_a_summary_of_no_message_names_nothing(leaf: object, machine: Machine) -> None:
    """Rule readers: many sessions have no message with an id, and agents have titles of their own."""
    nameless = Told("nameless", "/w/tidepool").user("Where do the buoys report?")
    del nameless.lines[0]["uuid"]
    machine.keeps(nameless)
    machine.keeps(Told("rules", "/w/modou", "codex").user("Never push from here."))
    machine.adopt()
    told = harbour()
    told.lines.append({"type": "summary", "summary": "Everything", "leafUuid": leaf})
    machine.keeps(told)
    machine.adopt()

    assert all(one["title"] != "Everything" for one in machine.json("sessions", "list")["sessions"])


@pytest.mark.parametrize("first", ["own", "other"])
def test_a_session_s_own_file_names_it_before_another_one_does(first: str, machine: Machine) -> None:
    """Rule readers: whichever of both is read first; where its own file is silent, another one's word counts."""
    told, other = harbour(), Told("namer", "/w/tidepool").user("What was said of the harbour?")
    named = {one: {"type": "summary", "summary": one, "leafUuid": told.lines[-1]["uuid"]} for one in ("own", "other")}
    machine.keeps(told)
    for who in ("own", "other") if first == "own" else ("other", "own"):
        session = told if who == "own" else other
        session.lines.append(named[who])
        machine.keeps(session)
        machine.adopt()
        titles = {one["session"]: one["title"] for one in machine.json("sessions", "list")["sessions"]}
        assert titles[id_of("harbour")] == ("own" if first == "own" else who)


def test_a_summary_names_no_session_of_another_agent(machine: Machine) -> None:
    """Rule readers: ids of messages are one agent's own."""
    machine.keeps(Told("rules", "/w/modou", "codex").user("Never push from here."))
    machine.adopt()
    machine.rows(f"update session set leaf = '{harbour().lines[-1]['uuid']}'")  # noqa: S608
    machine.keeps(summarized("Someone else's"))
    machine.adopt()

    assert "Someone else's" not in [one["title"] for one in machine.json("sessions", "list")["sessions"]]


def test_a_side_chain_is_a_session_of_its_own(machine: Machine) -> None:
    """Rule readers: what a sub agent did stands apart, with its parent's id."""
    sub_agent(machine.keeps(harbour()), "a02758f83d49", "Find every caller of add().")
    machine.adopt()

    sessions = {one["session"]: one for one in machine.json("sessions", "list")["sessions"]}

    assert sessions["a02758f83d49"]["parent"] == id_of("harbour") and "parent" not in sessions[id_of("harbour")]


def test_of_a_result_head_and_tail_are_read(machine: Machine) -> None:
    """Rule readers: results are bounded; what stands in the middle of a long one is not found."""
    output = "HEADWORD\n" + "filler line\n" * 300 + "MIDDLEWORD\n" + "filler line\n" * 300 + "TAILWORD"
    machine.keeps(Told("long", "/w/a").runs("make all", output))
    machine.adopt()

    assert machine.texts("HEADWORD") and machine.texts("TAILWORD") and not machine.texts("MIDDLEWORD")
    assert max(len(text) for text in machine.texts("make filler HEADWORD")) <= 1_300


def test_reading_again_adds_what_is_new_and_nothing_twice(machine: Machine) -> None:
    """Rule index: incremental; a file that grew is read from where its last passage begins."""
    told = harbour()
    path = machine.keeps(told)
    machine.adopt()
    before = machine.rows("select count(*) from passage")
    assert machine.adopt()["read"] == 0

    told.runs("git push origin main", "rejected", code=1).says("The walrus branch is protected.")
    path.write_text(told.text(), encoding="utf-8")
    machine.adopt()
    grown = machine.rows("select id, parts from passage order by id")

    assert len(machine.texts("walrus branch")) == 1 and len(machine.texts("StationGrid")) == 1
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 5))
    machine.adopt()
    assert [parts for _, parts in machine.rows("select id, parts from passage order by id")] == [p for _, p in grown]
    assert before <= machine.rows("select count(*) from passage")


def test_a_result_that_comes_after_the_last_look_ends_its_command(machine: Machine) -> None:
    """Rule actions: how a command ended is known, wherever reading stopped between the two."""
    told = Told("late", "/w/a").user("Run it. " + "Some more words to fill it up. " * 38)
    told.runs("make check", "boom: file /w/a/x.c line 12", code=2)
    last = told.lines.pop()
    path = machine.keeps(told)
    machine.adopt()
    assert machine.rows("select exit from action") == [(None,)]

    told.lines.append(last)
    path.write_text(told.text(), encoding="utf-8")
    machine.adopt()

    assert machine.rows("select kind, text, exit, shape from action") == [
        ("command", "make check", 2, "boom: file x.c line 0")
    ]


def test_actions_hold_commands_errors_and_edits(machine: Machine) -> None:
    """Rule actions: what the act's own hooks will need, joined by call."""
    machine.keeps(harbour())
    machine.adopt()

    actions = machine.rows("select kind, text, path, old, new, exit, shape from action order by id")

    assert [row[:2] for row in actions if row[0] == "command"] == [
        ("command", "pytest tests/harbour"), ("command", "make ext && uv run pytest tests/harbour"),
    ]  # fmt: skip
    assert (actions[0][5:] == (2, "0 errors") and actions[1][5] is None) or actions[1][5] == 0
    assert ("edit", "", "/w/tidepool/leapfix.py", "def shift(rows):") in [row[:4] for row in actions]


def test_what_the_client_deletes_stays_unless_the_setting_says_otherwise(machine: Machine) -> None:
    """Rule sessions.keep: always, for days, never."""
    path = machine.keeps(harbour())
    machine.adopt()
    answers = machine.texts("StationGrid")
    path.unlink()

    machine.core.scheduler.run("look_at_sessions", machine.core.clock.now())
    assert machine.texts("StationGrid") == answers
    assert machine.json("adopt", "--status")["gone"] == 1

    from memory_anchor.extensions.sessions.adopting import look_again

    archive = SessionsFile(machine.core.data_dir / FILE)
    look_again(archive, machine.core.clock.now(), keep="30", wait=lambda: None)
    assert machine.texts("StationGrid") == answers
    look_again(archive, machine.core.clock.now(), keep="never", wait=lambda: None)
    archive.close()
    assert machine.texts("StationGrid") == []


def test_a_forgotten_session_is_erased_and_never_read_again(machine: Machine) -> None:
    """Rule forget: a tombstone holds agent and id; no byte of the text is left in the file."""
    path = machine.keeps(harbour())
    machine.keeps(harbour("other", "/w/else").user("A second session, which stays."))
    machine.adopt()

    assert machine.json("adopt", "--forget", id_of("harbour")[:8])["passages"] > 0
    path.write_text(harbour().user("And on it goes.").text(), encoding="utf-8")
    machine.adopt()

    assert {hit["session"] for hit in machine.found("StationGrid harbour")} == {id_of("other")}
    assert machine.rows("select name from tombstone") == [(id_of("harbour"),)]
    machine.json("adopt", "--forget", id_of("other"))
    left = b"".join(file.read_bytes() for file in machine.files())
    assert b"StationGrid" not in left and b"stationgrid" not in left


@pytest.mark.parametrize("way", ["forget", "erase"])
def test_a_session_is_forgotten_with_its_sub_agents(machine: Machine, way: str) -> None:
    """Rule forget: what they did was part of it; one that is found later is not read."""
    parent = machine.keeps(harbour())
    sub_agent(parent, "a02758f83d49", "Find every zebrafish of its grid.")
    machine.keeps(Told("other", "/w/else").user("Count the zebrafish of the lake."))
    machine.adopt()
    assert len(machine.texts("zebrafish")) == 2

    if way == "forget":
        machine.json("adopt", "--forget", id_of("harbour"))
    else:
        archive = SessionsFile(machine.core.data_dir / FILE)
        assert archive.erase(lambda text: "StationGrid" in text) == 1
        archive.close()
    sub_agent(parent, "b13869a94e50", "Find every zebrafish in its tests.")
    machine.adopt()

    assert machine.texts("zebrafish") == ["user: Count the zebrafish of the lake."]
    left = b"".join(file.read_bytes() for file in machine.files())
    assert b"StationGrid" not in left


def test_no_word_of_a_forgotten_session_is_left_beside_the_others(machine: Machine) -> None:
    """Rule forget: the index has words too, in segments that other sessions share."""
    machine.keeps(harbour("other", "/w/else"))
    machine.keeps(Told("secretive", "/w/else").user("The quartz marmot hums beneath a jade fjord."))
    machine.adopt()

    machine.json("adopt", "--forget", id_of("secretive"))

    left = b"".join(file.read_bytes() for file in machine.files())
    assert [word for word in (b"quartz", b"armot", b"eneath", b"jord") if word in left] == []


def test_secrets_and_private_parts_are_gone_before_anything_is_written(machine: Machine) -> None:
    """Rule cleaning: of every field, also over the edge of what is kept of a result."""
    key = "sk-ant-api03-" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5z" * 2 + "AA"
    padding = "x y " * 97
    told = Told("leaky", f"/w/{'ghp_' + 'a1B2' * 9}").user(
        f"Use {key} please. <private>the blue heron sleeps</private>"
    )
    told.runs(f"export TOKEN={key}", f"{padding}{key} {'z ' * 400} password: Kestrel!42bcdfgk {'ok ' * 60}")
    told.edits("a.env", f"KEY={key}", "KEY=")
    machine.keeps(told.user("<private>never closed, says the marmot").says("AKIA" + "Q3R7" * 4))
    machine.adopt()

    held = b"".join(file.read_bytes() for file in machine.files()).decode("utf-8", "replace")

    for secret in (key[:40], key[13:40], "Kestrel!42", "ghp_a1B2", "blue heron", "marmot", "AKIAQ3R7"):
        assert secret not in held
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in machine.files())


def held(machine: Machine) -> str:
    return b"".join(file.read_bytes() for file in machine.files()).decode("utf-8", "replace")


def summarized(text: str) -> Told:
    """Return a session whose file names another one, the one of the harbour."""
    told = Told("namer", "/w/tidepool").user("What was said of the harbour?")
    told.lines.append({"type": "summary", "summary": text, "leafUuid": harbour().lines[-1]["uuid"]})
    return told


LEAKY = "Rotate ghp_" + "a1B2" * 9 + " in the estuary"


def test_a_summary_is_clean_before_it_is_written(machine: Machine) -> None:
    """Rule cleaning x summaries: in its own row, as the title of its session, and in the index of titles."""
    machine.keeps(harbour())
    machine.keeps(summarized(LEAKY))
    machine.adopt()

    titles = [one["title"] for one in machine.json("sessions", "list")["sessions"]]

    assert "Rotate [redacted:token] in the estuary" in titles
    assert "a1B2a1B2" not in held(machine) and "a1b2a1b2" not in held(machine)


@pytest.mark.parametrize("again", ["", "forgotten first", "read later"])
def test_of_a_forgotten_session_no_byte_is_left_wherever_its_summaries_stood(machine: Machine, again: str) -> None:
    """Rule forget x summaries: of its newest message and of earlier ones, in its own file and in others."""
    told, namer = harbour().user("And on it goes."), Told("namer", "/w/tidepool").user("What of the boathouse?")
    leaves = [line["uuid"] for line in told.lines]
    for number, lines in enumerate((told.lines, namer.lines)):
        lines += [{"type": "summary", "summary": f"Quartz{number} {at}", "leafUuid": leaves[at]} for at in (-1, 1, 3)]
    alone = Told("alone", "/w/tidepool")
    alone.lines = [{"type": "summary", "summary": "Quartz2", "leafUuid": leaf} for leaf in leaves]
    machine.keeps(told)
    if again == "forgotten first":
        machine.adopt()
        machine.json("adopt", "--forget", id_of("harbour"))
    machine.keeps(alone)
    machine.keeps(namer)
    machine.adopt()
    if again != "forgotten first":
        assert any("Quartz" in one["title"] for one in machine.json("sessions", "list")["sessions"])
        assert machine.json("adopt", "--status")["problems"] == []
        machine.json("adopt", "--forget", id_of("harbour"))
    if again == "read later":
        machine.keeps(told.user("It went on and on."))
        machine.keeps(namer.user("So it did."))
        machine.adopt()

    left = b"".join(file.read_bytes() for file in machine.core.data_dir.rglob("*") if file.is_file())
    words = (b"uartz", b"StationGrid", b"118 passed", b"leapfix", b"not dead", b"hang on my machine", b"on it goes")
    assert [word for word in words if word in left] == [] and machine.texts("boathouse")


@pytest.mark.parametrize("door", ["purge", "adopt --forget", "adopt --status"])
def test_what_an_earlier_version_kept_of_titles_is_gone_before_anything_is_looked_for(
    door: str, machine: Machine, tmp_path: Path
) -> None:
    """Rule forget x upgrade: a table held what files call sessions, by messages that nobody knew; no look is needed."""
    machine.keeps(harbour())
    machine.adopt()
    machine.core.services.extensions["sessions"].part.close()
    machine.rows("create table summary(leaf text, text text)")
    machine.rows("insert into summary values('x', 'The quartz marmot')")
    assert "quartz" in held(machine)

    if door == "purge":
        human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(tmp_path), cwd=str(tmp_path))
        asked = {"ids": [], "text": "quartz"}
        seen = purge_digest(signed_call(machine.core, caller, "purge_preview", asked, human)["memories"])
        assert signed_call(machine.core, caller, "purge", {**asked, "seen": seen}, human)["clean"] is True
    else:
        machine.json(*door.split(), *([id_of("harbour")] if "forget" in door else []))

    assert "quartz" not in held(machine)


def test_what_a_version_could_not_read_is_read_again_by_the_next(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule failures x upgrade: also a file that does not change; what was read stays as it is."""
    path, other = machine.keeps(harbour()), machine.keeps(Told("other", "/w/else").user("A quiet pelican."))
    known = claude_code.steps
    unread = lambda lines, facts: iter(()) if facts.file == path.stem else known(lines, facts)  # noqa: E731
    monkeypatch.setattr(claude_code, "steps", unread)
    machine.adopt()
    monkeypatch.setattr(claude_code, "steps", known)
    assert machine.adopt()["read"] == 0 and machine.texts("StationGrid") == []

    monkeypatch.setattr(reading, "READERS", "next")

    assert machine.adopt()["read"] == 1 and machine.texts("StationGrid") and machine.texts("pelican")
    assert machine.json("adopt", "--status")["problems"] == [] and other.exists() and machine.adopt()["read"] == 0


@pytest.mark.parametrize("again", ["the file is read whole", "the session goes on"])
def test_a_forgotten_session_leaves_no_summary(machine: Machine, again: str) -> None:
    """Rule forget x summaries: what another file calls it goes with it, and that file, read again, brings none."""
    machine.keeps(harbour())
    machine.keeps(told := summarized("The quartz marmot hums"))
    machine.adopt()
    assert "quartz marmot" in held(machine)

    machine.json("adopt", "--forget", id_of("harbour"))
    assert "quartz" not in held(machine)
    if again == "the session goes on":
        machine.keeps(gone := harbour().user("And on it goes."))
        machine.adopt()
        told.lines[-1]["leafUuid"] = gone.lines[-1]["uuid"]
    told.lines[0]["message"]["content"][0]["text"] = "What was said of the boathouse?"
    machine.keeps(told)
    machine.adopt()

    assert machine.texts("boathouse") and "quartz" not in held(machine)


@pytest.mark.parametrize("edge", range(4, 34, 6))
def test_no_half_of_a_secret_is_kept_at_a_cut(machine: Machine, edge: int) -> None:
    """Rule cleaning x cutting: of a call, a file, an edit's spans, a result's head and a long message."""
    secret, padding = "postgres://ann:Xq9vT2mL!w8RzK4pB@db/x", "ab cd efg "

    def at(most: int, before: str = "") -> str:
        return (padding * (most // 10 + 1))[: most - edge - len(before)] + secret + " and " + padding * 30

    told = Told("cut", "/w/tidepool").user(at(20_000)).says(at(20_000))
    told.runs("cat a.env", at(120)).runs("cat b.env", at(200, "Exit code 1\n"), code=1)
    told.runs(at(800)).uses("Write", {"file_path": "a.env", "content": at(800, "Write a.env\n")}, "ok")
    told.edits("a.env", at(800), at(800)).uses("Fetch", {"url": at(400)}, "ok")
    machine.keeps(told.uses("Fetch", {"url": at(400, "Fetch ")}, "ok"))
    machine.adopt()

    assert "Xq9v" not in held(machine) and "xq9v" not in held(machine)
    assert "efg ab cd" in held(machine)


def test_a_secret_in_a_files_name_is_in_no_problem(machine: Machine) -> None:
    """Rule cleaning x problems: what is said of a file names it cleanly, stored and shown."""
    key = "ghp_" + "a1B2" * 9
    machine.keeps(harbour()).with_name(f"{key}.jsonl").write_bytes(b"")
    os.truncate(next(machine.claude.rglob(f"{key}.jsonl")), FILE_BYTES_MAX + 1)

    read = machine.adopt()

    ((said,),) = machine.rows("select problem from source where problem <> ''")
    assert "allowed are" in said and key not in said + json.dumps(read) + held(machine)
    assert key not in machine.run("adopt", "--status").output + json.dumps(machine.json("adopt", "--status"))


@pytest.mark.parametrize(
    ("content", "problem", "found"),
    [
        ('{"type":"user","message":{"role":"us', "last line is not complete", True),
        ("x" * 100, "last line is not complete", True),
        ("not json\n", "no JSON", True),
        ('{"type":"user","blob":"' + "y" * (8 * 1024 * 1024) + '"}\n', "above 8 MB", True),
    ],
)
def test_a_bad_line_costs_itself_and_one_sentence(machine: Machine, content: str, problem: str, found: bool) -> None:
    """Rule failures: torn, foreign, too long: one line in the status, the rest is read."""
    path = machine.keeps(harbour())
    path.write_text(path.read_text("utf-8") + content, encoding="utf-8")
    machine.adopt()

    (one,) = machine.json("adopt", "--status")["problems"]

    assert problem in one["problem"] and one["path"] == str(path)
    assert bool(machine.texts("StationGrid")) is found


def test_a_torn_line_is_read_once_it_is_whole(machine: Machine) -> None:
    """Rule failures: a file that is being written loses nothing."""
    told = harbour().user("The kingfisher flies at noon.")
    whole = told.text()
    path = machine.keeps(told)
    path.write_text(whole[:-30], encoding="utf-8")
    machine.adopt()
    assert machine.texts("kingfisher") == []

    path.write_text(whole, encoding="utf-8")
    machine.adopt()

    assert len(machine.texts("kingfisher")) == 1 and machine.json("adopt", "--status")["problems"] == []


def test_foreign_files_links_and_odd_clocks_are_told_and_the_rest_is_read(machine: Machine, tmp_path: Path) -> None:
    """Rule failures: nothing outside the folder is opened, nothing crashes."""
    machine.keeps(harbour())
    folder = machine.claude / "-w-odd"
    folder.mkdir(parents=True)
    secret = tmp_path / "elsewhere.jsonl"
    secret.write_text(Told("x", "/w").user("a hidden platypus").text(), encoding="utf-8")
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "foreign.jsonl").write_text('{"event": 1}\n' * 3, encoding="utf-8")
    (folder / "empty.jsonl").write_text("", encoding="utf-8")
    os.mkfifo(folder / "pipe.jsonl")
    old = Told("old", "/w/odd").user("Said by a machine in the past: quetzal.")
    for line in old.lines:
        line["timestamp"] = "1970-01-01T00:00:07Z"
    machine.keeps(old)
    machine.adopt()

    told = {Path(one["path"]).name: one["problem"] for one in machine.json("adopt", "--status")["problems"]}

    assert set(told) == {"link.jsonl", "foreign.jsonl", "pipe.jsonl"} and "link" in told["link.jsonl"]
    assert machine.texts("platypus") == [] and machine.texts("StationGrid")
    assert not machine.found("quetzal")[0]["when"].startswith("1970")


def test_a_file_that_was_rewritten_is_read_again_whole(machine: Machine) -> None:
    """Rule index: nothing doubled when a client rewrites its file."""
    path = machine.keeps(harbour())
    machine.adopt()
    path.write_text(Told("harbour", "/w/tidepool").user("All new: the ibis moved.").text(), encoding="utf-8")
    machine.adopt()

    assert machine.texts("ibis") and not machine.texts("StationGrid")


def test_a_file_that_was_rewritten_and_grew_is_read_again_whole(machine: Machine) -> None:
    """Rule index: other words where reading would go on, lines of the same length before it."""
    told = harbour()
    for number in range(6):
        told.says(f"Station {number}: StationGrid has " + "nothing to see here. " * 20)
    path = machine.keeps(told)
    machine.adopt()
    assert machine.rows("select resume > 0 from source") == [(1,)]

    path.write_text(told.says("The gannet flies.").text().replace("StationGrid", "HeronFields"), encoding="utf-8")
    machine.adopt()

    assert machine.texts("gannet") and machine.rows("select 1 from passage where parts like '%StationGrid%'") == []


def test_sessions_belong_to_the_closest_project_above_their_folder(machine: Machine, project: Path) -> None:
    """Rule scope: an agent's search answers from its own project; the command names one or takes all."""
    machine.keeps(harbour(cwd=f"{project}/src"))
    machine.keeps(harbour("other", "/w/elsewhere").user("StationGrid again."))
    machine.adopt()

    own = machine.json("knowledge", "search", "StationGrid harbour", "--source", "sessions")["snippets"]
    asked = machine.json("search", "harbour predictions StationGrid")["snippets"]

    assert {one["citations"][0]["ref"].partition("@")[0] for one in own} == {f"claude-code:{id_of('harbour')}"}
    assert {one["source"] for one in asked} == {"session"} and len(asked) <= 2
    assert {hit["session"] for hit in machine.found("StationGrid")} == {id_of("harbour"), id_of("other")}
    assert {hit["session"] for hit in machine.found("StationGrid", "--project", ".")} == {id_of("harbour")}
    assert {hit["session"] for hit in machine.found("StationGrid", "--project", "elsewhere")} == {id_of("other")}
    assert (
        machine.found("StationGrid", "--agent", "codex") == machine.found("StationGrid", "--since", "2026-05-01") == []
    )


def test_session_passages_stand_behind_memories(machine: Machine, project: Path) -> None:
    """Rule search: at most two, after what memory knows."""
    machine.run("add", "StationGrid needs the compiled extension; harbour predictions fail without it.")
    machine.keeps(harbour(cwd=str(project)))
    machine.adopt()

    hits = machine.json("search", "harbour predictions StationGrid")["snippets"]

    assert [one.get("source", "memory") for one in hits][:1] == ["memory"]
    assert [one.get("source", "memory") for one in hits] == sorted(one.get("source", "memory") for one in hits)


def test_a_passage_that_a_memory_says_already_is_cited_there_and_not_shown_again(
    machine: Machine, project: Path
) -> None:
    """Rule search x sessions: folded under the memory; one that takes it back, or says more, is shown."""
    machine.run("add", "The kiln controller uses PID with a period of 2 seconds.")
    told = Told("old", str(project)).user("Decided. The kiln controller uses PID with a period of 2 seconds.")
    machine.keeps(told)
    later = Told("new", str(project), at=DAY + timedelta(days=3))
    machine.keeps(later.user("The kiln controller no longer uses PID with a period of 2 seconds."))
    more = Told("more", str(project), at=DAY + timedelta(days=4))
    machine.keeps(more.user("The kiln controller uses PID, and the period depends on the load."))
    machine.adopt()

    hits = machine.json("search", "which period has the PID of the kiln controller")["snippets"]
    memory, *passages = hits

    cited = {one["ref"].partition("@")[0] for one in memory["citations"]}
    shown = {one["citations"][0]["ref"].partition("@")[0] for one in passages}
    assert f"claude-code:{id_of('old')}" in cited
    assert shown == {f"claude-code:{id_of('new')}", f"claude-code:{id_of('more')}"}


def test_only_what_was_chosen_is_read_also_later(machine: Machine) -> None:
    """Rule adopt: agents, folders and times are kept for the looks of an engine."""
    machine.keeps(harbour())
    machine.keeps(Told("rules", "/w/modou", "codex").user("The lynx rule."))
    machine.keeps(Told("scratch", "/w/scratch").user("The scratch lynx."))
    machine.adopt("--only", "claude-code", "--exclude", "*scratch*")
    machine.core.scheduler.run("look_at_sessions", machine.core.clock.now())

    assert machine.texts("lynx") == [] and machine.texts("StationGrid")
    assert machine.run("adopt", "--only", "emacs").exit_code == 2


def test_adopt_asks_on_a_terminal_and_names_the_flag_without_one(machine: Machine) -> None:
    """Rule adopt: nothing is read unasked."""
    machine.keeps(harbour())

    done = machine.run("adopt")

    assert done.exit_code == 2 and "--yes" in done.output and "1 sessions" in done.output
    assert machine.files() == [] and machine.json("adopt", "--yes")["read"] == 1


def test_a_look_that_is_stopped_anywhere_goes_on_and_doubles_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule index: killed at any time and run again, the same is stored as if it had never been."""
    monkeypatch.setattr("memory_anchor.extensions.sessions.reading.FIRST_BATCH_BYTES", 1)
    monkeypatch.setattr("memory_anchor.extensions.sessions.reading.BATCH_BYTES", 1)
    for number in range(6):
        machine.keeps(harbour(f"s{number}"))
    found = find({"claude-code": [str(machine.claude)]})
    archive = SessionsFile(machine.core.data_dir / FILE)
    for _ in range(10):
        look(archive, found, goes_on=lambda: False)
    archive.close()

    texts = machine.rows("select session, count(*), count(distinct parts) from passage group by session")

    assert len(texts) == 6 and all(count == distinct for _, count, distinct in texts)
    assert machine.rows("select count(*) from session") == [(6,)]


def test_passages_are_kept_as_they_can_be_indexed_again(machine: Machine) -> None:
    """Rule tables: the parts of a passage are its text and its index; the file is sound."""
    machine.keeps(harbour())
    machine.adopt()

    (parts, *_) = [json.loads(parts) for (parts,) in machine.rows("select parts from passage order by id")]

    assert [kind for kind, _ in parts][:3] == ["user", "call", "result"]
    machine.rows("insert into words(words) values('integrity-check')")


def test_a_reversed_decision_stands_behind_the_later_one_and_names_it(machine: Machine) -> None:
    """Rule later: the present decision first, the old one with what replaced it; a pasted one is nobody's."""
    old = (
        Told("old", "/w/kiln")
        .user("Let's decide: the kiln controller uses PID, sampled every 2 seconds.")
        .says("Noted.")
    )
    machine.keeps(old)
    new = Told("new", "/w/kiln", "codex", at=DAY + timedelta(days=9))
    new.says("The overshoot comes from the dead time.")
    machine.keeps(new.user("Right. We no longer use PID for the kiln controller, we switch to a Smith predictor."))
    pasted = Told("pasted", "/w/kiln", at=DAY + timedelta(days=12)).user(
        "An issue says:\n> the kiln controller now uses PID"
    )
    machine.keeps(pasted)
    machine.keeps(
        Told("other", "/w/else", at=DAY + timedelta(days=20)).user("The kiln controller now uses PID no longer.")
    )
    machine.adopt()

    hits = machine.found("which controller does the kiln use, sampled how often: PID?", "--project", "kiln")
    order = [hit["session"] for hit in hits]

    assert order.index(id_of("new")) < order.index(id_of("old"))
    assert (
        "Smith predictor" in hits[order.index(id_of("old"))]["later"] and "later" not in hits[order.index(id_of("new"))]
    )


def test_a_handoff_packages_what_a_session_leaves(machine: Machine, project: Path) -> None:
    """Rule handoff: goal, what was settled, open tasks, files, commands that worked; quoted, and nothing else."""
    told = harbour(cwd=str(project)).user("We decided: releases always go through staging first, never directly.")
    told.uses("TodoWrite", {"todos": [
        {"content": "Write the changelog", "status": "pending"}, {"content": "Fix the grid", "status": "completed"},
    ]}, "ok")  # fmt: skip
    told.runs("ls -la", "a").says("Still open: the pelican migration and E17.")
    machine.keeps(told.user("Leave both for next week."))
    machine.adopt()

    text = machine.json("handoff", "--to", "codex")["text"]

    assert "harbour predictions hang" in text and "releases always go through staging" in text
    assert "Write the changelog" in text and "Fix the grid" not in text
    assert "make ext && uv run pytest tests/harbour" in text and "`pytest tests/harbour`" not in text
    assert "leapfix.py" in text and "ls -la" not in text and "untrusted" in text
    assert "- agent: Still open: the pelican migration and E17.\n- user: Leave both for next week." in text
    assert machine.run("handoff", id_of("nobody")).exit_code == 3


def test_a_purge_erases_the_sessions_that_repeat_a_text_and_they_are_not_read_again(machine: Machine) -> None:
    """Rule purge x sessions: no byte of the archive holds the text; the client's own file, read again, brings none."""
    told = harbour().says("The door code of the boathouse is xylophone forty two.")
    told.runs("echo xylophone > /w/tidepool/door.txt", "ok")
    machine.keeps(told)
    machine.keeps(Told("other", "/w/tidepool").user("Where do the buoys report?").says("To the grid service."))
    machine.adopt()
    assert machine.texts("door code boathouse")
    human = human_of(machine.core.data_dir)
    caller = Preamble(project_dir=str(machine.home), cwd=str(machine.home), client="terminal")
    backup = Path(signed_call(machine.core, caller, "backup_create", {"file": str(machine.home)}, human)["file"])
    seen = purge_digest(
        signed_call(machine.core, caller, "purge_preview", {"ids": [], "text": "xylophone"}, human)["memories"]
    )

    done = signed_call(machine.core, caller, "purge", {"ids": [], "text": "xylophone", "seen": seen}, human)
    told.says("And the spare key hangs behind the xylophone.")
    machine.keeps(told)
    machine.adopt()

    assert machine.texts("door code boathouse") == [] and machine.texts("buoys report")
    for file in machine.core.data_dir.glob(f"{FILE}*"):
        assert b"xylophone" not in file.read_bytes(), file
    assert done["clean"] is True, done
    with tarfile.open(backup) as archive:
        assert all(b"xylophone" not in archive.extractfile(one).read() for one in archive if one.isfile())


def test_a_backup_holds_what_was_read_of_sessions(machine: Machine) -> None:
    """Rule backup x sessions: the archive in a backup is whole, its log with it, and opens."""
    machine.keeps(harbour())
    machine.adopt()
    human, caller = human_of(machine.core.data_dir), Preamble(project_dir=str(machine.home), cwd=str(machine.home))
    backup = signed_call(machine.core, caller, "backup_create", {"file": str(machine.home)}, human)["file"]
    with tarfile.open(backup) as archive:
        for member in archive.getmembers():
            if (name := Path(member.name).name).startswith(FILE):
                (machine.home / name).write_bytes(archive.extractfile(member).read())
    opened = SessionsFile(machine.home / FILE)
    try:
        assert opened.faults() == [] and opened.rows("select name from session") == [(id_of("harbour"),)]
    finally:
        opened.close()
