"""Small disks of a test's own: loop-mounted ext4 images that can be filled, and that can be made to fail.

with Disk(tmp_path / "d1", megabytes=64) as disk:
    disk.path; disk.fail(); disk.repair(); disk.free()
"""

import contextlib
import fcntl
import os
import pathlib
import struct
import subprocess

import pytest

_EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_SHUTDOWN_WITHOUT_FLUSH = 2


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _mount(image, path):
    mounted = _run("mount", "-o", "loop", str(image), str(path))
    if mounted.returncode:
        pytest.skip(f"mounting a disk image is not permitted here: {mounted.stderr.strip()}")


class Disk:
    """An ext4 file system in a file, mounted at `path`."""

    def __init__(self, path, megabytes=64):
        self.path = pathlib.Path(path)
        self.image = self.path.with_suffix(".img")
        self.path.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(megabytes << 20)
        # No reserved blocks: root may use them, and then a full disk is not full.
        made = _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "root_owner=0:0", str(self.image))
        assert made.returncode == 0, made.stderr
        _mount(self.image, self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        _run("umount", "-l", str(self.path))
        with contextlib.suppress(OSError):
            self.image.unlink()

    def fail(self):
        """From now on every call that needs the disk is an I/O error."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _SHUTDOWN_WITHOUT_FLUSH))
        finally:
            os.close(fd)

    def repair(self):
        """A disk that works again, with what was on it; nobody may have files open there."""
        unmounted = _run("umount", str(self.path))
        assert unmounted.returncode == 0, unmounted.stderr
        _mount(self.image, self.path)

    def free(self):
        space = os.statvfs(self.path)
        return space.f_bavail * space.f_frsize

    def ballast(self, leave):
        """A file that leaves `leave` bytes free; returns its path, to be unlinked."""
        path = self.path / "ballast"
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(self.free() - leave, 1))
        return path
