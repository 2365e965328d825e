#!/usr/bin/env python3
"""Fails when a file includes a header of a module that its own must not know (layers only look down).

Includes of the project are written "module/header.h", from src/ on; what the build generates ("wire/gen/...") belongs
to the module that it is named after.
"""
import pathlib
import re
import sys

SRC = pathlib.Path("src")
BELOW_ROLES = ["base", "os", "wire", "rpc", "plog", "coord"]
ROLES = ["replica", "controller", "group", "txn"]
# The modules that each may see, besides itself.  CMakeLists.txt links in the same order.
MAY_SEE = {
    **{name: BELOW_ROLES[:at] for at, name in enumerate(BELOW_ROLES)},
    **{name: BELOW_ROLES for name in ROLES},
    "broker": BELOW_ROLES + ROLES,
    "client": ["base", "os", "wire", "rpc"],
    "mirror": ["client", "base"],
    "cli": BELOW_ROLES + ROLES + ["broker", "client", "mirror"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(barnabas/[^>]+)>)')


def module_of(path):
    """The module whose rules hold for a file; src/main.c stands above all, with cli."""
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else "cli"


def problems(path):
    module = module_of(path)
    if module not in MAY_SEE:
        yield 0, f"module '{module}' has no place among the layers (tests/lint/layers.py)"
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        if match[2]:
            seen = "client"
        else:
            seen = match[1].split("/")[0]
            if "/" not in match[1]:
                yield number, f'"{match[1]}" does not say its module'
                continue
        if seen != module and seen not in MAY_SEE[module]:
            yield number, f"'{module}' must not see '{seen}': {line.strip()}"


def main():
    failed = False
    for path in sorted(SRC.rglob("*.[ch]")):
        for number, text in problems(path):
            print(f"{path}:{number}: {text}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
