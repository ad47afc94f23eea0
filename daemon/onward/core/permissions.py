"""May this call run: allow, ask or deny, by tool and arguments. Pure.

The first rule that matches decides; a tool without rules is allowed. A rule with `prefix` matches the words of one
simple shell command. A command with any metacharacter, newline, assignment or redirection hides what it runs: where
rules tell commands apart, it is asked about, unless a rule without prefix denies it. So is a path below `~`, where
rules tell paths apart: whose home that is only the tool knows. Links in a path are not followed here. A grant answers
what would be asked; it never outweighs a denial.
"""

import fnmatch
import posixpath
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


def permitted(
    tool: str, arguments: Json, rules: Sequence[Json], grants: Sequence[Json], workspace: str = ""
) -> Permission:
    """Decide about one call.

    Args:
        tool: Its name.
        arguments: Its arguments, as they would run.
        rules: The definition's rules for this tool, in order.
        grants: What a human allowed for the rest of the run: `{"tool": ..., "prefix"?: ...}`.
        workspace: What a relative path is relative to.
    """
    decided = _by_rules(arguments, rules, workspace)
    if decided.then is Then.ASK and any(_granted(grant, tool, arguments) for grant in grants):
        return Permission(then=Then.ALLOW, reason="granted for this run")
    return decided


def _by_rules(arguments: Json, rules: Sequence[Json], workspace: str) -> Permission:
    argv = simple_argv(str(arguments.get("command", "")))
    hidden = _hidden(arguments, argv, rules)
    for rule in rules:
        if _matches(rule, arguments, argv, workspace):
            then = Then(rule["then"])
            if hidden is not None and then is Then.ALLOW:
                break
            return Permission(then=then, reason=f"rule {described(rule)}")
    if hidden is not None:
        return Permission(then=Then.ASK, reason=hidden)
    return Permission(then=Then.ALLOW, reason="no rule")


def _hidden(arguments: Json, argv: list[str] | None, rules: Sequence[Json]) -> str | None:
    """Return why rules that tell calls apart cannot tell what this one does; None: they can."""
    if argv is None and any(rule.get("prefix") is not None or rule.get("command") is not None for rule in rules):
        return "the command is not one simple command, so no rule can allow it"
    if str(arguments.get("path", "")).startswith("~") and any(rule.get("path") is not None for rule in rules):
        return "the path begins with ~, so no rule can allow it"
    return None


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


def _matches(rule: Json, arguments: Json, argv: list[str] | None, workspace: str) -> bool:
    if rule.get("prefix") is not None and not _has_prefix(argv, rule["prefix"]):
        return False
    return all(
        fnmatch.fnmatchcase(_value(name, arguments.get(name, ""), workspace), str(pattern))
        for name, pattern in rule.items()
        if name not in ("prefix", "then") and pattern is not None
    )


def _value(name: str, value: Any, workspace: str) -> str:
    """Return an argument as patterns see it: a path without detours, below the workspace relative to it."""
    if name != "path" or not value or str(value).startswith("~"):
        return str(value)
    # normpath keeps two slashes at the beginning, as POSIX lets a system give them a meaning; Linux gives them none.
    path = posixpath.normpath(re.sub("^//+", "/", posixpath.join(workspace, str(value))))
    inside = path.startswith(f"{workspace.rstrip('/')}/") if workspace else False
    return posixpath.relpath(path, workspace) if inside else path


def _has_prefix(argv: list[str] | None, prefix: str) -> bool:
    words = prefix.split()
    return argv is not None and argv[: len(words)] == words
