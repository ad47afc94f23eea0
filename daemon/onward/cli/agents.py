"""`onward agents`: which agent definitions there are, and what is wrong with them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onward.cli.client import Client, NoDaemon
from onward.cli.terminal import line, out, out_json, paint, say, table
from onward.config.agents import AgentDefinition, load_agents, read_agent
from onward.config.documents import Problem, line_of
from onward.config.places import Places, find_places
from onward.config.settings import Settings, load_settings
from onward.errors import BadConfiguration, NotFound

Json = dict[str, Any]


def show(*, as_json: bool) -> int:
    """List the definitions that the daemon reads; without one, those that it would read."""
    try:
        known = Client().get("/v1/agents")
    except NoDaemon:
        say("no daemon runs; these are the agents that it would find")
        known = _offline()
    if as_json:
        out_json(known)
        return 0
    columns = (("name", 32), ("kind", 12), ("model", 48), ("description", 200))
    rows = [[line(agent.get(name) or "-", width) for name, width in columns] for agent in known["agents"]]
    table(tuple(name.upper() for name, _ in columns), rows)
    if known["problems"]:
        say(f"{len(known['problems'])} problems with others: onward agents check")
    return 0


def check(target: str | None, *, as_json: bool) -> int:
    """Check one definition or all; 78 if something is wrong."""
    places = find_places()
    files = [_find(target, places)] if target else sorted(_all(places))
    problems = list(problems_of(places, files, whole=target is None))
    for problem in problems:
        if as_json:
            out_json(problem.to_json())
        else:
            out(paint(line(problem, 1000), "bad"))
    if not problems:
        say(f"{len(files)} agent definition{'s are' if len(files) != 1 else ' is'} in order")
    return BadConfiguration.exit_code if problems else 0


def problems_of(places: Places, files: list[Path], *, whole: bool) -> Iterator[Problem]:
    """Yield what is wrong with definitions; with `whole` also with the directories that they are in."""
    settings = _settings(places)
    if whole:
        yield from (problem for problem in load_agents(places.agent_dirs)[1] if problem.file not in files)
    for file in files:
        found = read_agent(file)
        if isinstance(found, AgentDefinition):
            yield from _models_of(file, found, settings, places)
        else:
            yield from found


def _models_of(file: Path, agent: AgentDefinition, settings: Settings | None, places: Places) -> Iterator[Problem]:
    for key, model in [("model", agent.model), *(("fallback", model) for model in agent.fallback)]:
        provider, _, name = (model or "").partition("/")
        if model is None or settings is None:
            continue
        at = line_of(file.read_text(), (key,))
        if provider == "scripted":
            try:
                places.find_script(name)
            except NotFound as error:
                yield Problem(file=file, line=at, what=str(error), remedy="write it, or name another")
        elif provider not in settings.providers:
            known = ", ".join([*settings.providers, "scripted"])
            remedy = f"known here: {known}; a new one is [providers.{provider}] in onward.toml"
            yield Problem(file=file, line=at, what=f"there is no provider {provider!r}", remedy=remedy)


def _find(target: str, places: Places) -> Path:
    if "/" in target or target.endswith(".toml"):
        if not os.path.lexists(target):
            raise NotFound(f"there is no file {target!r}")
        return Path(os.path.abspath(target))
    found = next((path for path in _all(places) if path.stem == target), None)
    if found is None:
        raise NotFound(f"there is no agent {target!r}; `onward agents` lists all")
    return found


def _all(places: Places) -> list[Path]:
    """The files that are used: of two with one name the first."""
    used: dict[str, Path] = {}
    for directory in places.agent_dirs:
        for file in sorted(directory.glob("*.toml")):
            if not file.name.startswith("."):
                used.setdefault(file.stem, file)
    return list(used.values())


def _settings(places: Places) -> Settings | None:
    try:
        return load_settings(places)
    except BadConfiguration:
        return None  # said by `onward doctor` and `onward reload`; here it is about agents


def _offline() -> Json:
    found, problems = load_agents(find_places().agent_dirs)
    shown = [
        {"name": name, "kind": agent.kind, "description": agent.description, "model": agent.model}
        for name, agent in sorted(found.items())
    ]
    return {"agents": shown, "problems": [problem.to_json() for problem in problems]}
