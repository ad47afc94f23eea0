"""Agent definitions: `agents/NAME.toml`, the user's before the shipped ones."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from onward.config.documents import Keys, Problem, dotted, line_of, nearest, parse, problems_of
from onward.config.mcp import McpServer, ServerName
from onward.config.numbers import Count, CountOrNone, Dollars, Seconds
from onward.config.places import shipped
from onward.config.stages import (
    TOOLS,
    Builtin,
    ModelName,
    Permissions,
    StageDefinition,
    ToolName,
    as_rules,
    check_permissions,
    check_stages,
)
from onward.config.trusted import check_directory, read_shipped, read_trusted
from onward.errors import BadConfiguration, Unreadable

NAME = r"^[a-z0-9][a-z0-9-]{0,31}$"

# Refused by name: ignoring what somebody wrote down to bound a run would widen it silently.
UNSUPPORTED = frozenset({"transport", "chain", "watchdog"})


class Limits(BaseModel):
    """What bounds a run. None does not limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turns: Count | None = None
    """Answers of the model."""
    tokens: Count | None = None
    """Tokens of all requests and answers."""
    cost_usd: Dollars | None = None
    """US dollars for all requests."""
    tool_calls: Count | None = None
    """Tool calls of the whole run."""
    active_s: Seconds | None = None
    """Seconds of wall clock while the run is active."""
    call_deadline_s: Seconds | None = 600.0
    """Seconds for one tool call; 600 where a definition says nothing, so that no command hangs a run for ever."""
    max_revivals: CountOrNone | None = None
    """How often the run is brought back after a crash or reboot; 0 never."""
    max_stalled_revivals: Count = 3
    """How many of them in a row may bring no progress before the run is quarantined."""


class AgentDefinition(BaseModel):
    """Who does the work of a run: its model, words, tools and limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["native"] = "native"
    description: str = ""
    model: ModelName | None = None
    """`PROVIDER/MODEL`, for example `scripted/PATH`. None: the first that is usable when a run starts."""
    fallback: tuple[ModelName, ...] = ()
    """Models that are asked while those before them cannot answer."""
    system_prompt: str = ""
    tools: tuple[ToolName, ...] = get_args(Builtin)
    mcp: dict[ServerName, McpServer] = Field(default_factory=dict)
    """MCP servers whose tools the run has too."""
    rerun_reads: bool = False
    """Whether a read that was interrupted is simply done again."""
    on_restart: Literal["resume", "ask", "stop"] = "resume"
    """What happens to the run when the daemon comes back after it was interrupted."""
    sandbox: Literal["none"] | None = None
    """This version has none; a definition that asks or denies has to say so, for a tool can do all the daemon can."""
    permissions: Permissions = Field(default_factory=dict)
    """Rules by tool; the first that matches decides, a tool without rules is allowed."""
    stages: tuple[StageDefinition, ...] = ()
    """What the run goes through, the first one first. None: it is one conversation to the end."""
    question_expires_s: Seconds | None = None
    """After so many seconds a question counts as denied. None: it waits, however long it takes."""
    limits: Limits = Limits()

    _rules = field_validator("permissions", mode="before")(as_rules)

    @model_validator(mode="after")
    def _stages_fit(self) -> "AgentDefinition":
        check_stages(self.stages)
        check_permissions(self.permissions)
        for stage in self.stages:
            check_permissions(stage.permissions or {})
        return self

    @model_validator(mode="after")
    def _says_that_it_has_no_sandbox(self) -> "AgentDefinition":
        rules = [self.permissions, *(stage.permissions or {} for stage in self.stages)]
        bounded = any(rule.then != "allow" for table in rules for named in table.values() for rule in named)
        bounded = bounded or any(stage.checkpoint for stage in self.stages)
        if bounded and self.sandbox is None:
            raise ValueError(
                'it asks or denies, but its tools run without a sandbox and could go around that; say sandbox = "none" '
                "to use it all the same"
            )
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the definition as JSON values, whole, as it is written into a run's journal."""
        return self.model_dump(mode="json")


def definition_hash(definition: AgentDefinition) -> str:
    """Return the SHA-256 (hex) of a definition: the same for the same content, whatever file it came from."""
    return hashlib.sha256(orjson.dumps(definition.pinned(), option=orjson.OPT_SORT_KEYS)).hexdigest()


def load_agents(dirs: Sequence[Path]) -> tuple[dict[str, AgentDefinition], list[Problem]]:
    """Return the definitions by name and what is wrong with others. Never raises for a file; reads only.

    Args:
        dirs: Directories of `NAME.toml`, the one that wins first; a missing one is empty.

    A bad file takes its own name with it: a shipped agent never silently replaces a person's own.
    """
    agents: dict[str, AgentDefinition] = {}
    problems: list[Problem] = []
    taken: set[str] = set()
    for directory in dirs:
        refused = _refusal(directory)
        problems += [refused] if refused else []
        for file in sorted(directory.glob("*.toml")):
            if file.stem in taken or file.name.startswith("."):
                continue
            taken.add(file.stem)
            found = [] if refused else read_agent(file)
            if isinstance(found, AgentDefinition):
                agents[file.stem] = found
            else:
                problems += found
    return agents, problems


def read_agent(file: Path) -> AgentDefinition | list[Problem]:
    """Return the definition in one file, or everything that is wrong with it."""
    if not re.fullmatch(NAME, file.stem):
        remedy = "rename it: 1 to 32 of a-z, 0-9 and '-', not starting with '-'"
        return [Problem(file=file, what=f"{file.stem!r} is no name for an agent", remedy=remedy)]
    try:
        text = read_shipped(file) if _is_shipped(file.parent) else read_trusted(file)
    except (BadConfiguration, Unreadable, OSError) as error:
        return [Problem(file=file, what=_without(file, error), remedy="this agent cannot be used until then")]
    tables = parse(file, text)
    if isinstance(tables, Problem):
        return [tables]
    if problems := list(_key_problems(file, text, tables)):
        return problems
    try:
        return AgentDefinition.model_validate(tables)
    except ValidationError as error:
        return problems_of(error, file, text)


def _refusal(directory: Path) -> Problem | None:
    if _is_shipped(directory):
        return None
    try:
        check_directory(directory)
    except FileNotFoundError:
        return None
    except (BadConfiguration, OSError) as error:
        return Problem(file=directory, what=_without(directory, error), remedy="no agent is read from it until then")
    return None


def _is_shipped(directory: Path) -> bool:
    # Whoever can write there can write the code too, and a checkout may well be group-writable.
    return directory == shipped("config") / "agents"


def _without(file: Path, error: Exception) -> str:
    return str(error).removeprefix(f"{file} ")


def _key_problems(file: Path, text: str, tables: dict[str, Any]) -> Iterator[Problem]:
    """Say which keys are unknown, or known but not to this version."""
    if tables.get("kind") == "cli":
        remedy = 'use kind = "native" or move the file away'
        yield _problem(file, text, ("kind",), "external agents are not supported by this version", remedy)
        return
    limits = tables.get("limits")
    yield from _unknown(file, text, (), tables, AgentDefinition)
    yield from _unknown(file, text, ("limits",), limits if isinstance(limits, dict) else {}, Limits)
    stages = tables.get("stages")
    for stage in stages if isinstance(stages, list) else ():
        yield from _unknown(file, text, ("stages",), stage if isinstance(stage, dict) else {}, StageDefinition)
    servers = tables.get("mcp")
    for name, server in servers.items() if isinstance(servers, dict) else ():
        yield from _unknown(file, text, ("mcp", name), server if isinstance(server, dict) else {}, McpServer)
    for tool in tables["tools"] if isinstance(tables.get("tools"), list) else ():
        if tool not in TOOLS:
            yield _problem(file, text, ("tools",), f"unknown tool {tool!r}", nearest(str(tool), TOOLS))


def _unknown(
    file: Path, text: str, table: tuple[str, ...], values: dict[str, Any], model: type[BaseModel]
) -> Iterator[Problem]:
    for key in values:
        keys = (*table, key)
        if not table and key in UNSUPPORTED:
            yield _problem(file, text, keys, f"{dotted(keys)!r} is not supported by this version", "remove it")
        elif key not in model.model_fields:
            yield _problem(file, text, keys, f"unknown key {dotted(keys)!r}", nearest(key, model.model_fields))


def _problem(file: Path, text: str, keys: Keys, what: str, remedy: str) -> Problem:
    return Problem(file=file, line=line_of(text, keys), what=what, remedy=remedy)
