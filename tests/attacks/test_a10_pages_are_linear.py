"""Attack A10: a page whose markup never ends, or never begins, read in the engine's own process."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pathological import CPU_S, LENGTH, cpu_s

from memory_anchor.extensions.knowledge.convert import PAGE_CHARS_MAX, html, main_text
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import read_all

MARKUP = (
    *("<![", "<!--", "-->", "<!-", "<?", "<![CDATA[", "]]>", "<x=\"'", "<b/>", "<svg/>", "<a", "</a", "<article"),
    *("<p>", "</p>", "<nav>", "</nav>", "<script>", "</script", "<style>", "<pre>", "</pre>", "<main>", "</main>"),
    *("<h1>", "</h1>", "<li>", '"', "'", "=", "/", ">", "<", "&", "&#", "&amp;", "&#9", "&#x"),
    *("\n\n", "\t", " ", "a", "中", "İ", "\0"),
)


def long_page(pieces: list[str]) -> str:
    unit = "".join(pieces) or " "
    return (unit * (LENGTH // len(unit) + 1))[:LENGTH]


@settings(deadline=None, max_examples=150)
@given(pieces=st.lists(st.sampled_from(MARKUP), min_size=1, max_size=8))
@example(pieces=["<!["])
@example(pieces=["<a ", '"'])
@example(pieces=["&#", "9" * 6_000, ";"])
@example(pieces=["<nav>", "</form>"])
def test_every_page_is_read_in_50_ms_and_without_an_error(pieces: list[str]) -> None:
    """Attack A10: `<![<![` raised in the parser, and 16,000 characters of others took two seconds."""
    page = long_page(pieces)
    main_text(page)
    assert cpu_s(lambda: main_text(page)) <= CPU_S


@settings(deadline=None, max_examples=100)
@given(
    words=st.lists(st.text("ab 中<>&\"'", max_size=8), max_size=6), tag=st.sampled_from(("p", "h2", "li", "td", "b"))
)
def test_words_between_tags_are_kept_whatever_they_hold(words: list[str], tag: str) -> None:
    """Rule knowledge.html: what is escaped as HTML asks comes back as it was written, white space joined."""
    from html import escape

    page = "".join(f"<{tag} title='x > y'>{escape(word)}</{tag}>\n" for word in words)
    text = " ".join(main_text(f"<html><body>{page}</body></html>").split())
    place = 0
    for part in " ".join(words).split():
        assert (place := text.find(part, place)) >= 0


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a < b and b > c</p>", "a < b and b > c"),
        ('<p title="x > y">in</p><!-- <p>not</p> -->', "in"),
        ("<nav><form>menu</nav><p>in</p>", "in"),
        ("<script>if (a<b) '<p>not</p>'</SCRIPT ><p>in</p>", "in"),
        ("İ<main>İİ in</main>out", "İİ in"),
        ("<p>kept<!-- never closed", "kept<!-- never closed"),
        ("<p>kept<a href='", "kept<a href='"),
        ("<p>&lt;b&gt; &#20013;&#x6587; &nosuch; &#99999999;</p>", "<b> 中文 &nosuch; &#99999999;"),
        ("<h1>One</h1><ul><li>a<li>b</ul><pre>x\n  y</pre>", "# One\n\n- a\n- b\n\n```\nx\n  y\n```"),
        ("<![<![ x", "<![<![ x"),
        ("<!doctype html><?xml?><p>in", "in"),
    ],
)
def test_a_page_is_read_as_browsers_do(page: str, text: str) -> None:
    assert main_text(page).strip() == text


@pytest.mark.parametrize("unit", ["<![", "<!--", "<a '", "<p>"])
def test_a_page_of_a_stranger_is_read_by_the_real_way(anchor: MemoryAnchor, unit: str) -> None:
    """Attack A10: pushed, read and found; nothing of it is a document that cannot be parsed."""
    knowledge_of(anchor).push("page.html", text=f"<p>The gate opens at nine.</p>{unit * 5_000}"[:PAGE_CHARS_MAX])
    assert cpu_s(lambda: read_all(anchor), best_of=1) < 2.0
    (state,) = knowledge_of(anchor).sources()
    assert not state.skipped and not state.error
    assert knowledge_of(anchor).search("when does the gate open")[0].text.startswith("The gate opens at nine.")


def test_a_large_page_says_the_same_apart() -> None:
    """Rule knowledge.html: beyond a size a process of its own reads it, and reads it alike."""
    page = "<main>" + "<p>one & two</p>" * 4_000 + "</main>"
    assert len(page) > PAGE_CHARS_MAX
    assert html(page, "x.html") == main_text(page)
