"""`onward doctor`: looks at everything an installation needs, and says what is wrong and what to do."""

from collections.abc import Mapping

from onward.cli import apart, belongings, machine, neighbours
from onward.cli.client import find_socket
from onward.cli.examination import Finding, Installation, Look
from onward.cli.terminal import block, line, out, out_json, paint, say
from onward.config.places import find_client_places
from onward.config.settings import load_settings
from onward.errors import BadConfiguration

LOOKS: Mapping[str, Look] = {
    "python": machine.python,
    "package": belongings.package,
    "settings": belongings.settings,
    "agents": belongings.agents,
    "runs": belongings.runs_directory,
    "log": belongings.daemon_log,
    "socket": neighbours.socket,
    "daemon": neighbours.daemon,
    "isolation": apart.isolation,
    "providers": neighbours.providers,
    "programs": machine.programs,
    "files": machine.open_files,
    "watches": machine.file_watches,
    "clock": machine.clock,
}
_TONES = {"ok": "good", "warn": "warn", "fail": "bad"}
_INDENT = " " * 18


def doctor(*, as_json: bool) -> int:
    """Show every finding; 1 if something fails."""
    installation = installed()
    failed = 0
    for name, look in LOOKS.items():
        for finding in _found(look, installation):
            failed += finding.level == "fail"
            _show(name, finding, as_json=as_json)
    if failed:
        say(f"{failed} {'things are' if failed > 1 else 'thing is'} wrong; each line above says what to do")
    return 1 if failed else 0


def installed() -> Installation:
    """Return what the environment means, as far as it can be read."""
    places = find_client_places()
    try:
        settings = load_settings(places)
    except BadConfiguration as error:
        complaints = tuple(str(error).split("\n"))
        return Installation(places=places, client_socket=find_socket(), settings=None, complaints=complaints)
    daemon = settings.daemon
    places = places.override(runs_dir=daemon.runs_dir, socket=daemon.socket)
    return Installation(places=places, client_socket=find_socket(), settings=settings)


def _found(look: Look, installation: Installation) -> list[Finding]:
    try:
        return list(look(installation))
    except OSError as error:
        return [Finding("fail", f"this cannot be looked at: {error}", "mend that first, and ask again")]


def _show(name: str, finding: Finding, *, as_json: bool) -> None:
    if as_json:
        out_json({"check": name, "level": finding.level, "text": finding.text, "remedy": finding.remedy})
        return
    out(f"{paint(f'{finding.level:<5}', _TONES[finding.level])} {name:<10}  {line(finding.text, 1000)}")
    if finding.remedy and finding.level != "ok":
        out(f"{_INDENT}{block('-> ' + finding.remedy, _INDENT)}")
