import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client's part in the exchange of records between languages (tests/interop/README.md has the rule for what
 * record i is):  Records BOOTSTRAP write|read COUNT CODEC TOPIC...
 */
public final class Records {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private static final int LARGE = 20_000;

    private Records() {
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int count = Integer.parseInt(arguments[2]);
        List<String> topics = Arrays.asList(arguments).subList(4, arguments.length);
        if (arguments[1].equals("write")) {
            for (String topic : topics) {
                write(bootstrap, topic, count, arguments[3]);
            }
        } else {
            read(bootstrap, topics, count);
        }
        System.out.println("ok: " + arguments[1] + " " + count + " records, " + topics.size() + " topics");
    }

    static byte[] key(int i) {
        if (i % 10 == 0 && i % 7 != 0) {
            return null;
        }
        return i % 10 == 1 ? new byte[0] : bytes("key-" + i);
    }

    static byte[] value(int i) {
        if (i % 7 == 0) {
            return null;
        }
        if (i % 7 == 1) {
            return new byte[0];
        }
        byte[] head = bytes("value-" + i + "-");
        byte[] value = Arrays.copyOf(head, head.length + (i % 1000 == 2 ? LARGE : i % 97));
        for (int j = head.length; j < value.length; j++) {
            value[j] = (byte) (i + 31 * (j - head.length));
        }
        return value;
    }

    static Headers headers(int i, boolean nulls) {
        Headers headers = new RecordHeaders();
        switch (i % 5) {
            case 1 -> headers.add("h", bytes("" + i));
            case 2 -> headers.add("dup", bytes("a")).add("dup", bytes("b"));
            case 3 -> headers.add("null", nulls ? null : new byte[0]).add("empty", new byte[0]);
            case 4 -> headers.add("binary", new byte[] {0, (byte) 0xff, (byte) i});
            default -> { }
        }
        return headers;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void write(String bootstrap, String topic, int count, String codec) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", codec);
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < count; i++) {
                long expected = i;
                producer.send(new ProducerRecord<>(topic, 0, FIRST_TIMESTAMP + i, key(i), value(i), headers(i, true)),
                    (metadata, error) -> {
                        if (error != null) {
                            failure.compareAndSet(null, error);
                        } else if (metadata.offset() != expected) {
                            failure.compareAndSet(null, new IllegalStateException(expected + " is at " + metadata.offset()));
                        }
                    });
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    /** Reads all topics at once, so that fetches and their sessions hold many partitions. */
    private static void read(String bootstrap, List<String> topics, int count) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        Map<String, Integer> next = new HashMap<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (String topic : topics) {
            next.put(topic, 0);
            partitions.add(new TopicPartition(topic, 0));
        }
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        long left = (long) count * topics.size();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (left > 0) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("of " + count + " records each only " + next);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    check(record.topic(), next.merge(record.topic(), 1, Integer::sum) - 1, record);
                    left--;
                }
            }
        }
    }

    private static void check(String topic, int i, ConsumerRecord<byte[], byte[]> record) {
        Header[] wanted = headers(i, !topic.contains("nonull")).toArray();
        Header[] got = record.headers().toArray();
        boolean same = record.offset() == i && record.timestamp() == FIRST_TIMESTAMP + i
            && Arrays.equals(record.key(), key(i)) && Arrays.equals(record.value(), value(i)) && Arrays.equals(wanted, got);
        if (!same) {
            throw new IllegalStateException(topic + ": record " + i + " came back as " + record);
        }
    }
}
