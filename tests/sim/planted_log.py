"""Bugs that the simulation of the log must find; see planted.py."""

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
        "plog/truncate.c", "        e = file_sync(seg->log);\n", ""),
    "a_truncation_that_removes_the_oldest_segment_first": (
        "plog/truncate.c", "    struct segment *seg = active_segment(pl);\n",
        "    size_t at = pl->segment_count - (pl->segment_count > 2 ? 2 : 1);\n"
        "    struct segment *seg = pl->segments[at];\n"
        "    pl->segments[at] = active_segment(pl);\n"
        "    pl->segments[pl->segment_count - 1] = seg;\n"),
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
        "    if (!e) e = sync_next(x, pl, &at); /* from here on opening the log finishes it */\n", ""),
    "an_exchange_that_begins_anew_when_there_is_room": (
        "plog/clean_swap.c", "    size_t at = 0;\n    enum err e = rename_next(",
        "    size_t at = 0;\n    x->done = 0;\n    enum err e = rename_next("),
    "an_append_before_a_cut_is_over": (
        "plog/plog.c", "if (pl->failed || pl->uncut) return", "if (pl->failed) return"),
}
