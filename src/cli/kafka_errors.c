/* kafka_errors.c: Kafka's error codes as Java's tools print them, which scripts search for. */
#include "cli/kafka_groups.h"

/* The exceptions that the group tool can meet; others go by the code's name. */
static const struct {
    int16_t kerr;
    const char *exception, *text;
} rows[] = {
    {KERR_UNKNOWN_SERVER_ERROR, "UnknownServerException",
     "The server experienced an unexpected error when processing the request."},
    {KERR_UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionException",
     "This server does not host this topic-partition."},
    {KERR_REQUEST_TIMED_OUT, "TimeoutException", "The request timed out."},
    {KERR_COORDINATOR_LOAD_IN_PROGRESS, "CoordinatorLoadInProgressException",
     "The coordinator is loading and hence can't process requests."},
    {KERR_COORDINATOR_NOT_AVAILABLE, "CoordinatorNotAvailableException", "The coordinator is not available."},
    {KERR_NOT_COORDINATOR, "NotCoordinatorException", "This is not the correct coordinator."},
    {KERR_INVALID_TOPIC_EXCEPTION, "InvalidTopicException",
     "The request attempted to perform an operation on an invalid topic."},
    {KERR_INVALID_GROUP_ID, "InvalidGroupIdException", "The configured groupId is invalid."},
    {KERR_UNKNOWN_MEMBER_ID, "UnknownMemberIdException", "The coordinator is not aware of this member."},
    {KERR_REBALANCE_IN_PROGRESS, "RebalanceInProgressException", "The group is rebalancing, so a rejoin is needed."},
    {KERR_TOPIC_AUTHORIZATION_FAILED, "TopicAuthorizationException", "Topic authorization failed."},
    {KERR_GROUP_AUTHORIZATION_FAILED, "GroupAuthorizationException", "Group authorization failed."},
    {KERR_CLUSTER_AUTHORIZATION_FAILED, "ClusterAuthorizationException", "Cluster authorization failed."},
    {KERR_UNSUPPORTED_VERSION, "UnsupportedVersionException", "The version of API is not supported."},
    {KERR_NON_EMPTY_GROUP, "GroupNotEmptyException", "The group is not empty."},
    {KERR_GROUP_ID_NOT_FOUND, "GroupIdNotFoundException", "The group id does not exist."},
    {KERR_GROUP_SUBSCRIBED_TO_TOPIC, "GroupSubscribedToTopicException",
     "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."},
};

struct str kafka_error_text(int16_t kerr, struct str said, struct arena *a)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (rows[i].kerr == kerr)
            return arena_printf(a, "org.apache.kafka.common.errors.%s: %.*s", rows[i].exception,
                                STR_ARG(said.size > 0 ? said : str_of(rows[i].text)));
    return said.size > 0 ? arena_printf(a, "%s: %.*s", kerr_name(kerr), STR_ARG(said)) : str_of(kerr_name(kerr));
}
