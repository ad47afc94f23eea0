"""Write the specimens that are not there yet: `python -m tests.specimens`. Those that are there are never changed."""

import hashlib
from pathlib import Path

from tests.specimens.cases import CASES, Case
from tests.specimens.writing import Writer

SPECIMENS = Path(__file__).parents[2] / "runs" / "specimens"
SUMS = SPECIMENS / "SHA256SUMS"
README = SPECIMENS / "README.md"
HEAD = """# Specimens

One run directory for each way in which a run can be interrupted, damaged or at rest, in the format that `../README.md`
describes. `onward inspect runs/specimens` says what would become of each; the tests let a daemon go on with a copy of
each of them. Two boots of one machine occur; on any other, every interruption looks like that of a reboot.

A specimen is never changed, only new ones are added (`python -m tests.specimens`): what one version wrote, every later
one has to read. `SHA256SUMS` holds it to that: `sha256sum -c SHA256SUMS`.

| specimen | what had happened | `inspect` says | what a daemon makes of it |
|---|---|---|---|
"""


def main() -> None:
    SPECIMENS.mkdir(exist_ok=True)
    for case in CASES:
        if not (SPECIMENS / case.name).exists():
            _write(case)
    rows = "".join(f"| {case.name} | {case.what} | {case.says} | {case.becomes} |\n" for case in CASES)
    README.write_text(HEAD + rows)


def _write(case: Case) -> None:
    sums = SUMS.read_text() if SUMS.exists() else ""
    for name, content in case.write(Writer(case.name)).written().items():
        path = SPECIMENS / case.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sums += f"{hashlib.sha256(content).hexdigest()}  {case.name}/{name}\n"
    SUMS.write_text(sums)


if __name__ == "__main__":
    main()
