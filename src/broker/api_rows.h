/* api_rows.h: one row an API; included where a list is derived from them, with API() defined.
 *
 *   key                      handler                 min max announced_min
 *
 * Produce 0-2 are announced and refused, as Kafka 4.3 does: librdkafka concludes from them what else a broker can do.
 */
API(API_PRODUCE, produce, 3, 13, 0)
API(API_FETCH, fetch, 4, 18, 4)
API(API_LIST_OFFSETS, list_offsets, 1, 11, 1)
API(API_METADATA, metadata, 0, 13, 0)
API(API_API_VERSIONS, api_versions, 0, 4, 0)
API(API_INIT_PRODUCER_ID, init_producer_id, 0, 5, 0)
API(API_DESCRIBE_CLUSTER, describe_cluster, 0, 2, 0)
API(API_DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions, 0, 0, 0)
API(API_OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch, 2, 4, 2)
API(API_DELETE_RECORDS, delete_records, 0, 2, 0)
API(API_DESCRIBE_LOG_DIRS, describe_log_dirs, 0, 5, 0)
API(API_DESCRIBE_PRODUCERS, describe_producers, 0, 0, 0)
API(API_CREATE_TOPICS, create_topics, 0, 7, 0)
API(API_DELETE_TOPICS, delete_topics, 0, 6, 0)
API(API_DESCRIBE_CONFIGS, describe_configs, 0, 4, 0)
API(API_ALTER_CONFIGS, alter_configs, 0, 2, 0)
API(API_CREATE_PARTITIONS, create_partitions, 0, 3, 0)
API(API_INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs, 0, 1, 0)
