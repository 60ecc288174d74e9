"""Planted secrets and look-alikes, made at run time from seeded random bytes: no live-looking value is ever committed.

A template names what it is made of, `{alphabet:length}`; what has to go stands in `⟦⟧`. The look-alikes are what a
coding agent's memory is full of: hashes, ids, versions, paths, lock files, prose and code.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re
import string
from dataclasses import dataclass
from pathlib import Path

UNSEEN = Path(__file__).parent / "corpora" / "secrets_unseen.tsv"
FRESH = UNSEEN.with_name("secrets_fresh.tsv")
CARRIERS = UNSEEN.with_name("secrets_carriers.tsv")
CLEAN = UNSEEN.with_name("clean_carriers.tsv")
LEFT_CHARS = 8
"""A secret has leaked where this many of its characters in a row are left, or all of a shorter one."""
_HEX = "0123456789abcdef"
_ALPHABETS = {
    "b62": string.ascii_letters + string.digits,
    "low": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "hex": _HEX,
    "HEX": _HEX.upper(),
    "d": string.digits,
    "b64": string.ascii_letters + string.digits + "+/",
    "url": string.ascii_letters + string.digits + "_-",
    "b32": string.ascii_uppercase + "234567",
    "az": string.ascii_lowercase,
    "AZ": string.ascii_uppercase,
}
_STEMS = ("Falcon", "Winter", "Harbor", "Tiger", "Summer", "Copper", "Monday", "Dragon", "Garden", "Violet")
_WORDS = ("correct", "battery", "harbor", "violet", "staple", "copper", "meadow", "walrus", "lantern", "pepper")


def _luhn(digits: str) -> str:
    total = sum(
        int(one) if place % 2 else (int(one) * 2 - 9 if int(one) > 4 else int(one) * 2)
        for place, one in enumerate(reversed(digits))
    )
    return digits + str(-total % 10)


def _cn_id(rng: random.Random) -> str:
    head = f"{rng.choice(('110101', '310115', '440305'))}19{rng.randint(60, 99)}{rng.randint(1, 12):02}"
    head += f"{rng.randint(1, 28):02}{rng.randint(0, 999):03}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return head + "10X98765432"[sum(int(one) * weight for one, weight in zip(head, weights, strict=True)) % 11]


def _password(rng: random.Random) -> str:
    return f"{rng.choice(_STEMS)}{rng.choice('!@#$%')}{rng.randint(10, 9999)}{rng.choice(('', '!', 'x', 'Qz'))}"


def _run(alphabet: str, length: int, rng: random.Random) -> str:
    return "".join(rng.choice(_ALPHABETS[alphabet]) for _ in range(length))


def _wide(text: str) -> str:
    return "".join(chr(ord(one) + 0xFEE0) for one in text)


def _value(name: str, rng: random.Random) -> str:
    name, _, length = name.partition(":")
    if name in _ALPHABETS:
        return _run(name, int(length), rng)
    base = _run("b62", int(length), rng) if length.isdigit() else ""
    match name:
        case "pass":
            return _password(rng)
        case "words":
            return " ".join(rng.sample(_WORDS, 4))
        case "uuid":
            bits = _run("hex", 32, rng)
            return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"
        case "card" | "card spaced" | "card dashed":
            number = _luhn("4" + _run("d", 14, rng))
            sign = {"card": "", "card spaced": " ", "card dashed": "-"}[name]
            return sign.join(number[place : place + 4] for place in range(0, 16, 4))
        case "cnid":
            return _cn_id(rng)
        case "cnid wide":
            return _wide(_cn_id(rng))
        case "ssn":
            return f"{rng.randint(101, 599)}-{rng.randint(10, 99)}-{rng.randint(1000, 9999)}"
        case "zw":
            return base[: len(base) // 2] + "\u200b" + base[len(base) // 2 :]
        case "shy":
            return base[:6] + "\u00ad" + base[6:]
        case "vs":
            return "\ufe0f".join(_run("up", int(length), rng))
        case "wide":
            return _wide(base)
        case "pct":
            return "".join(f"%{ord(one):02X}" for one in base)
        case "ent":
            return "".join(f"&#{ord(one)};" for one in base)
        case "xesc":
            return "".join(f"\\x{ord(one):02x}" for one in base)
    raise ValueError(name)


_PART = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_NAMES = re.compile(
    r"(?:b64of:.*|(?:b62|low|up|hex|HEX|d|b64|url|b32|az|AZ|zw|shy|vs|wide|pct|ent|xesc):\d+"
    r"|pass|words|uuid|card(?: \w+)?|cnid(?: wide)?|ssn)\Z",
    re.S,
)


def filled(template: str, rng: random.Random) -> str:
    """Return a template with every part made; braces that name nothing stay."""

    def made(match: re.Match[str]) -> str:
        name = match[1]
        if not _NAMES.match(name):
            return "{" + filled(name, rng) + "}"
        if name.startswith("b64of:"):
            return base64.b64encode(filled(name[6:], rng).encode()).decode()
        return _value(name, rng)

    return _PART.sub(made, template)


@dataclass(frozen=True, slots=True)
class Planted:
    """A text, and what of it must go."""

    split: str
    name: str
    kind: str
    text: str
    secret: str

    def leaks(self, redacted: str) -> bool:
        """Return whether so much of the secret is left that it helps; not what is said beside it, too."""
        solid, left, beside = (
            re.sub(r"[\s\u200b\u00ad\ufe0f]", "", one)
            for one in (self.secret, redacted, self.text.replace(self.secret, ""))
        )
        length = min(LEFT_CHARS, len(solid))
        windows = {solid[at : at + length] for at in range(len(solid) - length + 1)}
        return any(one in left for one in windows if not one.startswith("-----") and one not in beside)


def _lines(text: str) -> str:
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\x7c", "|").replace("\0", "\\")


def planted(path: Path = UNSEEN, *, split: str = "", seed: int = 0) -> list[Planted]:
    """Return every planted secret of a split, the same for one seed on every machine."""
    found = []
    for row in path.read_text("utf-8").splitlines():
        if not row or row.startswith("# "):
            continue
        which, name, kind, template = row.split("\t")
        if split and which != split:
            continue
        rng = random.Random(f"{seed} {name} {template}")
        text = filled(_lines(template), rng)
        secret = text[text.index("⟦") + 1 : text.index("⟧")]
        found.append(Planted(which, name, kind, text.replace("⟦", "").replace("⟧", ""), secret))
    return found


CROSSED = UNSEEN.with_name("secrets_crossed.tsv")
CARRIERS_EACH = 3
"""Carriers in which each kind of `CROSSED` stands, so that every carrier meets every alphabet."""
_BASE64 = re.compile(r"<64:(.*?<S>.*?)>(?=⟧)", re.S)


def crossed(split: str, *, seed: int = 0) -> list[Planted]:
    """Return the kinds of one half in carriers of that half, and what stands whole in the file.

    split: "dev", "test", or "blind", which has the kinds of "test" and the rest of its own.
    """
    rows = [row.split("\t") for row in CROSSED.read_text("utf-8").splitlines() if not row.startswith("# ")]
    kinds = [row for row in rows if row[0] == "kind"][split != "dev" :: 2]
    carriers = [text for what, where, text, *_ in rows if what == "carrier" and where == split]
    found = []
    for place, (_, provider, variable, template) in enumerate(kinds):
        for turn in range(CARRIERS_EACH):
            number = (place * CARRIERS_EACH + turn + seed) % len(carriers)
            rng = random.Random(f"{seed} {provider} {number}")
            found.append(_carried(split, number, _lines(carriers[number]), provider, variable, filled(template, rng)))
    for number, (_, _, text) in enumerate(row for row in rows if row[:2] == ["whole", split]):
        made = filled(_lines(text), random.Random(f"{seed} {text}"))
        found.append(_marked(split, f"whole {number}", made))
    return found


def _carried(split: str, number: int, carrier: str, provider: str, variable: str, value: str) -> Planted:
    half = len(value) // 2
    text = _BASE64.sub(lambda found: base64.b64encode(found[1].replace("<S>", value).encode()).decode(), carrier)
    word = re.sub(r"\W", "", provider.lower())
    parts = {"<S>": value, "<1>": value[:half], "<2>": value[half:], "<P>": provider, "<p>": word, "<E>": variable}
    for sign, part in parts.items():
        text = text.replace(sign, part)
    return _marked(split, f"{provider} in carrier {number}", text)


def _marked(split: str, name: str, text: str) -> Planted:
    secret = text[text.index("⟦") + 1 : text.index("⟧")]
    return Planted(split, name, "", text.replace("⟦", "").replace("⟧", ""), secret)


_CLEAN = r"""
commit {hex:40} fixes the flaky lock test
回滚到 {hex:12} 之后恢复正常
The build of {hex:7}..{hex:7} is green.
docker.io/library/redis@sha256:{hex:64}
镜像摘要 sha256:{hex:64}
sha256sum dist/app.tar.gz gives {hex:64}
md5 {hex:32}  release.zip
checksum: {HEX:32}
request id {uuid} failed twice
会话 {uuid} 已结束
trace_id={hex:32} span_id={hex:16}
"integrity": "sha512-{b64:86}==",
h1:{b64:43}= in go.sum for golang.org/x/net v0.{d:2}.0
{ name = "serde", checksum = "{hex:64}" }
--hash=sha256:{hex:64}
<img src="data:image/png;base64,iVBORw0KGgo{b64:120}">
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43} jane@laptop
-----BEGIN CERTIFICATE-----\nMIID{b64:60}\n{b64:64}\n-----END CERTIFICATE-----
SHA256:{b64:43} is the host key's fingerprint
ETag: W/"{hex:32}"
object key logs/2026/11/{d:2}/{uuid}.json.gz
s3://acme-artifacts/builds/{hex:40}/app.whl
/var/lib/docker/overlay2/{hex:64}/merged
file app-{b62:8}.js is 240 kB after minify
index-{url:8}.css is cached for a year
node_modules/.pnpm/react@18.{d:1}.0_{low:26}/node_modules/react
version 2.{d:2}.{d:1}-rc.{d:1}+build.{hex:7}
升级到 v{d:1}.{d:2}.{d:1} 之后内存下降 12%
timestamp 17{d:8} equals Tuesday
2026-11-{d:2}T10:{d:2}:{d:2}.{d:6}Z worker started
port 54{d:2} is taken, use 80{d:2}
order 2026{d:9} was refunded
工单号 {d:10} 已关闭
ISBN 978-7-{d:3}-{d:5}-{d:1}
the tracking number is 1Z{up:16}
arn:aws:iam::{d:12}:role/deploy-{az:6}
vpc-0{hex:17} and subnet-0{hex:17} are in eu-west-1
i-0{hex:16} was terminated by the autoscaler
projects/{az:8}-{d:6}/locations/europe-west3
gs://bucket-{d:6}/{hex:8}
pod api-{hex:9}-{low:5} is crash looping
Merge branch 'feature/{az:9}-{d:4}' into main
https://github.com/acme/app/pull/{d:4}/files#diff-{hex:64}
https://example.com/posts/{uuid}?page=2&sort=asc
https://www.youtube.com/watch?v={url:11}
https://docs.google.com/document/d/{url:44}/edit
The password policy asks for 12 characters and two symbols.
密码策略：至少 {d:1}2 位，每 90 天更换
Passwords are hashed with argon2id, tokens expire after {d:2} minutes.
token bucket of {d:3} requests, refill {d:2} per second
password = os.environ["DB_PASSWORD"]
token: str = Field(default="", description="the bearer token")
if not secrets.compare_digest(token, expected): raise Refused()
api_key = config.get("api_key") or None
The secret lives in vault at kv/prod/{az:7}/db
密钥放在 vault 的 kv/prod/{az:6}，轮换周期 30 天
Authorization: Bearer <token>
export GITHUB_TOKEN=$(gh auth token)
password: ${{DB_PASSWORD}}
POSTGRES_PASSWORD=changeme_in_env is documented in README
mysql -u root -p shop < dump.sql
postgres://user:password@localhost:5432/db is the example URL
key: user:{d:6}:profile in redis, ttl 3600
primary key {d:8} was missing in the join
The key of the cache is sha1(url)[:{d:2}]
getUserAuthenticationTokenFromRequestContext is too long a name
com.example.payments.gateway.internal.TransactionTokenService{d:2}
AbstractSingletonProxyFactoryBean{d:1} has no tests
the passcode screen has {d:1} buttons
验证码有效期 {d:2} 分钟，重试 3 次
口令长度由 {az:6}_min_length 决定
temperature 21.{d:2} at 48.{d:6}, 11.{d:6}
matrix [[0.{d:16}, 0.{d:16}], [1.{d:15}, 2.{d:15}]]
loss=0.{d:6} acc=0.{d:6} lr=3e-4 step {d:6}
rgba(12, 200, {d:2}, 0.5) and #{hex:6}
\\u4f60\\u597d{d:4} is escaped Chinese
ACGTACGTGGCATTACGATCGATCGGATTACCAGTA{d:2}
quick sort of {d:7} rows takes {d:3} ms
Jane prefers tabs; the limit is {d:3} columns and {d:2} files
我们决定用 Qdrant {d:1}.{d:2}，端口 63{d:2}
用户喜欢简洁的回答，不超过 {d:2} 行
MAC aa:bb:cc:{hex:2}:{hex:2}:{hex:2}, IPv6 2001:db8::{hex:4}:{hex:4}
uid=100{d:1}(jane) gid=100{d:1} groups=27(sudo)
The session cookie is HttpOnly and lasts {d:2} days.
CSRF token check failed for /api/v{d:1}/orders
ticket ABC-{d:4}, sprint {d:2}, build #{d:5}
""".strip()


def look_alikes(count: int = 1_000, *, seed: int = 0) -> list[str]:
    """Return so many clean texts, the same for one seed."""
    templates = _CLEAN.split("\n")
    rng = random.Random(f"clean {seed}")
    return [filled(_lines(templates[place % len(templates)]), rng) for place in range(count)]


def clean_lines(split: str, *, seed: int = 0) -> list[str]:
    """Return the lines of a part of `CLEAN`, the same for one seed."""
    rows = (row.split("\t") for row in CLEAN.read_text("utf-8").splitlines() if not row.startswith("# "))
    return [filled(_lines(text), random.Random(f"{seed} {text}")) for where, text in rows if where == split]


def fingerprint(values: list[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:12]
