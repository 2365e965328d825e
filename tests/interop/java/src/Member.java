import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a consumer group (tests/interop/README.md, "Consumer groups", has the contract):  Member OPTIONS */
public final class Member implements ConsumerRebalanceListener {
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class, "roundrobin", RoundRobinAssignor.class, "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final FileOutputStream EVENTS = new FileOutputStream(FileDescriptor.out); // a write a line

    private final JsonNode options;
    private final KafkaConsumer<String, String> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> handled = new HashMap<>(); // and not committed
    private volatile boolean closing;

    private Member(JsonNode options) {
        this.options = options;
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap").asText());
        config.put("group.id", options.get("group").asText());
        config.put("client.id", options.get("member").asText());
        config.put("partition.assignment.strategy", ASSIGNORS.get(options.get("assignor").asText()).getName());
        config.put("session.timeout.ms", options.get("session_ms").asText());
        config.put("heartbeat.interval.ms", options.get("heartbeat_ms").asText());
        config.put("max.poll.interval.ms", options.get("rebalance_ms").asText());
        config.put("metadata.max.age.ms", options.get("metadata_ms").asText());
        config.put("max.poll.records", "50");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("allow.auto.create.topics", "false");
        if (options.hasNonNull("instance")) {
            config.put("group.instance.id", options.get("instance").asText());
        }
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] arguments) throws IOException {
        Member member = new Member(JSON.readTree(arguments[0]));
        Thread word = new Thread(member::awaitWord);
        word.setDaemon(true);
        word.start();
        int status = 0;
        try {
            member.run();
        } catch (FencedInstanceIdException e) {
            member.tell(member.event("fenced"));
        } catch (RuntimeException e) {
            e.printStackTrace();
            member.tell(member.event("failed").put("why", e.toString()));
            status = 1;
        }
        Runtime.getRuntime().halt(status);
    }

    /** "close", or the end of the input: whoever started this is gone. */
    private void awaitWord() {
        try {
            System.in.read();
        } catch (IOException e) {
            e.printStackTrace();
        }
        closing = true;
    }

    private void run() {
        if (options.hasNonNull("pattern")) {
            consumer.subscribe(Pattern.compile(options.get("pattern").asText()), this);
        } else {
            List<String> topics =
                StreamSupport.stream(options.get("topics").spliterator(), false).map(JsonNode::asText).toList();
            consumer.subscribe(topics, this);
        }
        while (!closing) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                tell(event("record").put("t", record.topic()).put("p", record.partition())
                    .put("o", record.offset()).put("v", record.value()));
                handled.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            commit();
        }
        consumer.close();
        tell(event("closed"));
    }

    /** What is refused, because the group is between two generations, is committed with the next. */
    private void commit() {
        if (handled.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(handled);
        } catch (CommitFailedException | RebalanceInProgressException e) {
            tell(event("refused").put("why", e.toString()));
            return;
        }
        ObjectNode event = event("committed");
        ArrayNode offsets = event.putArray("offsets");
        handled.forEach((p, at) -> offsets.addArray().add(p.topic()).add(p.partition()).add(at.offset()));
        handled.clear();
        tell(event);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell(event("assigned", partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        gone("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        gone("lost", partitions);
    }

    private void gone(String kind, Collection<TopicPartition> partitions) {
        handled.keySet().removeAll(partitions);
        if (!partitions.isEmpty()) {
            tell(event(kind, partitions));
        }
    }

    private ObjectNode event(String kind) {
        return JSON.createObjectNode().put("m", options.get("member").asText()).put("ev", kind);
    }

    private ObjectNode event(String kind, Collection<TopicPartition> partitions) {
        ObjectNode event = event(kind);
        ArrayNode rows = event.putArray("partitions");
        partitions.forEach(p -> rows.addArray().add(p.topic()).add(p.partition()));
        return event;
    }

    private void tell(ObjectNode event) {
        try {
            byte[] line = JSON.writeValueAsBytes(event);
            byte[] whole = java.util.Arrays.copyOf(line, line.length + 1);
            whole[line.length] = '\n';
            EVENTS.write(whole);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
