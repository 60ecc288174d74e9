"""Attack A19: secrets of kinds, carriers and disguises that no rule was written for."""

from __future__ import annotations

import base64
import io
import json
import logging
import random
import sys
import time
from pathlib import Path

import disk
import pytest

from memory_anchor.language.safety import KINDS, cleaned, redact
from memory_anchor.process.wiring import Core
from memory_anchor.runtime import cleanlog, spool, wire
from memory_anchor.use_cases.memory import MemoryAnchor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from secretskit import CARRIERS, FRESH, clean_lines, crossed, look_alikes, planted

WANTED = {"tune": 0.98, "held": 0.95}
"""Over three seeds; misses of `held` were never read, but its score was watched: .605, .919 at first, .961."""


@pytest.mark.parametrize("split", ["tune", "held"])
def test_a_secret_of_an_unseen_kind_goes(split: str) -> None:
    """Attack A19: half of 207 kinds and carriers; nothing of what helps somebody is left."""
    cases = [case for seed in range(3) for case in planted(split=split, seed=seed)]
    assert len({case.name for case in cases}) >= 100
    left = [case.name for case in cases if case.leaks(redact(case.text).text)]
    assert len(left) <= (1 - WANTED[split]) * len(cases), sorted(set(left))
    assert all(set(redact(case.text).kinds) <= set(KINDS) for case in cases)


@pytest.mark.parametrize(
    ("name", "wanted"), [(FRESH.name, 0.9), ("secrets_dev.tsv", 0.98), ("secrets_blind.tsv", 0.94)]
)
def test_sets_of_secrets_that_no_rule_was_written_from_are_mostly_found(name: str, wanted: float) -> None:
    """Attack A19: 45 kinds written after the rules, then 60 and 61 of other providers, two carriers each.

    They scored .770, .942 and .925 at first; the misses of the last set were never read.
    """
    cases = [case for seed in range(3) for case in planted(FRESH.with_name(name), seed=seed)]
    left = [case.name for case in cases if case.leaks(redact(case.text).text)]
    assert len(left) <= (1 - wanted) * len(cases)


@pytest.mark.parametrize(("half", "wanted"), [("dev", 0.95), ("test", 0.95), ("blind", 0.95)])
def test_kinds_of_public_documents_in_carriers_of_their_own_are_mostly_found(half: str, wanted: float) -> None:
    """Attack A19: 58 kinds and 20 carriers a half, and 30 texts of what people choose. First .845, .858, .926."""
    cases = [case for seed in range(2) for case in crossed(half, seed=seed)]
    assert sum(case.leaks(redact(case.text).text) for case in cases) <= (1 - wanted) * len(cases)


@pytest.mark.parametrize(("split", "wanted"), [("dev", 0.97), ("blind", 0.94), ("third", 0.97), ("fourth", 0.97)])
def test_secrets_in_the_carriers_that_agents_meet_are_found(split: str, wanted: float) -> None:
    """Attack A19: files, commands, logs, addresses, chats: 40, 40, 40 and 20; each was read after the one before.

    First .850, .858, .942 and .850; before its own misses were read, each had .850, .908, .975 and .983.
    """
    cases = [case for seed in range(3) for case in planted(CARRIERS, split=split, seed=seed)]
    left = [case.name for case in cases if case.leaks(redact(case.text).text)]
    assert len(left) <= (1 - wanted) * len(cases), sorted(set(left))


@pytest.mark.parametrize("split", ["dev", "blind", "third", "fourth"])
def test_what_only_looks_like_a_secret_stays(split: str) -> None:
    """Attack A19: 150, 150, 100, 99 lines. First 7.8, 9.6, 15.3 and 6.7 %; before it was read 7.8, 6.2, 10.3, 1.0."""
    lines = [line for seed in range(3) for line in clean_lines(split, seed=seed)]
    touched = [line for line in lines if redact(line).text != line]
    assert len(touched) <= 0.003 * len(lines), touched


@pytest.mark.parametrize(
    "text",
    [
        "from cryptography import Ed448PrivateKey, Ed25519PublicKey",
        "def public_key(self) -> X448PublicKey: ...",
        'KEY_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"',
        '"token-counting-2024-11-01", "thinking-token-count-2026-05-13"',
        'await send({"type": "websocket.close", "code": 1000})',
        "try:\n    pass\nelse:\n    # 0=black, 7=light-grey, 15=white",
        "License: BSD-3-Clause-Open-MPI",
        'model="Qdrant/Unicom-ViT-B-16", license="apache-2.0"',
        'START = b"-----BEGIN OPENSSH PRIVATE KEY-----"',
        "from optimum import ORTModelForSpeechSeq2Seq  # tokens are counted later",
        "The password is stored. 密码是 bcrypt 加密的",
        "price was 20%, issue acme/app#1234, user jane agreed",
    ],
)
def test_what_was_taken_for_a_secret_in_real_code_stays(text: str) -> None:
    """Attack A19: names in camel case, alphabets, dates, codes and statements, read off installed packages."""
    assert redact(text).text == text


@pytest.mark.parametrize(
    "key", ["AKIA3XKQ7PLM2RTZVB4N", "xoxb-123456789012-abcdefGHIJKL", "sk-ant-api03-Rt5Yu8Io2Pa4Sd6F"]
)
def test_a_key_behind_a_name_and_an_underscore_goes(key: str) -> None:
    """Attack A19: what a published prefix begins is found behind an underscore, too."""
    assert key not in redact(f"use backup_{key} for it").text
    assert redact("use backup_akia and task_sk-learn-contrib").kinds == ()


def test_what_a_memory_is_full_of_stays() -> None:
    """Attack A19: hashes, ids, locks, paths, prose and code: at most 5 of 1,000 touched."""
    lines = look_alikes(1_000, seed=7)
    touched = [line for line in lines if redact(line).text != line]
    assert len(touched) <= 5, touched


def test_redacting_again_changes_nothing() -> None:
    """Attack A19: also where a word for a password is left beside the placeholder."""
    for case in planted():
        once = redact(case.text).text
        assert redact(once).text == once, case.name


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("key ghp_0123456789\u200babcdefABCDEF0123456789 ok", "key [redacted:token] ok"),
        ("key ghp_0123456789\u00adabcdefABCDEF0123456789 ok", "key [redacted:token] ok"),
        ("key ghp&#95;0123456789abcdefABCDEF0123456789 ok", "key [redacted:token] ok"),
        ("key ghp%5F0123456789abcdefABCDEF0123456789 ok", "key [redacted:token] ok"),
        ("密码：Ｔｉｇｅｒ２０２４ｘ好", "密码：[redacted:password]好"),
        ('{"t": "ghp\\u005f0123456789abcdefABCDEF0123456789"}', '{"t": "[redacted:token]"}'),
        ('x = "ghp_" + "0123456789abcdefABCDEF0123456789"', 'x = "[redacted:token]"'),
    ],
)
def test_a_disguise_is_undone_for_looking_and_the_text_around_it_stays(text: str, left: str) -> None:
    """Attack A19, A22: unseen characters, entities, escapes, full width and pieces; cut out as they were written."""
    assert redact(text).text == left


CODED = b"the registry takes ghp_a8Kd93LmQ2xZ7vB5nT1yR4wE6uI0oP3sJ9fH\nfrom now on"


@pytest.mark.parametrize(
    "coded",
    [
        base64.b64encode(CODED).decode(),
        base64.urlsafe_b64encode(CODED).decode(),
        base64.b32encode(CODED).decode(),
        CODED.hex(),
        CODED.hex().upper(),
        CODED.hex(":"),
        CODED.hex(" ", 2),
        "".join(f"\\x{code:02x}" for code in CODED),
        "".join(f"={code:02X}" for code in CODED),
        "".join(f"\\{code:03o}" for code in CODED),
        ", ".join(map(str, CODED)),
        " ".join(f"{code:08b}" for code in CODED),
    ],
    ids=["64", "64url", "32", "hex", "HEX", "colons", "dump", "escapes", "quoted", "octal", "numbers", "bits"],
)
@pytest.mark.parametrize("carrier", ["the note says {} as agreed", "value={}", "data:text/plain;base64,{}"])
def test_a_secret_spelt_in_codes_of_characters_goes_with_its_coding(coded: str, carrier: str) -> None:
    """Attack A19: bases 64 and 32, dumps, escapes and lists of bytes; what decodes to no secret stays."""
    assert redact(carrier.format(coded)).text == carrier.format("[redacted:token]")


def test_codes_of_characters_that_hold_no_secret_stay() -> None:
    """Attack A19: a harmless text in four codings, times, versions and hashes."""
    plain = b"the harbour opens at seven"
    kept = [
        base64.b32encode(plain).decode(),
        plain.hex(" "),
        ", ".join(map(str, plain)),
        "2026-11-24 10:31:22, 11:04:57, 12:15:09, 13:27:44, 14:00:00",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    ]
    assert [text for text in kept if redact(text).text != text] == []


def test_no_secret_reaches_a_file_of_the_data_folder(core: Core, anchor: MemoryAnchor, tmp_path: Path) -> None:
    """Attack A19: planted through saves, events, active context and conversations, then every file is read."""
    cases = [case for case in planted(split="tune") if not case.leaks(redact(case.text).text)]
    for number, case in enumerate(cases):
        match number % 4:
            case 0:
                anchor.save_memory(f"Note {number}: {case.text}")
            case 1:
                anchor.log_event(f"Event {number}: {case.text}")
            case 2:
                anchor.set_active(f"note-{number}", {"text": case.text, "list": [case.text]})
            case _:
                anchor.remember_conversation([{"role": "user", "content": f"Remember that {case.text}"}])
    core.close()
    written = [disk.content(path) for path in disk.files(tmp_path)]
    assert written
    for case in cases:
        for line in case.secret.splitlines():
            if len(line) >= 12 and not line.startswith("-----"):
                spelt = (line.encode(), json.dumps(line)[1:-1].encode())
                assert not any(one in content for content in written for one in spelt), case.name


def test_what_an_error_quotes_is_not_in_the_log() -> None:
    """Attack A19: messages, arguments and tracebacks of others, cleaned as a whole and cut."""
    handler = logging.StreamHandler(stream := io.StringIO())
    handler.setFormatter(cleanlog.CleanFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("attacked")
    log.addHandler(handler)
    for case in (shown := [case for case in planted(split="tune") if not case.leaks(redact(case.text).text)]):
        log.error("refused: %s", case.text)
        try:
            raise ValueError(case.text)
        except ValueError:
            log.exception("failed")
    log.error("long " + "x" * 100_000)
    written = stream.getvalue()
    assert len(max(written.splitlines(), key=len)) < cleanlog.LINE_CHARS + 100
    assert [case.name for case in shown if len(case.secret) >= 12 and case.secret in written] == []


def test_no_secret_waits_in_the_spool(tmp_path: Path) -> None:
    """Attack A19: a hook while no engine runs leaves what it was told, cleaned."""
    cases = [case for case in planted(split="tune") if not case.leaks(redact(case.text).text)][:40]
    for case in cases:
        spool.keep(str(tmp_path), wire.Preamble(), "SessionEnd", {"summary": case.text, "source": case.text})
    written = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.json"))
    assert [case.name for case in cases if json.dumps(case.secret)[1:-1] in written] == []


def one_line(tokens: int, first: str = "") -> str:
    """Return one long line of random tokens, words for a secret and for something else between them."""
    chance = random.Random(3)
    made = ("".join(chance.choices("0123456789abcdef", k=24)) for _ in range(tokens))
    return first + ", ".join(f"{chance.choice(('commit', 'see', 'see'))} {token}" for token in made)


def calls_for(text: str) -> int:
    """Return how many calls cleaning a text makes."""
    count = 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        cleaned(text)
    finally:
        sys.setprofile(before)
    return count


def test_one_long_line_of_labels_takes_as_many_calls_as_it_has_tokens() -> None:
    """Attack A10: the nearest word of each token is found by halving; four times the line, four times the calls."""
    cleaned(one_line(4_000))  # what its tokens look like is remembered

    assert calls_for(one_line(4_000)) <= 5 * calls_for(one_line(1_000))


def test_what_comes_after_a_certificates_beginning_is_read_in_linear_time() -> None:
    """Attack A10: where blocks begin and end is looked for once; four times the text, not fifteen times the time."""
    took = []
    for tokens in (8_000, 32_000):
        text = one_line(tokens, "-----BEGIN CERTIFICATE-----\n")
        begun = time.process_time()
        cleaned(text)
        took.append(time.process_time() - begun)

    assert took[1] <= 8 * took[0]
