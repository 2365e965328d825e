#!/usr/bin/env python3
"""Fails when a header does not compile alone, or a source file includes another header before its own.  Takes the build
folder, whose flags are used."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import sources


def flags_of(build):
    """Include paths, macros and warnings of src/; the modules differ only in their libraries' include paths."""
    flags = ["-std=c17"]
    for source, words in sources.units(build).items():
        if source.parts[0] != "src":
            continue
        for at, word in enumerate(words):
            pair = words[at : at + 2] if word == "-isystem" else [word]
            if word.startswith(("-I", "-D", "-W", "-isystem")) and pair[-1] not in flags:
                flags += pair
    return flags


def compiles_alone(header, flags):
    run = subprocess.run(
        ["cc", *flags, "-Iinclude", "-fsyntax-only", "-x", "c", "-"],
        input=f'#include "{header.resolve()}"\n',
        capture_output=True,
        text=True,
    )
    return run.stderr if run.returncode else ""


def includes_own_header_first(source):
    own = source.with_suffix(".h")
    first = re.search(r"^#include\s+(\S+)", source.read_text(), re.M)
    if not own.exists() or not first or first[1] == f'"{own.relative_to("src")}"':
        return ""
    return f"{source}: includes {first[1]} before its own header\n"


def main():
    build = pathlib.Path(sys.argv[1])
    flags = flags_of(build)
    headers = [path for root in ("src", "include", build / "generated") for path in pathlib.Path(root).rglob("*.h")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = list(pool.map(lambda header: compiles_alone(header, flags), headers))
    faults += map(includes_own_header_first, sorted(pathlib.Path("src").rglob("*.c")))
    sys.stdout.write("".join(faults))
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
