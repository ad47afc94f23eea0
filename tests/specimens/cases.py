"""The specimens: one for each kind of interruption, of damage and of rest."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.core import journals as j
from tests.specimens.writing import OTHER_BOOT, Writer, shell, told, write

BUILD, LIST = shell("t1c1", "make all"), shell("t1c2", "ls")
INTERRUPTED = "[error] interrupted: the previous session ended while this call was in flight."
PUSH = shell("t1c1", "echo git push")
ASKING = {"permissions": {"shell": [{"prefix": "echo git push", "then": "ask"}]}}
PLAN = {"name": "plan", "prompt": "Plan it.", "checkpoint": ["approve"], "next": ["build"]}
STAGED = {"stages": [PLAN, {"name": "build"}]}
BIG = "x" * 70_000


@dataclass(frozen=True, slots=True)
class Case:
    """`says` is the word of `inspect`, `becomes` the status after a daemon has gone on with it."""

    name: str
    what: str
    says: str
    becomes: str
    write: Callable[[Writer], Writer]


def _provider_ids(w: Writer) -> Writer:
    calls = (shell("t1c1", "true", "call_1"), shell("t1c2", "true", "call_1"), shell("t1c3", "true", " "))
    return w.begun(*calls).add(*(j.handed_over(f"t1c{n}") for n in (1, 2, 3)), j.done("t1c1"))


def _blob(w: Writer) -> Writer:
    record, sha, body = j.in_blob(j.done("t1c1", BIG))
    return w.begun(BUILD).add(j.handed_over("t1c1"), record).beside(f"blobs/{sha}", body).infer()


def _with_checkpoint(w: Writer) -> Writer:
    w.begun(BUILD).add(j.handed_over("t1c1"), j.done("t1c1"))
    offset = sum(map(len, w.lines))
    return w.add(j.checkpoint(w.state)).infer().index(checkpoint_offset=offset)


def _handed_over(w: Writer) -> Writer:
    return w.begun(BUILD).add(j.handed_over("t1c1"))


def _approval(w: Writer) -> Writer:
    w.agent = ASKING
    return w.begun(PUSH).ask()


def _staged(w: Writer) -> Writer:
    w.agent = STAGED
    said = j.said("Plan it.", "stage-plan-1", "system") | {"by": "stage"}
    w.start().claim().add(j.entered("plan"), said).infer().think(1, j.text("First this, then that."))
    ask = {"result": "First this, then that.", "stage": "plan", "point": "approve"}
    binds = {"stage": "plan", "visit": 1, "point": 0, "turn": 1}
    return w.add(j.opened("q1", "checkpoint", binds, ask, options=["approve", "edit", "reject"]))


CASES = [
    # At work when the daemon died
    Case("only-started", "acknowledged; nobody had taken it yet", "continues", "completed", lambda w: w.start()),
    Case("mid-inference", "a model request was out", "interrupted", "completed", lambda w: w.start().claim().infer()),
    Case("steered-mid-inference", "a human said something while a model request was out", "interrupted", "completed",
         lambda w: w.start().claim().infer().add(j.said("And the drafts."))),
    Case("turn-without-batch", "the answer was written, what it asks for was not", "interrupted", "completed",
         lambda w: w.start().claim().infer().add(j.turn(1, j.text("Now."), j.use("a", command="ls"), seen=3))),
    Case("batch-not-started", "two calls were written down, none was handed over", "interrupted", "completed",
         lambda w: w.begun(BUILD, LIST)),
    Case("command-in-flight", "a command had printed a part; its launcher is gone", "interrupted", "completed",
         lambda w: _handed_over(w).identity("t1c1").printed("t1c1", "step 1 of 9\n")),
    Case("command-ended-unjournaled", "a command had ended, its result was not in the journal", "interrupted",
         "completed", lambda w: _handed_over(w).identity("t1c1").printed("t1c1", "all built\n").exit("t1c1", 0, 10)),
    Case("command-never-started", "a command was handed over, its launcher never came; a fence proves it",
         "interrupted", "completed",
         lambda w: _handed_over(w).beside("calls/t1c1/identity", {"protocol": 1, "fence": True, "pid": 1,
                                                                  "boot_id": "5bec17e2-0000-4000-8000-000000000001"})),
    Case("file-write-in-flight", "a file was being written; it is not there", "interrupted", "completed",
         lambda w: w.begun(write("t1c1", "onward-specimen-of-no-file.txt", "notes\n")).add(j.handed_over("t1c1"))),
    Case("batch-half-done", "one call was done, one in flight, one untouched", "interrupted", "completed",
         lambda w: w.begun(BUILD, LIST, shell("t1c3", "date")).add(
             j.handed_over("t1c1"), j.handed_over("t1c2"), j.done("t1c1"))),
    Case("results-unread", "all results were written, the model had not seen them", "interrupted", "completed",
         lambda w: _handed_over(w).add(j.done("t1c1"))),
    Case("end-not-written", "the last answer was written, the end was not", "finished", "completed",
         lambda w: w.start().claim().infer().think(1, j.text("All tidy."))),
    Case("power-cut", "the machine lost its power while a command ran", "interrupted", "completed",
         lambda w: w.start().claim(boot_id=OTHER_BOOT).infer().think(1, calls=(BUILD,)).add(
             j.handed_over("t1c1")).identity("t1c1", OTHER_BOOT).printed("t1c1", "")),
    Case("provider-ids", "the provider gave two calls one id and the third a blank one", "interrupted", "completed",
         _provider_ids),
    Case("large-result", "a result too long for a line lies in blobs/", "interrupted", "completed", _blob),
    Case("with-checkpoint", "the journal holds its own folded state, and meta.json says where", "interrupted",
         "completed", _with_checkpoint),
    # Died again inside a recovery
    Case("revived-not-told", "a recovery died before it told the run", "interrupted", "completed",
         lambda w: w.start().claim().infer().claim(2).add(j.revived())),
    Case("told-not-thought", "it was told and died before it had thought: it is not told twice", "interrupted",
         "completed", lambda w: w.start().claim().infer().claim(2).add(j.revived(), told(1)).infer()),
    Case("late-result", "a call was settled as interrupted, then its real result came: a note", "interrupted",
         "completed", lambda w: _handed_over(w).claim(2).add(
             j.revived(), j.done("t1c1", INTERRUPTED, "interrupted", "recovery"), told(1),
             j.done("t1c1", "built after all"))),
    Case("revived-by-hand", "a human revived it while no daemon ran", "interrupted", "completed",
         lambda w: w.start().claim().infer().add(j.revived("manual") | {"by": "anna"})),
    # Not interrupted
    Case("drained", "a clean shutdown, with nothing in flight", "continues", "completed",
         lambda w: _handed_over(w).add(j.done("t1c1"), j.draining())),
    Case("drained-in-flight", "a clean shutdown left a command running, which then vanished: not charged",
         "interrupted", "completed",
         lambda w: _handed_over(w).add(j.draining("t1c1")).identity("t1c1").printed("t1c1", "")),
    Case("retrying", "it waited to ask the provider again", "continues", "completed",
         lambda w: w.start().claim().infer().add(j.failed("2026-11-20T09:00:30.000000Z"))),
    Case("answered", "a human had approved a command that had not started: it is run now, once", "continues",
         "completed", lambda w: _approval(w).add(j.answered("q1", {"decision": "approve"}))),
    Case("written-by-hand", "its last message was added with an editor, without a checksum", "interrupted",
         "completed", lambda w: w.start().claim().infer().tail(
             b'{"seq":4,"type":"MessageAdded","message_id":"m1","source":"human","content":"Hurry.","by":"anna",'
             b'"role":"user"}\n')),
    # At rest
    Case("asked-for-permission", "a human is asked whether a command may run", "waiting", "waiting", _approval),
    Case("asked-at-a-checkpoint", "a human is to approve a plan", "waiting", "waiting", _staged),
    Case("on-restart-ask", "interrupted; its definition says to ask before it goes on", "interrupted", "waiting",
         lambda w: w.start(on_restart="ask").claim().infer()),
    Case("on-restart-stop", "interrupted; its definition says to stop then", "interrupted", "paused",
         lambda w: w.start(on_restart="stop").claim().infer()),
    Case("paused", "paused by a human", "paused", "paused",
         lambda w: w.start().claim().infer().add(j.control("RunPaused", by="anna", reason="lunch"))),
    Case("parked", "it needs a key that is not there", "parked", "parked",
         lambda w: w.start().claim().infer().add(j.parked("key", by="daemon", reason="no key for the provider"))),
    Case("quarantined", "put aside after it had stopped the daemon too often", "quarantined", "quarantined",
         lambda w: w.start().claim().infer().add(j.control("RunQuarantined", by="daemon", reason="3 times in a row"))),
    Case("no-progress", "revived three times in a row without progress", "quarantined", "quarantined",
         lambda w: w.start().claim().add(*(j.revived(attempt=n) for n in (1, 2, 3))).infer()),
    Case("revival-cap", "revived as often as its limits allow", "revival-cap", "quarantined",
         lambda w: w.start(limits={"max_revivals": 1}).claim().add(j.revived()).infer()),
    Case("cancel-asked", "a cancel was acknowledged and not carried out", "ended", "cancelled",
         lambda w: _handed_over(w).add({"type": "CancelRequested", "by": "anna"})),
    Case("completed", "it had ended well", "finished", "completed",
         lambda w: w.start().claim().infer().think(1, j.text("All tidy.")).add(j.ended(result="All tidy.")).index()),
    Case("failed", "it had failed; a human can revive it", "ended", "failed",
         lambda w: w.start().claim().infer().add(j.ended("failed", reason="no model answered")).index()),
    Case("cancelled", "it was cancelled for good", "ended", "cancelled",
         lambda w: w.start().claim().infer().add(j.ended("cancelled", reason="cancelled by anna")).index()),
    # Torn ends: ignored, and set aside before the first write
    Case("torn-line", "the last record is half there", "interrupted", "completed",
         lambda w: w.start().claim().infer().add(j.said("And then?")).cut(40)),
    Case("torn-in-a-character", "the last record ends within a character", "interrupted", "completed",
         lambda w: w.start().claim().infer().tail('{"crc":"00000000","seq":4,"content":"caf\u00e9'.encode()[:-1])),
    Case("zeros-at-the-end", "the file had grown, its bytes had not come", "interrupted", "completed",
         lambda w: w.start().claim().infer().tail(b"\x00" * 512)),
    Case("newline-missing", "the last record is whole but for its newline", "interrupted", "completed",
         lambda w: w.start().claim().infer().cut(1)),
    # Damage
    Case("gap-before-a-turn", "zeros within the file, before the newest answer: healed", "interrupted", "completed",
         lambda w: _handed_over(w).add(j.done("t1c1")).infer().think(2, calls=(shell("t2c1", "ls"),)).lose(
             7, b"\x00" * 120 + b"\n")),
    Case("gap-after-the-turn", "a record is missing after the newest answer: a human decides", "damaged", "parked",
         lambda w: w.begun(BUILD, LIST).add(j.handed_over("t1c1"), j.handed_over("t1c2"), j.done("t1c2")).lose(5)),
    Case("records-lost", "meta.json knows more than the journal holds: a human decides", "damaged", "parked",
         lambda w: w.start().claim().infer().index(seq=9, bytes=9000)),
    Case("unknown-call", "calls/ holds a call that the journal does not know: a human decides", "damaged", "parked",
         lambda w: w.start().claim().infer().identity("t3c1")),
    Case("blob-missing", "a record's blob is gone: a human decides", "damaged", "parked",
         lambda w: _handed_over(w).add(j.in_blob(j.done("t1c1", BIG))[0]).infer()),
    Case("first-line-bad", "its first line cannot be read: listed, and left as it is", "damaged", "damaged",
         lambda w: w.start().claim().lose(0, b'X"crc":"0"}\n')),
    Case("empty-journal", "its journal is empty: listed, and left as it is", "damaged", "damaged", lambda w: w),
    Case("newer", "a newer Onward wrote what must not be overlooked: nothing is changed", "newer", "parked",
         lambda w: w.start().claim().add({"type": "SealOpened", "must": True, "seal": "x"})),
]  # fmt: skip
