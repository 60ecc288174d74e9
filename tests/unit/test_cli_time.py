"""History, undo, jobs, statistics and purge as commands."""

from __future__ import annotations

import json

import pytest

from memory_anchor.front.cli import care


def told(result):
    assert result.exit_code == 0, result.output
    return result.stdout


def test_history_tells_who_when_why_and_what_changed(run):
    """Rule: `history ID` shows every version with its diff."""
    name = json.loads(told(run("log", "The build is slow", "--json")))["id"]
    told(run("edit", name, "The build was slow"))
    told(run("edit", name, "--epistemic", "refuted", "--shown-by", "make -j4"))

    shown = told(run("history", name))

    assert "- The build is slow" in shown
    assert "+ The build was slow" in shown
    assert "refuted: make -j4" in shown
    assert "epistemic: None -> refuted" in shown


def test_undo_shows_a_plan_and_does_it_only_when_told(run, clock):
    """Rule: `undo last`, with a preview."""
    name = json.loads(told(run("log", "one", "--json")))["id"]
    clock.advance(minutes=1)
    told(run("edit", name, "two"))

    assert "would undo" in told(run("undo", "last"))
    assert json.loads(told(run("show", name, "--json")))["memory"]["content"] == "two"
    told(run("undo", "last", "--yes"))
    assert json.loads(told(run("show", name, "--json")))["memory"]["content"] == "one"


def test_a_job_is_rehearsed_at_any_time_and_listed(run):
    """Rule: every job takes --at; dry run shows the list first."""
    name = json.loads(told(run("log", "an event", "--json")))["id"]

    report = json.loads(told(run("jobs", "run", "forget", "--at", "2035-01-01T00:00:00Z", "--dry-run", "--json")))

    assert [p["id"] for p in report["planned"]] == [name]
    assert {job["name"] for job in json.loads(told(run("jobs", "list", "--json")))["jobs"]} >= {"forget", "consolidate"}


def test_statistics_are_shown_with_a_sparkline(run):
    """Rule: a sparkline in the terminal, and JSON."""
    told(run("log", "an event"))

    assert "▁█" in told(run("stats"))
    assert json.loads(told(run("stats", "--json")))["by_layer"]["event_log"] == 1


def test_purge_needs_a_terminal_and_the_passphrase_and_then_erases_everywhere(run, request, monkeypatch):
    """Rule: only a human purges; the text is typed unseen; the answer says what is out of reach."""
    name = json.loads(told(run("log", "the word is xylophone", "--json")))["id"]
    refused = run("purge", name)
    assert (refused.exit_code, "human at a terminal" in refused.output) == (4, True)

    request.getfixturevalue("human")
    monkeypatch.setattr(care, "ask_hidden", lambda _: "xylophone")
    declined = run("purge", "--matching", input="n\n")
    assert json.loads(told(run("show", name, "--json")))["memory"]["id"] == name, declined.output

    shown = told(run("purge", "--matching", input="y\n"))

    assert "erased 1 versions" in shown
    assert "out of reach: Git history" in shown
    assert run("show", name).exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [
        (("xylophone", "--yes"), ""),
        (("xylophone",), "y\n"),
        (("-", "--yes"), "xylophone\n"),
        (("-", "--json"), "xylophone"),
    ],
)
def test_a_text_to_purge_may_be_an_argument_or_standard_input(run, request, arguments, typed):
    """Rule: usable in scripts; the passphrase still comes from the terminal alone."""
    name = json.loads(told(run("log", "the word is xylophone", "--json")))["id"]
    assert run("purge", "--matching", *arguments, input=typed).exit_code == 4
    request.getfixturevalue("human")

    done = run("purge", "--matching", *arguments, input=typed)

    assert done.exit_code == 0, done.output
    assert run("show", name).exit_code == 3
    if "--json" in arguments:
        assert json.loads(done.stdout)["versions"] == 1


def test_a_purge_that_cannot_be_confirmed_or_names_two_texts_is_refused(run):
    """Rule: bad input is one sentence, before anything is asked."""
    assert "add --yes" in run("purge", "--matching", "-", input="text").output
    two = run("purge", "--matching", "one", "two", "--yes")
    assert (two.exit_code, "allowed is one" in two.output) == (2, True)


def test_a_story_begins_with_the_memories_that_were_replaced(run, clock):
    """Rule: `previous_version_id` chains are readable as a story."""
    first = json.loads(told(run("add", "The cache lives in Memcached", "--key", "cache", "--json")))["id"]
    clock.advance(days=1)
    second = json.loads(
        told(run("add", "The cache now lives in Redis", "--key", "cache", "--replaces", first, "--json"))
    )
    assert (second["outcome"], second["id"] != first) == ("superseded", True)

    plain, story = (told(run("history", second["id"], *more)) for more in ((), ("--story",)))

    assert first not in plain.replace("superseded", "")
    assert story.index(f"{first}@1") < story.index("Memcached") < story.index(f"{second['id']}@1")
    assert story.index(f"{second['id']}@1") < story.index("now lives in Redis")


def test_a_memory_is_shown_as_it_was_believed_and_in_any_version(run, clock):
    """Rule: bi-temporal: what was known then, by time and by version."""
    name = json.loads(told(run("log", "one", "--json")))["id"]
    before = clock.now().isoformat()
    clock.advance(days=1)
    told(run("edit", name, "two"))

    assert told(run("show", name)).startswith("two")
    assert told(run("show", name, "--as-of", before)).startswith("one")
    assert told(run("show", f"{name}@1")).startswith("one")
    assert run("show", f"{name}@3").exit_code == 3
    assert run("show", name, "--as-of", "2020-01-01").exit_code == 3


def test_a_job_says_what_it_counted_and_undo_that_nothing_was_there(run):
    """Rule: a report; tokens with and without consolidation; a preview that promises nothing it cannot do."""
    assert "nothing to undo" in told(run("undo", "last"))
    assert "tokens without 0, tokens with 0" in told(run("jobs", "run", "consolidate"))
    assert "would change 0" in told(run("jobs", "run", "forget", "--dry-run"))

    shown = told(run("jobs", "stats"))

    assert "1 runs, 0 changed" in shown
    assert "forget due" in shown
