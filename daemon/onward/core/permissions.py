"""May this call run: allow, ask or deny, by tool and arguments. Pure.

The first rule that matches decides; a tool without rules is allowed. A rule with `prefix` matches the words of one
simple shell command. A command with any metacharacter, newline, assignment or redirection hides what it runs: where a
tool has prefix rules, it is asked about.
"""

import fnmatch
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class Then(StrEnum):
    """What a rule says."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The decision, and the rule or reason behind it."""

    then: Then
    reason: str


_META = re.compile(r"[|&;<>()$`\\\"'*?\[\]#~=%!{}\n\r\x00]")


def simple_argv(command: str) -> list[str] | None:
    """Return the words of a command that is nothing but plain words, else None."""
    if _META.search(command):
        return None
    return shlex.split(command) or None


def permitted(tool: str, arguments: Json, rules: Sequence[Json], grants: Sequence[Json]) -> Permission:
    """Decide about one call.

    Args:
        tool: Its name.
        arguments: Its arguments, as they would run.
        rules: The definition's rules for this tool, in order.
        grants: What a human allowed for the rest of the run: `{"tool": ..., "prefix"?: ...}`.
    """
    if any(_granted(grant, tool, arguments) for grant in grants):
        return Permission(then=Then.ALLOW, reason="granted for this run")
    argv = simple_argv(str(arguments.get("command", "")))
    if argv is None and any(rule.get("prefix") is not None for rule in rules):
        return Permission(then=Then.ASK, reason="the command is not one simple command, so no prefix rule can match it")
    for rule in rules:
        if _matches(rule, arguments, argv):
            return Permission(then=Then(rule["then"]), reason=f"rule {described(rule)}")
    return Permission(then=Then.ALLOW, reason="no rule")


def grant_for(tool: str, arguments: Json) -> Json:
    """Return the grant that "always" makes of a call: the same simple command with any further words, or the tool."""
    argv = simple_argv(str(arguments.get("command", ""))) if "command" in arguments else None
    if "command" not in arguments:
        return {"tool": tool}
    if argv is None:
        return {"tool": tool, "command": arguments["command"]}
    return {"tool": tool, "prefix": " ".join(argv)}


def described(rule: Json) -> str:
    """Return a rule as a person reads it."""
    what = [f"{name} {value!r}" for name, value in rule.items() if name != "then" and value is not None]
    return f"{' '.join(what) or 'anything'}: {rule.get('then', 'allow')}"


def _granted(grant: Json, tool: str, arguments: Json) -> bool:
    if grant.get("tool") != tool:
        return False
    if "command" in grant:
        return bool(grant["command"] == arguments.get("command"))
    if grant.get("prefix") is not None:
        return _has_prefix(simple_argv(str(arguments.get("command", ""))), grant["prefix"])
    return True


def _matches(rule: Json, arguments: Json, argv: list[str] | None) -> bool:
    if rule.get("prefix") is not None and not _has_prefix(argv, rule["prefix"]):
        return False
    return all(
        fnmatch.fnmatchcase(str(arguments.get(name, "")), str(pattern))
        for name, pattern in rule.items()
        if name not in ("prefix", "then") and pattern is not None
    )


def _has_prefix(argv: list[str] | None, prefix: str) -> bool:
    words = prefix.split()
    return argv is not None and argv[: len(words)] == words
