/* DescribeCluster (key 60, KIP-700): the brokers, the controller, the cluster's id. */
#include "broker/api/common.h"
#include "broker/api/handlers.h"
#include "wire/gen/describe_cluster.h"

/* EndpointType (KIP-919). */
enum { ENDPOINT_BROKER = 1, ENDPOINT_CONTROLLER = 2 };

/* Addresses of KRaft controllers are not ours to give; version 0 cannot ask for them. */
static void refuse_endpoint_type(struct request *rq, int8_t type)
{
    struct describe_cluster_response *out = rq->out;
    if (type == ENDPOINT_CONTROLLER) {
        out->error_code = KERR_MISMATCHED_ENDPOINT_TYPE;
        out->error_message = STR("This is a broker's endpoint, but controllers were asked for.");
    } else {
        out->error_code = KERR_UNSUPPORTED_ENDPOINT_TYPE;
        out->error_message = arena_printf(&rq->arena, "There is no endpoint type %d.", type);
    }
}

enum step describe_cluster_handle(struct request *rq)
{
    const struct describe_cluster_request *in = rq->in;
    struct describe_cluster_response *out = rq->out;
    if (in->endpoint_type != ENDPOINT_BROKER) {
        refuse_endpoint_type(rq, in->endpoint_type);
        return DONE;
    }
    const struct cluster_view *cluster = metadata_cluster(rq->broker->metadata);
    struct str listener = api_listener(rq);
    out->cluster_id = str_of(rq->broker->cluster_id);
    if (in->include_cluster_authorized_operations) out->cluster_authorized_operations = ACL_ALL_OF_CLUSTER;
    out->brokers =
        arena_array(&rq->arena, struct describe_cluster_response_describe_cluster_broker, (size_t)cluster->count);
    for (int32_t i = 0; i < cluster->count; i++) {
        const struct node *n = &cluster->nodes[i];
        const struct node_endpoint *e = node_endpoint(n, listener);
        if (!e) continue;
        /* Fenced brokers (version 2) are KRaft's; with ZooKeeper a broker is alive or not there. */
        struct describe_cluster_response_describe_cluster_broker *b = &out->brokers[out->brokers_count++];
        *b = describe_cluster_response_describe_cluster_broker_default;
        b->broker_id = n->id;
        b->host = e->host;
        b->port = e->port;
        b->rack = n->rack;
        /* A controller that is not in the list would only puzzle the client. */
        if (n->id == cluster->controller_id) out->controller_id = n->id;
    }
    return DONE;
}
