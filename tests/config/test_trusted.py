import os
from pathlib import Path

import pytest

from onward.config import trusted
from onward.config.trusted import check_directory, read_trusted
from onward.errors import BadConfiguration, Unreadable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "onward.toml"
    path.write_text("# fine ✓\n")
    path.chmod(0o600)
    return path


def test_a_private_file_is_read(file: Path) -> None:
    assert read_trusted(file) == "# fine ✓\n"


def test_a_missing_file_is_missing_and_a_dangling_link_is_a_link(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trusted(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path / "none")
    with pytest.raises(BadConfiguration, match="symbolic link"):
        read_trusted(tmp_path / "link")


def test_a_foreign_file_is_refused_but_not_one_of_root(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert read_trusted(file)
        os.chown(file, 4242, -1)
    with pytest.raises(BadConfiguration, match=r"another user's \(uid \d+\) and is refused: chown it to root or uid"):
        read_trusted(file)


def test_a_fifo_or_directory_in_its_place_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(BadConfiguration, match="is not a regular file"):
            read_trusted(path)


def test_text_that_is_not_utf8_is_refused_with_its_line(file: Path) -> None:
    file.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(BadConfiguration, match=r"onward\.toml:2: not UTF-8"):
        read_trusted(file)


def test_a_huge_file_is_refused(file: Path) -> None:
    file.write_bytes(b"#" * (trusted.MAX_BYTES + 1))
    with pytest.raises(BadConfiguration, match="longer than"):
        read_trusted(file)


def test_a_path_below_a_file_is_unreadable(file: Path) -> None:
    with pytest.raises(Unreadable, match="cannot be read: Not a directory"):
        read_trusted(file / "below")


def test_a_linked_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(BadConfiguration, match="symbolic link"):
        check_directory(tmp_path / "link")
