"""Whether a memory is about what an agent is about to do: the same program, subcommand and options, or the same effect.

An act is what a command does: its program, words and options, and the effects they have (erase, publish, interrupt) on
what. A memory's text is read against it: where it names the act's program, the words and options that follow must be
the act's ("docker compose down -v" says nothing of `docker compose logs`); a program that stands alone means it as
such. Where no command is named, an effect counts together with a thing or a name that both have: "wiping a schema" and
DROP SCHEMA. What a memory advises (`use X`) is no warning of X. What only looks is told of by name alone.

`acts.toml` has the classes and the words. Rejected: any subcommand of a named program (it warned of `docker compose
logs`), nearness of meaning alone (a command line is near every memory of its tool), lists of dangerous commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import pairwise, takewhile

from memory_anchor.base.json_values import record, text
from memory_anchor.language.commands import ShellCommand, commands_of, look_only
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import STOP_WORDS, is_chinese, normal, stem, terms
from memory_anchor.language.words import base_forms, listed, table

TEXT_CHARS = 2_000
CUE_CHARS = 28
"""How far before a command or an option its cue may stand, within its clause."""
NAME_CHARS = 4
HEAD_WORDS = 3
"""The first words of a command that may be its subcommands."""
_WORD = late(r"-{0,2}[A-Za-z0-9_@./:#+=~-]{1,80}")
_HAN = late(r"[\u4e00-\u9fff]{1,12}")
_AROUND = late(r"\(\?<?[=!][^)]{1,60}\)")
_LATIN = late(r"[A-Za-z0-9]+")
_CLAUSE = late(r"[.,;:!?()，。；：！？（）、\n]")
_PLACE = bounded(r"(?i)(?:\b(?:to|into|on|onto|against|at|in|from)\s+(?:the\s+)?|[到往对在向]\s*)([A-Za-z0-9_./-]+)")
_BRANCHES = frozenset(("main", "master", "develop", "trunk"))


class Cue(Enum):
    """How a text speaks of a command or an option."""

    ABOUT = "about"
    BANNED = "banned"
    ADVISED = "advised"


@dataclass(frozen=True, slots=True)
class LatinWord:
    """A Latin word of a text. follows: only blanks are between it and the word before."""

    text: str
    start: int
    end: int
    follows: bool


@dataclass(frozen=True, slots=True)
class CommandAct:
    """What a command does. things, names: to what, by class and by its own words; said: all of
    its words behind the first that no class has. look_only: it changes nothing."""

    command: ShellCommand
    effects: frozenset[str]
    things: frozenset[str]
    names: frozenset[str]
    said: frozenset[str]
    places: frozenset[str]
    look_only: bool

    @classmethod
    def of(cls, command: ShellCommand, line: str) -> CommandAct:
        """Return the act of a command of this line."""
        pieces = frozenset(piece for word in (*command.words, *_spoken(command)) for piece in pieces_of(word))
        looks = _only_looks(command)
        return cls(
            command,
            frozenset() if looks else effects_of(command),
            frozenset(name for name, one in things_by_class().items() if one.has(command, pieces)),
            frozenset(piece for piece in pieces if len(piece) >= NAME_CHARS and piece not in _generic()),
            frozenset(piece for word in command.words[1:] for piece in pieces_of(word) if piece not in _generic()),
            places_in(line),
            looks,
        )


def acts_of(commands: Sequence[ShellCommand], line: str) -> list[CommandAct]:
    """Return the acts of a line. What its other commands only look for is what those that change something act on."""
    acts = [CommandAct.of(command, line) for command in commands]
    looked = [act for act in acts if act.look_only]
    names = frozenset[str]().union(*(act.names for act in looked))
    things = frozenset[str]().union(*(act.things for act in looked))
    return [act if act.look_only else replace(act, names=act.names | names, things=act.things | things) for act in acts]


def programs_at_work(line: str) -> set[str]:
    """Return the programs of a command line that do more than look."""
    acts = acts_of(commands_of(line), line)
    return {act.command.program for act in acts if not act.look_only and act.command.program != "cd"}


@dataclass(frozen=True, slots=True)
class _Class:
    """A class of effects or things: stems, the same of several words, an expression of signs, commands or programs."""

    words: frozenset[str]
    phrases: tuple[tuple[str, ...], ...]
    signs: re.Pattern[str] | None
    commands: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = ()
    programs: frozenset[str] = frozenset()
    terms: tuple[str, ...] = ()
    """By which texts that name it are found."""

    def has(self, command: ShellCommand, pieces: frozenset[str]) -> bool:
        """Return whether a command belongs here: by its program, its own name, or one of these stems of its words."""
        if command.program in self.programs or pieces & self.words:
            return True
        return any(_runs(command, *pattern) for pattern in self.commands)


def _class(entry: Mapping[str, object]) -> _Class:
    words = [tuple(stem(part) for part in re.split(r"[+-]", word)) for word in str(entry["words"]).split()]
    signs = "|".join(str(entry.get("signs", "")).split())
    commands = []
    for one in str(entry.get("commands", "")).split("|"):
        parts = one.split()
        if parts:
            options = frozenset(part for part in parts if part.startswith("-"))
            commands.append((tuple(part for part in parts if not part.startswith("-")), options))
    return _Class(
        frozenset(word[0] for word in words if len(word) == 1),
        tuple(word for word in words if len(word) > 1),
        bounded(signs) if signs else None,
        tuple(commands),
        frozenset(str(entry.get("programs", "")).split()),
        (*dict.fromkeys(part for word in words for part in word), *_sign_terms(signs)),
    )


def _sign_terms(signs: str) -> list[str]:
    """Return the terms of the signs in an expression: pairs of them, one where it stands alone."""
    runs = _HAN.findall(_AROUND.sub("|", signs))
    return list(dict.fromkeys(term for run in runs for term in (map("".join, pairwise(run)) if run[1:] else run)))


@cache
def effects_by_class() -> Mapping[str, _Class]:
    return {name: _class(record(entry)) for name, entry in table("effects").items()}


@cache
def things_by_class() -> Mapping[str, _Class]:
    return {name: _class(record(entry)) for name, entry in table("things").items()}


@cache
def _generic() -> frozenset[str]:
    """Return the stems that name nothing in particular: those of the classes, of places and of what goes on."""
    classes = (*effects_by_class().values(), *things_by_class().values())
    places = (stem(word) for words in table("places").values() for word in text(words).split())
    usual = "head origin true false null none file files path src lib libs data name tests this that with from into"
    return frozenset().union(*(one.words for one in classes), places, usual.split(), STOP_WORDS)


def pieces_of(word: str) -> list[str]:
    """Return the stems of the parts of a word.

    >>> pieces_of("s3://acme-assets/purge_queue")
    ['s3', 'acm', 'asset', 'purg', 'queue']
    """
    return [stem(piece) for piece in _LATIN.findall(word.lower()[:200])]


def effects_of(command: ShellCommand) -> frozenset[str]:
    """Return the classes of what a command does: of its own name, and of its verbs."""
    said = frozenset(
        piece for word in (*_verbs(command), *_spoken(command)) if "/" not in word for piece in pieces_of(word)
    )
    found = {name for name, one in effects_by_class().items() if one.has(command, said)}
    return frozenset(found - {"update"} if command.is_sql else found)


def _spoken(command: ShellCommand) -> list[str]:
    """Return the options of a command that are words ("--squash")."""
    return [
        one[2:] for one in command.options if len(one) >= NAME_CHARS + 2 and one.startswith("--") and one[2:5] != "no-"
    ]


def _verbs(command: ShellCommand) -> tuple[str, ...]:
    """Return the words of a command that may say what it does, without those that only group others."""
    if command.is_sql:
        return command.words[:1]
    words = command.heads or command.words
    return tuple(word for word in words[:HEAD_WORDS] if word not in listed("programs", "groups"))


def _runs(command: ShellCommand, words: tuple[str, ...], options: frozenset[str]) -> bool:
    program, *rest = words
    if command.program != program or (options and not options & command.options):
        return False
    return all(word in command.heads[: HEAD_WORDS + 1] for word in rest)


def _only_asks(command: ShellCommand) -> bool:
    """Return whether a command only asks its program for help, its version, or what it would do."""
    alone = not command.words and bool(command.options & set(listed("look_only", "alone")))
    return alone or bool(command.options & look_only()[1])


def _only_looks(command: ShellCommand) -> bool:
    words, _, programs = look_only()
    if command.program in programs:
        return not command.writes_to and "-i" not in command.options
    if command.is_sql:
        return command.words[0] in ("select", "show", "explain", "with")
    verbs = _verbs(command)
    return bool(verbs) and verbs[0] in words


def places_in(line: str) -> frozenset[str]:
    """Return which places a text names: production, staging, local."""
    words = {stem(word) for word in _LATIN.findall(line.lower()[:TEXT_CHARS])}
    return frozenset(
        name
        for name, listed_words in table("places").items()
        for word in text(listed_words).split()
        if (stem(word) in words if word.isascii() else word in line)
    )


def search_terms(acts: Sequence[CommandAct]) -> list[str]:
    """Return the terms by which memories about these acts are found, the most exact first."""
    exact = [
        term for act in acts for word in (act.command.program, *act.command.heads[:HEAD_WORDS]) for term in terms(word)
    ]
    exact += [name for act in acts for name in sorted(act.names)]
    effects = {name: one for name, one in effects_by_class().items() if any(name in act.effects for act in acts)}
    wide = (
        {name: one for name, one in things_by_class().items() if any(name in act.things for act in acts)}
        if effects
        else {}
    )
    return list(dict.fromkeys([*exact, *(term for one in (*effects.values(), *wide.values()) for term in one.terms)]))


# --- a memory's text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActText:
    """A text as acts are compared with it. stems: of its Latin words in their order."""

    content: str
    words: tuple[LatinWord, ...]
    stems: frozenset[str]
    effects: frozenset[str]
    things: frozenset[str]
    places: frozenset[str]
    sites: frozenset[str]
    in_chinese: bool
    which: frozenset[str]
    """Names before its things: "ledger" of "the ledger tables"."""
    opens_with: frozenset[str]
    """Effects in its first clause, where it names no thing."""

    @classmethod
    def of(cls, content: str) -> ActText:
        content = content[:TEXT_CHARS]
        words, end = [], -1
        for match in _WORD.finditer(content):
            word = match.group().rstrip(".:")
            gap = content[end : match.start()] if end >= 0 else "."
            words.append(LatinWord(word.lower(), match.start(), match.start() + len(word), not gap.strip(" `'\"")))
            end = match.start() + len(word)
        stems = [piece for word in words for piece in pieces_of(word.text)]
        said = _classes_in({**effects_by_class(), **things_by_class()}, stems, content)
        return cls(
            content,
            tuple(words),
            frozenset(stems),
            said & effects_by_class().keys(),
            said & things_by_class().keys(),
            places_in(content),
            frozenset(site for site in _sites_in(content)),
            is_chinese(content),
            frozenset(_which(words)),
            frozenset() if said & things_by_class().keys() else _opening(content),
        )

    @property
    def bans(self) -> bool:
        """Return whether the text forbids anything."""
        return bool(_cue("banned").search(self.content) or _cue("banned_after").search(self.content))

    def cue(self, word: LatinWord) -> Cue:
        """Return how the text speaks of this word."""
        start = word.start
        if _cue("banned_after").match(self.content, word.end) or _cue("banned_after").match(self.content, word.end + 1):
            return Cue.BANNED
        before = _CLAUSE.split(normal(self.content[max(0, start - CUE_CHARS) : start]))[-1]
        marks = [(match.start(), Cue.BANNED) for match in _cue("banned").finditer(before)]
        marks += [(match.start(), Cue.ADVISED) for match in _cue("advised").finditer(before)]
        if any(cue is Cue.BANNED for _, cue in marks):
            return Cue.BANNED
        return Cue.ADVISED if marks else Cue.ABOUT

    def wants(self, option: LatinWord) -> bool:
        """Return whether the text asks for this option, rather than speaking of what has it."""
        before = _CLAUSE.split(normal(self.content[max(0, option.start - CUE_CHARS) : option.start]))[-1]
        return bool(_cue("wanted").search(before)) and not _cue("banned").search(before)


def _which(words: Sequence[LatinWord]) -> Iterator[str]:
    things = frozenset().union(*(one.words for one in things_by_class().values()))
    for before, word in pairwise(words):
        if word.follows and stem(word.text) in things and before.text.isalpha():
            name = stem(before.text)
            if name not in _generic() and not before.text.endswith(("ed", "ing", "able", "ible")):
                yield name


def _opening(content: str) -> frozenset[str]:
    clause = _CLAUSE.split(content, maxsplit=1)[0]
    stems = [piece for word in _WORD.findall(clause) for piece in pieces_of(word)]
    return _classes_in(effects_by_class(), stems, clause)


def _classes_in(classes: Mapping[str, _Class], stems: Sequence[str], content: str) -> frozenset[str]:
    """Return the classes that a text names. Of a phrase its words count no more ("force-push" publishes nothing)."""
    line = f" {' '.join(stems)} "
    found = set()
    phrases = [(" ".join(phrase), name) for name, one in classes.items() for phrase in one.phrases]
    for phrase, name in sorted(phrases, key=lambda pair: -len(pair[0])):
        if f" {phrase} " in line:
            found.add(name)
            line = line.replace(f" {phrase} ", " ")
    left = frozenset(line.split())
    found.update(name for name, one in classes.items() if left & one.words)
    kinds = (
        {name: classes[name] for name in kind if name in classes} for kind in (effects_by_class(), things_by_class())
    )
    return frozenset(found.union(*(_signs_in(kind, content) for kind in kinds)))


def _signs_in(classes: Mapping[str, _Class], content: str) -> set[str]:
    """Return the classes of the signs in a text; within a longer sign none counts (强推 publishes nothing)."""
    signs = [
        (match.span(), name) for name, one in classes.items() if one.signs for match in one.signs.finditer(content)
    ]
    return {
        name
        for (start, end), name in signs
        if not any(a <= start and end <= b and b - a > end - start for (a, b), _ in signs)
    }


def _sites_in(content: str) -> Iterator[str]:
    """Yield hosts, branches and the like that a text names as a target."""
    for match in _PLACE.finditer(content):
        site = match[1].strip("./-").lower()
        if site in _BRANCHES or re.search(r"[\d_./-]", site):
            yield site


def cue_in(name: str, said: str) -> bool:
    """Return whether a sentence of a conversation says this of its work (`[said]` of acts.toml)."""
    return _cue(name, "said").search(normal(said)) is not None


@cache
def _cue(name: str, group: str = "cues") -> re.Pattern[str]:
    cues = re.split(r"[|\n]", text(table(group)[name]))
    parts = [cue.strip() for cue in cues if cue.strip()]
    return late("|".join(rf"\b{re.escape(cue)}\b" if cue.isascii() else re.escape(cue) for cue in parts))


# --- both --------------------------------------------------------------------------------------------------------


class Concern(Enum):
    """How exactly a memory is about an act: not at all, perhaps (it opens with an effect of it and names no thing: its
    meaning decides), by what it does, by its program alone, by the very command."""

    NONE = 0
    PERHAPS = 1
    EFFECT = 2
    PROGRAM = 3
    COMMAND = 4


def concern(reading: ActText, act: CommandAct) -> Concern:
    """Return whether a memory is about an act."""
    if _only_asks(act.command):
        return Concern.NONE
    elsewhere = reading.places - {"local"}
    if elsewhere and act.places and not elsewhere & act.places:
        return Concern.NONE
    if reading.sites and act.command.words and not _at_site(reading, act):
        return Concern.NONE
    mentions = list(_mentions(reading, act.command))
    own = [one for one in mentions if one.cue is not Cue.ADVISED]
    if any(one.cue is Cue.ADVISED and one.agrees and (one.is_exact or not own) for one in mentions):
        return Concern.NONE
    if any(one.agrees and one.is_exact for one in own):
        return Concern.COMMAND
    if any(one.is_other for one in own):
        return Concern.NONE
    if own:
        return max((_alone(reading, act, one) for one in own), key=lambda found: found.value)
    if act.look_only:
        return Concern.NONE
    if _names_another_program(reading, act):
        return Concern.NONE
    shared = reading.effects & act.effects
    if shared and (_same_thing(reading, act) or reading.stems & act.names):
        return Concern.EFFECT
    return Concern.PERHAPS if shared & reading.opens_with else Concern.NONE


def _same_thing(reading: ActText, act: CommandAct) -> bool:
    """Return whether both are of one class of things, and the text names no other one of it ("the ledger tables")."""
    is_another = bool(reading.which and act.said) and not reading.which & act.said
    return bool(reading.things & act.things) and not is_another


def _names_another_program(reading: ActText, act: CommandAct) -> bool:
    """Return whether a text speaks of a command of another program, and of none that the act may be."""
    named = {
        word.text for word in reading.words if word.text in _known_programs() and reading.cue(word) is not Cue.ADVISED
    }
    own = set(listed("programs", "sql")) if act.command.is_sql else {act.command.program}
    return bool(named) and not named & own


@cache
def _known_programs() -> frozenset[str]:
    """Return the programs that the classes name, without those that are words of English besides."""
    named = {words[0] for one in effects_by_class().values() for words, _ in one.commands}
    named |= {program for one in things_by_class().values() for program in one.programs}
    return frozenset(
        named - {stem(word) for word in listed("programs", "english")} - set(listed("programs", "english"))
    )


def _at_site(reading: ActText, act: CommandAct) -> bool:
    sites = reading.sites if act.command.program == "git" else reading.sites - _BRANCHES
    if len(act.command.words) < 2 or not sites:
        return True
    return any(site in operand for site in sites for operand in act.command.words[1:])


def _alone(reading: ActText, act: CommandAct, mention: _Mention) -> Concern:
    """Return what a program means that a text names by itself: all that it does, or what the text says besides."""
    is_banned = mention.cue is Cue.BANNED
    if act.look_only and not (is_banned and act.command.program in look_only()[2]):
        return Concern.NONE
    if not _takes_words(act.command) or _says_verb(reading, act.command):
        return Concern.COMMAND
    if is_banned or reading.effects & act.effects:
        return Concern.PROGRAM
    is_open = not reading.bans and not (reading.effects and act.effects)
    return Concern.PROGRAM if is_open else Concern.NONE


def _says_verb(reading: ActText, command: ShellCommand) -> bool:
    """Return whether a text has the verb of a command, and not as another program's ("pnpm run build")."""
    verbs = {stem(verb) for verb in _verbs(command)[:2]}
    others = _known_programs() | set(listed("programs", "groups"))
    pairs = pairwise((LatinWord("", 0, 0, follows=False), *reading.words))
    return any(stem(word.text) in verbs and not (word.follows and before.text in others) for before, word in pairs)


@dataclass(frozen=True, slots=True)
class _Mention:
    """A place where a text names the act's program. is_exact: with a word or an option of the act.

    is_other: with a word or option that the act has not. agrees: it may mean the act.
    """

    cue: Cue
    is_exact: bool
    is_other: bool

    @property
    def agrees(self) -> bool:
        return not self.is_other


def _mentions(reading: ActText, command: ShellCommand) -> Iterator[_Mention]:
    names = _names_of(command.program)
    for place, word in enumerate(reading.words):
        if word.text in names:
            if mention := _mention(reading, command, place):
                yield mention
        elif _is_bare_verb(reading, command, place) and (mention := _mention(reading, command, place)):
            is_exact = mention.is_exact or word.text not in listed("programs", "groups")
            yield replace(mention, is_exact=is_exact)


@cache
def _names_of(program: str) -> frozenset[str]:
    plain = program.rstrip("0123456789.")
    return frozenset((program, plain, program.removesuffix(".py"), program.removesuffix(".sh"), f"./{program}"))


def _is_bare_verb(reading: ActText, command: ShellCommand, place: int) -> bool:
    """Return whether a Chinese text, or one in capitals, names a command's first word without its program."""
    word = reading.words[place]
    if word.follows or not command.heads or word.text not in command.heads[:1]:
        return False
    as_written = reading.content[word.start : word.end]
    is_long = len(word.text) >= NAME_CHARS or word.text in listed("programs", "groups")
    return is_long and (reading.in_chinese or (as_written.isupper() and not command.is_sql))


def _mention(reading: ActText, command: ShellCommand, place: int) -> _Mention | None:
    word, cue = reading.words[place], reading.cue(reading.words[place])
    named: list[str] = []
    options: list[LatinWord] = []
    stopped: LatinWord | None = None
    operands, used = command.words, place
    for following in reading.words[place + 1 : place + 7]:
        if not following.follows:
            break
        if following.text.startswith("-"):
            options.append(following)
        elif following.text in operands or stem(following.text) in map(stem, operands[:HEAD_WORDS]):
            named.append(following.text)
        else:
            stopped = following
            break
        used += 1
    is_prose = not named and not options and not reading.in_chinese and word.text in listed("programs", "english")
    if is_prose and (stopped is None or _goes_on(stopped.text)):
        return None
    is_other = stopped is not None and not options and not _goes_on(stopped.text) and _takes_words(command)
    if named and all(name in listed("programs", "groups") for name in named) and stopped is not None and not options:
        is_other = is_other or not _goes_on(stopped.text)
    rest = takewhile(lambda one: one.text != word.text, reading.words[used + 1 :])
    later = [one for one in rest if one.text.startswith("-") and len(one.text) > 1]
    wanted = [one for one in later if reading.wants(one)]
    meant = [one for one in (*options, *later) if one not in wanted]
    if wanted and any(_has(command, one.text) for one in wanted):
        is_other = True
    meant = options if cue is Cue.ADVISED else meant
    if meant and not any(_has(command, one.text) for one in meant):
        is_other = True
    return _Mention(cue, is_exact=bool(named or options), is_other=is_other)


def _has(command: ShellCommand, option: str) -> bool:
    """Return whether a command has an option; a short one is the long one with its first letter."""
    if option in command.options:
        return True
    if re.fullmatch(r"-[A-Za-z]", option):
        return any(one.startswith(f"--{option[1].lower()}") for one in command.options)
    if option.startswith("--"):
        return any(one == f"-{option[2]}" for one in command.options)
    return False


def _goes_on(word: str) -> bool:
    """Return whether a word behind a command in a sentence is the sentence's, and no word of the command."""
    if word in listed("cues", "goes_on") or word in STOP_WORDS or word in base_forms():
        return True
    return len(word) > 4 and word.endswith(("s", "ed", "ing")) and word not in look_only()[0]


def _takes_words(command: ShellCommand) -> bool:
    """Return whether a program's first word says what it does ("git push"): it has one that looks like that."""
    return bool(command.heads) and re.fullmatch(r"[a-z][a-z0-9:_-]{1,30}", command.heads[0]) is not None
