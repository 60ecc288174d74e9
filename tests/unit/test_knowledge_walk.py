"""What a user of knowledge meets at the doors: places and trust beside a text, diffs, counts, progress, sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.extensions.knowledge.rows import shown_opened, shown_sources
from memory_anchor.extensions.knowledge.search import lines_now
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.front import views
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import GUIDE, added, checkout, commit, docs, read_all, states

__all__ = ["checkout", "docs"]


def test_a_passage_beside_memories_says_where_it_stands(docs: Path, anchor: MemoryAnchor) -> None:
    """Rule knowledge.labelled: in the plain lines of a search too, a passage names its document and its lines."""
    added(anchor, docs)
    answer = anchor.search("run the setup script")
    told = views.lines(views.search_answer(answer, reader=anchor.actor.scope), now=anchor.services.clock.now())
    assert "document guide.md:1-4] # Guide" in told.splitlines()[0]

    anchor.save_memory("Run the setup script with --quiet")
    answer = anchor.search("run the setup script")
    told = views.lines(views.search_answer(answer, reader=anchor.actor.scope), now=anchor.services.clock.now())
    assert "guide.md" not in told


def _first_line(anchor: MemoryAnchor, query: str) -> str:
    answer = anchor.search(query)
    told = views.lines(views.search_answer(answer, reader=anchor.actor.scope), now=anchor.services.clock.now())
    return told.splitlines()[0]


def test_a_tag_makes_no_passage_of_a_memory(anchor: MemoryAnchor) -> None:
    """Rule tags.free: a memory with the tag `knowledge` is told as a memory: its id once, and no place."""
    read = [{"kind": "url", "ref": "https://example.org/owls"}]
    for words, sources in (("Whales sing at night", []), ("Owls hunt at dusk", read)):
        name = anchor.save_memory(words, tags=["knowledge"], sources=sources).id
        assert _first_line(anchor, words) == f"[{name} 0h agent] {words}"


def test_a_page_says_its_address_in_the_lines(anchor: MemoryAnchor) -> None:
    """Rule knowledge.labelled: a passage of a page is told with the page's address."""
    page = "<main><h1>Whales</h1><p>Whales sing at night.</p></main>"
    knowledge_of(anchor).push("https://example.org/a", text=page)
    read_all(anchor)
    assert "https://example.org/a" in _first_line(anchor, "when do whales sing").partition("]")[0]


def test_a_citation_that_was_read_away_shows_the_diff_git_still_has(checkout: Path, anchor: MemoryAnchor) -> None:
    """Rule knowledge.diff: of a checkout a citation shows what changed also once the new text was read."""
    commit(checkout, "guide of this project", guide__md=GUIDE)
    added(anchor, checkout, "repo_docs")
    name = knowledge_of(anchor).search("run the setup script")[0].id
    changed = "# Before\n\nNew.\n\n" + GUIDE.replace("setup script once", "installer twice")
    commit(checkout, "guide: the installer replaces the script", guide__md=changed)
    read_all(anchor, begin=True)

    opened = knowledge_of(anchor).open(name)

    assert (opened.freshness, opened.text) == ("changed", "")
    assert "-Run the setup script once." in opened.diff
    assert "+Run the installer twice." in opened.diff
    assert ">     8  Run the installer twice." in opened.around


def test_a_citation_of_what_is_ignored_since_shows_nothing_of_it(checkout: Path, anchor: MemoryAnchor) -> None:
    """Rule knowledge.ignored: what `.memoryignore` takes out of a source no old citation opens."""
    commit(checkout, "guide of this project", guide__md=GUIDE)
    added(anchor, checkout, "repo_docs")
    name = knowledge_of(anchor).search("run the setup script")[0].id
    (checkout / ".memoryignore").write_text("guide.md\n", encoding="utf-8")
    read_all(anchor, begin=True)

    opened = knowledge_of(anchor).open(name)
    assert (opened.freshness, opened.text, opened.around, opened.diff) == ("gone", "", "", "")


@pytest.mark.parametrize(
    ("then", "now", "lines", "expected"),
    [
        ("a\nb\nc\nd", "new\na\nB\nc\nd", (2, 3), (3, 4)),
        ("a\nb\nc", "a\nb\nc", (1, 3), (1, 3)),
        ("a\nb\nc", "a\nc", (2, 2), (2, 2)),  # deleted: where it stood
        ("a\nb\nc", "", (2, 3), (1, 1)),
        ("\n".join("abcdef"), "\n".join("abXcdYef"), (3, 5), (4, 7)),
    ],
)
def test_lines_are_found_where_they_went(
    then: str, now: str, lines: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert lines_now(then, now, lines) == expected


def test_an_opened_passage_says_what_it_is_of(docs: Path, anchor: MemoryAnchor) -> None:
    """Knowledge: source, trust, scope and kind of text stand beside the text (seed 4.5)."""
    source = added(anchor, docs)
    opened = knowledge_of(anchor).open(knowledge_of(anchor).search("run the setup script")[0].id)
    told = shown_opened(opened, reader=anchor.actor.scope)
    assert told["source"] == {"id": source.id, "kind": "files", "ref": str(docs)}
    assert (told["trust"], told["scope"], told["mime"]) == ("untrusted", "project", "text/plain")


def test_what_cannot_be_read_is_no_document_and_each_sentence_has_a_cure(docs: Path, anchor: MemoryAnchor) -> None:
    """Knowledge: documents are those that were read; of each other one a sentence says what to do."""
    (docs / "binary.md").write_bytes(b"\0\1\2")
    (docs / "link.md").symlink_to("guide.md")
    deep = docs.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text("# Deep\n", encoding="utf-8")
    added(anchor, docs)

    state = states(anchor)["files"]
    assert state.documents == 1
    assert len(state.skipped) == 3
    assert all("; " in sentence.partition(" is left out: ")[2] for sentence in state.skipped), state.skipped


def test_how_far_a_reading_is_stands_in_the_list_and_at_its_end(docs: Path, core: Core, anchor: MemoryAnchor) -> None:
    """Knowledge: documents, passages and megabytes a second, while a source is read and once it was."""
    for number in range(300):
        (docs / f"{number}.md").write_text(f"# {number}\n\nwords of {number}\n", encoding="utf-8")
    knowledge_of(anchor).add(str(docs), "files")
    for _ in ("listed", "a batch read"):
        library_of(core.services).step(lambda: False)
    reading = shown_sources(knowledge_of(anchor).sources(), unembedded=0, now=anchor.services.clock.now())
    (told,) = reading["sources"]  # type: ignore[misc, union-attr]
    assert isinstance(told, dict)
    assert 0 < told["reading"]["read"] < told["reading"]["documents"] == 301
    assert set(told["reading"]) == {"documents", "read", "passages", "bytes", "mb_s"}

    answer: dict[str, Any] = {"left": 1}
    while answer["left"]:
        answer = knowledge_of(anchor).sync("", False)
    assert (answer["read"], answer["documents"]) == (301, 301)
    after = shown_sources(knowledge_of(anchor).sources(), unembedded=0, now=anchor.services.clock.now())
    assert "reading" not in after["sources"][0]  # type: ignore[index, operator]


def test_where_no_engine_embeds_a_sync_does(docs: Path, core: Core, anchor: MemoryAnchor) -> None:
    """Rule knowledge.embeds: a sync of its own process embeds what it read; beside an engine's thread it does not."""
    knowledge_of(anchor).add(str(docs), "files")
    library_of(core.services).has_worker = True
    while knowledge_of(anchor).sync("", False, embed=True)["left"]:
        pass
    assert library_of(core.services).unembedded() == 2
    library_of(core.services).has_worker = False
    assert knowledge_of(anchor).sync("", False, embed=True)["left"] == 0
    assert library_of(core.services).unembedded() == 0


@pytest.mark.parametrize(
    ("query", "own", "foreign"), [("码头什么时候关门", 0, 5), ("when does the harbour shut", 3, 0)]
)
def test_few_weak_passages_are_shown_unless_they_are_in_another_language(
    docs: Path, anchor: MemoryAnchor, query: str, own: int, foreign: int
) -> None:
    """Rule knowledge.weak: three weak ones of the question's language; across languages weak says little, so the rest
    of what was asked for comes too."""
    (docs / "guide.md").unlink()
    for number in range(8):
        text = f"# Note {number}\n\nThe crane number {number} lifts crates of kind {number * 7}.\n"
        (docs / f"{number}.md").write_text(text, encoding="utf-8")
    added(anchor, docs)

    found = knowledge_of(anchor).search(query, limit=5)
    assert all(passage.weak for passage in found)
    assert len(found) == own + foreign


def test_a_folder_without_git_is_no_source_of_history(
    docs: Path, anchor: MemoryAnchor, run: Callable[..., Any]
) -> None:
    """Knowledge: what can never be read is refused at once, and leaves no source that waits."""
    for kind in ("git_history", "repo_docs"):
        with pytest.raises(BadInput, match="is no Git checkout of yours; run `git init`"):
            knowledge_of(anchor).add(str(docs), kind)
    assert knowledge_of(anchor).sources() == []
    done = run("knowledge", "add", str(docs), "--kind", "book")
    assert (done.exit_code, "allowed are repo_docs, git_history, files" in done.output) == (2, True)


def test_a_folder_that_goes_away_while_it_is_read_is_one_sentence(
    docs: Path, core: Core, anchor: MemoryAnchor, run: Callable[..., Any]
) -> None:
    """Knowledge: not a sentence a file; what was read stays, and the folder is read on once it is back."""
    for number in range(300):
        (docs / f"{number}.md").write_text(f"# {number}\n\nwords of {number}\n", encoding="utf-8")
    knowledge_of(anchor).add(str(docs), "files")
    for _ in ("listed", "a batch read"):
        library_of(core.services).step(lambda: False)
    docs.rename(docs.with_name("elsewhere"))
    library_of(core.services).step(lambda: True)

    state = states(anchor)["files"]
    assert (state.skipped, state.waiting, 0 < state.documents < 301) == ((), 1, True)
    assert state.error == f"{docs} went away while it was read; it is looked at again"
    docs.with_name("elsewhere").rename(docs)
    read_all(anchor, begin=True)
    assert states(anchor)["files"].documents == 301


def test_a_list_names_few_of_many_that_were_left_out(docs: Path, run: Callable[..., Any]) -> None:
    """Knowledge: a page of sentences, and where the others are."""
    for number in range(30):
        (docs / f"{number:02}.md").write_bytes(b"\0")
    told = run("knowledge", "add", str(docs)).output
    assert told.count("is left out") == 20
    assert "`memory-anchor knowledge list --json` tells 30" in told


def test_a_sync_whose_embedder_is_away_still_reads(
    docs: Path, core: Core, anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule knowledge.embeds: passages are found by words until it is back, and the command does not fail for it."""

    def away(_: object) -> None:
        raise Unavailable("the embedding API does not answer")

    knowledge_of(anchor).add(str(docs), "files")
    for embedder in library_of(core.services).embedders.values():
        monkeypatch.setattr(embedder, "documents", away)
    answer = knowledge_of(anchor).sync("", False, embed=True)
    assert (answer["left"], answer["passages"], "unembedded" in answer) == (0, 2, False)
    assert library_of(core.services).unembedded() == 2
    assert "setup script" in knowledge_of(anchor).search("run the setup script")[0].text


@pytest.mark.parametrize("name", ["trust", "scope"])
def test_only_what_a_source_can_be_is_allowed(anchor: MemoryAnchor, name: str) -> None:
    """Knowledge: `agent` is a trust of memories and no source's; the sentence does not offer it."""
    with pytest.raises(BadInput, match=f"{name} is 'agent'; allowed are (?!.*agent)") as wrong:
        knowledge_of(anchor).search("words", **{name: "agent"})
    assert "project, user, account" in str(wrong.value) or "trusted, semi_trusted, untrusted" in str(wrong.value)


def test_the_commands_say_what_was_measured_and_that_there_is_no_source(docs: Path, run: Callable[..., Any]) -> None:
    """Knowledge: --explain shows signals; a search without any source names the command that adds one."""
    assert "no source yet; `memory-anchor knowledge add .`" in run("knowledge", "search", "script").output
    assert run("knowledge", "add", str(docs)).exit_code == 0
    assert "relevance:" in run("knowledge", "search", "run the setup script", "--explain").output
    assert "relevance:" not in run("knowledge", "search", "run the setup script").output
    assert "nothing fits" in run("knowledge", "search", "script", "--path", "nowhere").output
    name = run("knowledge", "search", "run the setup script").output.split()[0]
    (docs / "guide.md").write_text("\n\n\n\n" + GUIDE, encoding="utf-8")
    shown = run("knowledge", "show", name).output.splitlines()
    assert shown[0].startswith("moved, lines 5-8")
    assert len({line.index("  ", 8) for line in shown[1:5] if len(line) > 14}) <= 2
    assert shown[1].startswith("  │       2")
