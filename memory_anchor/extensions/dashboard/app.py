"""The dashboard as an ASGI app: addresses, forms, templates. Every page is whole without JavaScript.

It runs in the process that the human started on a terminal and calls the engine as every command does; the engine has
no pages, cookies or passphrase. Rejected: pages served by the engine itself, where the passphrase would be typed into a
process that any agent's bridge may have started, and where a bug in a page could break memory for everybody.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import anyio
from jinja2 import Environment, FileSystemLoader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import MemoryAnchorError, report
from memory_anchor.extensions.dashboard import actions, pages, wording
from memory_anchor.extensions.dashboard.access import OPEN, SESSION, STATIC, Session, SessionGuard, Sessions, cookie_of
from memory_anchor.extensions.dashboard.pages import Page
from memory_anchor.extensions.dashboard.wording import LANGUAGES, Words
from memory_anchor.front.cli import link

HERE = Path(__file__).parent
HOST = "127.0.0.1"
FORM_BYTES_MAX = 8 << 20
FORM_FIELDS_MAX = 2_400
DRAINED_BYTES_MAX = 256 << 20
"""Of a file that is too large; what is beyond ends the connection."""
SWITCH, PROJECT = "/project", "memory_anchor.project"
THEME, THEMES = "memory_anchor_theme", ("auto", "light", "dark")
YEAR_S = 365 * 24 * 3600
FEED_S = 3.0
"""How often an open page looks for what was written."""
NEW_VISIT_S = 30 * 60
"""A reader who comes back after this long sees what changed since the visit before."""
PAGES: dict[str, Callable[[pages.Query, Words], Page]] = {
    "search": pages.search,
    "timeline": pages.timeline,
    "sessions": pages.sessions,
    "context": pages.context,
    "knowledge": pages.knowledge,
    "health": pages.health,
    "use": pages.use,
}
ACTIONS: dict[str, actions.Action] = {
    SWITCH: actions.choose_project,
    "/undo": actions.undo,
    "/memory": actions.change,
    "/add": actions.add,
    "/import/do": actions.bring_in,
    "/proposal": actions.proposal,
    "/pause": actions.pause,
    "/backup": actions.backup,
    "/job": actions.job,
    "/knowledge/add": actions.add_source,
    "/knowledge/sync": actions.sync,
    "/knowledge/remove": actions.drop,
}


class Dashboard:
    """One served dashboard. port: of its address."""

    def __init__(self, port: int, sessions: Sessions) -> None:
        self.sessions = sessions
        self._zone = link.preamble().zone
        self._projects: dict[str, list[Record]] = {}
        self._mark = hashlib.sha256(str(link.data_dir()).encode()).hexdigest()[:8]
        self._checks: dict[str, Record] = {}
        self._templates = _environment()
        routes = [
            Route("/", self._inbox),
            *(Route(actions.PATHS[name], partial(self._page, name)) for name in PAGES),
            Route("/memory/{name}", self._memory),
            Route("/report/{name}", self._report),
            Route("/session/{name}", self._session),
            Route("/use.csv", self._csv),
            Route("/inbox", self._decide, methods=["POST"]),
            Route("/purge", self._purge, methods=["GET", "POST"]),
            Route("/undo", self._undo),
            Route("/import", self._import, methods=["GET", "POST"]),
            Route("/doctor", self._doctor, methods=["POST"]),
            *(Route(path, partial(self._act, act), methods=["POST"]) for path, act in ACTIONS.items()),
            Route("/language/{name}", partial(self._chosen, "memory_anchor_lang", tuple(LANGUAGES))),
            Route("/theme/{name}", partial(self._chosen, THEME, THEMES)),
            Route("/pulse", self._pulse),
            Route("/feed", self._feed),
            Route(f"{OPEN}{{secret}}", self._opened),
            Mount(STATIC.rstrip("/"), StaticFiles(directory=HERE / "static")),
        ]
        self._inner = Starlette(routes=routes, exception_handlers={HTTPException: self._unrouted, Exception: self._bug})
        self.app = SessionGuard(
            self._of_project,
            sessions=sessions,
            hosts=[f"{name}:{port}" for name in (HOST, "localhost")],
            cookie=f"memory_anchor_{self._mark}",
            locked=self._closed("locked", 401),
            lost=self._closed("lost", 403),
        )

    async def _of_project(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for the project that its session chose, whatever the session chooses meanwhile."""
        session: Session | None = scope.get(SESSION)
        scope[PROJECT] = session.project if session is not None else ("", "")
        with link.in_project(*scope[PROJECT]):
            await self._inner(scope, receive, send)

    # --- pages -----------------------------------------------------------------------------------------------------

    async def _page(self, name: str, request: Request) -> Response:
        query = dict(request.query_params)
        return await self._shown(request, name, lambda words: PAGES[name](query, words))

    async def _inbox(self, request: Request) -> Response:
        return await self._shown(request, "inbox", partial(self._inbox_of, request, None))

    def _inbox_of(self, request: Request, form: pages.Query | None, words: Words) -> Page:
        return pages.inbox(dict(request.query_params), self._visits(request, words)[0], words, form)

    async def _memory(self, request: Request) -> Response:
        name, before = request.path_params["name"], request.query_params.get("before", "")
        return await self._shown(request, "memory", lambda words: pages.memory(name, words, before))

    async def _report(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._shown(request, "report", lambda _: pages.report(name))

    async def _session(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._shown(request, "session", lambda _: pages.session(name))

    async def _undo(self, request: Request) -> Response:
        name = request.query_params.get("id", "")
        return await self._shown(request, "undo", lambda _: actions.undoable(_session(request), name))

    async def _csv(self, request: Request) -> Response:
        stats = await run_in_threadpool(actions.ask, "stats")
        text = io.StringIO()
        sheet = csv.writer(text)
        sheet.writerow(["day", "writes", "changes", "recalls"])
        sheet.writerows(pages.days_of(stats, self._words(request)))
        head = {"content-disposition": 'attachment; filename="memory-anchor-use.csv"'}
        return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=head)

    async def _pulse(self, request: Request) -> Response:
        """Return the count of the inbox, a piece of a page that htmx polls; nothing for a page of another project."""
        if request.query_params.get("of", "") != _project(request):
            raise HTTPException(404)
        answer = await run_in_threadpool(actions.ask, "inbox", limit=1)
        return HTMLResponse(str(answer["total"] or ""))

    async def _feed(self, request: Request) -> Response:
        """Return a stream of what is written from now on, as rows of a list, until the page is closed."""
        words = self._words(request)
        rows = self._templates.get_template("feed.html")

        async def events() -> AsyncIterator[str]:
            last = words.now.isoformat()
            while True:
                await anyio.sleep(FEED_S)
                with contextlib.suppress(MemoryAnchorError):  # an engine that is away comes back
                    newest = await run_in_threadpool(pages.written_after, last)
                    last = max([last, *(str(memory["recorded_at"]) for memory in newest)], key=wording.instant)
                    lines = rows.render(t=self._words(request), changed=newest).split("\n") if newest else [""]
                    yield "".join(f"data: {line}\n" for line in lines) + "\n" if newest else ": nothing new\n\n"

        return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def _opened(self, request: Request) -> Response:
        answer = self._html(request, "opened", {}, 200)
        if cookie := request.scope.get("memory_anchor.cookie"):
            answer.headers.append("set-cookie", cookie)
        return answer

    async def _chosen(self, cookie: str, known: tuple[str, ...], request: Request) -> Response:
        """Remember what the reader chose for every page, and go back to the one before."""
        name, back = request.path_params["name"], request.query_params.get("back", "/")
        if name not in known:
            raise HTTPException(404)
        local = back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"
        answer = RedirectResponse(local, 303)
        answer.set_cookie(cookie, name, max_age=YEAR_S, httponly=True, samesite="strict")
        return answer

    # --- forms -----------------------------------------------------------------------------------------------------

    async def _act(self, act: actions.Action, request: Request) -> Response:
        form, session, words = await self._form(request), _session(request), self._words(request)
        try:
            return RedirectResponse(await run_in_threadpool(act, form, session, words), 303)
        except actions.NotSigned as error:
            return self._unsigned(request, error, form)
        except MemoryAnchorError as error:
            return self._wrong(request, error)

    async def _decide(self, request: Request) -> Response:
        form, session, words = await self._form(request), _session(request), self._words(request)
        try:
            return RedirectResponse(await run_in_threadpool(actions.decide, form, session, words), 303)
        except MemoryAnchorError as error:
            session.notices.append({"kind": "bad", "text": _sentence(error, words)})
            return await self._shown(request, "inbox", partial(self._inbox_of, request, form), report(error).status)

    async def _purge(self, request: Request) -> Response:
        if request.method != "POST":
            empty = {"step": "ask", "ids": request.query_params.get("id", "")}
            return await self._shown(request, "purge", lambda _: empty)
        form, session, words = await self._form(request), _session(request), self._words(request)
        try:
            answer, step = await run_in_threadpool(actions.purge, form, session, words)
        except MemoryAnchorError as error:
            session.notices.append({"kind": "bad", "text": _sentence(error, words)})
            typed = {"step": "ask", "ids": form.get("ids", ""), "text": form.get("text", "")}
            return await self._shown(request, "purge", lambda _: typed, report(error).status)
        return await self._shown(request, "purge", lambda _: {"step": step, "found": answer})

    async def _import(self, request: Request) -> Response:
        kinds: Page = {"tools": actions.IMPORTED, "found": None}
        if request.method != "POST":
            return await self._shown(request, "import", lambda _: kinds)
        form, file = await self._upload(request)
        session, name = _session(request), file.filename or ""

        def found(words: Words) -> Page:
            return {**kinds, "found": actions.offer(form, file.file, name, session, words)}

        return await self._shown(request, "import", found)

    async def _upload(self, request: Request) -> tuple[dict[str, str], UploadFile]:
        """Return a form's fields and its file, read to the end: else its sender would not read why it is refused."""
        size = 0

        async def bounded() -> AsyncGenerator[bytes, None]:
            nonlocal size
            async for chunk in request.stream():
                size += len(chunk)
                if size <= actions.IMPORT_BYTES_MAX:
                    yield chunk
                elif size > DRAINED_BYTES_MAX:
                    break

        if request.headers.get("content-type", "").partition(";")[0] != "multipart/form-data":
            raise HTTPException(415)
        try:
            parts = await MultiPartParser(request.headers, bounded(), max_files=1, max_fields=2).parse()
        except MultiPartException:
            raise HTTPException(413 if size > actions.IMPORT_BYTES_MAX else 400) from None
        if size > actions.IMPORT_BYTES_MAX:
            raise HTTPException(413)
        fields = {name: value for name, value in parts.multi_items() if isinstance(value, str)}
        self._check_token(request, fields)
        if not isinstance(file := parts.get("file"), UploadFile):
            raise HTTPException(400)
        return fields, file

    async def _doctor(self, request: Request) -> Response:
        await self._form(request)
        checks = await run_in_threadpool(actions.checks)
        self._checks[_project(request)] = {"at": datetime.now(UTC).isoformat(), "checks": [*checks]}
        return RedirectResponse("/health", 303)

    async def _form(self, request: Request) -> dict[str, str]:
        """Return a form's fields. Raises HTTPException: too large, of another kind, or without its token."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            raise HTTPException(415)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise HTTPException(413)
        try:
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict")
        except ValueError:
            raise HTTPException(400) from None
        form = {name: value.replace("\r\n", "\n") for name, value in fields}
        self._check_token(request, form)
        return form

    def _check_token(self, request: Request, form: dict[str, str]) -> None:
        path = request.url.path
        if not _session(request).knows(path, _project(request, path), form.pop("csrf", "")):
            raise HTTPException(403)

    # --- answers ---------------------------------------------------------------------------------------------------

    async def _shown(self, request: Request, name: str, work: Callable[[Words], Page], status: int = 200) -> Response:
        words = self._words(request)

        def worked() -> Page:
            self._projects[_project(request)] = actions.known_projects()
            return work(words)

        try:
            context = await run_in_threadpool(worked)
        except MemoryAnchorError as error:
            return self._wrong(request, error)
        answer = self._html(request, name, context, status)
        if name == "inbox":
            before, now = self._visits(request, words)
            value, name = urlencode({"before": before, "now": now}), f"memory_anchor_seen_{self._mark}"
            answer.set_cookie(name, value, max_age=YEAR_S, httponly=True, samesite="strict")
        return answer

    def _html(self, request: Request, name: str, context: Page, status: int) -> Response:
        words, session, project = self._words(request), request.scope.get(SESSION), _project(request)
        notices = [] if session is None else list(session.notices)
        if session is not None:
            session.notices.clear()
        shown = {
            "t": words,
            "page": name,
            "nav": actions.PATHS,
            "languages": LANGUAGES,
            "themes": THEMES,
            "theme": theme if (theme := cookie_of(request.headers.get("cookie", ""), THEME)) in THEMES else "auto",
            "project": project,
            "projects": self._projects.get(project, ()),
            "here": f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path,
            "notices": notices,
            "session": session,
            "token": lambda action: session.token(action, _project(request, action)) if session is not None else "",
            "doctor": self._checks.get(project, {}),
            "query": "",
            **context,
        }
        return HTMLResponse(self._templates.get_template(f"{name}.html").render(shown), status)

    def _wrong(self, request: Request, error: MemoryAnchorError) -> Response:
        return self._html(request, "wrong", {"sentence": _sentence(error, self._words(request))}, report(error).status)

    def _unsigned(self, request: Request, error: actions.NotSigned, form: Mapping[str, str]) -> Response:
        """Ask for the passphrase again, keeping the other fields."""
        kept = {name: value for name, value in form.items() if name != "passphrase"}
        sentence = _sentence(error, self._words(request))
        context = {"sentence": sentence, "action": request.url.path, "kept": kept}
        return self._html(request, "unsigned", context, report(error).status)

    def _closed(self, name: str, status: int) -> ASGIApp:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self._html(Request(scope), name, {}, status)(scope, receive, send)

        return answer

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        words, key = self._words(request), f"wrong.{status}"
        if (status, request.url.path) == (413, "/import"):
            key = "import.too_large"
        sentence = words(key if key in wording.catalogue(words.language) else "wrong.400")
        return self._html(request, "wrong", {"sentence": sentence}, status)

    async def _bug(self, request: Request, _: Exception) -> Response:
        return self._html(request, "wrong", {"sentence": self._words(request)("wrong.500")}, 500)

    def _words(self, request: Request) -> Words:
        cookie = cookie_of(request.headers.get("cookie", ""), "memory_anchor_lang")
        language = wording.language_of(cookie, request.headers.get("accept-language", ""))
        return Words(language, zone=self._zone, now=datetime.now(UTC))

    def _visits(self, request: Request, words: Words) -> tuple[str, str]:
        """Return the time of this browser's last visit before this one ("" for never), and now."""
        visits = dict(parse_qsl(cookie_of(request.headers.get("cookie", ""), f"memory_anchor_seen_{self._mark}")))
        before, last, now = visits.get("before", ""), visits.get("now", ""), words.now.isoformat()
        try:
            is_new = bool(last) and (words.now - wording.instant(last)).total_seconds() > NEW_VISIT_S
            wording.instant(before or now)
        except ValueError:
            return "", now
        return (last if is_new else before), now


def _project(request: Request, action: str = "") -> str:
    """Return the project whose page this is, "" for the command's own; the switch is on every page."""
    return "" if action == SWITCH else str(request.scope.get(PROJECT, ("", ""))[0])


def _session(request: Request) -> Session:
    session: Session = request.scope[SESSION]
    return session


def _sentence(error: MemoryAnchorError, words: Words) -> str:
    return words(error.key, n=error.n) if isinstance(error, actions.NotSigned) else str(error)


def _environment() -> Environment:
    templates = FileSystemLoader(HERE / "templates")
    environment = Environment(loader=templates, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"plain": wording.plain, "oneline": wording.oneline, "told": wording.told}
    return environment


def _warm() -> None:
    """Load the modules of the first page while its reader opens the link: half a second of CPU time."""
    with contextlib.suppress(MemoryAnchorError):  # the page itself says what is wrong
        pages.inbox({}, "", Words("en", zone="", now=datetime.now(UTC)))


def serve(port: int, *, announce: Callable[[str], None]) -> None:
    """Serve on loopback until interrupted; `announce` gets the link. Raises Unavailable: the port is taken."""
    from memory_anchor.extensions.service import http_limits

    listener = http_limits.listen(HOST, port, "--port")  # from now on a browser waits instead of being refused
    sessions, port = Sessions(), listener.getsockname()[1]
    dashboard = Dashboard(port, sessions)
    actions.wake()
    announce(f"http://{HOST}:{port}{OPEN}{sessions.new_link()}")
    threading.Thread(target=_warm, daemon=True, name="first page").start()
    http_limits.run_server(dashboard.app, listener, lifespan="off", stop_wait_s=2)
