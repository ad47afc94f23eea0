"""Commands that outlive the daemon: launched, found again, ended, and never mistaken for a stranger."""

from onward.processes.evidence import read_output
from onward.processes.spawn import LauncherSpawner

__all__ = ["LauncherSpawner", "read_output"]
