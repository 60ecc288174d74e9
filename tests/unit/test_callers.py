"""Who is calling: which source names the conversation, and names that cannot break out of a scope."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.model import Caller, Scope, Visibility, audience, audiences
from memory_anchor.front.callers import NAME_CHARS_MAX, actor_from, safe_name, zone_or_utc
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble

BRIDGE = Preamble(conversation="from-bridge", nonce="n1", client="claude-code", zone="Asia/Shanghai", user="kim")


def _conversation(meta=None, preamble=BRIDGE, **more):
    return actor_from(preamble, meta, **more).scope.conversation


def test_the_conversation_is_named_by_the_argument_then_meta_then_bridge_then_connection():
    """Contract: request `_meta` first (ours, then the client's own session or thread), else the bridge's preamble."""
    meta = {"memory-anchor/conversation_id": "ours", "sessionId": "session", "threadId": "thread"}
    assert _conversation(meta, conversation="argument") == "argument"
    assert _conversation(meta) == "ours"
    assert _conversation({"sessionId": "session", "threadId": "thread"}) == "session"
    assert _conversation({"threadId": "thread"}) == "thread"
    assert _conversation({"threadId": 7, "sessionId": " "}) == "from-bridge"
    assert _conversation(None, connection="c") == "from-bridge"
    assert _conversation(None, Preamble(), connection="c") == "c"


def test_a_caller_over_a_transport_is_an_agent_and_never_a_human():
    assert actor_from(BRIDGE, {"caller": "human"}).caller is Caller.AGENT


def test_a_call_is_numbered_by_the_bridge_and_its_own_id():
    assert actor_from(BRIDGE, request_id=1).nonce == "n1/1"
    assert actor_from(BRIDGE, request_id="1").nonce == 'n1/"1"'
    assert actor_from(Preamble(), request_id=1).nonce == ""


def test_the_agent_is_named_by_the_bridge_then_the_settings_then_the_client():
    assert actor_from(Preamble(agent="a"), agent="b", client_name="c").scope.agent == "a"
    assert actor_from(Preamble(), agent="b", client_name="c").scope.agent == "b"
    assert actor_from(Preamble(client="d"), client_name="c").scope.agent == "c"
    assert actor_from(Preamble(client="d")).scope.agent == "d"
    assert actor_from(Preamble(), client_name="codex-mcp-client").scope.agent == "codex"


def test_a_project_that_the_caller_names_goes_before_its_folder(core: Core, tmp_path: Path):
    """Rule scope.project: one id may be shared by several folders; without a name the folder decides."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        (folder / ".git").mkdir(parents=True)
    named = [core.anchor(actor_from(Preamble(project="ours", project_dir=str(folder)))) for folder in folders]
    named[0].save_memory("The shared port is 7070")
    assert [one.actor.scope.project for one in named] == ["ours", "ours"]
    assert named[1].search("shared port").snippets
    assert not core.anchor(actor_from(Preamble(project_dir=str(folders[1])))).search("shared port").snippets


def test_read_only_can_be_asked_for_but_not_taken_back():
    assert actor_from(Preamble(read_only=True)).read_only
    assert actor_from(Preamble(read_only=False), read_only=True).read_only
    assert not actor_from(Preamble(read_only=None)).read_only


def test_a_zone_this_machine_does_not_know_is_utc():
    assert zone_or_utc("Asia/Shanghai") == "Asia/Shanghai"
    for odd in ("", "Mars/Base", "../../etc/passwd", "/etc/localtime", "\x00"):
        assert zone_or_utc(odd) == "UTC"


@given(st.text(), st.text())
def test_names_stay_apart_short_and_free_of_the_sign_that_joins_scopes(one, other):
    first, second = safe_name(one), safe_name(other)
    assert "|" not in first
    assert len(first) <= NAME_CHARS_MAX
    assert (first == second) == (one.strip() == other.strip())


@given(st.tuples(*[st.text(alphabet="ab|", max_size=4)] * 2), st.tuples(*[st.text(alphabet="ab|", max_size=4)] * 2))
def test_no_choice_of_names_reads_another_agents_memories(mine, theirs):
    """Rule: scope never leaks, whatever a client calls itself."""
    me, they = (Scope("local", "p", safe_name(user), safe_name(agent)) for user, agent in (mine, theirs))
    private = audience(they, Visibility.AGENT)
    assert (private in audiences(me)) == ((me.user, me.agent) == (they.user, they.agent))
