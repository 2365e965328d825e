"""Bugs that the simulation of whole clusters must find; see planted.py."""

# name: file below src/, the text, what takes its place
BUGS = {
    "acks_all_answered_at_the_append": (
        "broker/api/produce.c",
        "    return part->produce->acks != ACKS_ALL || partition_high_watermark(part->p) > part->append.last_offset;\n",
        "    return true;\n"),
    "a_high_watermark_ahead_of_followers": (
        "replica/in_sync.c", "if (f->end < lowest && has_a_say(s, f, end)) lowest = f->end;",
        "if (f->end < 0 && has_a_say(s, f, end)) lowest = f->end;"),
    "an_election_outside_the_in_sync_set": (
        "controller/elections.c",
        "    return replica_is_electable(c, p, id) && (ct->unclean || ids_have(p->isr, p->isr_count, id));\n",
        "    return replica_is_electable(c, p, id) && (ct->unclean || p->isr_count > 0);\n"),
    "a_leader_of_the_same_epoch": (
        "controller/elections.c", "    p->leader = leader;\n    p->leader_epoch++;\n", "    p->leader = leader;\n"),
    "no_truncation_by_epoch": (
        "broker/api/fetch.c", "    if (it->last_fetched_epoch < 0) return false;\n",
        "    if (it->last_fetched_epoch < INT32_MAX) return false;\n"),
    "a_cut_at_the_wrong_place": (
        "replica/fetcher_answer.c", "        at = MIN(epoch_end, leader->end_offset);\n", "        at = epoch_end;\n"),
    "offsets_of_a_log_that_was_not_cut_used_again": (
        "replica/fetcher_answer.c", "    followed_cut(fo, MIN(at, end), false);\n",
        "    followed_cut(fo, MAX(at, end), false);\n"),
    "an_epoch_that_is_not_begun": (
        "replica/replicas_apply.c", "    if (plog_last_epoch(p->pl) >= leader_epoch) return KERR_NONE;\n",
        "    if (plog_last_epoch(p->pl) >= 0) return KERR_NONE;\n"),
    "roles_of_an_old_leader_epoch": (
        "replica/replicas_apply.c",
        "    if (it->state->leader_epoch < atomic_load(&p->leader_epoch)) return KERR_STALE_CONTROLLER_EPOCH;\n", ""),
    "a_deposed_controller_that_is_heard": (
        "broker/control.c", "    if (from->controller_epoch < ct->controller_epoch) {\n",
        "    if (from->controller_epoch < 0) {\n"),
    "a_deposed_controller_that_writes": (
        "controller/writes.c",
        "    if (w->count == 0)\n        push(w, (struct coord_op){.kind = COORD_CHECK, .path = ZNODE_CONTROLLER_EPOCH, "
        ".version = w->c->epoch_version});\n", ""),
    "a_stale_in_sync_set_accepted": (
        "controller/alter_partition.c",
        "    if (ap->partition_epoch < p->state_version) return KERR_INVALID_UPDATE_VERSION;\n", ""),
    "an_in_sync_set_of_an_old_leader": (
        "controller/alter_partition.c", "    if (ap->leader_epoch < p->leader_epoch) return KERR_FENCED_LEADER_EPOCH;\n",
        ""),
    "a_broker_of_an_earlier_life_in_the_in_sync_set": (
        "controller/alter_partition.c",
        "        if (epoch != EPOCH_UNKNOWN && epoch != broker_find(wo->c, isr[i])->epoch) return false;\n", ""),
    "a_follower_let_in_below_the_high_watermark": (
        "replica/in_sync.c", "    return f->eligible && f->end >= high_watermark && f->end >= s->entry_min",
        "    return f->eligible && f->end >= 0 && high_watermark >= 0"),
    "a_follower_that_leaves_and_is_not_waited_for_before_the_controller_says_so": (
        "replica/in_sync.c", "    return f->state != FOLLOWER_OUT || (f->eligible && is_caught_up(s, f, end));\n",
        "    return f->state == FOLLOWER_IN || (f->eligible && is_caught_up(s, f, end));\n"),
    "a_produce_where_nobody_leads": (
        "replica/partition.c", "    return atomic_load(&p->leads) ? KERR_NONE : KERR_NOT_LEADER_OR_FOLLOWER;\n",
        "    return KERR_NONE;\n"),
    "a_high_watermark_beyond_the_log": (
        "replica/follower.c", "    int64_t reached = MIN(leader_high_watermark, plog_safe_end(p->pl));\n",
        "    int64_t reached = leader_high_watermark;\n"),
    "a_checkpoint_of_the_high_watermark_too_high": (
        "replica/replicas_upkeep.c", "    return partition_high_watermark(p);\n", "    return plog_end(p->pl);\n"),
    "a_duplicate_that_is_not_known": (
        "plog/producers.c", "        if (kept->last_sequence == last_sequence && batch_first_sequence(kept) == "
        "b->base_sequence) return kept;\n", "        if (kept->last_sequence < -1) return kept;\n"),
    "a_batch_from_before_a_snapshot_out_of_order": (
        "plog/producers.c", "    return before > 0 && before <= INT32_MAX / 2;\n", "    return before < 0;\n"),
    "an_answer_of_the_controller_thrown_away": (
        "replica/leader.c", "    } else if (!kerr && atomic_load(&p->leads) && answer->partition_epoch > p->partition_epoch"
        " && commit(p, answer)) {\n", "    } else if (!kerr && answer->partition_epoch < -1 && commit(p, answer)) {\n"),
    "a_high_watermark_told_once": (
        "broker/fetch_sessions.c",
        "    part->told_high_watermark = MIN(part->told_high_watermark, in->high_watermark);\n", ""),
    "a_leader_that_went_unnoticed": (
        "controller/elections.c", "        if (p->isr[i] == keep || replica_is_alive(c, p, p->isr[i])) alive",
        "        if (p->isr[i] == keep || p->isr[i] >= 0) alive"),
}
