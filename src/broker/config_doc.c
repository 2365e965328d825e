/* config_doc.c: docs/configuration.md, written from the rows. */
#include "broker/config_internal.h"

#include <string.h>

static const char head[] =
    "# Configuration\n"
    "\n"
    "This page is generated from the table that the broker itself uses (`src/broker/config_*.inc`); do not edit it.\n"
    "\n"
    "`barnabas broker [server.properties] [--override key=value]...` takes Apache Kafka 3.9's keys, with the same "
    "types,\n"
    "units, bounds and defaults. The file has the syntax of Java's properties. Without a file the broker is a single "
    "node\n"
    "with id 0 that listens on port 9092.\n"
    "\n"
    "## Where a value comes from\n"
    "\n"
    "The first of these that has the key:\n"
    "\n"
    "1. for a topic, its own override (`kafka-configs --entity-type topics`);\n"
    "2. the dynamic value of this broker (`--entity-type brokers --entity-name ID`);\n"
    "3. the dynamic value of the whole cluster (`--entity-type brokers --entity-default`);\n"
    "4. `--override key=value` on the command line, the last one where a key is repeated;\n"
    "5. `server.properties`, the last line where a key is repeated;\n"
    "6. the default.\n"
    "\n"
    "Several keys give one value in other units: `log.retention.ms` goes before `log.retention.minutes` before\n"
    "`log.retention.hours`, `log.roll.ms` before `log.roll.hours`, `log.roll.jitter.ms` before "
    "`log.roll.jitter.hours`, and\n"
    "`log.flush.interval.ms` before `log.flush.scheduler.interval.ms`, whichever layer they are set in.\n"
    "\n"
    "Keys of one listener carry the prefix `listener.name.NAME.`; they are checked like the key without it.\n"
    "\n"
    "## What is reported\n"
    "\n"
    "A value that does not parse or is out of bounds, and values that do not go together, end the start with an error "
    "that\n"
    "names the key, the value, the reason and the line, and exit status 1. A key that nobody knows is a warning that "
    "names\n"
    "the nearest known one. A key that is set but does nothing is a warning too.\n"
    "\n"
    "## Where Barnabas differs from Apache Kafka\n"
    "\n"
    "- `log.dir` is `/tmp/barnabas-logs` by default, so that a directory of an Apache Kafka is never opened by "
    "accident.\n"
    "- `num.io.threads` is the number of CPUs by default. These are the event loops; there are no network threads "
    "beside\n"
    "  them.\n"
    "- Without `zookeeper.connect` a broker is alone: `offsets.topic.replication.factor`,\n"
    "  `transaction.state.log.replication.factor` and `transaction.state.log.min.isr` are 1 by default.\n"
    "- `group.initial.rebalance.delay.ms` is 0 by default where there is no configuration file.\n"
    "- `offsets.commit.required.acks` other than -1, 0 and 1 is an error; Kafka starts, and refuses each commit.\n"
    "- `socket.receive.buffer.bytes` is left to the system unless it is set.\n"
    "- Without `zookeeper.connect` the node keeps its own coordination store, and `broker.id` is 0 where neither the\n"
    "  configuration nor `meta.properties` has one.\n"
    "- `zookeeper.digest.username` and `zookeeper.digest.password` take the place of the `Client` section of a JAAS "
    "file, and\n"
    "  keys and certificates towards ZooKeeper are PEM files. What the C library of ZooKeeper cannot do (choice of "
    "ciphers,\n"
    "  revocation lists, OCSP) is an error.\n"
    "- `controller.fast.failure.detection` and `controller.election.log.end.wait.ms` are keys of Barnabas.\n"
    "- Classes of the JVM cannot be loaded. Where one would guard something (policies, authorizer, quotas, "
    "principals), or\n"
    "  where the key changes what the broker is (KRaft, tiered storage), setting the key is an error; elsewhere a "
    "warning.\n"
    "- `config.providers` is an error.\n"
    "- Listeners cannot be changed while the broker runs yet, and passwords cannot be kept in dynamic configuration.\n"
    "- An advertised address of `::` is refused like `0.0.0.0`.\n"
    "- The file is read as UTF-8, not Latin-1.\n"
    "- `log.level`, `log.file` and `log.flush.mode`, and the topic key `flush.mode`, are keys of Barnabas. "
    "`kafka-configs` sets\n"
    "  and shows them; `kafka-topics --config` knows Kafka's keys only and refuses `flush.mode`.\n"
    "\n"
    "In the tables, *effect* is: **yes**; **not yet**; **none**, as the key has no meaning here; or **refused**, as "
    "setting\n"
    "it to anything but the default is an error. *Change* says whether a value can be changed while the broker runs, "
    "for\n"
    "single brokers or for the cluster.\n";

static const char *type_name(enum config_type type)
{
    static const char *const names[] = {
        [CONFIG_UNKNOWN] = "unknown",   [CONFIG_BOOLEAN] = "boolean", [CONFIG_STRING] = "string",
        [CONFIG_INT] = "int",           [CONFIG_SHORT] = "short",     [CONFIG_LONG] = "long",
        [CONFIG_DOUBLE] = "double",     [CONFIG_LIST] = "list",       [CONFIG_CLASS] = "class",
        [CONFIG_PASSWORD] = "password",
    };
    return names[type];
}

static const char *effect_name(enum config_effect effect)
{
    static const char *const names[] = {[ACTS] = "yes", [LATER] = "not yet", [NEVER] = "none", [REFUSED] = "refused"};
    return names[effect];
}

static const char *update_name(enum config_update update)
{
    static const char *const names[] = {
        [READ_ONLY] = "", [HIDDEN] = "", [PER_BROKER] = "broker", [CLUSTER_WIDE] = "cluster"};
    return names[update];
}

static void write_default(FILE *out, const char *text)
{
    if (!text)
        fputs("unset", out);
    else if (!*text)
        fputs("empty", out);
    else
        fprintf(out, "`%s`", text);
}

static void write_row_head(FILE *out, const struct config_row *row, const char *default_text, struct arena *a)
{
    struct str rule = config_rule_text(row, a);
    fprintf(out, "| `%s` | %s%s%.*s | ", row->name, type_name(row->type), rule.size ? ": " : "", STR_ARG(rule));
    write_default(out, default_text);
    fputs(" | ", out);
}

static void write_server_keys(FILE *out, const struct config_row *row)
{
    for (int i = 0; i < CONFIG_SERVER_KEYS_MAX && row->server[i].factor > 0; i++) {
        fprintf(out, "%s`%s`", i ? ", " : "", config_broker_rows[row->server[i].key].name);
        if (row->server[i].factor != 1) fprintf(out, " x %lld", (long long)row->server[i].factor);
    }
}

bool config_write_markdown(FILE *out)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    fputs(head, out);
    fputs("\n## Broker keys\n\n| key | type | default | change | effect | meaning |\n| --- | --- | --- | --- | --- | "
          "--- |\n",
          out);
    for (int i = 0; i < CFG_COUNT; i++) {
        const struct config_row *row = &config_broker_rows[i];
        write_row_head(out, row, i == CFG_NUM_IO_THREADS ? "number of CPUs" : row->default_text, &a);
        fprintf(out, "%s | %s | %s |\n", update_name(row->update), effect_name(row->effect), row->doc);
    }
    fputs("\n## Topic keys\n\nWithout an override the value is that of the first broker key that is set, times its "
          "factor.\n\n"
          "| key | type | default | broker keys | effect | meaning |\n| --- | --- | --- | --- | --- | --- |\n",
          out);
    for (int i = 0; i < TCFG_COUNT; i++) {
        const struct config_row *row = &config_topic_rows[i];
        write_row_head(out, row, row->default_text, &a);
        write_server_keys(out, row);
        fprintf(out, " | %s | %s |\n", effect_name(row->effect), row->doc);
    }
    arena_fini(&a);
    return !ferror(out);
}
