"""Seeds of log_dir_fuzz: the files of a partition that Kafka wrote, in the form that the target cuts apart."""

import pathlib
import struct
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
ORDER = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
LOG_DIR = ("recovery-point-offset-checkpoint", "meta.properties", "kafka_cleanshutdown")


def first(directory, name):
    found = sorted(path for path in directory.iterdir() if path.name.endswith(name))
    return found[0].read_bytes()[:8000] if found else b""


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for directory in sorted((DATA / "kafka39").iterdir()):
        parts = [first(directory, name) for name in ORDER] + [b""]
        parts += [(DATA / "log-dir" / name).read_bytes() for name in LOG_DIR]
        sizes = b"".join(struct.pack(">H", len(part)) for part in parts)
        (folder / directory.name).write_bytes(sizes + b"".join(parts))


main(pathlib.Path(sys.argv[1]))
