"""One run open for writing: its journal and the state folded from it, always in step."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import anyio
import anyio.to_thread
import orjson

from onward.core import fold
from onward.core.line import BLOB_BYTES, encode_body
from onward.core.masking import KnownSecrets
from onward.core.records import BadRecord, Checkpoint, Json, Record
from onward.core.state import RunState
from onward.core.times import stamp
from onward.errors import InternalError, StoreError
from onward.ports.clock import Clock
from onward.ports.store import Beside, Decide
from onward.store import disk, rundir
from onward.store.journal import Journal

CHECKPOINT_BYTES = 4 * 1024 * 1024


def checkpoint_due(grown_bytes: int, last_bytes: int) -> bool:
    """Whether the journal grew enough for a new Checkpoint, so that all of them together stay a fraction of it."""
    return grown_bytes >= max(CHECKPOINT_BYTES, 4 * last_bytes)


class FileRunLog:
    """Implements `onward.ports.store.RunLog`."""

    def __init__(
        self,
        runs_fd: int,
        journal: Journal,
        state: RunState,
        clock: Clock,
        checkpoint: tuple[int | None, int],
        secrets: KnownSecrets,
        beside: Beside,
    ) -> None:
        self.state = state
        self.beside = beside
        self._runs_fd = runs_fd
        self._journal = journal
        self._clock = clock
        self._secrets = secrets
        self._checkpoint_offset, self._checkpoint_bytes = checkpoint
        self._index_turn = anyio.Lock()
        self._indexed_bytes = 0
        self._closed = False

    @property
    def durable_seq(self) -> int:
        return self._journal.durable_seq

    @property
    def on_durable(self) -> Callable[[int], None] | None:
        return self._journal.on_durable

    @on_durable.setter
    def on_durable(self, told: Callable[[int], None] | None) -> None:
        self._journal.on_durable = told

    async def append(self, *records: Record) -> int:
        return await self.write(lambda: records)

    async def write(self, decide: Decide) -> int:
        blobs: dict[bytes, bytes] = {}
        while True:
            records = decide()
            bodies = [self._secrets.mask_record(encode_body(record.to_json())) for record in records]
            too_long = [at for at, body in enumerate(bodies) if len(body) > BLOB_BYTES and body not in blobs]
            if not too_long:
                break
            # Others write while a blob is written: what was decided before may not hold any more.
            for at in too_long:
                blobs[bodies[at]] = await self._in_blob(records[at], bodies[at])
        if bodies:
            # Folded from the very bytes that are written: a live run and a replayed one cannot differ.
            self._write([orjson.loads(body) for body in bodies], [blobs.get(body, body) for body in bodies])
        seq = self.state.seq
        if checkpoint_due(self._journal.size - (self._checkpoint_offset or 0), self._checkpoint_bytes):
            # The records stand; a Checkpoint only saves reading, and the next append tries again.
            with suppress(StoreError):
                await self._write_checkpoint()
        return seq

    async def flush(self) -> None:
        await self._journal.flush()

    async def write_index(self, index: Json, sidecars: Mapping[str, list[Json]] | None = None) -> None:
        size = self._journal.size
        position = {"seq": self._journal.seq, "bytes": size, "checkpoint_offset": self._checkpoint_offset}
        files = {
            f"{name}.json": _encode({"run_id": self.state.run_id, "journal": position, name: items})
            for name, items in (sidecars or {}).items()
        }
        files[rundir.INDEX] = _encode({**index, "journal": position})  # last: it is what the others are believed by
        await self._journal.flush()
        async with self._index_turn:
            if size < self._indexed_bytes:
                return  # a newer one overtook this one in the flush
            try:
                await anyio.to_thread.run_sync(self._replace_caches, files)
            except OSError as error:
                raise disk.as_store_error(error, f"writing meta.json of {self.state.run_id}") from error
            self._indexed_bytes = size

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                await self._journal.flush()
            finally:
                self._journal.close()

    def _write(self, lines: list[Json], bodies: list[bytes]) -> None:
        ts = stamp(self._clock.now())
        seq, _ = self._journal.append(bodies, ts)
        for line in lines:
            line["seq"], line["ts"] = seq, ts
            seq += 1
            try:
                fold.apply(self.state, line)
            except BadRecord as error:
                raise InternalError(
                    f"a record that does not fit was written to {self.state.run_id}: {error}"
                ) from error

    async def _in_blob(self, record: Record, body: bytes) -> bytes:
        try:
            sha = await anyio.to_thread.run_sync(rundir.write_blob, self._runs_fd, self.state.run_id, body)
        except OSError as error:
            raise disk.as_store_error(error, f"writing a blob of {self.state.run_id}") from error
        return encode_body({"type": type(record).__name__, "blob": sha, "bytes": len(body)})

    async def _write_checkpoint(self) -> None:
        record = Checkpoint(state=self.state.to_json())
        seq, body = self.state.seq, encode_body(record.to_json())
        line = await self._in_blob(record, body)
        if self.state.seq != seq:
            return  # something was appended meanwhile, so this is not the whole state; the next append tries again
        offset = self._journal.size
        self._write([{"type": "Checkpoint", "state": {}, "fold": record.fold}], [_with_fold(line, record.fold)])
        self._checkpoint_offset, self._checkpoint_bytes = offset, len(body)

    def _replace_caches(self, files: Mapping[str, bytes]) -> None:
        with disk.opened_dir(self.state.run_id, dir_fd=self._runs_fd) as dir_fd:
            for name, data in files.items():
                disk.replace_file(name, data, "index", dir_fd=dir_fd)


def _encode(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def _with_fold(line: bytes, version: int) -> bytes:
    return encode_body({**orjson.loads(line), "fold": version})
