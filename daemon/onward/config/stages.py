"""Stages and permission rules of an agent definition."""

from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from onward.config.numbers import Count

Builtin = Literal["shell", "read_file", "write_file", "edit_file", "list_files", "search_files", "finish"]
Human = Literal["ask_user", "present_for_review", "edit_document"]
TOOLS: tuple[str, ...] = get_args(Builtin) + get_args(Human)
ToolName = Builtin | Human

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "shell": ("command", "timeout_s"),
    "read_file": ("path", "offset", "limit"),
    "write_file": ("path", "content"),
    "edit_file": ("path", "old", "new", "all"),
    "list_files": ("path",),
    "search_files": ("pattern", "path", "limit"),
    "transition": ("stage", "reason"),
    "finish": ("result", "status"),
}
"""What a rule can be about: the tools that may be refused, and their arguments."""

ModelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*/.+$")]
StageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]


class Rule(BaseModel):
    """One permission rule. What stands beside `then` has to match; nothing beside it matches every call.

    `prefix` is for the shell: the first words of one simple command. Any other key is the name of an argument, with a
    pattern (`*`, `?`) for its value.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    prefix: str | None = None
    then: Literal["allow", "ask", "deny"]

    @model_validator(mode="after")
    def _patterns_are_texts(self) -> "Rule":
        for name, value in (self.model_extra or {}).items():
            if not isinstance(value, str):
                raise ValueError(f"the pattern for {name!r} is a text")  # noqa: TRY004  # pydantic wants ValueError
        return self


Permissions = dict[str, tuple[Rule, ...]]


def as_rules(value: Any) -> Any:
    """Accept one word for all calls of a tool: `shell = "ask"`."""
    if isinstance(value, dict):
        return {tool: [{"then": rules}] if isinstance(rules, str) else rules for tool, rules in value.items()}
    return value


class StageDefinition(BaseModel):
    """One stage. What is left out is as the definition says for the whole run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: StageName
    prompt: str = ""
    """What the run is told when it enters the stage."""
    tools: tuple[str, ...] | None = None
    """The only tools it has there; those of MCP servers by their full names."""
    permissions: Permissions | None = None
    """Rules that hold there instead of the definition's."""
    model: ModelName | None = None
    checkpoint: tuple[str, ...] = ()
    """What a human is asked, one after the other, before the run leaves the stage: `"approve"`, or several."""
    next: tuple[StageName, ...] = ()
    """Where it leads: nowhere (the run ends), to one stage, or to the one that the model chooses."""
    max_visits: Count | None = None
    on_error: str = "fail"
    """`fail`, or the stage that follows when this one failed or was visited too often."""

    _rules = field_validator("permissions", mode="before")(as_rules)

    @field_validator("checkpoint", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


def check_permissions(permissions: Permissions) -> None:
    """Check that rules are about tools and arguments that exist: one that is misspelt would bound nothing, silently.

    What an MCP server's tools take is not known here.

    Raises:
        ValueError: One does not.
    """
    for tool, rules in permissions.items():
        if tool.startswith("mcp__"):
            known: tuple[str, ...] | None = None
        elif tool in get_args(Human):
            raise ValueError(f"{tool!r} asks a human by itself; to forbid it, leave it out of `tools`")
        elif tool not in ARGUMENTS:
            raise ValueError(f"there is no tool {tool!r} to allow, ask about or deny; known: {', '.join(ARGUMENTS)}")
        else:
            known = ARGUMENTS[tool]
        for rule in rules:
            _check_keys(tool, rule, known)


def _check_keys(tool: str, rule: Rule, known: tuple[str, ...] | None) -> None:
    if rule.prefix is not None and tool != "shell":
        raise ValueError(f"`prefix` tells commands of the shell apart, {tool!r} has none; name an argument instead")
    for name in rule.model_extra or {}:
        if known is not None and name not in known:
            nearest = get_close_matches(name, (*known, "prefix", "then"), 1)
            guess = f"; meant: {nearest[0]!r}?" if nearest else ""
            raise ValueError(f"{tool!r} has no argument {name!r}, known: {', '.join(known) or 'none'}{guess}")


def check_stages(stages: tuple[StageDefinition, ...]) -> None:
    """Check that every stage that is named exists.

    Raises:
        ValueError: One does not, or two have one name.
    """
    names = [stage.name for stage in stages]
    for stage in stages:
        if names.count(stage.name) > 1:
            raise ValueError(f"two stages are named {stage.name!r}")
        for target in (*stage.next, *((stage.on_error,) if stage.on_error != "fail" else ())):
            if target not in names:
                raise ValueError(f"stage {stage.name!r} names {target!r}, which is no stage; known: {', '.join(names)}")
        for tool in stage.tools or ():
            if tool not in TOOLS and not tool.startswith("mcp__"):
                raise ValueError(f"stage {stage.name!r} names the tool {tool!r}; known: {', '.join(TOOLS)}")
