#!/usr/bin/env python3
"""Reads the symbols of the modules' libraries in a build folder and fails when

- a function or variable that other files can link to is declared in no header,
- a module other than os/ calls the system by itself (time, randomness, files, sockets, threads), or
- anything but base/mem.c asks the C library for memory.
"""
import pathlib
import re
import subprocess
import sys

SYSTEM = set(
    """
    accept accept4 bind connect listen recv recvfrom recvmsg send sendfile sendfile64 sendmsg sendto setsockopt
    shutdown socket socketpair getaddrinfo epoll_create1 epoll_ctl epoll_wait eventfd poll select
    close creat fopen fopen64 open open64 openat openat64 opendir readdir readdir64 read pread pread64 preadv preadv2
    write pwrite pwrite64 pwritev pwritev64 pwritev2 fsync fdatasync sync_file_range ftruncate ftruncate64 fallocate
    truncate rename renameat unlink unlinkat mkdir mkdirat rmdir stat stat64 fstat fstat64 fstatat lstat statvfs
    flock fcntl fcntl64 mmap mmap64 munmap msync
    clock clock_gettime gettimeofday time nanosleep clock_nanosleep sleep usleep timerfd_create
    rand random srand srandom getrandom getentropy drand48 rand_r
    pthread_create fork vfork execve system popen kill signal sigaction getenv
    """.split()
)
HEAP = {"malloc", "calloc", "realloc", "reallocarray", "strdup", "strndup", "asprintf", "vasprintf", "posix_memalign"}
# Who may, and why.
EXCEPT = {
    ("base", "log.c"): {"open", "open64", "write", "close"},  # the process's own log must work before os/ does
    ("base", "mem.c"): HEAP,
    ("cli", "main.c"): {"signal", "sigaction"},
}


def symbols(library):
    """Yields (object file, kind, name); kind is nm's letter."""
    source = None
    listing = subprocess.run(["nm", str(library)], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        if line.endswith(".o:"):
            source = line.removesuffix(".o:")
        elif line:
            *_, kind, name = line.split()
            yield source, kind, name


def main():
    build = pathlib.Path(sys.argv[1])
    headers = [path for root in ("src", "include", build / "generated") for path in pathlib.Path(root).rglob("*.h")]
    declared = set(re.findall(r"\w+", " ".join(path.read_text() for path in headers)))
    # broker/api/handlers.h declares one a row of the table.
    rows = pathlib.Path("src/broker/api_rows.inc").read_text()
    declared |= {f"{name}_handle" for name in re.findall(r"^API\(\w+, (\w+),", rows, re.M)}
    faults = []
    for library in sorted(build.glob("lib*.a")):
        module = library.stem.removeprefix("lib")
        for source, kind, name in symbols(library):
            where = f"{module}: {source}"
            allowed = EXCEPT.get((module, source), set())
            if kind in "TDBRC" and not name.startswith("__") and name not in declared:
                faults.append(f"{where}: '{name}' is public and in no header: make it static or declare it")
            if kind == "U" and name in SYSTEM - allowed and module != "os":
                faults.append(f"{where}: calls {name}(), which only os/ may")
            if kind == "U" and name in HEAP - allowed:
                faults.append(f"{where}: calls {name}() instead of mem.h's")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
