"""`memory-anchor eval` asks the golden questions of one's own memory; `variants report` compares configured variants.

Golden questions are asked of the user's own store through its engine, and with `--variant` of a private copy.

`variants report` shows each figure with its 95 % interval, by two measures: golden questions asked now under each
variant, and how much of the memories that a variant returned in service the agents used (`service/telemetry`).
Rejected: one score made of both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.base.json_values import Json, Record, items, number, record, records, text, whole
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, data_dir, preamble
from memory_anchor.front.cli.output import JsonOption, clipped, err, escape, handle_errors, out, print_dim, show_json
from memory_anchor.front.cli.shorthand import full_id

if TYPE_CHECKING:
    from memory_anchor.extensions.evaluation.golden import GoldenQuestion
    from memory_anchor.extensions.evaluation.metrics import Answered

Many = list[str] | None
VARIANTS_MAX = 4
SHOWN_CHANGES = 20


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)
    variants = group(app, "variants", "Ways of recall side by side (`variants` in the settings).")
    variants.command("report")(report_variants)


@handle_errors
def evaluate(
    save: Annotated[str | None, typer.Option(metavar="QUERY", help="Save a golden question.")] = None,
    expects: Annotated[
        Many,
        typer.Option(metavar="ID", help="A memory that must answer it; repeatable.", autocompletion=completing.ids),
    ] = None,
    remove: Annotated[str | None, typer.Option(metavar="QUERY", help="Remove a golden question.")] = None,
    variant: Annotated[
        Many,
        typer.Option(
            metavar="SETTINGS",
            help="A settings file or name=value,...; twice to compare.",
            autocompletion=completing.variants,
        ),
    ] = None,
    in_service: Annotated[
        bool, typer.Option("--in-service", help="Configured variants: these questions, and use in service.")
    ] = False,
    golden: Annotated[bool, typer.Option("--golden", hidden=True)] = False,  # noqa: ARG001 - what it always does
    json_: JsonOption = False,
) -> None:
    """Ask your golden questions of your own memory: recall, time and tokens, under other settings too."""
    if in_service:
        report_variants(json_=json_)
        return
    if save is not None and remove is not None:
        raise BadInput("--save and --remove are given together; allowed is one of them at a time")
    if save is not None or remove is not None:
        _edit_golden(save, expects, remove, json_)
        return
    if expects:
        raise BadInput("--expects is given without --save; allowed is `eval --save QUERY --expects ID`")
    if len(variant or ()) > VARIANTS_MAX:
        raise BadInput(f"--variant is given {len(variant or ())} times; allowed are {VARIANTS_MAX}")
    questions = _saved_questions()
    if not questions:
        raise BadInput("no golden question is saved; save one with `memory-anchor eval --save QUERY --expects ID`")
    reports = _under_variants(questions, variant) if variant else [_as_set(questions)]
    if json_:
        show_json({"runs": reports})
        return
    for report in reports:
        _show(report)
    if len(reports) > 1:
        _show_side_by_side(reports)


def _saved_questions() -> list[GoldenQuestion]:
    from memory_anchor.extensions.evaluation import golden

    return golden.load(golden.folder_of(data_dir()))


def _as_set(questions: Sequence[GoldenQuestion]) -> Record:
    from memory_anchor.extensions.evaluation import golden, metrics

    err.print(f"[dim]· {len(questions)} questions on your own memory[/]")
    answer = call("ask_golden", questions=[question.query for question in questions])
    return {"variant": "as set", **metrics.figures(golden.answered(questions, records(answer["answers"])))}


def _under_variants(questions: Sequence[GoldenQuestion], texts: Sequence[str]) -> list[Record]:
    """Ask the questions of a copy of the user's memory under each variant. Raises BadInput: it has another embedder."""
    from memory_anchor.extensions.evaluation import golden, metrics
    from memory_anchor.front.calls import run
    from memory_anchor.settings import Settings

    who = preamble()
    own = golden.as_set(os.environ, who.project_dir)
    variants = [golden.variant(text, os.environ, who.project_dir) for text in texts]
    if any(chosen.settings.embedder != own.settings.embedder for chosen in variants):
        raise BadInput("--variant changes the embedder, which made your memory's vectors; allowed is anything else")
    err.print("[dim]· copying your memory[/]")
    with golden.copied(data_dir(), lambda file: call("backup_create", file=file)) as copy:
        reports: list[Record] = []
        for chosen in variants:
            err.print(f"[dim]· {escape(chosen.name)}: {len(questions)} questions on a copy of your memory[/]")
            answer = copy.answers(
                chosen.settings,
                [question.query for question in questions],
                lambda core, asked: run(core, who, "ask_golden", {"questions": list(asked)}),
            )
            figures = metrics.figures(golden.answered(questions, records(answer["answers"])))
            changed = metrics.changed_settings(
                chosen.settings.model_dump(mode="json"), Settings().model_dump(mode="json")
            )
            reports.append({"variant": chosen.name, "settings": changed, **figures})
    return reports


def _edit_golden(save: str | None, expects: Many, remove: str | None, as_json: bool) -> None:
    from memory_anchor.extensions.evaluation import golden
    from memory_anchor.language.safety import cleaned

    folder = golden.folder_of(data_dir())
    if save is not None:
        checked = golden.checked(cleaned(save).text, [full_id(prefix) for prefix in expects] if expects else expects)
        for memory_id in checked.expects:
            call("show", id=memory_id)  # NotFound says which one this memory does not hold
        saved = golden.save(folder, checked.query, checked.expects)
        if as_json:
            show_json({"query": saved.query, "expects": list(saved.expects), "questions": len(golden.load(folder))})
        else:
            wanted = ", ".join(saved.expects) or "nothing at all"
            print_dim(f"saved; it must be answered by {wanted}")
        return
    gone = golden.remove(folder, cleaned(remove or "").text)
    if as_json:
        show_json({"removed": gone, "questions": len(golden.load(folder))})
    else:
        print_dim("removed" if gone else "no such golden question")


def _show(report: Record) -> None:
    from memory_anchor.extensions.evaluation.metrics import COMPARED

    name = "" if report["variant"] == "as set" else f" [dim]with[/] {escape(text(report['variant']))}"
    out.print(f"\n[bold]golden[/]{name}: {report['questions']} questions")
    overall, unanswerable = record(report["overall"]), record(report["unanswerable"])
    if overall:
        out.print(", ".join(f"{column} {100 * number(overall[column]):.1f}" for column in COMPARED))
    if unanswerable["questions"]:
        out.print(f"rightly empty: {unanswerable['empty']} of {unanswerable['questions']}")
    ms, tokens, beyond = (record(report[name]) for name in ("ms", "answer_tokens", "answer_tokens_beyond_text"))
    out.print(
        f"search p50 {ms['p50']} ms, p95 {ms['p95']} ms; an answer of 5 costs {tokens['mean']} tokens, "
        f"{beyond['mean']} of them beyond the memories' own text"
    )
    for result in records(report["results"]):
        if not result["found"]:
            place = f"rank {result['rank']}" if result["rank"] else "not as wanted"
            out.print(f"  [red]✗[/] {escape(clipped(text(result['query']), 90))} [dim]{place}[/]")


def _show_changes(changes: Record) -> None:
    metrics = {name: 100 * number(change) for name, change in record(changes["metrics"]).items()}
    moved = ", ".join(f"{name} {change:+.1f}" for name, change in metrics.items()) or "recall the same"
    out.print(f"{moved}; p50 {changes['ms_p50']:+.1f} ms, answer {changes['answer_tokens']:+.1f} tokens")
    for mark, name in (("[red]lost[/]", "lost"), ("[green]found[/]", "found")):
        for change in records(items(changes[name])[:SHOWN_CHANGES]):
            was_is = f"rank {change['was'] or '-'} -> {change['is'] or '-'}"
            out.print(f"  {mark} {escape(clipped(text(change['query']), 90))} [dim]{was_is}[/]")


def _show_side_by_side(reports: Sequence[Record]) -> None:
    from rich.table import Table

    from memory_anchor.extensions.evaluation.metrics import COMPARED, compared

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", *COMPARED, "found", "p50 ms", "p95 ms", "tokens"):
        table.add_column(column, justify="left" if not column else "right")
    out.print("\n[bold]side by side[/] [dim](medians and shares with their 95 % intervals)[/]")
    lettered = list(zip("ABCD", reports, strict=False))
    for letter, report in lettered:
        out.print(f"{letter}: {escape(text(report['variant']))}")
    for letter, report in lettered:
        recall = [f"{100 * number(record(report['overall']).get(column, 0)):.1f}" for column in COMPARED]
        spans = record(report["intervals"])
        found, ms, tokens = _share(spans["found"]), _span(spans["ms"]), _span(spans["tokens"])
        table.add_row(letter, *recall, found, ms, str(record(report["ms"])["p95"]), tokens)
    out.print(table)
    first, *others = reports
    for other in others:
        out.print(f"\n{escape(text(other['variant']))} [dim]against[/] {escape(text(first['variant']))}")
        _show_changes(compared(first, other))


OWN = "default"
VARIANT_COLUMNS = ("golden found", "golden ms", "golden tokens", "heeded", "served ms", "served tokens")


@handle_errors
def report_variants(json_: JsonOption = False) -> None:
    """Compare variants: golden questions, heeded memories, tokens and times, with intervals."""
    from memory_anchor.extensions.evaluation import golden

    questions = _saved_questions()
    rows: list[Record] = []
    first: list[Answered] = []
    for counts in records(call("variants")["variants"]):
        row: dict[str, Json] = {name: counts[name] for name in ("variant", "index_version", "algo_version")}
        if counts["served"]:
            row["served"] = _served(record(counts["served"]))
        if questions:
            asked = [question.query for question in questions]
            name = "" if counts["variant"] == OWN else counts["variant"]
            answer = call("ask_golden", questions=asked, variant=name)
            answers = golden.answered(questions, records(answer["answers"]))
            first = first or answers
            row["golden"] = _golden_shares(answers, against=None if answers is first else first)
        rows.append(row)
    if json_:
        show_json({"interval": 0.95, "variants": rows})
        return
    _show_variants(rows, has_golden=bool(questions))


def _served(counts: Record) -> Record:
    from memory_anchor.extensions.evaluation.metrics import median_interval, share_interval

    return {
        **{name: counts[name] for name in ("searches", "shown", "heeded")},
        "heeded_share": _rounded(share_interval(whole(counts["heeded"]), whole(counts["shown"])), 3),
        "ms": _rounded(median_interval(_numbers(counts["ms"])), 2),
        "tokens": _rounded(median_interval(_numbers(counts["tokens"])), 1),
    }


def _golden_shares(answers: Sequence[Answered], *, against: Sequence[Answered] | None) -> Record:
    from memory_anchor.extensions.evaluation.metrics import median_interval, paired_interval, share_interval

    found = sum(answer.found for answer in answers)
    shares: dict[str, Json] = {
        "questions": len(answers),
        "found": found,
        "share": _rounded(share_interval(found, len(answers)), 3),
        "ms": _rounded(median_interval([answer.ms for answer in answers]), 2),
        "tokens": _rounded(median_interval([answer.tokens for answer in answers]), 1),
    }
    if against is not None:
        pairs = list(zip(against, answers, strict=True))
        won = sum(new.found and not old.found for old, new in pairs)
        lost = sum(old.found and not new.found for old, new in pairs)
        shares["against_default"] = {
            "won": won,
            "lost": lost,
            "share": _rounded(paired_interval(won, lost, len(pairs)), 3),
            "ms": _rounded(median_interval([new.ms - old.ms for old, new in pairs]), 2),
            "tokens": _rounded(median_interval([new.tokens - old.tokens for old, new in pairs]), 1),
        }
    return shares


def _rounded(interval: tuple[float, float, float], digits: int) -> list[float]:
    return [round(value, digits) for value in interval]


def _show_variants(rows: Sequence[Record], *, has_golden: bool) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", *VARIANT_COLUMNS):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        golden, served = record(row.get("golden")), record(row.get("served"))
        cells = [_share(golden["share"]), _span(golden["ms"]), _span(golden["tokens"])] if golden else ["-"] * 3
        cells += [_share(served["heeded_share"]) if served["shown"] else "-"] if served else ["-"]
        cells += [_span(served["ms"]), _span(served["tokens"])] if served else ["-"] * 2
        table.add_row(escape(text(row["variant"])), *cells)
    out.print(table)
    for row in rows:
        if more := record(record(row.get("golden")).get("against_default")):
            low, high = (f"{100 * share:+.0f}" for share in _numbers(more["share"])[1:])
            out.print(
                f"{escape(text(row['variant']))} [dim]against default:[/] {more['won']} won, {more['lost']} lost "
                f"({low} to {high} points), {_span(more['ms'])} ms, {_span(more['tokens'])} tokens"
            )
    for row in rows:
        out.print(
            f"[dim]{escape(text(row['variant']))}: index {row['index_version']}, algorithm {row['algo_version']}[/]"
        )
    if len(rows) == 1:
        print_dim("no other way is configured: `variants.NAME.retrieval` in your settings")
    if not has_golden:
        print_dim("no golden question is saved: `memory-anchor eval --save QUERY --expects ID`")


def _numbers(values: Json) -> list[float]:
    return [number(value) for value in items(values)]


def _share(share: Json) -> str:
    value, low, high = (round(100 * value) for value in _numbers(share))
    return f"{value} % ({low} to {high})"


def _span(interval: Json) -> str:
    value, low, high = _numbers(interval)
    return f"{value:g} ({low:g} to {high:g})"
