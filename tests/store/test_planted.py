"""What stands in place of a run directory or of its files is refused and reported, never followed, never waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from onward.core.replay import NotAJournal
from onward.errors import NotFound, Unreadable
from tests.store.worlds import RUN, indexed, journal_of, store_at

Plant = Callable[[Path], None]


def a_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def a_second_name(file: Path) -> None:
    os.link(file, file.parent.parent / "second")


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_socket(file: Path) -> None:
    file.unlink()
    os.mknod(file, 0o600 | 0o140000)


PLANTS: list[Plant] = [a_link, a_second_name, a_fifo, a_directory, a_socket]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_what_stands_in_place_of_the_journal_is_reported(tmp_path: Path, plant: Plant) -> None:
    async with store_at(tmp_path) as store:
        await indexed(store)
        plant(journal_of(tmp_path))
        with anyio.fail_after(30):
            for read in (store.open, store.read):
                with pytest.raises(Unreadable, match=r"journal\.jsonl"):
                    await read(RUN)
            with pytest.raises(Unreadable, match=r"journal\.jsonl"):
                await store.records(RUN, after=0, limit=10)
            assert [run.run_id for run in await store.list_runs()] == [RUN]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_what_stands_in_place_of_meta_is_not_read(tmp_path: Path, plant: Plant) -> None:
    """It is a cache: the journal is read instead."""
    async with store_at(tmp_path) as store:
        await indexed(store)
        assert (await store.list_runs())[0].index is not None
        plant(tmp_path / RUN / "meta.json")
        with anyio.fail_after(30):
            listed = await store.list_runs()
            assert [(run.index, run.stale_index, run.problem) for run in listed] == [(None, None, None)]
            assert (await store.read(RUN)).state.seq == 2


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_what_stands_in_place_of_the_facts_is_reported(tmp_path: Path, plant: Plant) -> None:
    async with store_at(tmp_path) as store:
        await store.append_fact(type="DaemonStarted")
    plant_at = tmp_path / "daemon.jsonl"
    (tmp_path / "inner").mkdir()
    inner = tmp_path / "inner" / "daemon.jsonl"
    plant_at.rename(inner)
    plant(inner)
    inner.rename(plant_at)
    async with store_at(tmp_path) as store:
        with anyio.fail_after(30):
            with pytest.raises(Unreadable, match=r"daemon\.jsonl"):
                await store.facts()
            with pytest.raises(Unreadable, match=r"daemon\.jsonl"):
                await store.append_fact(type="DaemonStarted")


async def test_a_link_in_place_of_a_run_directory_is_listed_with_the_reason_and_never_opened(tmp_path: Path) -> None:
    async with store_at(tmp_path / "runs") as store:
        await indexed(store)
        (tmp_path / "runs" / RUN).rename(tmp_path / "elsewhere")
        (tmp_path / "runs" / RUN).symlink_to(tmp_path / "elsewhere")
        before = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
        listed = await store.list_runs()
        assert [(run.run_id, run.index) for run in listed] == [(RUN, None)]
        assert listed[0].problem is not None
        assert "link" in listed[0].problem
        for act in (store.open, store.read, store.call_dirs):
            with pytest.raises(Unreadable):
                await act(RUN)
        with pytest.raises(Unreadable):
            await store.records(RUN, after=0, limit=1)
        with pytest.raises(Unreadable):
            await store.put_blob(RUN, b"x")
        assert listed[0].stale_index is None
        assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == before


async def test_a_linked_calls_directory_is_not_followed(tmp_path: Path) -> None:
    async with store_at(tmp_path / "runs") as store:
        await indexed(store)
        victim = tmp_path / "victim" / "t1c1"
        victim.mkdir(parents=True)
        (tmp_path / "runs" / RUN / "calls").symlink_to(victim.parent)
        for act in (store.make_call_dir, store.remove_call_dir):
            with pytest.raises(Unreadable):
                await act(RUN, "t1c1")
        with pytest.raises(Unreadable):
            await store.call_dirs(RUN)
    assert victim.is_dir()


async def test_a_link_inside_the_evidence_of_a_call_is_removed_and_not_followed(tmp_path: Path) -> None:
    async with store_at(tmp_path / "runs") as store:
        await indexed(store)
        call_dir = await store.make_call_dir(RUN, "t1c1")
        victim = tmp_path / "victim"
        victim.mkdir()
        (victim / "file").write_text("kept")
        (call_dir / "dir").symlink_to(victim)
        (call_dir / "file").symlink_to(victim / "file")
        await store.remove_call_dir(RUN, "t1c1")
        assert await store.call_dirs(RUN) == []
    assert (victim / "file").read_text() == "kept"


@pytest.mark.parametrize("name", ["../x", "/etc", "a/b", ".", "", "x" * 300, "%2e%2e", "a\x00b", "abc\n", "\uff41bc"])
async def test_a_name_that_is_no_run_id_opens_nothing(tmp_path: Path, name: str) -> None:
    async with store_at(tmp_path) as store:
        for act in (store.open, store.read, store.call_dirs):
            with pytest.raises(Exception, match="run id"):
                await act(name)
        with pytest.raises(Exception, match="run id"):
            await store.records(name, after=0, limit=1)


@pytest.mark.parametrize("call_id", ["..", "../../x", "t1c1/../..", "", "t1c", "t1c1\n", "t\u00b2c1"])
async def test_a_name_that_is_no_call_id_is_no_path(tmp_path: Path, call_id: str) -> None:
    async with store_at(tmp_path) as store:
        await indexed(store)
        with pytest.raises(NotFound, match="call id"):
            store.call_dir(RUN, call_id)
        with pytest.raises(NotFound, match="call id"):
            await store.make_call_dir(RUN, call_id)


async def test_a_missing_journal_is_damage_and_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await indexed(store)
        journal_of(tmp_path).unlink()
        with pytest.raises(NotAJournal, match="missing"):
            await store.read(RUN)
        assert (await store.list_runs())[0].problem == "journal.jsonl is missing"
        with pytest.raises(NotFound):
            await store.read("worker-9")
