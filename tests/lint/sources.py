#!/usr/bin/env python3
"""What a build folder compiles of src/ and tests/, and how.  As a program: prints the files, largest first, so that no
check waits for a large one at the end."""
import json
import pathlib
import shlex
import sys


def units(build):
    """{source file: the words of its compiler command}"""
    root = pathlib.Path.cwd()
    entries = json.loads(pathlib.Path(build, "compile_commands.json").read_text())
    commands = {pathlib.Path(entry["file"]): shlex.split(entry["command"]) for entry in entries}
    ours = (root / "src", root / "tests")
    return {
        path.relative_to(root): words
        for path, words in commands.items()
        if any(path.is_relative_to(folder) for folder in ours)
    }


if __name__ == "__main__":
    for source in sorted(units(sys.argv[1]), key=lambda source: -source.stat().st_size):
        print(source)
