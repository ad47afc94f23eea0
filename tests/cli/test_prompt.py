"""A question on the terminal of somebody who follows the run: shown whole, answered in place, never by default."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onward.core.records import InteractionAnswered
from tests.cli.questions import CHECKPOINT, DEFINITION, asks, asks_for, waiting
from tests.cli.records import COMPLETED
from tests.cli.serving import Cli, Daemon
from tests.cli.terminals import Terminal, at_terminal
from tests.cli.test_questions import given
from tests.support import until

CHOICE = "[s] skip"


@pytest.fixture
def follow(daemon: Daemon, cli: Cli) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def follow(*questions: Any, **environment: str) -> Terminal:
        daemon.operations.definition, daemon.operations.script = DEFINITION, waiting(*questions)
        terminals.append(at_terminal(cli, "run", "the task", **environment))
        return terminals[-1]

    yield follow
    for terminal in terminals:
        terminal.close()


def only_run(daemon: Daemon) -> str:
    return str(next(iter(daemon.operations.runs)))


def end(daemon: Daemon, terminal: Terminal) -> int:
    """Let the run end; returns the exit code of who follows it."""
    daemon.append(only_run(daemon), COMPLETED)
    return terminal.ended()


def test_a_checkpoint_is_shown_whole_and_approved_and_the_following_goes_on(
    daemon: Daemon, follow: Callable[..., Terminal]
) -> None:
    terminal = follow(CHECKPOINT)
    shown = terminal.reply(CHOICE, "")  # no default
    for text in ("advisory", "Approve what it brought?", "step 29", "[a] approve  [e] edit  [r] reject"):
        assert text in shown
    terminal.until("> ")
    assert given(daemon, only_run(daemon)) == []
    terminal.type("perhaps\n")
    terminal.reply("one of a, e, r, s", "a")
    terminal.until("q1 is answered: approve")
    assert given(daemon, only_run(daemon)) == [{"decision": "approve"}]
    assert end(daemon, terminal) == 0
    assert "all done" in terminal.seen


@pytest.mark.parametrize(
    ("question", "replies", "answer"),
    [
        (CHECKPOINT, [(CHOICE, "r"), ("why", "too long")], {"decision": "reject", "reason": "too long"}),
        (CHECKPOINT, [(CHOICE, "e")], {"decision": "edit", "text": "EDITED\n"}),
        (asks_for("git push"), [("[always]", "always")], {"decision": "approve", "always": True}),
        (asks_for("git push"), [(CHOICE, "r"), ("why", "")], {"decision": "deny"}),
        (asks("review", text="x"), [("[c] comment", "c"), ("comment", "no")], {"decision": "comment", "text": "no"}),
        (asks("damage"), [("[r] give up", "a")], {"decision": "go_on"}),
        (asks("restart"), [("[a] resume", "r")], {"decision": "stop"}),
        (asks("ask", form="text"), [("your answer", "blue it is")], {"value": "blue it is"}),
        (asks("ask", form="choice", options=["a", "s"]), [("2. s", "s")], {"value": "s"}),
        (asks("ask", form="choice", options=["a", "b"]), [("2. b", "3"), ("none of", "2")], {"value": "b"}),
        (asks("ask", form="multi", options=["a", "b"]), [("with commas", "2, a")], {"value": ["b", "a"]}),
        (
            asks("ask", form="form", fields=[{"name": "n", "type": "number"}, {"name": "t"}]),
            [("n (number)", "many"), ("is a number", "2"), ("t (text)", "x y")],
            {"value": {"n": 2, "t": "x y"}},
        ),
        (asks("edit", text="old"), [("[a] leave", "e")], {"text": "EDITED\n"}),
        (asks("edit", text="old"), [("[a] leave", "a")], {"text": "old"}),
        (asks("budget", limits={"turns": 1}), [("limits: turns 1", "turns=5")], {"add": {"turns": 5}}),
    ],
    ids=lambda value: getattr(value, "kind", None) or (value[-1][-1] if isinstance(value, list) else ""),
)
def test_every_kind_of_question_can_be_answered_in_place(
    question: Any,
    replies: list[tuple[str, str]],
    answer: Any,
    daemon: Daemon,
    cli: Cli,
    follow: Callable[..., Terminal],
) -> None:
    editor = cli.home / "editor"
    editor.write_text('#!/bin/sh\necho EDITED > "$1"\n')
    editor.chmod(0o700)
    terminal = follow(question, EDITOR=str(editor), VISUAL="")
    for after, text in replies:
        if after in ("why", "comment"):  # asked on the line itself
            terminal.until(f"{after}")
            terminal.until(": ")
            terminal.type(f"{text}\n")
        else:
            terminal.reply(after, text)
    terminal.until("q1 is answered")
    assert given(daemon, only_run(daemon)) == [answer]
    assert end(daemon, terminal) == 0


@pytest.mark.parametrize("key", ["s\n", "\x04"], ids=["s", "Ctrl-D"])
def test_a_skipped_question_stays_open_and_says_how_it_is_answered_later(
    key: str, daemon: Daemon, follow: Callable[..., Terminal]
) -> None:
    terminal = follow(CHECKPOINT)
    terminal.until(CHOICE)
    terminal.until("> ")
    terminal.type(key)
    assert terminal.ended() == 5
    run = only_run(daemon)
    assert f"onward approve {run} q1" in terminal.seen
    assert given(daemon, run) == []


def test_ctrl_c_at_the_question_detaches(daemon: Daemon, follow: Callable[..., Terminal]) -> None:
    terminal = follow(CHECKPOINT)
    terminal.until(CHOICE)
    terminal.until("> ")
    assert terminal.interrupt() == 130
    assert f"{only_run(daemon)} goes on" in terminal.seen
    assert "Traceback" not in terminal.seen
    assert given(daemon, only_run(daemon)) == []


def test_an_editor_that_fails_or_changes_nothing_answers_nothing(
    daemon: Daemon, follow: Callable[..., Terminal]
) -> None:
    terminal = follow(CHECKPOINT, EDITOR="true", VISUAL="")
    terminal.reply(CHOICE, "e")
    terminal.until("nothing was changed")
    terminal.reply(CHOICE, "s")
    assert terminal.ended() == 5
    terminal = follow(CHECKPOINT, VISUAL="/nonexistent -x")
    terminal.reply(CHOICE, "e")
    terminal.until("set EDITOR")
    terminal.reply(CHOICE, "s")
    assert terminal.ended() == 5


def test_who_was_slower_is_told_and_sees_the_run_go_on(daemon: Daemon, follow: Callable[..., Terminal]) -> None:
    terminal = follow(CHECKPOINT)
    terminal.until(CHOICE)
    terminal.until("> ")
    answer = InteractionAnswered(interaction_id="q1", answer={"decision": "reject"}, by="kim")
    daemon.append(only_run(daemon), answer)
    terminal.type("a\n")
    terminal.until('q1 was answered already, by kim: {"decision":"reject"}')
    assert end(daemon, terminal) == 0


def test_several_questions_are_asked_one_after_the_other(daemon: Daemon, follow: Callable[..., Terminal]) -> None:
    terminal = follow(asks_for("git push"), asks_for("git pull", 2))
    assert "git push" in terminal.reply(CHOICE, "a")
    terminal.until("q1 is answered")
    assert "git pull" in terminal.reply(CHOICE, "s")
    assert terminal.ended() == 5
    assert given(daemon, only_run(daemon)) == [{"decision": "approve"}]


def test_nothing_foreign_reaches_the_terminal_unescaped(daemon: Daemon, follow: Callable[..., Terminal]) -> None:
    nasty = "\x1b[2J\x9b31m\u202e\u200b[bold]x[/bold]\x07"
    terminal = follow(asks("review", nasty, title=nasty, text=nasty), asks_for(f"{nasty}\rrm -rf /", 2))
    shown = terminal.reply("[c] comment", "a")
    shown += terminal.reply("[always]", "s")
    assert terminal.ended() == 5
    shown += terminal.seen
    shown = re.sub(r"\x1b\[\?2004[hl]", "", shown)  # readline's own
    assert not [character for character in "\x1b\x9b\u202e\u200b\x07" if character in shown]
    assert "[bold]x[/bold]" in shown
    assert "\\u{d}rm -rf /" in shown


def test_a_terminal_for_output_alone_asks_nothing(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.definition, daemon.operations.script = DEFINITION, waiting(CHECKPOINT)
    with cli.start("run", "task") as followed:
        until(lambda: followed.poll() is not None)
        _, told = followed.communicate(timeout=30)
    assert followed.returncode == 5
    assert CHOICE not in told
