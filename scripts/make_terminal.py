"""Make docs/screenshots/terminal-en.svg and terminal-zh.svg: a minute at a real terminal, for README.

Nothing is drawn by hand: each command of `MINUTES` is run on a pseudo-terminal of 80 columns, against a real engine
with the bundled embedder and an empty memory whose human has a key (`init` was run before). What it printed is laid out
as text that CSS shows at its time, in a loop of 60 s; the text stands in `<desc>` as well. Without CSS animations, or
where the reader wants none, the lines are there at once. An answer that lacks what a step expects ends the script.

Rejected: a recording as GIF (megabytes, no text), and Rich's own SVG (one still, fonts from elsewhere).

    .venv/bin/python scripts/make_terminal.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from human_seat import Answer, Engine, Seat, on_terminal  # noqa: E402

from memory_anchor.testing import PASSPHRASE  # noqa: E402

FOLDER = ROOT / "docs" / "screenshots"
COLUMNS, ROWS = 80, 22
CELL, LINE, EDGE = 8.4, 19, 14
SECONDS, LAST_S = 60.0, 5.0
TYPED_S, WAIT_S, LINE_S, READ_S = 0.05, 0.6, 0.1, 0.7
"""A key, the wait for an answer, between two of its lines, and the time to read one; scaled to the minute."""
COLOURS = {1: "r", 2: "g", 3: "y", 6: "c"}
"""ANSI number -> CSS class."""
STYLE = """.t{font:14px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono","Noto Sans Mono CJK SC",monospace;\
fill:#e6edf3;white-space:pre}.b{font-weight:700}.d{fill:#8b949e}.g{fill:#3fb950}.c{fill:#39c5cf}.y{fill:#d29922}\
.r{fill:#ff7b72}.o{transform-box:fill-box;transform-origin:right;transform:scaleX(0)}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}"""


@dataclass(frozen=True)
class Step:
    """A command as it is typed, what a human answers, what its output must say and must not."""

    command: str
    says: str
    not_says: str = ""
    answers: tuple[Answer, ...] = ()


REVIEWED: tuple[Answer, ...] = (("Passphrase", PASSPHRASE), ("[s]: ", "a", True), ("[s]: ", "q", True))
MINUTES = {
    "en": (
        Step("memory-anchor install claude-code | tail -2", "claude-code (user): install done"),
        Step('memory-anchor add "The nightly export runs on cron" --type decision', "added"),
        Step('memory-anchor search "what starts the export at night?"', "The nightly export runs on cron", "weak"),
        Step('memory-anchor add "The nightly export moved from cron to systemd timers"', "superseded"),
        Step('memory-anchor search "what starts the export at night?"', "moved from cron to systemd", "runs on cron"),
        Step('memory-anchor search "夜间导出现在用 cron 还是 systemd？"', "moved from cron to systemd", "weak"),
        Step('memory-anchor add "The export may skip leap days" --confidence 0.75', "waits for `memory-anchor review`"),
        Step("memory-anchor review", "1 accepted", answers=REVIEWED),
    ),
    "zh": (
        Step("memory-anchor install claude-code | tail -2", "claude-code (user): install done"),
        Step('memory-anchor add "导出任务用 cron 跑" --type decision', "added"),
        Step('memory-anchor search "导出任务用什么跑？"', "导出任务用 cron 跑", "weak"),
        Step('memory-anchor add "导出任务从 cron 改用 systemd 定时器了"', "superseded"),
        Step('memory-anchor search "导出任务现在用什么定时？"', "改用 systemd 定时器", "用 cron 跑"),
        Step('memory-anchor search "导出任务怎么定时？"', "改用 systemd 定时器", "weak"),
        Step('memory-anchor add "导出可能会漏掉闰日" --confidence 0.75', "waits for `memory-anchor review`"),
        Step("memory-anchor review", "1 accepted", answers=REVIEWED),
    ),
}


@dataclass
class Shown:
    """A line of the screen: its runs with their styles, when it shows, and until when it is typed (0: at once)."""

    runs: list[Segment]
    at: float
    typed: float = 0.0
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = "".join(run.text for run in self.runs).rstrip()


def run(language: str) -> list[tuple[Step, list[Text]]]:
    """Type every command of a minute and return what each printed. Raises ValueError: not the right answer."""
    printed = []
    with tempfile.TemporaryDirectory(prefix="minute-") as folder:
        seat = Seat(Path(folder), project="greenhouse")
        seat.init()
        command = Path(folder) / "bin" / "memory-anchor"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m memory_anchor "$@"\n', encoding="utf-8")
        command.chmod(0o755)
        real = {"MEMORY_ANCHOR_EMBEDDER__KIND": "auto"}
        path = f"{command.parent}:{os.environ['PATH']}"
        env = seat.env(COLUMNS=str(COLUMNS), TERM="xterm-256color", PATH=path, **real)
        with Engine(seat, **real):
            for step in MINUTES[language]:
                shell = ["bash", "-c", step.command]
                code, screen = on_terminal(shell, seat.project, env, step.answers, columns=COLUMNS)
                lines = lines_of(screen)
                said = "\n".join(line.plain for line in lines)
                if code or step.says not in said or (step.not_says and step.not_says in said):
                    raise ValueError(f"{step.command}: exit {code}, and not {step.says!r} alone:\n{said}")
                printed.append((step, lines))
    return printed


def lines_of(screen: str) -> list[Text]:
    """Return the lines that stay on a terminal: of what was overwritten the last, blank ones at the end left out."""
    kept = "\n".join(re.split(r"\r(?!\n|$)|\x1b\[\d*K", line.rstrip("\r"))[-1] for line in screen.split("\n"))
    lines = list(AnsiDecoder().decode(kept))
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def laid_out(printed: list[tuple[Step, list[Text]]]) -> list[Shown]:
    """Return every line of the minute with its time, in seconds of the loop."""
    console = Console(width=COLUMNS, color_system="standard", force_terminal=True)
    shown, now = [], 0.5
    for step, lines in printed:
        keys = len(step.command)
        shown.append(Shown([Segment("$ ", Style(color="green")), Segment(step.command, Style(bold=True))], now))
        now += TYPED_S * keys
        shown[-1].typed = now
        now += WAIT_S
        for line in lines:
            for row in line.wrap(console, COLUMNS) or [Text("")]:
                shown.append(Shown([part for part in row.render(console) if part.text != "\n"], now))
                now += LINE_S
        now += READ_S * len(lines)
    stretch = (SECONDS - LAST_S) / now
    return [Shown(one.runs, one.at * stretch, one.typed * stretch) for one in shown]


def svg(language: str, shown: list[Shown]) -> str:
    """Return the picture: a window of `ROWS` lines that scrolls as a terminal does."""
    width, height = round(COLUMNS * CELL + 2 * EDGE), ROWS * LINE + 2 * EDGE
    told = escape("\n".join(one.text for one in shown))
    title = {"en": "A minute with Memory Anchor", "zh": "用 Memory Anchor 的一分钟"}[language]
    css, body = [STYLE, *scrolling(shown)], []
    for number, one in enumerate(shown):
        css.append(f"@keyframes k{number}{{0%{{visibility:hidden}}{share(one.at)}{{visibility:visible}}}}")
        y = number * LINE + 14
        body.append(f'<g style="animation:k{number} {SECONDS:g}s step-end infinite">{"".join(texts(one.runs, y))}')
        if one.typed:
            keys = cell_len(one.runs[1].text)
            css.append(
                f"@keyframes o{number}{{0%{{transform:scaleX(1)}}"
                f"{share(one.at)}{{transform:scaleX(1);animation-timing-function:steps({keys})}}"
                f"{share(one.typed)},100%{{transform:scaleX(0)}}}}"
            )
            body.append(
                f'<rect class="o" x="{2 * CELL:g}" y="{y - 14}" width="{keys * CELL:.1f}" height="{LINE}" '
                f'fill="#0d1117" style="animation:o{number} {SECONDS:g}s linear infinite"/>'
            )
        body.append("</g>\n")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="t d" xml:lang="{language}">\n<title id="t">{title}</title>\n'
        f'<desc id="d">{told}</desc>\n<style>{"".join(css)}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        f'<svg x="{EDGE}" y="{EDGE}" width="{width - 2 * EDGE}" height="{ROWS * LINE}">'
        f'<g style="animation:s {SECONDS:g}s step-end infinite">\n{"".join(body)}</g></svg>\n</svg>\n'
    )


def texts(runs: list[Segment], y: int) -> Iterator[str]:
    """Yield the runs of a line, each held to the width of its cells whatever font the reader has."""
    column = 0
    for run_ in runs:
        for part in re.findall(r"[\u2e80-\uffef]+|[^\u2e80-\uffef]+", run_.text):
            cells = cell_len(part)
            if part.strip():
                name = " ".join(["t", *classes(run_.style)])
                yield (
                    f'<text class="{name}" x="{column * CELL:g}" y="{y}" textLength="{cells * CELL:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{escape(part)}</text>'
                )
            column += cells


def classes(style: Style | None) -> list[str]:
    """Return the CSS classes of a style."""
    if style is None:
        return []
    colour = COLOURS.get(style.color.number or 0, "") if style.color else ""
    return [name for name, on in (("b", style.bold), ("d", style.dim), (colour, colour)) if on]


def scrolling(shown: list[Shown]) -> Iterator[str]:
    """Yield the keyframes that move the lines up as soon as there are more than fit."""
    rows = [(one.at, number + 1 - ROWS) for number, one in enumerate(shown) if number >= ROWS]
    frames = "".join(f"{share(at)}{{transform:translateY({-up * LINE}px)}}" for at, up in rows)
    yield f"@keyframes s{{0%{{transform:translateY(0)}}{frames}}}"


def share(at: float) -> str:
    return f"{100 * at / SECONDS:.2f}%"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    for language in MINUTES:
        picture = svg(language, laid_out(run(language)))
        file = options.out / f"terminal-{language}.svg"
        file.write_text(picture, encoding="utf-8")
        print(f"{file}: {len(picture.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
