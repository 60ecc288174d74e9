"""`sessions.db`: what was read of sessions, in one SQLite file of its own beside the store.

The connections, groups, modes and errors are those of the store's database; the tables are ours. The indexes hold terms
and no text; what was indexed can be made again from a passage's parts and a session's head, which is also how an entry
of theirs is deleted. Invariant: a file's offset moves in the transaction that stores what was read up to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from memory_anchor.admin.waiting import texts_in
from memory_anchor.base.json_values import parsed
from memory_anchor.domain.errors import Unavailable
from memory_anchor.extensions.sessions.names import FILE
from memory_anchor.extensions.sessions.passages import Part, SessionAction, SessionPassage, indexed, spoken
from memory_anchor.extensions.sessions.steps import Facts
from memory_anchor.language.terms import TERMS_VERSION, terms
from memory_anchor.store.database import Sqlite
from memory_anchor.store.group_commit import Row, SqlLink

LAYOUT, NEWEST_TABLE = "1", "proposal"
HEAD_CHARS = 400
"""Of a session's title and first request that are indexed with it."""
MADE_BY, VECTORS_READ = "vectors", 5_000
"""The note that says which model made the vectors, and how many are read at once."""
Titles = Mapping[tuple[str, str], str]
"""What files call sessions, by the agent and the newest message of each."""
READ_BY = "readers"
"""The note that says which readers read what is there."""
_KEEP_NOTE = "insert into meta values(?, ?) on conflict(name) do update set value = excluded.value"
_TOKENIZER = "ascii tokenchars ''._/\\:@#+-''"
_TABLES = (
    "create table if not exists meta(name text primary key, value text) without rowid",
    """create table if not exists source(
        id integer primary key, agent text not null, path text not null unique, size integer not null,
        mtime_ns integer not null, resume integer not null, problem text not null, gone_at real)""",
    """create table if not exists session(
        id integer primary key, agent text not null, name text not null, source integer not null, cwd text not null,
        branch text not null, title text not null, request text not null, head text not null, parent text not null,
        leaf text not null, began real not null, ended real not null, passages integer not null,
        unique(agent, name))""",
    "create index if not exists session_leaf on session(leaf)",
    "create index if not exists session_source on session(source)",
    """create table if not exists passage(
        id integer primary key, session integer not null, at real not null, first integer not null,
        parts text not null)""",
    "create index if not exists passage_session on passage(session, first)",
    """create table if not exists action(
        id integer primary key, session integer not null, passage integer not null, kind text not null,
        text text not null, path text not null, old text not null, new text not null, at real not null,
        call text not null, exit integer, shape text not null)""",
    "create index if not exists action_session on action(session, call)",
    "create index if not exists action_passage on action(passage)",
    "create table if not exists waiting(passage integer primary key, at real not null)",
    "create index if not exists waiting_at on waiting(at)",
    """create table if not exists vector(
        id integer primary key autoincrement, passage integer not null unique, script integer not null,
        steps blob not null)""",
    "create table if not exists proposal(key text primary key, memory text not null) without rowid",
    """create table if not exists tombstone(
        agent text not null, name text not null, primary key(agent, name)) without rowid""",
    f"""create virtual table if not exists words using fts5(said, command, result, content='',
        tokenize="{_TOKENIZER.replace("''", "'")}")""",
    f"""create virtual table if not exists heads using fts5(head, content='',
        tokenize="{_TOKENIZER.replace("''", "'")}")""",
)


@dataclass(frozen=True, slots=True)
class KnownSource:
    """How far a file is read. resume: where reading goes on."""

    size: int
    mtime_ns: int
    resume: int


@dataclass(slots=True)
class ReadSession:
    """What was read of one session. begin: passages from this offset on are replaced."""

    facts: Facts
    passages: Sequence[SessionPassage]
    begin: int = 0
    ended: Mapping[str, SessionAction] = field(default_factory=dict)


@dataclass(slots=True)
class ReadFile:
    """What was read of one file, with the state of the file from which the next look goes on."""

    agent: str
    path: str
    size: int
    mtime_ns: int
    resume: int
    problem: str
    sessions: Sequence[ReadSession] = ()
    titles: Titles = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A passage's vector: a signed byte a component. script: of its text."""

    steps: bytes
    script: int
    id: int = 0
    passage: int = 0
    session: int = 0


class SessionsFile(Sqlite):
    """The file of sessions, which a purge erases from. Thread-safe, and safe for several processes."""

    name = FILE
    layout = LAYOUT
    newest = (NEWEST_TABLE,)
    end_sql = ""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if self.rows("select 1 from sqlite_master where name = 'summary'"):  # what earlier versions kept of titles
            self.write(lambda link: link.run("drop table if exists summary"))
            with suppress(Unavailable):  # a reader of the old pages: they go with the next copy of the log
                self.wipe()

    def _make_tables(self, link: SqlLink) -> None:
        for statement in _TABLES:
            link.run(statement)
        for name, value in (("layout", LAYOUT), ("terms", str(TERMS_VERSION))):
            link.run("insert into meta values(?, ?) on conflict(name) do nothing", (name, value))

    # --- reading files -----------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, KnownSource]:
        """Return how far each file is read, by its path."""
        rows = self.rows("select path, size, mtime_ns, resume from source")
        return {str(path): KnownSource(*map(_int, state)) for path, *state in rows}

    def facts_of(self, path: str) -> Facts:
        """Return what is known of the session of a file that holds one."""
        rows = self.rows(
            "select s.name, s.cwd, s.branch, s.title, s.parent, s.leaf from session s join source f on f.id = s.source "
            "where f.path = ? limit 1",
            (path,),
        )
        return Facts(*map(str, rows[0])) if rows else Facts()

    def is_named(self, path: str, name: str) -> bool:
        """Return whether the session of a file was stored under a name, or forgotten under it."""
        sql = (
            "select coalesce(max(s.name = ?), exists(select 1 from tombstone t "
            "where t.agent = f.agent and t.name = ?)) "
            "from source f left join session s on s.source = f.id where f.path = ?"
        )
        return bool(self.rows(sql, (name, name, path))[0][0])

    def part_at(self, path: str, first: int) -> Part | None:
        """Return the first part of the passage of a file that begins at an offset."""
        rows = self.rows(
            "select p.parts from passage p join session s on s.id = p.session join source f on f.id = s.source "
            "where f.path = ? and p.first = ? order by p.id limit 1",
            (path, first),
        )
        return parts_of(rows[0][0])[0] if rows else None

    def parts_of_session(self, agent: str, name: str) -> list[tuple[int, list[Part]]]:
        """Return where each passage of a session begins, and its parts."""
        rows = self.rows(
            "select p.first, p.parts from passage p join session s on s.id = p.session "
            "where s.agent = ? and s.name = ? order by p.first, p.id",
            (agent, name),
        )
        return [(_int(first), parts_of(parts)) for first, parts in rows]

    def keep(self, files: Sequence[ReadFile], titles: Titles) -> None:
        """Store what was read of some files, all of it or nothing. A title is stored where a session has none."""
        with self.unit() as link:
            for one in files:
                _keep_file(link, one)
            sql = "select id, request from session where agent = ? and leaf = ? and title = ''"
            for named, title in titles.items():
                for id, request in link.rows(sql, named):
                    _put_head(link, _int(id), title, str(request))

    def read_anew(self, readers: str) -> None:
        """Have the files that other readers could not read, or not all of, read again from their beginning."""
        if self.note(READ_BY) != readers:
            with self.unit() as link:
                link.run("update source set mtime_ns = -1, resume = 0 where problem <> ''")
                link.run(_KEEP_NOTE, (READ_BY, readers))

    def note(self, name: str) -> str | None:
        rows = self.rows("select value from meta where name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def keep_note(self, name: str, value: str) -> None:
        self.write(lambda link: link.run(_KEEP_NOTE, (name, value)))

    def problems(self) -> list[tuple[str, str]]:
        """Return path and problem of each file that has one."""
        rows = self.rows("select path, problem from source where problem <> '' order by path")
        return [(str(path), str(problem)) for path, problem in rows]

    def gone_before(self, at: float) -> list[int]:
        """Return the sessions whose file was noted as gone before an instant."""
        rows = self.rows("select s.id from session s join source f on f.id = s.source where f.gone_at <= ?", (at,))
        return [_int(id) for (id,) in rows]

    def note_gone(self, gone: Iterable[str], there: Iterable[str], now: float) -> None:
        """Note since when files are gone, and that others are there."""
        with self.unit() as link:
            times = [(now, path) for path in gone]
            link.run_many("update source set gone_at = ? where path = ? and gone_at is null", times)
            back = [(path,) for path in there]
            link.run_many("update source set gone_at = null where path = ? and gone_at is not null", back)

    # --- vectors -----------------------------------------------------------------------------------------------------

    def waiting(self, model: str, limit: int) -> list[tuple[int, Sequence[Part]]]:
        """Return passages that wait for a vector, newest first; all of them where the vectors are another model's."""
        if self.note(MADE_BY) != model:
            with self.unit() as link:
                link.run("delete from vector")
                link.run("insert or ignore into waiting select id, at from passage")
                link.run(_KEEP_NOTE, (MADE_BY, model))
        rows = self.rows(
            "select p.id, p.parts from waiting w join passage p on p.id = w.passage order by w.at desc limit ?",
            (limit,),
        )
        return [(_int(id), parts_of(parts)) for id, parts in rows]

    def keep_vectors(self, model: str, made: Mapping[int, tuple[str, StoredVector | None]]) -> None:
        """Store the vectors of passages that still say the text that each is of; None: it gets none."""

        def unit(link: SqlLink) -> None:
            if link.rows("select 1 from meta where name = ? and value <> ?", (MADE_BY, model)):
                return
            for passage, (text, vector) in made.items():
                parts = link.rows("select parts from passage where id = ?", (passage,))
                if parts and spoken(parts_of(parts[0][0])) != text:  # its number was given to another one
                    continue
                link.run("delete from waiting where passage = ?", (passage,))
                if parts and vector is not None:
                    link.run(
                        "insert or replace into vector(passage, script, steps) values(?, ?, ?)",
                        (passage, vector.script, vector.steps),
                    )

        if made:
            self.write(unit)

    def vectors_state(self, model: str) -> tuple[int, int]:
        """Return the newest vector's id and how many a model made: while both stay, nothing changed."""
        if self.note(MADE_BY) != model:
            return 0, 0
        ((last, count),) = self.rows("select coalesce(max(id), 0), count(*) from vector")
        return _int(last), _int(count)

    def vector_ids(self) -> set[int]:
        return {_int(id) for (id,) in self.rows("select id from vector")}

    def vectors_after(self, id: int) -> list[StoredVector]:
        """Return the next vectors, in the order in which they were made."""
        rows = self.rows(
            "select v.id, v.passage, p.session, v.script, v.steps from vector v join passage p on p.id = v.passage "
            "where v.id > ? order by v.id limit ?",
            (id, VECTORS_READ),
        )
        return [
            StoredVector(steps, _int(script), _int(number), _int(passage), _int(session))
            for number, passage, session, script, steps in rows
            if isinstance(steps, bytes)
        ]

    # --- proposals ---------------------------------------------------------------------------------------------------

    def proposed(self, project: str) -> dict[str, str]:
        """Return what was proposed to a project: key -> id of the memory that waited, "" for none."""
        rows = self.rows("select key, memory from proposal where key >= ? and key < ?", (f"{project}/", f"{project}0"))
        return {str(key).removeprefix(f"{project}/"): str(memory) for key, memory in rows}

    def keep_proposal(self, project: str, key: str, memory: str | None) -> None:
        """Note what a key became; None: it may be proposed again."""
        with self.unit() as link:
            link.run("delete from proposal where key = ?", (f"{project}/{key}",))
            if memory is not None:
                link.run("insert into proposal values(?, ?)", (f"{project}/{key}", memory))

    # --- forgetting --------------------------------------------------------------------------------------------------

    def forget(self, session: int, *, for_good: bool = True) -> int:
        """Erase a session; return how many passages went. for_good: its sub agents too, and they are not read again."""

        def erased(link: SqlLink, session: int) -> int:
            count = 0
            for agent, name, source in link.rows("select agent, name, source from session where id = ?", (session,)):
                count += _drop_passages(link, session, 0)
                _drop_head(link, session)
                link.run("delete from session where id = ?", (session,))
                if for_good:
                    link.run("insert or ignore into tombstone values(?, ?)", (agent, name))
                    begun = link.rows("select id from session where agent = ? and parent = ?", (agent, name))
                    count += sum(erased(link, _int(id)) for (id,) in begun)
                elif not link.rows("select 1 from session where source = ?", (source,)):
                    link.run("delete from source where id = ?", (source,))
            return count

        return self.write(lambda link: erased(link, session))

    def erase(self, matches: Callable[[str], bool]) -> int:
        """Erase whole, for good, each session in which a text matches, and make the files clean; return how many.

        A session goes as one: its file is the client's, and a part of it would come back with the next look.
        Raises Unavailable: somebody reads the old pages of the log.
        """
        found = [id for id in (_int(id) for (id,) in self.rows("select id from session")) if matches(self._text_of(id))]
        for session in found:
            self.forget(session)
        self.clean()
        return len(found)

    def clean(self) -> None:
        """Leave nothing of what was erased in the files. Raises Unavailable: somebody reads old pages of the log."""
        with self.unit() as link:
            for index in ("words", "heads"):  # what was deleted stays in their segments until these are merged
                link.run(f"insert into {index}({index}) values('optimize')")
        self.wipe()

    def _text_of(self, session: int) -> str:
        """Return all that is stored of a session, its passages in their order."""
        head = self.rows("select title, request, head, cwd, branch from session where id = ?", (session,))
        parts = self.rows("select parts from passage where session = ? order by first", (session,))
        actions = self.rows("select text, path, old, new, shape from action where session = ?", (session,))
        decoded = [text for (part,) in parts for text in texts_in(parsed(str(part)))]
        return "\n".join([*decoded, *(str(value) for row in (*head, *actions) for value in row)])


def _int(value: str | int | float | bytes | None) -> int:
    return int(value or 0)


def _keep_file(link: SqlLink, read: ReadFile) -> None:
    link.run(
        "insert into source(agent, path, size, mtime_ns, resume, problem) values(?, ?, ?, ?, ?, ?) "
        "on conflict(path) do update set size = excluded.size, mtime_ns = excluded.mtime_ns, "
        "resume = excluded.resume, problem = excluded.problem, gone_at = null",
        (read.agent, read.path, read.size, read.mtime_ns, read.resume, read.problem),
    )
    ((source,),) = link.rows("select id from source where path = ?", (read.path,))
    for session in read.sessions:
        if newer := _newer_file(link, read, session.facts.name, _int(source)):
            problem = f"its session has the id of {newer}, which is newer and was read"
            link.run("update source set resume = 0, problem = ? where id = ?", (problem, source))
        else:
            _keep_session(link, read.agent, _int(source), session)


def _newer_file(link: SqlLink, read: ReadFile, name: str, source: int) -> str:
    """Return a newer file of a session of this id, "" for none; the older of two is read anew, whole, once it grows."""
    others = link.rows(
        "select f.path, f.mtime_ns, f.gone_at, f.id from session s join source f on f.id = s.source "
        "where s.agent = ? and s.name = ? and f.id <> ?",
        (read.agent, name, source),
    )
    for path, mtime_ns, gone_at, other in others:
        if gone_at is None and _int(mtime_ns) > read.mtime_ns:
            return str(path)
        link.run("update source set resume = 0 where id = ?", (other,))
    return ""


def _keep_session(link: SqlLink, agent: str, source: int, read: ReadSession) -> None:
    facts = read.facts
    if link.rows("select 1 from tombstone where agent = ? and name in (?, ?)", (agent, facts.name, facts.parent)):
        link.run("insert or ignore into tombstone values(?, ?)", (agent, facts.name))
        return
    times = [passage.at for passage in read.passages if passage.at]
    began, ended = (min(times), max(times)) if times else (0.0, 0.0)
    link.run(
        "insert into session(agent, name, source, cwd, branch, title, request, head, parent, leaf, began, ended, "
        "passages) values(?, ?, ?, ?, ?, '', '', '', ?, '', ?, ?, 0) on conflict(agent, name) do nothing",
        (agent, facts.name, source, facts.cwd, facts.branch, facts.parent, began, ended),
    )
    ((id,),) = link.rows("select id from session where agent = ? and name = ?", (agent, facts.name))
    session = _int(id)
    _drop_passages(link, session, read.begin)
    _add_passages(link, session, read.passages)
    for call, action in read.ended.items():
        link.run(
            "update action set exit = ?, shape = ? where session = ? and call = ? and exit is null",
            (action.exit, action.shape, session, call),
        )
    link.run(
        "update session set source = ?, branch = ?, leaf = ?, parent = coalesce(nullif(parent, ''), ?), "
        "ended = max(ended, ?), began = coalesce(nullif(began, 0), ?), "
        "passages = (select count(*) from passage where session = session.id) where id = ?",
        (source, facts.branch, facts.leaf, facts.parent, ended, began, session),
    )
    _name(link, session, facts, read.passages)


def _add_passages(link: SqlLink, session: int, passages: Sequence[SessionPassage]) -> None:
    ((last,),) = link.rows("select coalesce(max(id), 0) from passage")
    numbered = list(enumerate(passages, _int(last) + 1))
    link.run_many(
        "insert into passage(id, session, at, first, parts) values(?, ?, ?, ?, ?)",
        [(id, session, one.at, one.first, json.dumps(one.parts, ensure_ascii=False)) for id, one in numbered],
    )
    link.run_many(
        "insert into words(rowid, said, command, result) values(?, ?, ?, ?)",
        [(id, *indexed(one.parts)) for id, one in numbered],
    )
    link.run_many(
        "insert into waiting(passage, at) values(?, ?)", [(id, one.at) for id, one in numbered if spoken(one.parts)]
    )
    link.run_many(
        "insert into action(session, passage, kind, text, path, old, new, at, call, exit, shape) "
        "values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (session, id, a.kind, a.text, a.path, a.old, a.new, a.at, a.call, a.exit, a.shape)
            for id, one in numbered
            for a in one.actions
        ],
    )


def _name(link: SqlLink, session: int, facts: Facts, passages: Sequence[SessionPassage]) -> None:
    """Give a session its title and first request, and index both."""
    ((was, title),) = link.rows("select request, title from session where id = ?", (session,))
    request = str(was)
    if not request:
        request = next((text for one in passages for kind, text in one.parts if kind == "user"), "")[:HEAD_CHARS]
    _put_head(link, session, facts.title or str(title), request)


def _put_head(link: SqlLink, session: int, title: str, request: str) -> None:
    head = f"{title}\n{request}".strip()[:HEAD_CHARS]
    if link.rows("select 1 from session where id = ? and head = ?", (session, head)):
        return
    _drop_head(link, session)
    link.run("update session set title = ?, request = ?, head = ? where id = ?", (title, request, head, session))
    link.run("insert into heads(rowid, head) values(?, ?)", (session, " ".join(terms(head))))


def _drop_head(link: SqlLink, session: int) -> None:
    ((head,),) = link.rows("select head from session where id = ?", (session,))
    if head:
        link.run("insert into heads(heads, rowid, head) values('delete', ?, ?)", (session, " ".join(terms(str(head)))))


def _drop_passages(link: SqlLink, session: int, begin: int) -> int:
    rows = link.rows("select id from passage where session = ? and first >= ?", (session, begin))
    for (id,) in rows:
        _drop(link, _int(id))
    return len(rows)


def _drop(link: SqlLink, passage: int) -> None:
    for (parts,) in link.rows("select parts from passage where id = ?", (passage,)):
        link.run(
            "insert into words(words, rowid, said, command, result) values('delete', ?, ?, ?, ?)",
            (passage, *indexed(parts_of(parts))),
        )
    link.run("delete from passage where id = ?", (passage,))
    link.run("delete from action where passage = ?", (passage,))
    link.run("delete from waiting where passage = ?", (passage,))
    link.run("delete from vector where passage = ?", (passage,))


def parts_of(stored: Row | str | int | float | bytes | None) -> list[Part]:
    """Return the parts of a stored passage."""
    return [(kind, text) for kind, text in json.loads(str(stored))]
