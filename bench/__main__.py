"""Run every benchmark, one after another, and print one table: figure, target, verdict."""

import json
import subprocess
import sys

BENCHMARKS = ("w1", "w2", "long", "questions", "startup", "launcher")


def rows_of(name: str) -> list[dict[str, object]]:
    """Run one benchmark and pass on what it prints; returns its lines of the summary."""
    rows = []
    command = [sys.executable, "-m", f"bench.{name}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if "row" in (members := json.loads(line)):
                rows.append(members)
    if process.returncode:
        sys.exit(f"bench.{name} failed")
    return rows


def main() -> None:
    rows = [row for name in BENCHMARKS for row in rows_of(name)]
    verdicts = {True: "reached", False: "missed", None: ""}
    print()
    for row in rows:
        reached = row["reached"]
        assert reached is None or isinstance(reached, bool)
        print(f"{row['row']:<42} {row['value']:>10}   {row['target'] or '':<9} {verdicts[reached]}")


if __name__ == "__main__":
    main()
