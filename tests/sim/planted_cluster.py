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
}
