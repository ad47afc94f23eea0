"""Birth of a run, what a birth or a death leaves behind, and who may read a run directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.errors import Conflict, DiskFull, StoreError
from tests.store.worlds import RUN, Passed, fault, installed, journal_of, records_in, said, started, store_at


async def test_a_run_is_born_complete_under_another_name_and_flushed_before_each_next_step(tmp_path: Path) -> None:
    """Journal, directory entry, rename, entry of the rename: ext4 would hide a step that is left out."""
    async with store_at(tmp_path) as store:
        with installed(passed := Passed()):
            await store.create(started())
    assert passed.points == [
        "birth.make.before",
        "birth.make.after",
        "birth.write.before",
        "birth.write.after",
        "birth.flush.before",
        "birth.flush.after",
        "birth.entry.before",
        "birth.entry.after",
        "birth.rename.before",
        "birth.rename.unsynced",
        "birth.rename.after",
    ]
    assert [record["type"] for record in records_in(journal_of(tmp_path))] == ["RunStarted"]


@pytest.mark.parametrize(
    "point",
    [
        "birth.make.before",
        "birth.make.after",
        "birth.write.before",
        "birth.write.after",
        "birth.flush.before",
        "birth.entry.before",
        "birth.rename.before",
        "birth.rename.unsynced",
        "birth.rename.after",
    ],
)
async def test_a_birth_that_fails_leaves_nothing(tmp_path: Path, point: str) -> None:
    """Who was told that the run was not started must not find it working after the next boot."""
    async with store_at(tmp_path) as store:
        with fault(f"{point}=enospc"), pytest.raises(DiskFull, match=f"starting run {RUN}"):
            await store.create(started())
        assert await store.list_runs() == []
        assert not list(tmp_path.glob("*worker*"))
        await store.create(started())
        assert [run.run_id for run in await store.list_runs()] == [RUN]


async def test_an_id_is_given_once(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        with pytest.raises(Conflict, match="exists already"):
            await store.create(started(task="another"))
        assert (await store.read(RUN)).state.task == "do it"


async def test_leftovers_of_births_deaths_and_replacements_are_removed_at_the_walk(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
    for name in (".new-worker-2-abcd", ".gone-worker-3"):
        (tmp_path / name / "calls" / "t1c1").mkdir(parents=True)
        (tmp_path / name / "journal.jsonl").write_text("half")
    (tmp_path / ".gone-worker-3" / "link").symlink_to(tmp_path / RUN)
    (tmp_path / ".daemon.jsonl.0123.tmp").write_text("half")
    (tmp_path / ".is-a-directory.tmp").mkdir()
    (tmp_path / "notes.txt").write_text("somebody's")
    async with store_at(tmp_path) as store:
        assert [run.run_id for run in await store.list_runs()] == [RUN]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".instance", ".is-a-directory.tmp", ".lock", "notes.txt", RUN]
    assert journal_of(tmp_path).is_file()


async def test_leftovers_in_a_run_directory_are_removed_when_it_is_opened(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        await store.put_blob(RUN, b"kept")
        for place in (tmp_path / RUN, tmp_path / RUN / "blobs"):
            (place / ".meta.json.0123.tmp").write_text("half")
        await (await store.open(RUN)).close()
    left = sorted(path.name for path in (tmp_path / RUN).rglob(".*"))
    assert left == []
    assert len(list((tmp_path / RUN / "blobs").iterdir())) == 1


@pytest.fixture(params=[0o000, 0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_directories_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path) -> None:
    runs = tmp_path / "state" / "runs"
    async with store_at(runs) as store:
        await store.create(started())
        log = await store.open(RUN)
        await log.append(said(1, "x" * 70_000))
        await log.write_index({"run_id": RUN})
        await store.make_call_dir(RUN, "t1c1")
        await store.append_fact(type="DaemonStarted")
        await log.close()
        with journal_of(runs).open("ab") as journal:
            journal.write(b"torn")
        await (await store.open(RUN)).close()
    found = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    wrong = {
        name: oct(mode) for name, mode in found.items() if mode != (0o700 if (tmp_path / name).is_dir() else 0o600)
    }
    assert wrong == {}
    assert any("journal.torn" in name for name in found)


async def test_an_open_runs_directory_is_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    async with store_at(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o700


async def test_each_runs_directory_keeps_one_random_instance_id(tmp_path: Path) -> None:
    async with store_at(tmp_path / "a") as store:
        instance = store.instance
    async with store_at(tmp_path / "a") as store, store_at(tmp_path / "b") as other:
        assert (store.instance, other.instance == instance) == (instance, False)
        assert len(instance) == 32


@pytest.mark.parametrize("content", [b"", b"\x00" * 33, b"\xff\xfe", b"two words\n"])
async def test_a_damaged_instance_id_is_made_anew(tmp_path: Path, content: bytes) -> None:
    """It goes into the environment of every command, which takes no NUL."""
    (tmp_path / ".instance").write_bytes(content)
    async with store_at(tmp_path) as store:
        assert store.instance.isalnum()
        assert (tmp_path / ".instance").read_text().strip() == store.instance


async def test_a_runs_directory_that_is_a_file_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="runs"):
        async with store_at(tmp_path / "runs"):
            pass
