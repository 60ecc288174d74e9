"""`memory-anchor variants report`: the configured ways of recall side by side, each figure with its 95 % interval.

Success is told twice: by golden questions, asked now of this memory under each variant, and by how much of what a
variant told in service the agents used (`team/variant_use`). Rejected: one score made of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, data_dir
from memory_anchor.front.cli.output import JsonOption, guarded, out, quiet, show_json
from memory_anchor.json_values import Json, Record, items, number, record, records, text, whole

if TYPE_CHECKING:
    from memory_anchor.evaluation.runner import Answered

OWN = "default"
COLUMNS = ("golden found", "golden ms", "golden tokens", "heeded", "served ms", "served tokens")


def register(app: typer.Typer) -> None:
    variants = group(app, "variants", "Ways of recall side by side (`variants` in the settings).")
    variants.command("report")(report)


@guarded
def report(json_: JsonOption = False) -> None:
    """Compare variants: golden questions, heeded memories, tokens and times, with intervals."""
    from memory_anchor.evaluation import golden, runs

    questions = golden.load(runs.folder_of(data_dir()))
    told: list[Record] = []
    first: list[Answered] = []
    for one in records(call("variants")["variants"]):
        row: dict[str, Json] = {name: one[name] for name in ("variant", "index_version", "algo_version")}
        if one["served"]:
            row["served"] = _served(record(one["served"]))
        if questions:
            asked = [question.query for question in questions]
            name = "" if one["variant"] == OWN else one["variant"]
            told_of = call("ask_golden", questions=asked, variant=name)
            answers = golden.answered(questions, records(told_of["answers"]))
            first = first or answers
            row["golden"] = _golden(answers, against=None if answers is first else first)
        told.append(row)
    if json_:
        show_json({"interval": 0.95, "variants": told})
        return
    _show(told, has_golden=bool(questions))


def _served(counts: Record) -> Record:
    from memory_anchor.evaluation.metrics import median_interval, share_interval

    return {
        **{name: counts[name] for name in ("searches", "told", "heeded")},
        "heeded_share": _rounded(share_interval(whole(counts["heeded"]), whole(counts["told"])), 3),
        "ms": _rounded(median_interval(_numbers(counts["ms"])), 2),
        "tokens": _rounded(median_interval(_numbers(counts["tokens"])), 1),
    }


def _golden(answers: Sequence[Answered], *, against: Sequence[Answered] | None) -> Record:
    from memory_anchor.evaluation.metrics import median_interval, paired_interval, share_interval

    found = sum(one.found for one in answers)
    told: dict[str, Json] = {
        "questions": len(answers),
        "found": found,
        "share": _rounded(share_interval(found, len(answers)), 3),
        "ms": _rounded(median_interval([one.ms for one in answers]), 2),
        "tokens": _rounded(median_interval([one.tokens for one in answers]), 1),
    }
    if against is not None:
        pairs = list(zip(against, answers, strict=True))
        won = sum(new.found and not old.found for old, new in pairs)
        lost = sum(old.found and not new.found for old, new in pairs)
        told["against_default"] = {
            "won": won,
            "lost": lost,
            "share": _rounded(paired_interval(won, lost, len(pairs)), 3),
            "ms": _rounded(median_interval([new.ms - old.ms for old, new in pairs]), 2),
            "tokens": _rounded(median_interval([new.tokens - old.tokens for old, new in pairs]), 1),
        }
    return told


def _rounded(interval: tuple[float, float, float], digits: int) -> list[float]:
    return [round(one, digits) for one in interval]


def _show(told: Sequence[Record], *, has_golden: bool) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", *COLUMNS):
        table.add_column(column, justify="left" if not column else "right")
    for one in told:
        golden, served = record(one.get("golden")), record(one.get("served"))
        cells = [_share(golden["share"]), _span(golden["ms"]), _span(golden["tokens"])] if golden else ["-"] * 3
        cells += [_share(served["heeded_share"]) if served["told"] else "-"] if served else ["-"]
        cells += [_span(served["ms"]), _span(served["tokens"])] if served else ["-"] * 2
        table.add_row(escape(text(one["variant"])), *cells)
    out.print(table)
    for one in told:
        if more := record(record(one.get("golden")).get("against_default")):
            low, high = (f"{100 * share:+.0f}" for share in _numbers(more["share"])[1:])
            out.print(
                f"{escape(text(one['variant']))} [dim]against default:[/] {more['won']} won, {more['lost']} lost "
                f"({low} to {high} points), {_span(more['ms'])} ms, {_span(more['tokens'])} tokens"
            )
    for one in told:
        out.print(
            f"[dim]{escape(text(one['variant']))}: index {one['index_version']}, algorithm {one['algo_version']}[/]"
        )
    if len(told) == 1:
        quiet("no other way is configured: `variants.NAME.retrieval` in your settings")
    if not has_golden:
        quiet("no golden question is saved: `memory-anchor eval --save QUERY --expects ID`")


def _numbers(values: Json) -> list[float]:
    return [number(one) for one in items(values)]


def _share(share: Json) -> str:
    value, low, high = (round(100 * one) for one in _numbers(share))
    return f"{value} % ({low} to {high})"


def _span(interval: Json) -> str:
    value, low, high = _numbers(interval)
    return f"{value:g} ({low:g} to {high:g})"
