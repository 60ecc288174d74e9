"""What writing links, disputes and ends: only what the words prove ends a memory, in whatever order two are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.model import Actor, Caller, Outcome, Relation, Status
from memory_anchor.domain.rights import version_stamp
from memory_anchor.ingest.relations import Kind, compare, may_repeat, replacement
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

CORPORA = Path(__file__).parent.parent / "corpora"
PROVEN = {
    "denial": {Kind.OPPOSED},
    "values": {Kind.OPPOSED},
    "change": {Kind.REPLACED, Kind.OVER},
    "echo": {Kind.REPLACED, Kind.OVER},
}


def written(split: str, name: str = "writer") -> Iterator[tuple[str, list[str]]]:
    """Yield (kind, texts) of the pairs that were written before the rules were."""
    for line in (CORPORA / f"{name}_{split}.tsv").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            _, kind, *texts = line.split("\t")
            yield kind, texts


@pytest.mark.parametrize(("kind", "texts"), list(written("dev")), ids=lambda value: str(value)[:60])
def test_the_words_of_a_pair_prove_the_same_in_both_orders(kind: str, texts: list[str]) -> None:
    """Rule: two values of one subject contradict, two subjects are two facts, and a question changes nothing."""
    one, other = texts[:2]

    assert compare(one, other) in PROVEN.get(kind, {Kind.NONE})
    assert compare(one, other) is compare(other, one)


def test_no_true_fact_of_the_unseen_half_is_proven_over() -> None:
    """Rule: where both hold nothing is ended or disputed; the misses of this half are counted, never named."""
    kinds = [(kind, compare(*texts[:2])) for kind, texts in written("blind")]
    right = sum(found in PROVEN.get(kind, {Kind.NONE}) for kind, found in kinds)
    harmful = sum(found is Kind.REPLACED for kind, found in kinds if kind not in ("change", "echo"))

    assert harmful == 0
    assert right >= 0.97 * len(kinds)


@pytest.mark.parametrize(("split", "ended"), [("dev", 28), ("blind", 20)])
def test_a_stated_change_ends_what_it_changes_and_nothing_else(split: str, ended: int) -> None:
    """Rule: of 30 changes so many are proven; of 30 texts that only look like one, in both orders, none."""
    pairs = [(kind, texts) for kind, texts in written(split, "changes")]
    traps = [texts for kind, texts in pairs if kind != "change"]

    assert sum(replacement(*texts) is Kind.REPLACED for kind, texts in pairs if kind == "change") >= ended
    assert [texts for texts in traps if compare(*texts) is Kind.REPLACED] == []


def test_different_facts_of_long_notes_prove_nothing_of_each_other() -> None:
    """Rule: no two of 400 facts that are true at once end or dispute each other."""
    lines = (CORPORA / "writer_notes.txt").read_text(encoding="utf-8").splitlines()
    facts = [line for line in lines if not line.startswith("#")]

    assert [(a, b) for a in facts for b in facts if a < b and compare(a, b) is not Kind.NONE] == []


def test_a_day_is_the_same_with_and_without_its_ordinal() -> None:
    """Rule: October 16th is another day than the 15th and the same as October 16; a first task is no day."""
    deadline = "The deadline is October "

    assert compare(f"{deadline}15th", f"{deadline}16th") is compare(f"{deadline}15", f"{deadline}16th") is Kind.OPPOSED
    assert may_repeat(f"{deadline}16", f"{deadline}16th")
    assert compare("I finished the 1st task", "I finished the 2nd task") is Kind.NONE


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("Kim has two cats", "Kim owns two cats", True),
        ("Python code is indented by four spaces", "We indent Python with four spaces", True),
        ("测试数据每周重置", "每周会把测试数据重置一次", True),
        ("The read timeout is 30 seconds", "The write timeout is 30 seconds", False),
        ("日备份保留 30 天", "周备份保留 30 天", False),
        ("Uploads are logged", "Uploads are not logged", False),
        ("Errors go to Sentry", "Traces go to Tempo", False),
        ("前端可以直接访问数据库", "后端可以直接访问数据库", False),
        ("测试环境每天凌晨三点重启", "生产环境每天凌晨三点重启", False),
        ("小王负责支付模块", "小汪负责支付模块", False),
        ("Staging restarts at 3 am every day", "Production restarts at 3 am every day", False),
        ("Standup is at half past six", "Standup is at 6:30", True),
    ],
)
def test_words_speak_against_a_repeat(one: str, other: str, may: bool) -> None:
    """Rule: another subject, a denial, a name on each side; not one word that another one stands for."""
    assert may_repeat(one, other) is may


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_two_texts_are_compared_alike_in_both_orders(one: str, other: str) -> None:
    """Rule: the decision is symmetric, whatever the texts, and a text contradicts itself never."""
    assert compare(one, other) is compare(other, one)
    assert may_repeat(one, other) is may_repeat(other, one)
    assert compare(one, one) is Kind.NONE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The cache limit is 30 MB", "The image cache limit is now 60 MB"),
        ("Deploys happen on Monday", "Deploys now also happen on Friday"),
        ("Logs are written to Elasticsearch", "Elasticsearch was upgraded to 8.11"),
        ("The search page uses React", "The checkout page moved from React to Vue"),
        ("The standup is at 10:00", "Until Friday the standup moved to 11:00"),
        ("The timeout is 30 seconds", "If we moved to the new client the timeout would be 60 seconds"),
        ("缓存上限 30 MB", "图片缓存的上限现在是 60 MB"),
        ("站会十点开", "这周站会改到十一点开"),
        ("办公室在三楼", "办公室的打印机搬到五楼了"),
        ("I live in Porto", "I moved my savings from Porto to Ghent"),
        ("The cache is in Redis", "The cache was moved from Redis to memory in staging"),
        ("The frontend uses React", "The frontend switched to pnpm"),
        ("The service runs on Java", "The service moved to Kubernetes"),
        ("State is kept in S3", "We did not move the state from S3 to GCS"),
        ("My editor is Vim", "His editor is now Emacs"),
        ("Backups are kept 14 days", "Backups moved to every 7 days"),
    ],
)
def test_a_change_of_something_else_replaces_nothing(old: str, new: str) -> None:
    """Rule: another subject, an added value, a state for some days and a supposition end no memory."""
    assert replacement(old, new) is not Kind.REPLACED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("数据库是主库", "数据库现在是只读"),
        ("测试环境是共享的", "测试环境现在是只读的"),
        ("支付网关是加密的", "支付网关现在是关闭的"),
    ],
)
def test_what_a_subject_is_now_ends_nothing_that_may_also_be_true_of_it(
    anchor: MemoryAnchor, old: str, new: str
) -> None:
    """Rule: two values are of one kind by a word of becoming, a name in letters or one head; else a human is asked."""
    kept = anchor.save_memory(old)
    anchor.save_memory("主分支是 main")

    assert anchor.save_memory(new).outcome is not Outcome.SUPERSEDED
    assert anchor.get(kept.id).status in (Status.ACTIVE, Status.DISPUTED)
    assert anchor.save_memory("主分支现在是 trunk").outcome is Outcome.SUPERSEDED
    assert replacement(old, new) is Kind.NONE


@pytest.mark.parametrize(
    ("one", "other", "question"),
    [
        ("测试环境每天凌晨三点重启", "生产环境每天凌晨三点重启", "生产环境几点重启"),
        ("前端可以直接访问数据库", "后端可以直接访问数据库", "后端能访问数据库吗"),
        ("Staging restarts at 3 am every day", "Production restarts at 3 am every day", "when does production restart"),
    ],
)
def test_one_sentence_about_two_things_is_two_facts_and_shown_twice(
    anchor: MemoryAnchor, one: str, other: str, question: str
) -> None:
    """Rule: what a sentence opens with is its subject; folding the two would hide one of them."""
    anchor.save_memory(one)
    second = anchor.save_memory(other)

    assert (second.outcome, second.relation) == (Outcome.ADDED, None)
    assert {one, other} <= {snippet.text for snippet in anchor.search(question).snippets}


def test_a_repeat_in_other_words_is_linked_and_shown_once(anchor: MemoryAnchor) -> None:
    """Rule: both texts stand, the write says which it repeats, and an answer shows one of them, citing the other."""
    first = anchor.save_memory("The staging database is wiped every Sunday")
    second = anchor.save_memory("Every Sunday the database on staging gets wiped")

    assert (second.outcome, second.relation, second.target_id) == (Outcome.ADDED, Relation.REPEATS, first.id)
    found = anchor.search("when is the staging database wiped").snippets
    assert len({one.id for one in found} & {first.id, second.id}) == 1
    assert {first.id, second.id} <= {cited.ref for one in found for cited in one.citations}
    assert len(anchor.curation.listing()) == 2


def test_across_languages_a_repeat_is_linked_and_never_joined(anchor: MemoryAnchor) -> None:
    """Rule: nothing is joined across languages."""
    anchor.save_memory("Timestamps are stored in UTC")
    second = anchor.save_memory("时间戳统一按 UTC 存储")

    assert second.outcome is Outcome.ADDED
    assert {memory.content for memory in anchor.curation.listing()} == {
        "Timestamps are stored in UTC",
        "时间戳统一按 UTC 存储",
    }


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("I work at Google as an engineer", "Just joined Microsoft as an engineer", "where do I work as an engineer"),
        ("Search runs on Elasticsearch", "Finished the migration of search to OpenSearch", "what does search run on"),
        ("全文检索用的是 Elasticsearch", "检索迁到 OpenSearch 的工作昨天收尾了", "检索用的是什么"),
    ],
)
def test_an_implied_change_is_linked_and_comes_first(anchor: MemoryAnchor, old: str, new: str, question: str) -> None:
    """Rule: what implies a change ends nothing; until a human looks it comes first, with what was said before."""
    known, saved = anchor.save_memory(old), anchor.save_memory(new)

    assert saved.target_id == known.id
    assert anchor.get(str(known.id)).status in (Status.ACTIVE, Status.DISPUTED)
    shown = [one for one in anchor.search(question).snippets if one.id in (known.id, saved.id)]
    assert [one.id for one in shown][:1] == [saved.id]
    assert shown[0].before == old or anchor.get(str(known.id)).status is Status.DISPUTED


@pytest.mark.parametrize("conversation", ["", "later"])
def test_an_echo_of_a_replaced_text_is_never_active_in_silence(core: Core, agent: Actor, conversation: str) -> None:
    """Rule echo: from the conversation it came from it is skipped with that reason, else disputed with what stands."""
    text, change = "Our package manager is yarn", "Our package manager is now pnpm instead of yarn"
    first = core.anchor(replace(agent, scope=replace(agent.scope, conversation="first")))
    old, present = first.save_memory(text), first.save_memory(change)
    assert (present.outcome, present.relation) == (Outcome.SUPERSEDED, Relation.CHANGES)

    name = conversation or "first"
    again = core.anchor(replace(agent, scope=replace(agent.scope, conversation=name))).save_memory(text)

    assert (again.relation, again.target_id) == (Relation.ECHO, present.id)
    assert str(present.id) in again.reason
    assert again.outcome is (Outcome.NEEDS_REVIEW if conversation else Outcome.SKIPPED)
    assert [memory.id for memory in first.curation.listing(status=Status.ACTIVE)] == (
        [] if conversation else [present.id]
    )
    assert old.id != again.id


def test_after_a_correction_the_old_value_is_not_first_by_night_or_elsewhere(core: Core, anchor: MemoryAnchor) -> None:
    """Rule: jobs change nothing of that."""
    old = anchor.save_memory("The page size of the list is 25")
    new = anchor.save_memory("The page size of the list was raised from 25 to 50")
    for job in ("merge_duplicates", "reconsolidate", "forget"):
        core.scheduler.run(job, core.clock.now())

    snippets = anchor.search("what is the page size of the list").snippets

    assert [one.id for one in snippets] == [new.id]
    assert anchor.get(str(old.id)).status is Status.SUPERSEDED


def test_what_may_contradict_waits_in_the_inbox_until_somebody_says_that_both_hold(
    core: Core, anchor: MemoryAnchor, agent: Actor
) -> None:
    """Rule: the inbox offers the links that nothing proves; whatever is decided, they ask no more."""
    old = anchor.save_memory("Search runs on Elasticsearch")
    new = anchor.save_memory("Finished the migration of search to OpenSearch")
    (item,) = anchor.curation.inbox().items
    assert (item.memory.id, [one.id for one in item.against]) == (new.id, [old.id])

    human = core.anchor(replace(agent, caller=Caller.HUMAN))
    sides = [anchor.get(str(one.id)) for one in (old, new)]

    stamps = [version_stamp(one.id, one.version, one.content) for one in sides]
    settled = human.curation.settle(str(new.id), "keep_both", seen=stamps)

    assert settled.status is Status.ACTIVE
    assert anchor.curation.inbox().items == []
    assert {one.id for one in anchor.curation.listing(status=Status.ACTIVE)} == {old.id, new.id}
    assert anchor.search("what does search run on").conflicts == ()


TRAJECTORIES = [
    ("日志保留 7 天", "日志保留改为 30 天", "日志保留又改成 90 天"),
    ("接口限流每秒 50 次", "接口限流调到每秒 80 次", "接口限流又调到每秒 120 次"),
    ("站会在周一", "站会改到周三", "站会又改到周四"),
    ("默认分支叫 master", "默认分支改名为 main", "默认分支又改名为 trunk"),
    ("镜像存在 Harbor", "镜像从 Harbor 迁到 ACR", "镜像又从 ACR 迁到 GHCR"),
    ("发布由王磊负责", "发布以后由赵敏负责", "发布现在改由孙悦负责"),
    ("The page size is 20", "The page size was raised to 50", "The page size was raised again to 100"),
    ("Search runs on Solr", "Search moved from Solr to Algolia", "Search moved again from Algolia to Typesense"),
    ("Retro is on Monday", "Retro moved to Wednesday", "Retro moved again, to Friday"),
    ("The CLI requires Node 16", "The CLI now requires Node 18", "The CLI now requires Node 20"),
    ("The bucket is called raw-a", "The bucket was renamed to raw-b", "The bucket was renamed again to raw-c"),
    (
        "Sessions expire after 15 minutes",
        "Sessions now expire after 30 minutes",
        "Sessions now expire after 60 minutes",
    ),
]


@pytest.mark.parametrize("texts", TRAJECTORIES, ids=lambda texts: texts[0])
def test_what_changed_twice_has_one_end_and_its_way_there(anchor: MemoryAnchor, texts: tuple[str, ...]) -> None:
    """Rule: of a chain of stated changes the last alone is active, and the history names every step."""
    saved = [anchor.save_memory(text) for text in texts]

    assert [memory.content for memory in anchor.curation.listing(status=Status.ACTIVE)] == [texts[-1]]
    assert [step.content for step in anchor.steps(str(saved[-1].id), story=True)[1]] == list(texts)


REVERTS = [
    ("The page size is 20", "The page size was raised from 20 to 50", "The page size is back to 20"),
    ("Search runs on Solr", "Search moved from Solr to Algolia", "The move of search to Algolia was rolled back"),
    ("Retro is on Monday", "Retro moved to Wednesday", "Retro is back to its previous day"),
    (
        "The default branch is called master",
        "The default branch was renamed to main",
        "The rename of the default branch was reverted",
    ),
    (
        "Sessions expire after 15 minutes",
        "Sessions now expire after 30 minutes",
        "Sessions are back to the previous expiry",
    ),
    ("Images are stored in Harbor", "Images moved from Harbor to ACR", "Images are back in Harbor"),
    ("日志保留 7 天", "日志保留改为 30 天", "日志保留改回 7 天"),
    ("发布由王磊负责", "发布以后由赵敏负责", "发布恢复之前的负责人"),
    ("站会在周一", "站会改到周三", "站会恢复之前的时间"),
    ("镜像存在 Harbor", "镜像从 Harbor 迁到 ACR", "镜像迁到 ACR 的改动回滚了"),
    ("接口限流每秒 50 次", "接口限流调到每秒 80 次", "接口限流改回去了"),
    ("默认分支叫 master", "默认分支改名为 main", "默认分支改回原来的名字"),
]


@pytest.mark.parametrize("texts", REVERTS, ids=lambda texts: texts[0])
def test_what_is_taken_back_is_ended_or_asked_about_with_what_was_before(
    anchor: MemoryAnchor, texts: tuple[str, ...]
) -> None:
    """Rule: "back to 20" ends 50; "back to the previous one" asks and names what was before."""
    first, change, back = (anchor.save_memory(text) for text in texts)

    assert change.outcome is Outcome.SUPERSEDED
    assert anchor.get(str(change.id)).status is not Status.ACTIVE
    assert back.outcome is Outcome.SUPERSEDED or (str(first.id) in back.reason and texts[0] in back.similar[0].text)


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("End function names with '_fn'.", "Function names should end with '_f'.", Kind.OPPOSED),
        ("End function names with '_fn'.", "From now on function names end with '_f'.", Kind.REPLACED),
        ("Function names end with '_f', and never log 'x'.", "From now on function names end with '_g'.", Kind.OVER),
        ("Function names end with '_fn' and method names with '_m'.", "Now function names end with '_f'.", Kind.OVER),
        ("End function names with '_fn'.", "Start function names with 'do_'.", Kind.NONE),
        ("Hotfix branches start with 'hot/'.", "Release branches start with 'rel/'.", Kind.NONE),
        ("热修分支以“hot/”开头。", "发布分支以“rel/”开头。", Kind.NONE),
        ("End function names with '_fn'.", "Never end function names with '_x'.", Kind.NONE),
        ("End function names with '_fn'.", "If we ever fork, function names end with '_x'.", Kind.NONE),
    ],
)
def test_two_rules_for_one_part_of_the_same_names_are_one_subject_with_two_values(
    one: str, other: str, kind: Kind
) -> None:
    """Rule writing.values: whatever the frame says besides; another part, another kind of thing, is another subject."""
    assert compare(one, other) is kind


def test_a_change_by_word_ends_both_sides_of_a_dispute_that_it_settles(anchor: MemoryAnchor) -> None:
    """Rule writing.changes: of two values in dispute neither holds once a third is said to hold from now on."""
    for sign in ("fn_", "do_"):
        anchor.save_memory(f"Function names start with '{sign}'.")
    done = anchor.save_memory("From now on function names start with 'go_'.")

    assert done.outcome is Outcome.SUPERSEDED
    assert [memory.content for memory in anchor.curation.listing()] == ["From now on function names start with 'go_'."]


@pytest.mark.parametrize("order", [1, -1])
def test_facts_that_share_a_date_and_a_word_of_change_put_no_question_to_a_human(
    anchor: MemoryAnchor, order: int
) -> None:
    """Rule: "no longer since March" tells of its subject; another subject in the same month is two facts."""
    for kind, texts in written("dev", "dates"):
        if kind == "subjects":
            assert {anchor.save_memory(text).outcome for text in texts[::order]} == {Outcome.ADDED}, texts

    assert {fact.status for fact in anchor.curation.listing(limit=100)} == {Status.ACTIVE}


def test_of_80_facts_with_dates_and_words_of_change_one_pair_seems_to_end_the_other() -> None:
    """Rule: the two that stay say something of one program for two kinds of jobs (在线任务, 离线任务)."""
    lines = (CORPORA / "dates_notes.txt").read_text(encoding="utf-8").splitlines()[1:]
    found = [(a, b) for a in lines for b in lines if a < b and compare(a, b) is not Kind.NONE]

    assert [pair for pair in found if not all("Spark" in fact for fact in pair)] == []


def test_a_change_that_says_since_when_is_noticed_whoever_tells_it() -> None:
    """Rule: the date of a change is not what it changes from; of 14 changes all are proven or put to a human."""
    pairs = [texts for kind, texts in written("dev", "dates") if kind == "change"]

    assert sum(compare(*texts[:2]) in (Kind.REPLACED, Kind.OVER) for texts in pairs) >= len(pairs) - 1
