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
        "    return ids_have(p->isr, p->isr_count, id) && (ct->restarted || !replica_has_restarted(c, p, id));\n",
        "    return true;\n"),
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
    "a_follower_that_leaves_and_is_not_waited_for_before_the_controller_says_so": (
        "replica/in_sync.c", "    return f->state != FOLLOWER_OUT || (f->eligible && !f->refused && is_caught_up(s, f, end));\n",
        "    return f->state == FOLLOWER_IN || (f->eligible && !f->refused && is_caught_up(s, f, end));\n"),
    "a_produce_where_nobody_leads": (
        "replica/partition.c", "    return atomic_load(&p->leads) ? KERR_NONE : KERR_NOT_LEADER_OR_FOLLOWER;\n",
        "    return KERR_NONE;\n"),
    "a_duplicate_that_is_not_known": (
        "plog/producers.c", "        if (kept->last_sequence == last_sequence && batch_first_sequence(kept) == "
        "b->base_sequence) return kept;\n", "        if (kept->last_sequence < -1) return kept;\n"),
    "an_answer_of_the_controller_thrown_away": (
        "replica/leader.c", "    } else if (!kerr && atomic_load(&p->leads) && answer->partition_epoch > p->partition_epoch"
        " && commit(p, answer)) {\n", "    } else if (!kerr && answer->partition_epoch < -1 && commit(p, answer)) {\n"),
    "a_deposed_controller_that_writes": (
        "controller/writes.c", "    if (w->count == 0)\n        push(w, (struct coord_op){.kind = COORD_CHECK, "
        ".path = ZNODE_CONTROLLER_EPOCH, .version = w->c->epoch_version});\n", ""),
    "a_deposed_controller_that_is_heard": (
        "broker/control.c", "    if (from->controller_epoch < ct->controller_epoch) {",
        "    if (from->controller_epoch < 0) {"),
    "a_stale_change_of_the_in_sync_set": (
        "controller/alter_partition.c",
        "    if (ap->leader_epoch < p->leader_epoch) return KERR_FENCED_LEADER_EPOCH;\n"
        "    *same = in->broker_id == p->leader && ap->leader_recovery_state == p->leader_recovery_state &&\n"
        "            same_members(isr, count, p->isr, p->isr_count);\n"
        "    if (*same) return KERR_NONE;\n"
        "    if (ap->partition_epoch < p->state_version) return KERR_INVALID_UPDATE_VERSION;\n"
        "    if (in->broker_id != p->leader || !isr_is_sound(p, isr, count)) return KERR_INVALID_REQUEST;\n",
        "    *same = same_members(isr, count, p->isr, p->isr_count) && isr_is_sound(p, isr, count);\n"
        "    if (*same) return KERR_NONE;\n"),
    "a_heartbeat_after_fencing": (
        "group/session.c", "    if (in->generation_id != grp->generation) return KERR_ILLEGAL_GENERATION;\n", ""),
    "a_commit_after_fencing": (
        "group/offsets.c", "    if (generation != grp->generation) return KERR_ILLEGAL_GENERATION;\n", ""),
    "a_commit_answered_when_the_leader_alone_has_it": (
        "broker/groups_write.c",
        "    if (acks == ACKS_ALL && partition_high_watermark(b->p) <= b->append.last_offset) return false;\n", ""),
    "a_coordinator_that_does_not_read_to_the_end": (
        "broker/groups_load.c", "    ld->end = plog_end(h->p->pl);\n",
        "    ld->end = MAX(ld->at, plog_end(h->p->pl) - 1);\n"),
    "a_coordinator_that_goes_on_when_it_leads_anew": (
        "broker/groups.c", "    return h->serves && h->p == h->wanted && h->epoch == h->wanted_epoch;\n",
        "    return h->p == h->wanted;\n"),
    "a_follower_cut_to_its_high_watermark": (
        "replica/fetcher_answer.c", "    else if (fo->last_epoch < 0 && fo->offset > high_watermark) {",
        "    else if (fo->offset > high_watermark) {"),
    "an_unclean_election_that_nobody_allowed": (
        "controller/elections.c", "            ct->unclean = ct->topic->unclean == UNCLEAN_YES && needs_unclean(c, p);\n",
        "            ct->unclean = true;\n"),
    "an_epoch_that_no_leader_begins": (
        "replica/replicas_apply.c", "    if (plog_last_epoch(p->pl) >= leader_epoch) return KERR_NONE;\n",
        "    if (p->pl) return KERR_NONE;\n"),
    "a_leader_that_restarted_and_goes_on_in_its_epoch": (
        "controller/elections.c",
        "    if (p->leader >= 0 && replica_is_alive(c, p, p->leader) && !replica_has_restarted(c, p, p->leader)) return;\n",
        "    if (p->leader >= 0 && replica_is_alive(c, p, p->leader)) return;\n"),
    "batches_forgotten_at_a_restart": (
        "plog/producers.c", "    for (size_t i = 0; i < count; i++, at += ENTRY_SIZE) {\n        bool last",
        "    for (size_t i = count - 1; i < count; i++, at += ENTRY_SIZE) {\n        bool last"),
    "a_number_of_partitions_from_what_was_told_first": (
        "broker/groups.c", "    for (int32_t i = 0; i < t->partition_count; i++)\n        if (!t->partitions[i].known) return false;\n"
        "    return t->partition_count == partitions;\n", "    return partitions > 0;\n"),
}
