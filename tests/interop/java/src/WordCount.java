import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams' word count, one instance, at least once: WordCount BOOTSTRAP APPLICATION STATE_DIRECTORY INPUT OUTPUT
 *
 * It tells its states, a line each, and ends when its standard input does.
 */
public final class WordCount {
    private WordCount() {
    }

    public static void main(String[] arguments) throws IOException {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("application.id", arguments[1]);
        config.put("state.dir", arguments[2]);
        config.put("commit.interval.ms", "200");
        config.put("num.stream.threads", "2");
        config.put("main.consumer.session.timeout.ms", "3000");
        config.put("main.consumer.heartbeat.interval.ms", "300");
        config.put("consumer.auto.offset.reset", "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[3], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[4], Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        boolean closed = streams.close(Duration.ofSeconds(60));
        System.out.println(closed ? "closed" : "still running");
        Runtime.getRuntime().halt(closed ? 0 : 1);
    }
}
