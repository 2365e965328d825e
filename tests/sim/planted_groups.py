"""Bugs that the simulation of consumer groups must find; see planted.py."""

# name: file below src/, the text, what takes its place
BUGS = {
    "an_assignment_told_before_its_record_is_safe": (
        "group/sync.c", "    grp->assignment_write = w;\n    group_write_send(w);\n",
        "    group_write_send(w);\n    become_stable(grp);\n"),
    "an_assignment_told_whose_record_was_not_written": (
        "group/sync.c", "    if (!kerr) {\n        become_stable(grp);\n", "    {\n        become_stable(grp);\n"),
    "a_sync_of_an_old_generation": (
        "group/sync.c", "    if (in->generation_id != grp->generation) return KERR_ILLEGAL_GENERATION;\n", ""),
    "an_assignment_by_who_does_not_lead": (
        "group/sync.c", "strcmp(grp->leader, m->id) == 0 && !grp", "in->assignments_count > 0 && !grp"),
    "a_member_that_hears_an_assignment_of_the_generation_before": (
        "group/sync.c", "    return grp->state == GROUP_PREPARING ? KERR_REBALANCE_IN_PROGRESS : KERR_NONE;",
        "    if (grp->state == GROUP_COMPLETING && (*m)->assignment.size) answer(*m, (struct group_call *)call);\n"
        "    return grp->state == GROUP_PREPARING ? KERR_REBALANCE_IN_PROGRESS : KERR_NONE;"),
    "a_commit_answered_before_its_record_is_safe": (
        "group/offsets.c", "    list_push_back(&w->calls, &call->node);\n    group_write_send(w);\n",
        "    group_write_send(w);\n    group_answer(sh, call);\n"),
    "a_commit_answered_well_that_was_not_written": (
        "group/offsets.c", "        if (kerr) set_errors(call->out, group_commit_kerr(kerr));\n", ""),
    "an_offset_that_is_read_and_was_not_written": (
        "group/offsets.c", "        if (!kerr) {\n            c->offset.record_offset",
        "        {\n            c->offset.record_offset"),
    "a_commit_of_an_old_generation": (
        "group/offsets.c", "    if (generation != grp->generation) return KERR_ILLEGAL_GENERATION;\n", ""),
    "a_commit_of_nobody_in_a_group_with_members": (
        "group/offsets.c", "    if (!names_member) return KERR_UNKNOWN_MEMBER_ID;",
        "    if (!names_member) return KERR_NONE;"),
    "offsets_removed_before_the_tombstone_is_safe": (
        "group/removal.c", "    if (call) list_push_back(&w->calls, &call->node);\n",
        "    if (call) answer(rm->group->shard, call, KERR_NONE);\n"),
    "a_heartbeat_that_does_not_count": (
        "group/session.c", "    group_member_heard(m);\n    /* Consumers begin", "    /* Consumers begin"),
    "a_heartbeat_of_an_old_generation": (
        "group/session.c", "    if (in->generation_id != grp->generation) return KERR_ILLEGAL_GENERATION;\n", ""),
    "an_id_given_out_that_is_waited_for_for_ever": (
        "group/session.c", "    group_pending_remove(grp, str_of(p->id));\n    group_complete_if_joined(grp);\n",
        "    group_complete_if_joined(grp);\n"),
    "a_session_that_ends_while_the_member_waits": (
        "group/session.c", "    if ((m->joining || m->syncing) && !m->is_new) return;\n", ""),
    "a_member_that_leaves_without_a_rebalance": (
        "group/rebalance.c",
        "    if (grp->state == GROUP_STABLE || grp->state == GROUP_COMPLETING)\n        group_rebalance",
        "    if (grp->state == GROUP_COMPLETING)\n        group_rebalance"),
    "a_generation_that_is_not_raised": (
        "group/rebalance.c", "grp->generation == INT32_MAX ? 1 : grp->generation + 1", "MAX(grp->generation, 1)"),
    "a_leader_that_is_not_replaced": (
        "group/rebalance.c", "    if (m && m->joining) return true;\n", "    if (m) return true;\n"),
    "members_that_did_not_join_and_stay": (
        "group/rebalance.c", "    remove_who_did_not_join(grp);\n", ""),
    "a_rebalance_that_never_times_out": (
        "group/rebalance.c", "    grp->join_timer.fire = join_timer_fire;\n    shard_timer_set(",
        "    grp->join_timer.fire = join_timer_fire;\n    if (grp->initial_delay) shard_timer_set("),
    "syncs_that_are_not_answered_when_a_rebalance_begins": (
        "group/rebalance.c",
        "    if (grp->state == GROUP_COMPLETING) group_sync_fail(grp, KERR_REBALANCE_IN_PROGRESS);\n",
        "    grp->assignment_write = NULL;\n"),
    "a_fenced_static_member_that_is_heard": (
        "group/member.c", "        if (owner != m) return KERR_FENCED_INSTANCE_ID;\n",
        "        if (owner != m) {\n            *out = owner;\n            return KERR_NONE;\n        }\n"),
    "a_member_described_as_it_was_before": (
        "group/join.c", "    group_member_set_protocols(m, j->protocols, j->protocol_count);\n", ""),
    "a_static_member_back_without_a_session": (
        "group/join.c", "    group_member_set_joining(m, false);\n    group_member_heard(m);\n    if (!call) return;\n"
        "    struct join_group_response *out = call->out;\n    bool skip",
        "    group_member_set_joining(m, false);\n    if (!call) return;\n"
        "    struct join_group_response *out = call->out;\n    bool skip"),
    "a_static_member_back_before_its_record_is_safe": (
        "group/join.c", "        static_rejoin_write(grp, sr);\n        return;\n",
        "        static_rejoin_done(m, sr);\n        static_rejoin_free(sr);\n        return;\n"),
    "a_loaded_group_without_sessions": (
        "group/restore.c",
        "    for (struct group_member *m = grp->members; m; m = m->by_id.next) group_member_heard(m);\n", ""),
    "a_loaded_member_without_its_assignment": (
        "group/restore.c", "    if (from->assignment.size == 0) return;\n", "    if (from->assignment.size) return;\n"),
    "a_tombstone_that_is_not_read": (
        "group/replay.c", "        offset_remove(sh, rec, &key);\n", ""),
    "an_older_record_that_wins": (
        "group/replay.c", "    group_position_put(grp, pos, offset);\n",
        "    if (!pos->committed) group_position_put(grp, pos, offset);\n"),
    "a_group_loaded_as_it_was_first": (
        "group/replay.c", "    if (!grp) grp = group_make(sh, id);\n    group_restore(grp, &v);\n",
        "    if (!grp) group_restore(grp = group_make(sh, id), &v);\n"),
    "a_group_that_comes_back_without_its_tombstone": (
        "group/replay.c", "        group_remove(sh, id);\n", ""),
    "offsets_that_expire_though_they_are_consumed": (
        "group/expire.c", "if (!consumed && is_expired(", "if (is_expired("),
    "a_call_that_is_answered_though_its_connection_is_gone": (
        "group/shard.c", "    list_remove(&call->waiting);\n    forget_call(call);\n}",
        "    list_remove(&call->waiting);\n}"),
    "deleted_offsets_whose_tombstones_stay_away": (
        "group/admin.c", "            group_removal_add(&rm, t, pos);\n",
        "            if (pos != t->positions) group_removal_add(&rm, t, pos);\n"),
}
