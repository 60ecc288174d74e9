"""The JSON that every front end shows: exact names, defaults left out, bounded answers."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.context.sections import ContextCostReport, Section
from memory_anchor.domain.model import (
    Citation,
    Constitution,
    ConstitutionEntry,
    Layer,
    Locator,
    Memory,
    MemoryType,
    Origin,
    Outcome,
    RetrievedSnippet,
    Scope,
    SearchAnswer,
    Similar,
    Status,
    Tag,
    Trust,
    Usage,
    WriteOutcome,
)
from memory_anchor.front import views
from memory_anchor.language.tokens import count_tokens

NOW = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)
READER = Scope(account="local", project="p1", user="me", agent="claude-code", conversation="c1")
FACT = Memory("m1", "Qdrant keeps the vectors.", Layer.VERIFIED_FACT, MemoryType.DECISION, READER, NOW, NOW)
EVENT = replace(FACT, id="e1", layer=Layer.EVENT_LOG, type=MemoryType.EVENT, when=NOW)
SNIPPET = RetrievedSnippet("m1", "Qdrant keeps the vectors.", 0.81234567, Layer.VERIFIED_FACT, "decision", NOW)


def test_a_write_outcome_carries_its_five_fields_always_and_the_rest_when_there_is_something():
    plain = views.outcome(WriteOutcome(Outcome.ADDED, "m1", Layer.VERIFIED_FACT, Status.ACTIVE, "new"))
    assert plain == {"outcome": "added", "id": "m1", "layer": "verified_fact", "status": "active", "reason": "new"}
    rich = views.outcome(
        WriteOutcome(
            Outcome.REJECTED, None, Layer.VERIFIED_FACT, None, "0.5 < 0.7", "m0", (Similar("m0", "t", 0.5),), ("email",)
        )
    )
    assert rich["id"] is None
    assert rich["target_id"] == "m0"
    assert rich["similar"] == [{"id": "m0", "text": "t", "score": 0.5}]
    assert rich["redactions"] == ["email"]


def test_a_memory_leaves_out_what_is_at_its_default():
    shaped = views.memory(FACT, now=NOW, reader=READER)
    for name in ("key", "tags", "pinned", "epistemic", "citations", "valid_to", "access_count", "when", "who"):
        assert name not in shaped
    assert shaped["recorded_at"] == "2025-12-15T12:00:00Z"
    assert shaped["scope"] == {
        "account": "local",
        "project": "p1",
        "user": "me",
        "agent": "claude-code",
        "conversation": "c1",
    }
    assert 0 <= shaped["strength"] <= 100


def test_a_memory_shows_what_is_set_under_the_contracts_names():
    rich = replace(
        FACT,
        key="store",
        tags=(Tag("db", 2.0),),
        half_life_days=14.0,
        usage=Usage(count=3, last_at=NOW),
        pinned=True,
        previous_version_id="m1@1",
        version=2,
    )
    shaped = views.memory(rich, now=NOW, reader=READER)
    assert shaped["tags"] == [{"name": "db", "weight": 2.0}]
    assert shaped["decay"] == {"half_life_days": 14.0}
    assert (shaped["access_count"], shaped["last_accessed_at"]) == (3, "2025-12-15T12:00:00Z")
    assert (shaped["pinned"], shaped["previous_version_id"], shaped["version"]) == (True, "m1@1", 2)


def test_an_event_says_when_and_what_else_it_knows():
    rich = replace(EVENT, where="a.py", who=("kim",), ttl_days=7, expires_at=NOW + timedelta(days=7), promoted_to="m9")
    for shaped in (views.memory(rich, now=NOW, reader=READER), views.event(rich, reader=READER)):
        assert shaped["when"] == "2025-12-15T12:00:00Z"
        assert (shaped["where"], shaped["who"], shaped["ttl_days"]) == ("a.py", ["kim"], 7)
        assert (shaped["expires_at"], shaped["promoted_to"]) == ("2025-12-22T12:00:00Z", "m9")


def test_a_snippet_quotes_the_whole_text_and_is_short_otherwise():
    shaped = views.snippet(SNIPPET, reader=READER)
    assert shaped == {
        "id": "m1",
        "text": "Qdrant keeps the vectors.",
        "score": 0.812,
        "layer": "verified_fact",
        "type": "decision",
        "when": "2025-12-15T12:00:00Z",
    }


def test_a_citation_tells_its_trust_and_only_what_the_reader_does_not_know():
    cited = Citation(
        "file", "a.py", locator=Locator(3, 9), scope=replace(READER, conversation="c0"), observed_at=NOW,
        trust=Trust.UNTRUSTED, freshness="stale",
    )  # fmt: skip
    assert views.citation(cited, reader=READER) == {
        "kind": "file",
        "ref": "a.py",
        "locator": {"line_start": 3, "line_end": 9},
        "scope": {"conversation": "c0"},
        "observed_at": "2025-12-15T12:00:00Z",
        "trust": "untrusted",
        "freshness": "stale",
    }
    assert views.citation(Citation("event", "e1", scope=READER), reader=READER) == {
        "kind": "event",
        "ref": "e1",
        "trust": "agent",
    }


def test_the_trust_of_a_snippets_source_is_said_wherever_it_is_not_an_agents():
    own = Citation("memory_entry", "m1", observed_at=NOW)
    document = Citation("url", "https://example.com", trust=Trust.UNTRUSTED)
    alone = views.snippet(replace(SNIPPET, citations=(own,)), reader=READER)
    assert alone["citations"] == [{"kind": "memory_entry", "ref": "m1"}]
    human = views.snippet(replace(SNIPPET, citations=(replace(own, trust=Trust.TRUSTED),)), reader=READER)
    assert human["citations"][0]["trust"] == "trusted"
    both = views.snippet(replace(SNIPPET, citations=(replace(own, trust=Trust.UNTRUSTED), document)), reader=READER)
    assert [one["trust"] for one in both["citations"]] == ["untrusted", "untrusted"]
    sourced = views.snippet(replace(SNIPPET, citations=(own, document)), reader=READER)
    assert sourced["citations"] == [{"kind": "url", "ref": "https://example.com", "trust": "untrusted"}]


def test_a_reader_that_pays_for_each_word_gets_no_citation_that_tells_nothing():
    """Rule answers.lean: a memory's citation of itself goes; a source, a doubt or a check of one stays."""
    own = Citation("memory_entry", "m1", observed_at=NOW)
    source = Citation("file", "a.py", freshness="stale")
    hits = {
        "alone": replace(SNIPPET, citations=(own,), relevance=0.0),
        "human": replace(SNIPPET, citations=(replace(own, trust=Trust.TRUSTED),), origin=Origin.HUMAN),
        "doubted": replace(SNIPPET, citations=(replace(own, trust=Trust.UNTRUSTED),)),
        "checked": replace(SNIPPET, citations=(replace(own, freshness="gone"),)),
        "sourced": replace(SNIPPET, citations=(own, source)),
    }
    whole = views.search_answer(SearchAnswer(tuple(hits.values())), reader=READER)
    lean = dict(zip(hits, views.lean(whole)["snippets"], strict=True))
    assert "citations" not in lean["alone"] and "citations" not in lean["human"]
    assert str(lean["alone"]["relevance"]) == "0"
    for name, place in (("doubted", 2), ("checked", 3), ("sourced", 4)):
        assert lean[name]["citations"] == whole["snippets"][place]["citations"], name
    assert {**lean["alone"], "citations": whole["snippets"][0]["citations"]} == whole["snippets"][0]


def test_five_snippets_cost_at_most_120_tokens_beyond_their_texts():
    """Figure: default results of search_memory, two of them weak; the structured form beside them has 280."""
    own = Citation("memory_entry", "1m8087ng1n0k4", observed_at=NOW)
    one = replace(SNIPPET, id="1m8087ng1n0k4", text="", score=0.52921, when=NOW, citations=(own,), relevance=0.91)
    answer = SearchAnswer((one, one, one, replace(one, weak=True, relevance=0.12), replace(one, weak=True)))
    shaped = views.search_answer(answer, reader=READER)
    assert count_tokens(views.lines(shaped, now=NOW + timedelta(days=400))) <= 120
    assert count_tokens(views.compact(views.lean(shaped))) <= 280


def test_a_line_tells_id_age_author_and_what_a_fact_replaced():
    human = Citation("memory_entry", "m1", observed_at=NOW, trust=Trust.TRUSTED)
    one = replace(SNIPPET, citations=(human,), origin=Origin.HUMAN, before="MySQL keeps the orders.", weak=True)
    shaped = views.search_answer(SearchAnswer((one,), (("m1", "m2"),), ("Searched by words only.",)), reader=READER)
    assert views.lines(shaped, now=NOW + timedelta(days=3, hours=2)).splitlines() == [
        "[m1 3d human weak] Qdrant keeps the vectors. (since 2025-12-15; before: MySQL keeps the orders.)",
        "m1 and m2 contradict each other.",
        "Note: Searched by words only.",
    ]


def test_nothing_relevant_is_an_empty_list():
    assert views.search_answer(SearchAnswer(()), reader=READER) == {"snippets": []}


def test_instants_are_utc_with_z_whatever_zone_they_came_in():
    east = datetime(2025, 12, 15, 20, 0, 0, 5, tzinfo=timezone(timedelta(hours=8)))
    assert views.time_text(east) == "2025-12-15T12:00:00.000005Z"
    assert views.time_text(east, seconds=True) == "2025-12-15T12:00:00Z"


def test_the_constitution_is_whole_with_its_warnings():
    entries = (ConstitutionEntry("e1", "Simple first.", 2),)
    assert views.constitution(Constitution(entries, "v1", 4, ("line 3 differs",))) == {
        "entries": [{"id": "e1", "content": "Simple first.", "priority": 2, "source": "yaml"}],
        "version": "v1",
        "tokens": 4,
        "warnings": ["line 3 differs"],
    }


def test_a_cost_report_has_the_contracts_fields():
    made = ContextCostReport(4000, 0, {"total": 1}, (Section("facts", "tail", 1),), ({"action": "km_timeout"},))
    assert set(views.report(made, reader=READER)) == {
        "context_window_tokens",
        "reserved_output_tokens",
        "estimated_tokens",
        "sections",
        "decisions",
        "citations",
        "stage_ms",
        "cache",
        "variant",
    }


def test_active_values_come_with_the_seconds_they_have_left():
    shaped = views.active({"topic": (["a"], NOW + timedelta(seconds=90))}, now=NOW)
    assert shaped == {"values": {"topic": ["a"]}, "expires_in_s": {"topic": 90}}
    huge = {f"k{n}": ("字" * 5000, NOW + timedelta(hours=1)) for n in range(10)}
    assert "ask for one by its key" in views.active(huge, now=NOW)["notes"][0]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.text(min_size=1, max_size=8000))
def test_an_answer_stays_under_100000_bytes_and_says_what_is_missing(count, text):
    """Contract: the rest is cut with a note that says how to get it; what is shown is whole."""
    snippets = tuple(replace(SNIPPET, id=f"m{n}", text=text) for n in range(count))
    shaped = views.search_answer(SearchAnswer(snippets), reader=READER)
    encoded = views.compact(shaped).encode()
    assert len(encoded) < 100_000
    assert all(one["text"] == text for one in shaped["snippets"])
    assert ("notes" in shaped) == (len(shaped["snippets"]) < count)
    assert json.loads(encoded) == shaped


def test_a_history_too_long_shows_the_newest_versions_in_order():
    versions = [replace(FACT, content="字" * 8000, version=n) for n in range(1, 9)]
    shaped = views.with_history({"id": "m1"}, versions, now=NOW, reader=READER)
    shown = [one["version"] for one in shaped["versions"]]
    assert shown == sorted(shown)
    assert shown[-1] == 8
    assert len(shown) < 8
    assert "newest" in shaped["notes"][0]


def test_compact_text_is_one_line_and_keeps_chinese_readable():
    assert views.compact({"text": "改用 Qdrant\n第二行"}) == '{"text":"改用 Qdrant\\n第二行"}'


def test_a_constitution_that_is_longer_than_an_answer_is_cut_with_a_line_that_says_so() -> None:
    """Attack A12: 20 entries of 8,000 Chinese characters, approved under a large budget.identity."""
    entries = tuple(ConstitutionEntry(f"rule-{n}", "规" * 8_000, n) for n in range(20))
    shown = views.constitution(Constitution(entries, "1", 100_000, ("one warning",)))
    assert len(views.compact(shown).encode()) < 100_000
    assert [one["id"] for one in shown["entries"]] == [f"rule-{n}" for n in range(len(shown["entries"]))] != []
    assert shown["warnings"][0] == "one warning"
    assert "constitution show" in shown["warnings"][1]
    assert set(shown) == {"entries", "version", "tokens", "warnings"}
