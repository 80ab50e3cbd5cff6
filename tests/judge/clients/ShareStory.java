// A share consumer of the Java client. `story` settles ten records in every way and prints what
// came; `drain` accepts what it gets, and prints it once that is confirmed, until it is ended.
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareStory {
    static KafkaShareConsumer<String, String> consumer;
    static final List<String> refused = new ArrayList<>();

    public static void main(String[] given) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given[0]);
        settings.put("group.id", given[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("reconnect.backoff.max.ms", "200");
        var text = new StringDeserializer();
        consumer = new KafkaShareConsumer<>(settings, text, text);
        consumer.setAcknowledgementCommitCallback((offsets, error) -> {
            if (error != null) refused.add(error.getClass().getSimpleName());
        });
        consumer.subscribe(List.of(given[2]));
        if (given[3].equals("story")) {
            story();
            consumer.close();
        } else {
            drain();
        }
    }

    static void story() {
        var first = take(10);
        for (var record : first) {
            int number = Integer.parseInt(record.value());
            consumer.acknowledge(record, number < 5 ? AcknowledgeType.ACCEPT
                : number < 8 ? AcknowledgeType.RELEASE
                : number < 9 ? AcknowledgeType.REJECT : AcknowledgeType.RENEW);
        }
        consumer.commitSync();
        for (var renewed : take(1)) consumer.acknowledge(renewed);
        consumer.commitSync();
        var second = take(3);
        for (var record : second) consumer.acknowledge(record);
        consumer.commitSync();
        System.out.println("{\"first\": " + counts(first) + ", \"second\": " + counts(second)
            + ", \"refused\": " + refused.size() + "}");
    }

    static List<ConsumerRecord<String, String>> take(int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        while (found.size() < count) {
            for (var record : consumer.poll(Duration.ofMillis(200))) found.add(record);
        }
        return found;
    }

    static String counts(List<ConsumerRecord<String, String>> records) {
        return records.stream()
            .map(one -> "\"" + one.value() + "\": " + one.deliveryCount().get())
            .collect(Collectors.joining(", ", "{", "}"));
    }

    static void drain() throws Exception {
        while (System.in.available() == 0) {
            List<String> values = new ArrayList<>();
            try {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("got " + record.value());
                    consumer.acknowledge(record);
                    values.add(record.value());
                }
                var outcomes = consumer.commitSync();
                if (outcomes.values().stream().allMatch(Optional::isEmpty)) {
                    for (var value : values) System.out.println("settled " + value);
                }
            } catch (KafkaException error) {
                System.out.println("failed " + error);
            }
        }
        consumer.close();
    }
}
