#!/usr/bin/env python3
"""planted.py BUILD SIMULATION [NAME...]: plants bugs into copies of the sources, one at a time, and asserts that the
simulation (`log`, `groups` or `cluster`) of BUILD, a build folder of the preset `sim`, finds each of them within a bounded number
of seeds, and nothing without them.  The bugs stand in planted_SIMULATION.py.

A bug is one edit: a text that must stand exactly once in a file of src/, and what takes its place.  Only that file is
compiled anew; its object file is linked before the libraries, so that theirs is left out.
"""
import concurrent.futures
import importlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {"log": "sim_log", "groups": "sim_groups", "cluster": "cluster/sim_cluster"}
SEEDS = {"log": 3000, "groups": 20000, "cluster": 2000}  # a bug must show within so many
SOUND_SEEDS = {"log": 600, "groups": 3000, "cluster": 300}  # and so many must pass without one


class Simulation(typing.NamedTuple):
    build: pathlib.Path
    program: str  # below `build`
    seeds: int
    bugs: dict  # name: file below src/, the text, what takes its place


def command_of(sim, source):
    """The compiler's words for a source file."""
    for entry in json.loads((sim.build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) == source:
            return shlex.split(entry["command"])
    raise SystemExit(f"{sim.build} does not compile {source}")


def link_line(sim):
    words = subprocess.run(
        ["ninja", "-t", "commands", sim.program], cwd=sim.build, check=True, capture_output=True, text=True)
    line = words.stdout.splitlines()[-1]
    if f"-o {sim.program}" not in line:
        raise SystemExit(f"this does not link {sim.program}: {line}")
    return line


def plant(sim, folder, name):
    """Links a program with the bug; returns its path."""
    file, old, new = sim.bugs[name]
    source = ROOT / "src" / file
    text = source.read_text()
    if text.count(old) != 1:
        raise ValueError(f"its text stands {text.count(old)} times in src/{file}: adapt the table")
    edited, obj, program = folder / f"{name}.c", folder / f"{name}.o", folder / name
    edited.write_text(text.replace(old, new))
    words = command_of(sim, source)
    words[words.index("-o") + 1] = str(obj)
    words[words.index("-c") + 1] = str(edited)
    subprocess.run(words + ["-w"], cwd=sim.build, check=True)
    line = link_line(sim).replace(f"-o {sim.program}", f"{obj} -o {program}")
    subprocess.run(line, cwd=sim.build, shell=True, check=True)
    return program


def run(program, seeds, jobs):
    return subprocess.run([program, "--seeds", str(seeds), "--jobs", str(jobs)], capture_output=True, text=True)


def is_found(sim, folder, name):
    try:
        result = run(plant(sim, folder, name), sim.seeds, 1)
    except (ValueError, subprocess.CalledProcessError) as error:
        return f"{error}"
    if result.returncode == 0:
        return f"not found within {sim.seeds} seeds: {result.stdout.strip()}"
    return ""


def tell(name, fault):
    """As cmocka does, so that each is counted."""
    print(f"[ RUN      ] {name}")
    print(f"[  FAILED  ] {name}: {fault}" if fault else f"[       OK ] {name}", flush=True)


def main():
    which = sys.argv[2]
    bugs = importlib.import_module(f"planted_{which}").BUGS
    sim = Simulation(pathlib.Path(sys.argv[1]).resolve(), f"tests/sim/{PROGRAMS[which]}", SEEDS[which], bugs)
    chosen = sys.argv[3:] or list(bugs)
    failed = False
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sound = run(sim.build / sim.program, SOUND_SEEDS[which], os.cpu_count())
        fault = "" if sound.returncode == 0 else sound.stderr[-3000:]
        tell("without_a_bug_nothing_is_found", fault)
        failed |= bool(fault)
        faults = pool.map(lambda name: is_found(sim, pathlib.Path(folder), name), chosen)
        for name, fault in zip(chosen, faults):
            tell(name, fault)
            failed |= bool(fault)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
