#!/usr/bin/env python3
"""planted.py BUILD: plants bugs into copies of the sources, one at a time, and asserts that the simulation of BUILD (a
build folder of the preset `sim`) finds each of them within a bounded number of seeds, and nothing without them.

A bug is one edit: a text that must stand exactly once in a file of src/, and what takes its place.  Only that file is
compiled anew; its object file is linked before the libraries, so that theirs is left out.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "tests/sim/sim_log"
SEEDS = 3000  # a bug must show within so many
SOUND_SEEDS = 600  # and so many must pass without one

# name: file below src/, the text, what takes its place
BUGS = {
    "a_flush_without_a_sync_of_the_log": (
        "plog/flush.c", "    flush_add(fl, file_ref(seg->log));\n", ""),
    "a_flush_without_a_sync_of_the_snapshot": (
        "plog/flush.c", "    return snapshot ? flush_add_path", "    return snapshot && !pl ? flush_add_path"),
    "a_flush_without_a_sync_of_the_directory": (
        "plog/flush.c", "enum err e = fl->dir ? fs_sync_dir", "enum err e = fl->dir && !pl ? fs_sync_dir"),
    "a_first_flush_without_a_sync_of_the_directory_above": (
        "plog/flush.c", "small_files && pl->parent_unsynced", "false"),
    "closed_indexes_without_a_sync": (
        "plog/flush.c", "    if (with_indexes && seg->times.written) flush_add(fl, file_ref(seg->times.file));\n", ""),
    "a_recovery_point_that_moves_before_the_sync": (
        "plog/flush.c",
        "    if (!e) e = sync_files(fl);\n    if (!e) e = sync_dirs(fl, pl);\n    if (!e) e = flush_end(fl, pl);\n",
        "    if (!e) e = flush_end(fl, pl);\n    if (!e && fl->count > 1) e = sync_files(fl);\n"
        "    if (!e) e = sync_dirs(fl, pl);\n"),
    "segments_deleted_before_the_snapshot_is_sure": (
        "plog/segments.c", "    if (!first->snapshot_unsynced) return OK;", "    if (first) return OK;"),
    "segments_deleted_without_a_sync_of_the_directory": (
        "plog/segments.c", '"", SEGMENT_DELETED);\n    return e ? e : fs_sync_dir(pl->fs, pl->dir);',
        '"", SEGMENT_DELETED);\n    return e;'),
    "a_torn_tail_that_is_taken_for_a_batch": (
        "plog/recover.c", "    return batch_crc_ok(data, b);", "    (void)data;\n    return true;"),
    "a_hole_that_is_taken_for_a_gap": (
        "plog/recover.c", "    return seg->base_offset > rc->log_start &&", "    return false &&"),
    "a_stale_time_index_that_is_kept": (
        "plog/recover.c", "    if (!e) e = index_cut(&seg->times);\n", ""),
    "a_recovery_point_checkpointed_past_unsynced_indexes": (
        "plog/recover.c", "        start = MIN(start, MAX(last, pl->segments[first]->base_offset));\n",
        "        (void)last;\n"),
    "a_truncation_that_keeps_one_index_entry_too_many": (
        "plog/index.c", "(by == INDEX_BY_KEY ? entry.key : entry.value) < offset) break;",
        "(by == INDEX_BY_KEY ? entry.key : entry.value) <= offset + 2) break;"),
    "a_truncation_without_a_sync": (
        "plog/truncate.c", "    if (!e) e = file_sync(seg->log);\n", ""),
    "a_truncation_that_removes_the_oldest_segment_first": (
        "plog/truncate.c", "struct segment *seg = pl->segments[--pl->segment_count];",
        "struct segment *seg = pl->segments[pl->segment_count - (pl->segment_count > 2 ? 2 : 1)];\n"
        "    if (pl->segment_count > 2) pl->segments[pl->segment_count - 2] = pl->segments[pl->segment_count - 1];\n"
        "    pl->segment_count--;"),
    "a_checkpoint_that_takes_its_place_before_its_content_is_sure": (
        "os/fs.c", "    if (!e) e = file_sync(f);\n", ""),
    "a_checkpoint_whose_name_is_not_synced": (
        "os/fs.c", "        e = fs_sync_dir(fs, dir);\n    }\n    mem_free(dir);", "    }\n    mem_free(dir);"),
    "a_clean_mark_that_comes_back": (
        "replica/replicas_load.c", "        if (!e) e = fs_sync_dir(r->opt.fs, r->dirs[i].path);\n", ""),
    "a_clean_mark_before_the_logs_are_closed": (
        "replica/replicas.c",
        '    with_all_logs(r, close_one, "log_close_failed");\n    replicas_moves_close(r, true);\n'
        "    for (size_t i = 0; i < r->dir_count; i++) mark_clean(r, &r->dirs[i], broker_epoch);\n",
        "    for (size_t i = 0; i < r->dir_count; i++) mark_clean(r, &r->dirs[i], broker_epoch);\n"
        '    with_all_logs(r, close_one, "log_close_failed");\n    replicas_moves_close(r, true);\n'),
    "a_clean_stop_that_forgets_the_start": (
        "replica/replicas.c", "kind <= CHORE_CLEANED; kind++", "kind <= CHORE_CHECKPOINT; kind++"),
    "a_cleaned_segment_that_is_not_on_the_disk": (
        "plog/clean_copy.c", "    if (!e) e = file_sync(seg->log);\n", ""),
    "a_swap_whose_names_are_not_synced": (
        "plog/clean_swap.c",
        "SEGMENT_CLEANED, SEGMENT_SWAP);\n    return e ? e : fs_sync_dir(pl->fs, pl->dir);",
        "SEGMENT_CLEANED, SEGMENT_SWAP);\n    return e;"),
}


def command_of(build, source):
    """The compiler's words for a source file."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) == source:
            return shlex.split(entry["command"])
    raise SystemExit(f"{build} does not compile {source}")


def link_line(build):
    words = subprocess.run(["ninja", "-t", "commands", PROGRAM], cwd=build, check=True, capture_output=True, text=True)
    line = words.stdout.splitlines()[-1]
    if f"-o {PROGRAM}" not in line:
        raise SystemExit(f"this does not link {PROGRAM}: {line}")
    return line


def plant(build, folder, name):
    """Links a program with the bug; returns its path."""
    file, old, new = BUGS[name]
    source = ROOT / "src" / file
    text = source.read_text()
    if text.count(old) != 1:
        raise ValueError(f"its text stands {text.count(old)} times in src/{file}: adapt the table")
    edited, obj, program = folder / f"{name}.c", folder / f"{name}.o", folder / name
    edited.write_text(text.replace(old, new))
    words = command_of(build, source)
    words[words.index("-o") + 1] = str(obj)
    words[words.index("-c") + 1] = str(edited)
    subprocess.run(words + ["-w"], cwd=build, check=True)
    subprocess.run(link_line(build).replace(f"-o {PROGRAM}", f"{obj} -o {program}"), cwd=build, shell=True, check=True)
    return program


def run(program, seeds, jobs):
    return subprocess.run([program, "--seeds", str(seeds), "--jobs", str(jobs)], capture_output=True, text=True)


def is_found(build, folder, name):
    try:
        result = run(plant(build, folder, name), SEEDS, 1)
    except (ValueError, subprocess.CalledProcessError) as error:
        return f"{error}"
    if result.returncode == 0:
        return f"not found within {SEEDS} seeds: {result.stdout.strip()}"
    return ""


def tell(name, fault):
    """As cmocka does, so that each is counted."""
    print(f"[ RUN      ] {name}")
    print(f"[  FAILED  ] {name}: {fault}" if fault else f"[       OK ] {name}", flush=True)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    chosen = sys.argv[2:] or list(BUGS)
    failed = False
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sound = run(build / PROGRAM, SOUND_SEEDS, os.cpu_count())
        fault = "" if sound.returncode == 0 else sound.stderr[-3000:]
        tell("without_a_bug_nothing_is_found", fault)
        failed |= bool(fault)
        faults = pool.map(lambda name: is_found(build, pathlib.Path(folder), name), chosen)
        for name, fault in zip(chosen, faults):
            tell(name, fault)
            failed |= bool(fault)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
