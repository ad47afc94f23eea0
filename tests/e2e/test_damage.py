"""One bad run stops neither the daemon nor another run: it is listed with its reason, and nothing of it is deleted."""

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onward.core.line import decode, encode_body, seal
from tests.e2e.instances import Instance, shell

Harm = Callable[[Path], None]


def rewritten(file: Path, data: bytes) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(data)


def empty_meta(run: Path) -> None:
    rewritten(run / "meta.json", b"")


def list_for_meta(run: Path) -> None:
    rewritten(run / "meta.json", b"[]")


def zero_meta(run: Path) -> None:
    rewritten(run / "meta.json", b"\x00" * 700)


def wrong_types_in_meta(run: Path) -> None:
    size = (run / "journal.jsonl").stat().st_size
    position = {"seq": 1, "bytes": size, "checkpoint_offset": "x"}
    wrong = {"status": "parked", "task": 5, "created_at": [], "wake_at": 7, "idempotency_key": {}}
    rewritten(run / "meta.json", json.dumps({"run_id": run.name, **wrong, "journal": position}).encode())


def meta_of_another_run(run: Path) -> None:
    rewritten(run / "meta.json", (run / "meta.json").read_bytes().replace(run.name.encode(), b"worker-0000000000"))


def no_meta(run: Path) -> None:
    (run / "meta.json").unlink()


def null_interactions(run: Path) -> None:
    rewritten(run / "interactions.json", b"null")


def stray_files(run: Path) -> None:
    rewritten(run / ".meta.json.abc.tmp", b"half")
    rewritten(run / "notes.txt", b"mine")
    (run / "calls").mkdir(exist_ok=True)
    rewritten(run / "calls" / "t1c1.bak", b"mine")
    (run / "calls" / "t\u00b2c1").mkdir()


def torn_journal(run: Path) -> None:
    with (run / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"crc":"0000')


def empty_journal(run: Path) -> None:
    rewritten(run / "journal.jsonl", b"")


def no_journal(run: Path) -> None:
    (run / "journal.jsonl").unlink()


def bad_first_line(run: Path) -> None:
    data = (run / "journal.jsonl").read_bytes()
    rewritten(run / "journal.jsonl", b"X" + data[1:])


def fifo_for_journal(run: Path) -> None:
    (run / "journal.jsonl").unlink()
    os.mkfifo(run / "journal.jsonl")


def directory_for_journal(run: Path) -> None:
    (run / "journal.jsonl").unlink()
    (run / "journal.jsonl").mkdir()


def link_for_journal(run: Path) -> None:
    (run / "journal.jsonl").rename(run / "other")
    (run / "journal.jsonl").symlink_to("other")


def link_for_run(run: Path) -> None:
    run.rename(run.parent / "not-a-run.d")
    run.symlink_to("not-a-run.d")


def file_for_calls(run: Path) -> None:
    shutil.rmtree(run / "calls", ignore_errors=True)
    rewritten(run / "calls", b"")


def copy_of_another_run(run: Path) -> None:
    data = (run / "journal.jsonl").read_bytes()
    first, rest = data.split(b"\n", 1)
    record = decode(first)
    fields = {name: record[name] for name in record if name not in ("seq", "dur", "ts")} | {"run_id": "worker-copied"}
    rewritten(run / "journal.jsonl", seal(1, 0, record["ts"], encode_body(fields)) + rest)


HARMLESS: list[Harm] = [
    empty_meta, list_for_meta, zero_meta, wrong_types_in_meta, meta_of_another_run, no_meta, null_interactions,
    stray_files, torn_journal,
]  # fmt: skip
HARMFUL: dict[Harm, str] = {
    empty_journal: "empty",
    no_journal: "journal.jsonl is missing",
    bad_first_line: "",
    fifo_for_journal: "journal.jsonl",
    directory_for_journal: "journal.jsonl",
    link_for_journal: "journal.jsonl",
    link_for_run: "a link stands in place",
    file_for_calls: "calls",
    copy_of_another_run: "a copy of that run",
}


def index_ahead(run: Path) -> None:
    index = json.loads((run / "meta.json").read_bytes())
    index["journal"] |= {"seq": index["journal"]["seq"] + 5, "bytes": index["journal"]["bytes"] + 500}
    rewritten(run / "meta.json", json.dumps(index).encode())


def unknown_call(run: Path) -> None:
    (run / "calls" / "t7c1").mkdir(parents=True)


LOSSES: dict[Harm, str] = {index_ahead: "meta.json knows record", unknown_call: "calls/t7c1 is there"}


def test_a_run_whose_last_records_are_lost_waits_for_a_decision(instance: Instance) -> None:
    """What was durable is missing: to go on as if it had never been could do a thing twice."""
    instance.start()
    runs = [instance.run({"text": "waited", "delay_s": 3600}) for _ in LOSSES]
    instance.until(lambda: all((instance.runs / run_id / "meta.json").exists() for run_id in runs))
    instance.kill()
    for run_id, harm in zip(runs, LOSSES, strict=True):
        harm(instance.runs / run_id)
    instance.start()
    for run_id, reason in zip(runs, LOSSES.values(), strict=True):
        shown = instance.until_status(run_id, "parked", "completed")
        assert (shown["status"], shown["needs"]) == ("parked", "damaged")
        assert reason in shown["error"]
        assert len(instance.records(run_id, "InferenceStarted")) == 1


def test_bad_runs_are_listed_with_their_reason_and_all_others_recover(instance: Instance) -> None:
    instance.start(ONWARD_DAEMON__ENTRY_RATE="1000")
    harms = [*HARMLESS, *HARMFUL]
    runs = [instance.run({"text": "waited", "delay_s": 3600}) for _ in range(len(harms) + 2)]
    instance.until(lambda: all(instance.types(run_id)[-1] == "InferenceStarted" for run_id in runs))
    instance.until(lambda: all((instance.runs / run_id / "meta.json").exists() for run_id in runs))
    instance.kill()
    (instance.runs / "stray-file").write_text("mine")
    (instance.runs / "stray-directory").mkdir()
    (instance.runs / "Not A Run").mkdir()
    for run_id, harm in zip(runs, harms, strict=False):
        harm(instance.runs / run_id)
    before = {run_id: names_in(instance.runs / run_id) for run_id in runs}
    instance.script({"text": "done"})
    instance.start(ONWARD_DAEMON__ENTRY_RATE="1000")
    assert instance.get("/healthz").status == 200

    instance.until(lambda: instance.get("/v1/daemon").body["recovery"]["done"])
    bad = {run_id: harm for run_id, harm in zip(runs, harms, strict=False) if harm in HARMFUL}
    for run_id in runs:
        if run_id not in bad:
            assert instance.until_status(run_id, "completed")["result"] == "done", run_id
    listed = instance.listed()
    for run_id, harm in bad.items():
        assert (harm.__name__, listed[run_id]["status"]) == (harm.__name__, "damaged")
        assert HARMFUL[harm] in listed[run_id]["error"]
        assert before[run_id] <= names_in(instance.runs / run_id)
    assert listed["stray-directory"]["status"] == "damaged"
    assert set(listed) == {*runs, "stray-directory"}
    report = instance.get("/v1/daemon").body["recovery"]
    assert report["counts"]["damaged"] == len(bad) + 1
    assert {reason["run_id"] for reason in report["reasons"]} >= set(bad)
    assert (instance.runs / "stray-file").read_text() == "mine"
    assert instance.kill(15) == 0


def names_in(run: Path) -> set[str]:
    return {path.name for path in run.iterdir() if not path.name.endswith(".tmp")}


@pytest.mark.slow
def test_the_facts_of_the_daemon_may_be_anything(instance: Instance) -> None:
    """A file that cannot be read or written costs what it said, never a start."""
    file = instance.runs / "daemon.jsonl"
    harms: list[Callable[[], object]] = [
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(b"\x00" * 100_000),
        lambda: file.write_bytes(b'{"seq":1,"type":"RunSuspended"}\n{"seq":2,"type":"Released","run_id":7}\n[]\nx'),
        lambda: file.write_bytes(b'{"seq":1,"type":"DaemonStarted","machine_id":{},"runs_inode":"x"}\n' * 20_000),
        lambda: os.mkfifo(file),
        lambda: file.symlink_to("/etc/hostname"),
        file.mkdir,
    ]
    instance.start()
    for harm in harms:
        run_id = instance.run({"text": "begun", "delay_s": 3600})
        instance.until(functools.partial(instance.records, run_id, "InferenceStarted"))
        instance.kill()
        file.unlink()
        harm()
        instance.script({"text": "done"})
        instance.start()
        assert instance.until_status(run_id, "completed", "quarantined")["result"] == "done"
        if file.is_dir():
            file.rmdir()
            file.touch()


def test_a_run_that_is_given_up_leaves_nothing_running(instance: Instance) -> None:
    """Its end is written without its being loaded; the command that it had in flight is ended with it."""
    run_id = instance.start().run(shell("sleep 300"))
    instance.until_running(run_id)
    settled = instance.call_dir(run_id)
    pid = json.loads((settled / "identity").read_bytes())["pid"]
    instance.kill()
    unknown_call(instance.runs / run_id)
    instance.start()
    instance.until_status(run_id, "parked")
    answer = instance.post(f"/v1/interactions/{run_id}.q1/answer", {"answer": {"decision": "give_up"}})
    assert (answer.status, instance.show(run_id)["status"]) == (200, "failed")
    assert not os.path.exists(f"/proc/{pid}/exe")
    index = json.loads((instance.runs / run_id / "meta.json").read_bytes())
    assert (index["status"], index["journal"]["seq"]) == ("failed", instance.records(run_id)[-1]["seq"])


def test_a_call_whose_result_is_known_but_whose_evidence_is_back_is_ended_and_swept(instance: Instance) -> None:
    """As a power cut leaves it that undoes an unflushed removal: at the next start nothing of it is left."""
    run_id = instance.start().run(shell("true"), {"text": "asks", "delay_s": 3600})
    instance.until(lambda: len(instance.records(run_id, "InferenceStarted")) == 2)
    instance.until(lambda: not instance.call_dir(run_id).exists())
    instance.kill()
    instance.call_dir(run_id).mkdir()
    (instance.call_dir(run_id) / "stdout").write_text("x")
    instance.start()
    instance.until(lambda: not instance.call_dir(run_id).exists())
    assert instance.show(run_id)["status"] == "active"
