"""`memory-anchor eval` measures recall here, with these settings; `variants report` compares configured variants.

Bundled questions and data sets run in scratch folders with the user's settings. Golden questions are asked of the
user's own store through its engine, and with `--variant` of a private copy. Every run without a variant is saved and
compared with the last of its kind.

`variants report` shows each figure with its 95 % interval, by two measures: golden questions asked now under each
variant, and how much of the memories that a variant returned in service the agents used (`team/telemetry`). Rejected:
one score made of both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from memory_anchor.base.json_values import Json, Record, items, number, record, records, text, whole
from memory_anchor.errors import BadInput
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, data_dir, preamble
from memory_anchor.front.cli.output import JsonOption, clipped, err, handle_errors, out, print_dim, show_json
from memory_anchor.front.cli.shorthand import full_id
from memory_anchor.runtime import wire

if TYPE_CHECKING:
    from memory_anchor.evaluation.golden import Variant
    from memory_anchor.evaluation.metrics import CachedRows
    from memory_anchor.evaluation.questions import Case
    from memory_anchor.evaluation.runner import Answered
    from memory_anchor.settings import Settings

Many = list[str] | None
VARIANTS_MAX = 4
COLUMNS = ("R@1", "R@5", "R@10", "any@5", "all@10", "MRR", "nDCG@10")
SHOWN_CHANGES = 20
NO_GOLDEN = "no golden question is saved; save one with `memory-anchor eval --save QUERY --expects ID`"


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


@handle_errors
def evaluate(
    locomo: Annotated[Path | None, typer.Option(metavar="FILE", help="A LoCoMo file.")] = None,
    longmemeval: Annotated[Path | None, typer.Option(metavar="FILE", help="A LongMemEval file.")] = None,
    stores: Annotated[int | None, typer.Option(min=1, help="Only the first N conversations of a file.")] = None,
    golden: Annotated[bool, typer.Option("--golden", help="Only your golden questions, on your own memory.")] = False,
    bundled: Annotated[bool, typer.Option("--bundled", help="Only the bundled questions.")] = False,
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
    capture: Annotated[bool, typer.Option("--capture", help="What is kept of conversations instead.")] = False,
    transcript: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="With --capture: your own, instead of the bundled ones.")
    ] = None,
    knowledge: Annotated[bool, typer.Option("--knowledge", help="Only passages of docs/, in a checkout.")] = False,
    json_: JsonOption = False,
) -> None:
    """Measure recall, time and tokens: bundled questions, your golden ones, LoCoMo or LongMemEval files."""
    if save is not None and remove is not None:
        raise BadInput("--save and --remove are given together; allowed is one of them at a time")
    if save is not None or remove is not None:
        _edit_golden(save, expects, remove, json_)
        return
    if expects:
        raise BadInput("--expects is given without --save; allowed is `eval --save QUERY --expects ID`")
    if len(variant or ()) > VARIANTS_MAX:
        raise BadInput(f"--variant is given {len(variant or ())} times; allowed are {VARIANTS_MAX}")
    if knowledge:
        _eval_knowledge(variant, as_json=json_)
        return
    if transcript and not capture:
        raise BadInput("--transcript is given without --capture; allowed is `eval --capture --transcript FILE`")
    if capture:
        _eval_capture(transcript or (), variant, as_json=json_)
        return
    for name, path in (("--locomo", locomo), ("--longmemeval", longmemeval)):
        if path is not None and not path.is_file():
            raise BadInput(f"{name} names {str(path)!r}, which is no file; allowed is the path of one")
    everything = not (locomo or longmemeval or golden or bundled)
    reports: list[Record] = []
    if bundled or everything:
        from memory_anchor.evaluation import questions

        reports += _each_variant("bundled", lambda: [questions.bundled()], variant)
        reports += _each_variant("week", lambda: [questions.week()], variant)
        reports += _each_variant("newest", lambda: [questions.repeated(times) for times in questions.TOLD], variant)
    reports += _files(locomo, longmemeval, stores, variant)
    if golden or (everything and not variant):
        reports += _golden_variants(variant) if variant else _golden(asked_for=golden)
    if json_:
        show_json({"runs": reports})
    else:
        for report in reports:
            _show(report)
        if variant and len(variant) > 1:
            _show_side_by_side(reports)


def _eval_knowledge(variants: Many, *, as_json: bool) -> None:
    """Show how well the bundled questions find their passages in the project's documents, under each variant."""
    from memory_anchor.evaluation import runner
    from memory_anchor.evaluation.golden import chosen_of

    docs = Path(preamble().project_dir or wire.working_folder()) / "docs"
    reports: list[Record] = []
    for chosen in chosen_of(variants, os.environ, preamble().project_dir):
        _progress(f"knowledge ({chosen.name})")
        with _saved_rows(chosen) as embedder:
            reports += [
                {"variant": chosen.name, **row} for row in runner.run_knowledge(docs, chosen.settings, embedder)
            ]
    if as_json:
        show_json({"runs": reports})
        return
    for row in reports:
        out.print(escape(", ".join(f"{name} {value}" for name, value in row.items() if name != "kind")))


def _eval_capture(transcripts: Sequence[Path], variants: Many, *, as_json: bool) -> None:
    """Show what is kept of the bundled sessions, or of one's own transcripts, under each variant."""
    from memory_anchor.evaluation import runner
    from memory_anchor.evaluation.golden import chosen_of
    from memory_anchor.hooks import newest
    from memory_anchor.ingest.transcripts import read_transcript

    own = [(path.name, newest(read_transcript(path)[0])) for path in transcripts]
    reports: list[Record] = []
    for chosen in chosen_of(variants, os.environ, preamble().project_dir):
        _progress(f"capture ({chosen.name})")
        with _saved_rows(chosen) as rows:
            if own:
                previews = [runner.would_keep(messages, name, chosen.settings, rows) for name, messages in own]
                reports.append({"kind": "capture", "variant": chosen.name, "transcripts": previews})
            else:
                figures = runner.run_capture(runner.sessions(), chosen.settings, rows, say=_progress)
                reports.append({"kind": "capture", "variant": chosen.name, **figures})
    if as_json:
        show_json({"runs": reports})
        return
    for report in reports:
        _show_capture(report)


def _show_capture(report: Record) -> None:
    out.print(f"\n[bold]capture[/] [dim]{escape(text(report['variant']))}[/]")
    for language, row in record(report.get("by_language", {})).items():
        share = record(row)
        out.print(
            f"{language}: recall {share['recall']:.2f} ({share['found']} of {share['wanted']}), precision "
            f"{share['precision']:.2f} ({share['right']} of {share['kept']}), right type {share['type_right']:.2f}"
        )
    for session in records(report.get("sessions", ())):
        name = escape(text(session["session"]))
        for item in records(session["missed"]):
            out.print(f"  [red]missed[/] {name}: {escape(clipped(text(item['text']), 90))}")
        for item in records(session["too_much"]):
            out.print(f"  [yellow]too much[/] {name}: {escape(clipped(text(item['content']), 90))}")
    for preview in records(report.get("transcripts", ())):
        out.print(f"{escape(text(preview['transcript']))}: {preview['kept']} kept of {preview['messages']} messages")
        for item in records(preview["memories"]):
            out.print(f"  [dim]{item['type']}, {item['status']}[/] {escape(clipped(text(item['content']), 110))}")


def _files(locomo: Path | None, longmemeval: Path | None, stores: int | None, variants: Many) -> list[Record]:
    from memory_anchor.evaluation import metrics, questions

    reports = []
    for name, path, load in (("locomo", locomo, questions.locomo), ("longmemeval", longmemeval, questions.longmemeval)):
        if path is not None:
            kind = metrics.kind_of_file(name, path) + (f"-{stores}" if stores else "")
            reports += _each_variant(kind, partial(load, path, stores=stores), variants)
    return reports


def _each_variant(kind: str, cases: Callable[[], Iterable[Case]], variants: Many) -> list[Record]:
    """Run the cases under each variant; without a variant, under the current settings, saved and compared."""
    from memory_anchor.evaluation.golden import chosen_of

    reports = [_run(kind, cases(), chosen) for chosen in chosen_of(variants, os.environ, preamble().project_dir)]
    return reports if variants else [_saved(report) for report in reports]


@contextmanager
def _saved_rows(chosen: Variant) -> Iterator[CachedRows | None]:
    """Yield a variant's embedder that saves its vectors for the next run; None for words alone."""
    from memory_anchor.app import embedder_of
    from memory_anchor.evaluation import metrics
    from memory_anchor.evaluation.metrics import CachedRows

    embedder = embedder_of(chosen.settings, data_dir())
    rows = CachedRows(embedder, metrics.folder_of(data_dir())) if embedder is not None else None
    try:
        yield rows
    finally:
        if rows is not None:
            rows.save()


def _run(kind: str, cases: Iterable[Case], chosen: Variant) -> Record:
    from memory_anchor.evaluation import runner

    _progress(f"{kind} ({chosen.name})")
    with _saved_rows(chosen) as embedder:
        figures = runner.run(cases, chosen.settings, embedder, say=_progress)
    return {
        "kind": kind,
        "variant": chosen.name,
        "embedder": embedder.identity.model if embedder is not None else "none",
        "settings": _changed(chosen.settings),
        **figures,
    }


def _changed(settings: Settings) -> Record:
    """Return the settings that differ from their default."""
    from memory_anchor.evaluation.metrics import changed_settings
    from memory_anchor.settings import Settings

    return changed_settings(settings.model_dump(mode="json"), Settings().model_dump(mode="json"))


def _saved(report: Record) -> Record:
    """Save the report as the last run of its kind; return it with its comparison to the one before."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.evaluation import metrics

    now = SystemClock().now()
    report = {**report, "at": now.isoformat(timespec="seconds")}
    folder = metrics.folder_of(data_dir())
    before = metrics.last(folder, text(report["kind"]))
    metrics.keep(folder, text(report["kind"]), report, at=now)
    return {**report, "compared": metrics.compared(before, report) if before is not None else None}


def _golden(*, asked_for: bool) -> list[Record]:
    from memory_anchor.evaluation import golden, metrics, runner

    questions = golden.load(metrics.folder_of(data_dir()))
    if not questions:
        if asked_for:
            raise BadInput(NO_GOLDEN)
        return []
    _progress(f"golden: {len(questions)} questions on your own memory")
    answer = call("ask_golden", questions=[question.query for question in questions])
    figures = runner.figures(golden.answered(questions, records(answer["answers"])))
    return [_saved({"kind": "golden", "variant": "as set", **figures})]


def _golden_variants(texts: Sequence[str]) -> list[Record]:
    """Ask the golden questions of a copy of the user's memory, under each variant.

    Raises BadInput: no question is saved, or a variant has another embedder.
    """
    from memory_anchor.evaluation import golden, metrics, runner
    from memory_anchor.evaluation.golden import as_set, copied, variant
    from memory_anchor.front.calls import run

    who = preamble()
    own = as_set(os.environ, who.project_dir)
    variants = [variant(text, os.environ, who.project_dir) for text in texts]
    if any(chosen.settings.embedder != own.settings.embedder for chosen in variants):
        raise BadInput("--variant changes the embedder, which made your memory's vectors; allowed is anything else")
    questions = golden.load(metrics.folder_of(data_dir()))
    if not questions:
        raise BadInput(NO_GOLDEN)
    _progress("golden: copying your memory")
    with copied(data_dir(), lambda file: call("backup_create", file=file)) as copy:
        reports: list[Record] = []
        for chosen in variants:
            _progress(f"golden ({chosen.name}): {len(questions)} questions on a copy of your memory")
            answer = copy.answers(
                chosen.settings,
                [question.query for question in questions],
                lambda core, asked: run(core, who, "ask_golden", {"questions": list(asked)}),
            )
            figures = runner.figures(golden.answered(questions, records(answer["answers"])))
            reports.append({"kind": "golden", "variant": chosen.name, "settings": _changed(chosen.settings), **figures})
    return reports


def _edit_golden(save: str | None, expects: Many, remove: str | None, as_json: bool) -> None:
    from memory_anchor.evaluation import golden, metrics

    folder = metrics.folder_of(data_dir())
    if save is not None:
        from memory_anchor.language.safety import cleaned

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
    from memory_anchor.language.safety import cleaned

    gone = golden.remove(folder, cleaned(remove or "").text)
    if as_json:
        show_json({"removed": gone, "questions": len(golden.load(folder))})
    else:
        print_dim("removed" if gone else "no such golden question")


def _progress(line: str) -> None:
    err.print(f"[dim]· {escape(line)}[/]")


def _show(report: Record) -> None:
    name = "" if report["variant"] == "as set" else f" [dim]with[/] {escape(text(report['variant']))}"
    out.print(f"\n[bold]{escape(text(report['kind']))}[/]{name}: {report['questions']} questions")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "n", *COLUMNS):
        table.add_column(column, justify="left" if not column else "right")
    unanswerable = record(report["unanswerable"])
    asked = whole(report["questions"]) - whole(unanswerable["questions"])
    rows = [*record(report["by_language"]).items(), *record(report["by_category"]).items()]
    for label, row in [("all", {"questions": asked, **record(report["overall"])}), *rows]:
        shares = record(row)
        cells = [f"{100 * number(shares[column]):.1f}" if column in shares else "-" for column in COLUMNS]
        table.add_row(label, str(shares["questions"]), *cells)
    out.print(table)
    if unanswerable["questions"]:
        out.print(f"rightly empty: {unanswerable['empty']} of {unanswerable['questions']}")
    names = ("ms", "answer_tokens", "answer_tokens_beyond_text", "structured_tokens_beyond_text")
    ms, tokens, beyond, structured = (record(report[name]) for name in names)
    out.print(
        f"search p50 {ms['p50']} ms, p95 {ms['p95']} ms; an answer of 5 costs "
        f"{tokens['mean']} tokens, {beyond['mean']} of them beyond the memories' own text "
        f"({structured['mean']} as JSON)"
    )
    for result in records(report["results"]):
        if not result["found"]:
            place = f"rank {result['rank']}" if result["rank"] else "not as wanted"
            out.print(f"  [red]✗[/] {escape(clipped(text(result['query']), 90))} [dim]{place}[/]")
    if report.get("compared"):
        _show_changes(record(report["compared"]))


def _show_changes(changes: Record) -> None:
    metrics = {name: 100 * number(change) for name, change in record(changes["metrics"]).items()}
    moved = ", ".join(f"{name} {change:+.1f}" for name, change in metrics.items()) or "recall the same"
    out.print(
        f"[dim]since {changes['since']}:[/] {moved}; p50 {changes['ms_p50']:+.1f} ms, "
        f"answer {changes['answer_tokens']:+.1f} tokens"
    )
    for mark, name in (("[red]lost[/]", "lost"), ("[green]found[/]", "found")):
        for change in records(items(changes[name])[:SHOWN_CHANGES]):
            was_is = f"rank {change['was'] or '-'} -> {change['is'] or '-'}"
            out.print(f"  {mark} {escape(clipped(text(change['query']), 90))} [dim]{was_is}[/]")
    for name, both in record(changes["settings"]).items():
        old, new = items(both)
        out.print(f"  [dim]setting {escape(name)}: {_setting_text(old)} -> {_setting_text(new)}[/]")


def _setting_text(value: Json) -> str:
    """Return a setting for people; a run saves only those that differ from their default."""
    return "default" if value is None else escape(str(value))


def _show_side_by_side(reports: Sequence[Record]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", *COLUMNS, "found", "p50 ms", "p95 ms", "tokens"):
        table.add_column(column, justify="left" if not column else "right")
    letters = [chr(ord("A") + number) for number in range(len(reports))]
    out.print("\n[bold]side by side[/] [dim](medians and shares with their 95 % intervals)[/]")
    for letter, report in zip(letters, reports, strict=True):
        out.print(f"{letter}: {escape(text(report['variant']))} [dim]({escape(text(report['kind']))})[/]")
    for letter, report in zip(letters, reports, strict=True):
        recall = [f"{100 * number(record(report['overall']).get(column, 0)):.1f}" for column in COLUMNS]
        intervals = {
            name: [number(value) for value in items(three)] for name, three in record(report["intervals"]).items()
        }
        found, ms, tokens = (intervals[name] for name in ("found", "ms", "tokens"))
        recall.append(f"{100 * found[0]:.0f} ({100 * found[1]:.0f} to {100 * found[2]:.0f})")
        cost = [f"{ms[0]:g} ({ms[1]:g} to {ms[2]:g})", str(record(report["ms"])["p95"])]
        cost.append(f"{tokens[0]:g} ({tokens[1]:g} to {tokens[2]:g})")
        table.add_row(letter, *recall, *cost)
    out.print(table)
    first = reports[0]
    from memory_anchor.evaluation.metrics import compared

    for other in reports[1:]:
        if other["kind"] == first["kind"]:
            out.print(f"\n{escape(text(other['variant']))} [dim]against[/] {escape(text(first['variant']))}")
            _show_changes({**compared(first, other), "since": first["variant"]})


OWN = "default"
VARIANT_COLUMNS = ("golden found", "golden ms", "golden tokens", "heeded", "served ms", "served tokens")


def register_variants(app: typer.Typer) -> None:
    variants = group(app, "variants", "Ways of recall side by side (`variants` in the settings).")
    variants.command("report")(report)


@handle_errors
def report(json_: JsonOption = False) -> None:
    """Compare variants: golden questions, heeded memories, tokens and times, with intervals."""
    from memory_anchor.evaluation import golden, metrics

    questions = golden.load(metrics.folder_of(data_dir()))
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
    from memory_anchor.evaluation.metrics import median_interval, share_interval

    return {
        **{name: counts[name] for name in ("searches", "told", "heeded")},
        "heeded_share": _rounded(share_interval(whole(counts["heeded"]), whole(counts["told"])), 3),
        "ms": _rounded(median_interval(_numbers(counts["ms"])), 2),
        "tokens": _rounded(median_interval(_numbers(counts["tokens"])), 1),
    }


def _golden_shares(answers: Sequence[Answered], *, against: Sequence[Answered] | None) -> Record:
    from memory_anchor.evaluation.metrics import median_interval, paired_interval, share_interval

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
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", *VARIANT_COLUMNS):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        golden, served = record(row.get("golden")), record(row.get("served"))
        cells = [_share(golden["share"]), _span(golden["ms"]), _span(golden["tokens"])] if golden else ["-"] * 3
        cells += [_share(served["heeded_share"]) if served["told"] else "-"] if served else ["-"]
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
