"""PDF, DOCX, HTML and a user's own converter: untrusted bytes, parsed in a process of their own.

A parser that crashes, loops or allocates without end ends only its own process, which has limits of time, memory and
output; it reads the file from standard input and answers on standard output. `python -m` runs this module.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html import unescape

from memory_anchor.base.json_values import Record, parsed, record, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.language.safe_regex import late

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
TIMEOUT_S = 60
MEMORY_BYTES_MAX = 2 * 1024 * 1024 * 1024
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
PAGES_MAX = 1_000
UNPACKED_BYTES_MAX = 64 * 1024 * 1024
MEMBERS_MAX = 10_000
PAGE_CHARS_MAX = 32 * 1024
"""Up to this size HTML is parsed in this process."""


def pages_of(content: bytes, name: str) -> tuple[str, tuple[int, ...]]:
    """Return a PDF's text and the line on which each page begins. Raises BadInput."""
    starts: list[int] = []
    lines: list[str] = []
    for page in texts(_parsed_apart("pdf", content, name)["pages"]):
        starts.append(len(lines) + 1)
        lines += [*page.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n"), ""]
    return "\n".join(lines), tuple(starts)


def docx(content: bytes, name: str) -> str:
    """Return a DOCX as Markdown. Raises BadInput, also for an archive that unpacks to more than it may."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
    except (zipfile.BadZipFile, OSError, ValueError):
        raise BadInput(f"{name} is left out: it is no DOCX; save it again as .docx") from None
    if size > UNPACKED_BYTES_MAX or len(members) > MEMBERS_MAX:
        raise BadInput(
            f"{name} is left out: it unpacks to {size} bytes in {len(members)} parts, allowed are "
            f"{UNPACKED_BYTES_MAX}; save it without its pictures"
        )
    return str(_parsed_apart("docx", content, name)["text"])


def html(page: str, name: str) -> str:
    """Return a page as Markdown. Raises BadInput. A large one is parsed apart, where it slows nobody down."""
    if len(page) <= PAGE_CHARS_MAX:
        return main_text(page)
    return str(_parsed_apart("html", page.encode("utf-8", "replace"), name)["text"])


def by_command(command: str, content: bytes, name: str) -> str:
    """Return the Markdown that a user's command writes for the bytes on its input. Raises BadInput."""
    try:
        output = _run(shlex.split(command), content)
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} is left out: the converter {command[:80]!r} cannot be run ({error})") from None
    if output is None:
        raise BadInput(f"{name} is left out: the converter {command[:80]!r} failed, or took over {TIMEOUT_S} s")
    return output.decode("utf-8", "replace").replace("\0", "")


def _parsed_apart(kind: str, content: bytes, name: str) -> Record:
    """Return the answer of a parser in a process of its own. Raises BadInput: it failed, or reports an error."""
    try:
        output = _run([sys.executable, "-m", "memory_anchor.extensions.knowledge.convert", kind], content)
    except OSError as error:
        raise BadInput(f"{name} is left out: its parser cannot be started ({error.strerror})") from None
    if output is None:
        raise BadInput(f"{name} is left out: its parser ended, or took over {TIMEOUT_S} s; convert it to Markdown")
    answer = record(parsed(output))
    if wrong := answer.get("wrong"):
        raise BadInput(f"{name} is left out: {wrong}")
    return answer


def _run(command: list[str], content: bytes) -> bytes | None:
    """Return what a program printed, None when it failed, took too long or printed too much."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    ) as process:
        _limit(process.pid)
        try:
            output, _ = process.communicate(content, timeout=TIMEOUT_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            return None
    return output if process.returncode == 0 and len(output) <= OUTPUT_BYTES_MAX else None


def _limit(pid: int) -> None:
    if sys.platform == "linux":
        import contextlib
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            resource.prlimit(pid, resource.RLIMIT_CPU, (TIMEOUT_S, TIMEOUT_S))


# --- a page ----------------------------------------------------------------------------------------------------------

LEFT_OUT = frozenset("script style nav footer header aside form noscript template svg head iframe".split())  # noqa: SIM905
BLOCKS = frozenset("p div section article main ul ol table tr blockquote dl dd dt br hr".split())  # noqa: SIM905
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKUP = late(r"<(?:!--|[!?]|(?P<closes>/?)(?P<name>[A-Za-z][^\s/>]{0,40}))")
_TAG_STOP = late("[>\"']")
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}
"""Elements in which nothing is markup, and what ends them."""
_MAIN = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("main", "article")}
_CHARACTER = late(r"&(?:#\d{1,7}(?!\d)|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F])|[A-Za-z][A-Za-z0-9]{1,31});?")


def main_text(page: str) -> str:
    """Return a page's main text as Markdown: its `main` or `article` where it has one, without menus and scripts.

    Read in one pass, whose time is linear in any text; `html.parser` took its square for some, and raised for others.
    """
    main = re.search(r"<(main|article)\b", page, re.IGNORECASE)
    ends = [end.start() for end in _MAIN[main[1].lower()].finditer(page)] if main else []
    writer = _MarkdownWriter()
    for kind, value in _markup(page[main.start() : ends[-1]] if main and ends and ends[-1] > main.start() else page):
        writer.add(kind, value)
    lines = "".join(writer.parts).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip() + "\n"


def _markup(page: str) -> Iterator[tuple[str, str]]:
    """Yield the text of a page and its tags in order: ("text", words), ("start", name), ("end", name).

    What begins like markup and never ends is text, with all that follows.
    """
    at = 0
    while match := _MARKUP.search(page, at):
        yield "text", page[at : match.start()]
        name = (match["name"] or "").lower()
        closing = "-->" if match.group() == "<!--" else ">"
        end = _end_of_tag(page, match.end()) if name else page.find(closing, match.end())
        if end < 0:
            at = match.start()
            break
        at = end + (1 if name else len(closing))
        if not name:
            continue
        if match["closes"]:
            yield "end", name
        elif page[end - 1] == "/":
            yield from (("start", name), ("end", name))
        else:
            yield "start", name
            if name in _RAW:
                closed = _RAW[name].search(page, at)
                if closed is None:
                    return
                at = closed.start()
    yield "text", page[at:]


def _end_of_tag(page: str, at: int) -> int:
    """Return where a tag's `>` is, outside of quoted values; -1: nowhere."""
    while stop := _TAG_STOP.search(page, at):
        if stop.group() == ">":
            return stop.start()
        closed = page.find(stop.group(), stop.end())
        if closed < 0:
            return page.find(">", stop.end())
        at = closed + 1
    return -1


class _MarkdownWriter:
    """Writes headings, paragraphs, lists, tables and code as they come. parts: what is written, to be joined."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._hidden_by, self._depth = "", 0
        """The outermost element that is left out, and how many of its name are open."""
        self._pre = 0

    def add(self, kind: str, value: str) -> None:
        if self._hidden_by or (kind == "start" and value in LEFT_OUT):
            self._hide(kind, value)
        elif kind == "text":
            text = _CHARACTER.sub(lambda match: unescape(match.group()), value)
            self.parts.append(text if self._pre else re.sub(r"\s+", " ", text))
        elif value == "pre":
            self._pre = max(0, self._pre + (1 if kind == "start" else -1))
            self.parts.append("\n\n```\n" if kind == "start" else "\n```\n\n")
        elif kind == "start":
            self._start(value)
        elif value in HEADINGS or value in BLOCKS:
            self.parts.append("\n\n" if value not in ("tr", "ul", "ol") else "\n")

    def _hide(self, kind: str, value: str) -> None:
        if kind == "start" and not self._hidden_by:
            self._hidden_by, self._depth = value, 1
        elif kind != "text" and value == self._hidden_by:
            self._depth += 1 if kind == "start" else -1
            if not self._depth:
                self._hidden_by = ""

    def _start(self, name: str) -> None:
        if name in HEADINGS:
            self.parts.append(f"\n\n{HEADINGS[name]} ")
        elif name == "li":
            self.parts.append("\n- ")
        elif name in ("td", "th"):
            self.parts.append(" | ")
        elif name in BLOCKS:
            self.parts.append("\n" if name in ("br", "tr", "ul", "ol") else "\n\n")


# --- inside the child --------------------------------------------------------------------------------------------


def _pdf(content: bytes) -> dict[str, object]:
    try:
        import pypdfium2
    except ImportError:
        return {"wrong": "PDF needs `pip install 'memory-anchor[documents]'`, or a --converter"}
    try:
        pdf = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error):
            return {"wrong": "it is encrypted; save it without a password"}
        return {"wrong": "it is no PDF that can be read; save it again"}
    if len(pdf) > PAGES_MAX:
        return {"wrong": f"it has {len(pdf)} pages, allowed are {PAGES_MAX}; split it"}
    pages = [page.get_textpage().get_text_range() for page in pdf]
    if not any(page.strip() for page in pages):
        return {"wrong": "its pages hold pictures and no text; run it through text recognition first"}
    return {"pages": pages}


def _docx(content: bytes) -> dict[str, object]:
    try:
        import mammoth
    except ImportError:
        return {"wrong": "DOCX needs `pip install 'memory-anchor[documents]'`, or a --converter"}
    try:
        converted = mammoth.convert_to_html(io.BytesIO(content), convert_image=mammoth.images.img_element(lambda _: {}))
    except Exception:  # the parser may raise anything for an untrusted file
        return {"wrong": "it is no DOCX that can be read; save it again"}
    return {"text": main_text(converted.value)}


def _html(content: bytes) -> dict[str, object]:
    return {"text": main_text(content.decode("utf-8"))}


def main() -> None:
    content = sys.stdin.buffer.read()
    kinds = {"pdf": _pdf, "docx": _docx, "html": _html}
    json.dump(kinds[sys.argv[1]](content), sys.stdout)


if __name__ == "__main__":
    main()
