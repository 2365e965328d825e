/* locate.c: replicas first, which is the whole way for a well-informed client; metadata only to tell errors apart. */
#include "broker/api/locate.h"

enum kerr locate_replica(struct broker *br, struct str name, struct uuid id, int32_t index, struct located *out)
{
    bool by_id = str_is_null(name);
    out->topic = by_id ? replicas_find_id(br->replicas, id) : replicas_find(br->replicas, name);
    out->partition = topic_partition(out->topic, index);
    if (out->partition) return KERR_NONE;
    const struct topic_view *t = by_id ? metadata_topic_by_id(br->metadata, id) : metadata_topic(br->metadata, name);
    if (!t && by_id) return KERR_UNKNOWN_TOPIC_ID;
    if (!t || index < 0 || index >= t->partition_count) return KERR_UNKNOWN_TOPIC_OR_PARTITION;
    return KERR_NOT_LEADER_OR_FOLLOWER;
}

enum kerr locate_leader(struct broker *br, struct str name, struct uuid id, int32_t index, int32_t client_epoch,
                        struct located *out)
{
    enum kerr kerr = locate_replica(br, name, id, index, out);
    return kerr ? kerr : partition_check_leader(out->partition, client_epoch);
}
