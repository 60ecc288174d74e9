"""Citations into a repository: fresh, moved with the new lines, stale, gone; cheap the second time."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.adapters.git import WorkingTree
from memory_anchor.domain.freshness import FreshnessChecker, blob_id, check, with_line_hash, worst_freshness
from memory_anchor.domain.model import Citation, Locator

TEXT = "import os\n\ndef one():\n    return 1\n\ndef two():\n    return 2\n"


def cite(first=None, last=None, text=TEXT):
    return with_line_hash(Citation("file", "a.py", locator=Locator(first, last)), text)


class Files:
    def __init__(self, **files):
        self.files, self.reads, self.stamps = files, 0, {}

    def stamp(self, ref):
        return self.stamps.get(ref, "0") if ref in self.files else None

    def text(self, ref):
        self.reads += 1
        return self.files.get(ref)

    def elsewhere(self, ref):
        return [(other, False) for other in self.files]


@pytest.mark.parametrize(
    ("text", "expected", "lines"),
    [
        (TEXT, "fresh", (3, 4)),
        (TEXT.replace("    ", "\t").replace("\n", "\r\n"), "fresh", (3, 4)),
        ("# top\n\n" + TEXT, "moved", (5, 6)),
        (TEXT.replace("return 1", "return 0"), "stale", None),
        ("", "stale", None),
        (None, "gone", None),
    ],
)
def test_cited_lines_are_fresh_moved_stale_or_gone(text, expected, lines):
    """Rule: fresh, moved (with the new lines), stale, gone; white space around lines does not matter."""
    found = check(cite(3, 4).locator, text)

    assert (found.freshness, found.lines) == (expected, lines)


def test_of_several_copies_the_nearest_is_where_the_lines_moved():
    """Rule: moved gives the likeliest place."""
    block = "x = 1\ny = 2\n"
    text = block + "\n" * 20 + block + "\n" * 3

    assert check(cite(24, 25, "\n" * 23 + block).locator, text).lines == (23, 24)


def test_a_whole_file_and_a_single_line_can_be_cited():
    """Rule: `files` are path or path:10-20."""
    assert check(cite().locator, TEXT).freshness == "fresh"
    assert check(cite().locator, TEXT + "x").freshness == "stale"
    assert check(cite(1).locator, "# a\n" + TEXT).lines == (2, 2)


def test_what_cannot_be_compared_is_not_guessed():
    """Rule: lines past the end, a missing file, a URL: no hash, no verdict."""
    assert cite(90, 99).locator.sha is None
    assert with_line_hash(Citation("file", "a.py"), None).freshness is None
    assert with_line_hash(Citation("url", "https://x.org"), TEXT).locator.sha is None
    assert check(Locator(1, 2), TEXT).freshness is None
    there_is_nothing = (Citation("url", "https://x.org"), Citation("file", "a.py"))
    assert FreshnessChecker(Files()).with_freshness(there_is_nothing) == there_is_nothing


@given(
    st.text(alphabet="ab \n\t", max_size=60),
    st.text(alphabet="ab\n", max_size=20),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_lines_that_are_still_there_are_never_called_stale(text, above, first, more):
    """Law: sealing then checking the same text is fresh; whole lines put above only move it."""
    citation = with_line_hash(Citation("file", "a", locator=Locator(first, first + more)), text)
    if citation.locator.sha is None:
        return

    assert check(citation.locator, text).freshness == "fresh"
    assert check(citation.locator, above + "\n" + text).freshness in ("fresh", "moved")


def test_a_file_seen_before_costs_a_stamp_and_a_touched_one_no_comparison(monkeypatch):
    """Rule: cached by stamp, then by blob."""
    files = Files(**{"a.py": TEXT})
    checker = FreshnessChecker(files)
    for _ in range(5):
        assert checker.check(cite(3, 4)).freshness == "fresh"
    assert files.reads == 1

    files.stamps["a.py"] = "touched"
    monkeypatch.setattr("memory_anchor.domain.freshness.check", None)  # comparing again would fail
    assert checker.check(cite(3, 4)).freshness == "fresh"
    assert files.reads == 2


def test_a_changed_file_is_seen_at_once():
    """Rule: the cache never outlives the file."""
    files = Files(**{"a.py": TEXT})
    checker = FreshnessChecker(files)
    checker.check(cite(3, 4))
    files.files["a.py"], files.stamps["a.py"] = "#\n" + TEXT, "1"

    (now,) = checker.with_freshness([cite(3, 4)])

    assert (now.freshness, now.locator.line_start, now.locator.line_end) == ("moved", 4, 5)
    del files.files["a.py"]
    assert checker.check(cite(3, 4)).freshness == "gone"


LONG = "".join(f"line number {n}\n" for n in range(1, 40))


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("config", "user.email", "a@example.org")
    git("config", "user.name", "a")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "记忆 one.py").write_text(LONG, encoding="utf-8")
    git("add", "-A")
    git("commit", "-qm", "first")
    return tmp_path, git


def cited_in(root, ref="src/记忆 one.py"):
    (citation,) = FreshnessChecker(WorkingTree(root)).with_line_hashes([Citation("file", ref, locator=Locator(20, 22))])
    return citation


def seen(root, citation):
    (now,) = FreshnessChecker(WorkingTree(root)).with_freshness([citation])
    return now.freshness, now.ref, now.locator.line_start, now.locator.line_end


def test_a_renamed_file_is_followed_before_and_after_it_is_committed(repository):
    """Rule: a renamed file is moved, with its new path and lines; its last name is found over several renames."""
    root, git = repository
    citation = cited_in(root)

    git("mv", "src/记忆 one.py", "src/two.py")
    assert seen(root, citation) == ("moved", "src/two.py", 20, 22)
    git("commit", "-qm", "renamed")
    assert seen(root, citation) == ("moved", "src/two.py", 20, 22)
    (root / "lib").mkdir()
    git("mv", "src/two.py", "lib/three.py")
    (root / "lib" / "three.py").write_text("# new\n" + LONG)
    git("commit", "-qam", "again")
    assert seen(root, citation) == ("moved", "lib/three.py", 21, 23)


def test_a_renamed_file_that_says_something_else_is_stale_at_its_new_path(repository):
    """Rule: stale, and where to look."""
    root, git = repository
    citation = cited_in(root)
    git("mv", "src/记忆 one.py", "two.py")
    (root / "two.py").write_text(LONG.replace("line number 21\n", "changed\n"))
    git("commit", "-qam", "renamed")

    assert seen(root, citation) == ("stale", "two.py", 20, 22)


def test_a_file_renamed_by_hand_is_found_by_its_text(repository):
    """Rule: what Git does not know yet is compared by content; a file with other text is not taken for it."""
    root, _ = repository
    citation = cited_in(root)
    (root / "aaa.py").write_text("nothing of it\n")
    (root / "src" / "记忆 one.py").rename(root / "by hand.py")

    assert seen(root, citation) == ("moved", "by hand.py", 20, 22)
    (root / "by hand.py").unlink()
    assert seen(root, citation)[0] == "gone"


def test_without_git_a_file_of_the_same_name_and_text_is_found(tmp_path):
    """Rule: without Git, the same text in a file of the same name elsewhere; nothing else is guessed."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a[1].py").write_text(LONG)
    citation = cited_in(tmp_path, "old/a[1].py")
    (tmp_path / "new").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a[1].py").write_text("another text\n" * 40)
    (tmp_path / "old" / "a[1].py").rename(tmp_path / "new" / "a[1].py")

    assert seen(tmp_path, citation) == ("moved", "new/a[1].py", 20, 22)
    (tmp_path / "new" / "a[1].py").rename(tmp_path / "new" / "b.py")
    assert seen(tmp_path, citation)[0] == "gone"


def test_a_vanished_file_is_sought_once_a_minute(repository, monkeypatch):
    """Rule: cheap; where a file went is remembered."""
    root, _ = repository
    citation = cited_in(root)
    (root / "src" / "记忆 one.py").unlink()
    checker = FreshnessChecker(WorkingTree(root))
    assert checker.check(citation).freshness == "gone"

    monkeypatch.setattr(subprocess, "Popen", None)
    assert checker.check(citation).freshness == "gone"


def test_the_worst_citation_speaks_for_the_memory():
    """Rule: stale facts are marked and rank lower."""
    citations = [Citation("file", "a", freshness=f) for f in ("fresh", "stale", "moved")]

    assert worst_freshness(citations) == "stale"
    assert worst_freshness([Citation("url", "x")]) is None


def test_a_working_tree_is_read_inside_its_root_only(tmp_path):
    """Rule: a citation was written by an agent; it may not point out of the project."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text(TEXT)
    (tmp_path / "secret").write_text("key")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "bytes").write_bytes(b"\xff\xfe")
    (root / "loop").symlink_to("loop")
    tree = WorkingTree(root)

    assert tree.text("a.py") == TEXT
    for ref in ("../secret", "link", str(tmp_path / "secret"), "missing", "", "a\x00b", ".", "loop"):
        assert (tree.text(ref), tree.stamp(ref)) == (None, None), ref
    assert tree.text("bytes") is None
    (sealed_one,) = FreshnessChecker(tree).with_line_hashes([Citation("file", "a.py", locator=Locator(3, 4))])
    assert FreshnessChecker(tree).check(sealed_one).freshness == "fresh"
    (root / "a.py").unlink()
    assert FreshnessChecker(tree).check(sealed_one).freshness == "gone"


def test_blob_ids_are_gits_own(tmp_path):
    """Source: git hash-object."""
    (tmp_path / "f").write_text("记忆\n", encoding="utf-8")
    git = subprocess.run(["git", "hash-object", "f"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert blob_id("记忆\n") == git.stdout.strip()
