"""Two engines that search one Qdrant: what the one wrote and embedded, the other finds."""

from __future__ import annotations

from pathlib import Path

from pairs import engines, member


def test_what_another_engine_embedded_after_it_was_read_is_scored_by_its_meaning(tmp_path: Path) -> None:
    """Issue 17: an event that was read before its vector was there is read again, else it would stay words for ever."""
    with engines(tmp_path) as service:
        writer, reader = service.core(), service.core()
        for number in range(8):
            writer.anchor(member()).log_event(f"The harbour crane number {number} was painted red")
        asked = "which crane was painted in the harbour"
        bare = {snippet.text: snippet.score for snippet in reader.anchor(member()).search(asked, limit=8).snippets}
        while writer.services.searcher.index.embed_pending(50):
            pass

        scores = {snippet.text: snippet.score for snippet in reader.anchor(member()).search(asked, limit=8).snippets}
        own = {snippet.text: snippet.score for snippet in writer.anchor(member()).search(asked, limit=8).snippets}

        assert scores == own
        assert scores != bare


def test_the_same_question_again_finds_what_another_engine_wrote_meanwhile(tmp_path: Path) -> None:
    """Issue 17: no answer is kept where others write."""
    with engines(tmp_path) as service:
        writer, reader = (service.core().anchor(member()) for _ in range(2))
        assert reader.search("where is the crane").snippets == ()

        writer.save_memory("The crane is at the harbour")

        assert [snippet.text for snippet in reader.search("where is the crane").snippets] == [
            "The crane is at the harbour"
        ]
