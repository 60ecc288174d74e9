"""The word channel: what becomes a term, in English and Chinese (strategy 5.1: keywords beside meaning)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threads import at_once

from memory_anchor.base.hashing import content_hash, stable_hash
from memory_anchor.language.terms import K1, is_chinese, phrases, query_terms, term_id, terms, weighted


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("getUserName", "the bug is in getUserName()"),
        ("user name", "the bug is in getUserName()"),
        ("search_memory", "fixed search_memory"),
        ("terms.py", "see memory_anchor/language/terms.py"),
        ("memory_anchor/language/terms.py", "see memory_anchor/language/terms.py"),
        ("E0382", "rustc says error[E0382]: use of moved value"),
        ("1.20.0", "pinned to v1.20.0"),
        ("3f2a9c1", "reverted in 3f2a9c1"),
        ("1000 users", "1,000 users"),
        ("running tests", "ran the test"),
        ("向量", "用Qdrant做向量库"),
        ("Ｑｄｒａｎｔ", "用Qdrant做向量库"),
        ("2023年5月8日", "[8 May 2023] met Anna"),
        ("May 8, 2023", "2023-05-08 met Anna"),
        ("2023年5月", "on 8 May 2023"),
        # a question in the base form finds a memory in the past tense
        *(("Where did she go?", "went to Oslo"), ("who wrote it", "write"), ("a child", "children")),
    ],
)
def test_a_query_shares_a_term_with_what_it_names(query: str, text: str) -> None:
    """Rule words.identifiers, words.forms: whole and split, both scripts, dates across languages, irregular forms."""
    assert set(terms(query)) & set(terms(text))


def test_stop_words_carry_nothing() -> None:
    """Rule words.stop: a question made of stop words has no terms."""
    assert terms("what was it that they did") == []


def test_chinese_becomes_characters_and_bigrams() -> None:
    """Rule words.cjk: single characters plus bigrams, no segmenter."""
    assert terms("记忆检索") == ["记", "忆", "检", "索", "记忆", "忆检", "检索"]


def test_document_weights_saturate_by_bm25() -> None:
    """Rule words.bm25: tf*(k1+1)/(tf+k1) with b 0, whatever the length of the text."""
    vector = weighted(Counter(terms("qdrant qdrant qdrant edge")))
    weights = dict(zip(vector.indices, vector.values, strict=True))

    assert weights[term_id("qdrant")] == pytest.approx(3 * (K1 + 1) / (3 + K1))
    assert weights[term_id("edg")] == pytest.approx(1.0)


def test_a_query_weighs_each_distinct_term_once() -> None:
    """Rule words.query: weight 1 a term; repeats change nothing."""
    assert query_terms("qdrant qdrant") == query_terms("qdrant")
    assert query_terms("qdrant").values == (1.0,)


def test_quoted_text_becomes_phrases_in_either_script() -> None:
    """Rule words.phrase: what stands in quotation marks must match as it is."""
    assert phrases("“先写测试” and \"Fail Fast\" but not 'this'") == ("先写测试", "fail fast")


@given(st.text(max_size=300))
def test_any_text_gives_terms_with_distinct_32_bit_ids(text: str) -> None:
    """Rule words.total: no text breaks the tokeniser; ids are unsigned 32-bit and distinct within a vector."""
    vector = weighted(Counter(terms(text)))
    assert len(set(vector.indices)) == len(vector.indices) == len(vector.values)
    assert all(0 <= index < 2**32 for index in vector.indices)
    assert all(0 < value < K1 + 1 for value in vector.values)


def test_stemming_is_safe_on_many_threads() -> None:
    """Rule core.threads: Snowball stemmers are not re-entrant, so each thread has its own."""
    words = [f"{stem}ing" for stem in ("runn", "search", "stor", "embedd", "index")] * 40
    wanted, seen = terms(" ".join(words)), []
    at_once(*(lambda: seen.append(terms(" ".join(words))) for _ in range(4)))
    assert seen == [wanted] * 4


def test_script_is_told_by_the_share_of_cjk() -> None:
    """Rule dense.script: more than 15 % CJK counts as Chinese."""
    assert is_chinese("为什么用 Qdrant Edge 做存储")
    assert not is_chinese("We named the module 记忆 in the old code base and kept it")


def test_a_content_hash_forgives_spacing_and_width_but_not_case() -> None:
    """Rule L3.duplicate: an exact repeat is the same NFKC text with folded white space."""
    assert content_hash(" a  b\n") == content_hash("ａ b")
    assert content_hash("Path") != content_hash("path")
    assert stable_hash("a", "b") != stable_hash("ab")
