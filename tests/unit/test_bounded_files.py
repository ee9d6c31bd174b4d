"""Only regular files are read, and only as much as requested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tgi_deploy import bounded_files


@pytest.fixture
def special(tmp_path):
    """By its name, something that is not a regular file, or a link to it."""

    def make(kind):
        path = tmp_path / "file"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(kind)
        return path

    return make


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/dev/full", "not a regular file"),
        ("folder", "Is a directory"),
        ("/no/such/file", "No such file"),
        ("file", "Too many levels"),
    ],
)
def test_what_is_not_a_file(kind, why, special):
    path = special(kind)
    before = open_files()
    with pytest.raises(OSError, match=why) as caught:
        bounded_files.read_bytes(path, most=10)
    assert caught.value.strerror
    assert open_files() == before


def test_blocking_kernel_files_are_not_read():
    with pytest.raises(OSError, match=r"no data to read|larger than|not permitted"):
        bounded_files.read_bytes(Path("/proc/kmsg"), most=10)


def test_a_link_to_a_file_is_a_file(tmp_path):
    (tmp_path / "blob").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("blob")
    assert bounded_files.read_bytes(tmp_path / "link", most=5) == b"12345"
    assert bounded_files.read_piece(tmp_path / "link", 1, 3) == b"234"
    assert bounded_files.read_piece(tmp_path / "link", 9, 3) == b""


def test_one_byte_too_many(tmp_path):
    (tmp_path / "file").write_bytes(b"1" * (2 * 2**20 + 1))
    with pytest.raises(OSError, match="larger than 2 MiB"):
        bounded_files.read_bytes(tmp_path / "file", most=2 * bounded_files.MIB)


def test_text_is_utf_8(tmp_path):
    (tmp_path / "file").write_bytes("é".encode("latin-1"))
    with pytest.raises(ValueError, match="utf-8"):
        bounded_files.read_text(tmp_path / "file", most=10)
