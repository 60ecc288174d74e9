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
from html.parser import HTMLParser

from memory_anchor.base.json_values import Record, parsed, record, texts
from memory_anchor.errors import BadInput

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
    """Return a page as Markdown. Raises BadInput.

    A large one is parsed apart: the standard parser takes time that grows with the square of a hostile one.
    """
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
        output = _run([sys.executable, "-m", "memory_anchor.knowledge.convert", kind], content)
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


class _Extractor(HTMLParser):
    """Makes Markdown of a page: headings, paragraphs, lists, tables and code, without menus and scripts."""

    LEFT_OUT = frozenset("script style nav footer header aside form noscript template svg head iframe".split())  # noqa: SIM905
    BLOCKS = frozenset("p div section article main ul ol table tr blockquote dl dd dt br hr".split())  # noqa: SIM905

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden: list[str] = []
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in self.LEFT_OUT:
            self._hidden.append(tag)
        elif self._hidden:
            return
        elif re.fullmatch("h[1-6]", tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "pre":
            self._pre += 1
            self.parts.append("\n\n```\n")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag in self.BLOCKS:
            self.parts.append("\n" if tag in ("br", "tr", "ul", "ol") else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif self._hidden:
            return
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self.parts.append("\n```\n\n")
        elif re.fullmatch("h[1-6]", tag) or tag in self.BLOCKS:
            self.parts.append("\n\n" if tag not in ("tr", "ul", "ol") else "\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))


def main_text(page: str) -> str:
    """Return a page's main text as Markdown: its `main` or `article` where it has one."""
    main = re.search(r"<(main|article)\b", page, re.IGNORECASE)
    end = page.lower().rfind(f"</{main[1].lower()}") if main else -1
    extractor = _Extractor()
    extractor.feed(page[main.start() : end] if main and end > main.start() else page)
    extractor.close()
    lines = "".join(extractor.parts).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip() + "\n"


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
