/* Schedules by stock Kafka means: a producer that sets a header, and a consumer that watches.
 *
 *   rdkafka_schedules schedule --count N --due-from-ms A --due-until-ms B ...
 *       produces N messages with the header goqueue-delay-ms, due between A and B milliseconds
 *       after the start, in no order
 *   rdkafka_schedules watch --count N ...
 *       reads a topic until N messages have come. A value begins with the time it is due and its
 *       number; each number must come once, and none before it is due. Two errors are measured: by
 *       the record's timestamp, which is when the broker put it into the topic, and by the clock
 *       of the reader when it had the message.
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <string.h>

enum { ERROR_BYTES = 256, DUE_DIGITS = 13, NUMBER_DIGITS = 10, FETCHED_AT_ONCE = 10000 };
enum { PARTITIONS_MAX = 10000 };
/* Larger than any count, so that steps of this size visit every number once. */
static const int64_t STRIDE = 2147483647;

static struct {
    const char *brokers, *topic;
    int partitions, size;
    int64_t count, due_from_ms, due_until_ms;
    double seconds_max;
} options = {.partitions = 6, .size = 100, .count = 10000, .due_from_ms = 3600000,
             .due_until_ms = 7200000, .seconds_max = 60};
static int64_t acked, failed;
static char first_error[ERROR_BYTES];

static void fail(const char *what, const char *why) {
    fprintf(stderr, "rdkafka_schedules: %s: %s\n", what, why);
    exit(1);
}

static void note_failure(const char *why) {
    if (failed++ == 0)
        snprintf(first_error, sizeof first_error, "%s", why);
}

static int64_t wall_ms(void) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err)
        note_failure(rd_kafka_err2str(message->err));
    else
        acked++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[ERROR_BYTES];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        fail(name, why);
}

static rd_kafka_t *open_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char why[ERROR_BYTES];
    set(conf, "bootstrap.servers", options.brokers);
    rd_kafka_t *client = rd_kafka_new(type, conf, why, sizeof why);
    if (client == NULL)
        fail("client", why);
    return client;
}

static void print_outcome(double seconds) {
    printf("{\"seconds\": %.6f, \"acked\": %lld, \"failed\": %lld, \"missing\": %lld, "
           "\"first_error\": \"%s\"",
           seconds, (long long)acked, (long long)failed, (long long)(options.count - acked - failed),
           first_error);
}

/* ---- schedule -------------------------------------------------------------------------- */

static void run_schedule(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", "all");
    set(conf, "linger.ms", "5");
    set(conf, "queue.buffering.max.messages", "500000");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(client, 0, topic, &metadata, 30000) != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("metadata", "not answered within 30 s");
    rd_kafka_metadata_destroy(metadata);
    char *value = malloc((size_t)options.size + 1), delay[32];
    memset(value, 'x', (size_t)options.size);
    int64_t window = options.due_until_ms - options.due_from_ms, base = wall_ms();
    int64_t begin = now_ns(), deadline = begin + (int64_t)(options.seconds_max * 1e9);
    for (int64_t i = 0; i < options.count && now_ns() < deadline;) {
        int64_t after = options.due_from_ms + i * (STRIDE % options.count) % options.count *
                                                  window / options.count;
        int64_t due = base + after;
        int64_t left = due - wall_ms();
        snprintf(value, (size_t)options.size, "%0*lld %0*lld", DUE_DIGITS, (long long)due,
                 NUMBER_DIGITS, (long long)i);
        value[DUE_DIGITS + 1 + NUMBER_DIGITS] = 'x';
        int digits = snprintf(delay, sizeof delay, "%lld", (long long)left);
        rd_kafka_resp_err_t error = rd_kafka_producev(
            client, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_PARTITION(RD_KAFKA_PARTITION_UA),
            RD_KAFKA_V_VALUE(value, (size_t)options.size),
            RD_KAFKA_V_HEADER("goqueue-delay-ms", delay, digits),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
        if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            rd_kafka_poll(client, 5);
            continue;
        }
        if (error)
            fail("produce", rd_kafka_err2str(error));
        if ((i++ & 255) == 0)
            rd_kafka_poll(client, 0);
    }
    rd_kafka_flush(client, (int)(options.seconds_max * 1000));
    print_outcome((double)(now_ns() - begin) / 1e9);
    printf(", \"p99_ms\": 0}\n");
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
}

/* ---- watch ----------------------------------------------------------------------------- */

static samples_t placed, seen;
static int64_t early_count, earliest_ms;

static void watch_one(const rd_kafka_message_t *message, uint8_t *numbers, int64_t now) {
    if (message->err)
        return note_failure(rd_kafka_message_errstr(message));
    if (message->len != (size_t)options.size)
        return note_failure("a message has the wrong size");
    int64_t due = strtoll(message->payload, NULL, 10);
    int64_t number = strtoll((const char *)message->payload + DUE_DIGITS + 1, NULL, 10);
    if (number < 0 || number >= options.count)
        return note_failure("a message has a number that was not sent");
    if (numbers[number]++)
        return note_failure("a message came twice");
    rd_kafka_timestamp_type_t kind;
    int64_t late_ms = rd_kafka_message_timestamp(message, &kind) - due;
    if (late_ms < 0) {
        early_count++;
        earliest_ms = late_ms < earliest_ms ? late_ms : earliest_ms;
    }
    samples_add(&placed, late_ms * 1000000);
    samples_add(&seen, (now - due) * 1000000);
    acked++;
}

static void assign_all(rd_kafka_t *client) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(options.partitions);
    for (int p = 0; p < options.partitions; p++)
        rd_kafka_topic_partition_list_add(list, options.topic, p)->offset = 0;
    if (rd_kafka_assign(client, list))
        fail("assign", "refused");
    rd_kafka_topic_partition_list_destroy(list);
}

static void run_watch(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "bench");
    set(conf, "enable.auto.commit", "false");
    set(conf, "auto.offset.reset", "error");
    rd_kafka_t *client = open_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(client);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t **messages = calloc(FETCHED_AT_ONCE, sizeof *messages);
    uint8_t *numbers = calloc((size_t)options.count, 1);
    if (messages == NULL || numbers == NULL)
        fail("memory", "none left");
    assign_all(client);
    int64_t begin = now_ns(), deadline = begin + (int64_t)(options.seconds_max * 1e9);
    while (acked < options.count && failed == 0 && now_ns() < deadline) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 2, messages, FETCHED_AT_ONCE);
        int64_t now = wall_ms();
        for (ssize_t i = 0; i < got; i++) {
            watch_one(messages[i], numbers, now);
            rd_kafka_message_destroy(messages[i]);
        }
    }
    print_outcome((double)(now_ns() - begin) / 1e9);
    samples_sort(&seen);
    printf(", \"early\": %lld, \"earliest_ms\": %lld, \"seen_p50_ms\": %.1f, "
           "\"seen_p99_ms\": %.1f, ",
           (long long)early_count, (long long)earliest_ms, samples_ms(&seen, 0.5),
           samples_ms(&seen, 0.99));
    samples_print(&placed);
    printf("}\n");
    fflush(stdout);
    /* Closing waits for the coordinator; nothing was joined, so there is nothing to leave. */
    _exit(0);
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"brokers", 1, 0, 'b'}, {"topic", 1, 0, 't'},       {"partitions", 1, 0, 'P'},
        {"size", 1, 0, 's'},    {"count", 1, 0, 'n'},       {"due-from-ms", 1, 0, 'f'},
        {"due-until-ms", 1, 0, 'u'}, {"seconds-max", 1, 0, 'm'}, {0, 0, 0, 0}};
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'b': options.brokers = optarg; break;
        case 't': options.topic = optarg; break;
        case 'P': options.partitions = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'f': options.due_from_ms = atoll(optarg); break;
        case 'u': options.due_until_ms = atoll(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        default: exit(2);
        }
    }
    if (options.brokers == NULL || options.topic == NULL || options.partitions < 1 ||
        options.partitions > PARTITIONS_MAX || options.count < 1 ||
        options.size <= DUE_DIGITS + 1 + NUMBER_DIGITS)
        fail("options", "--brokers, --topic, or a number out of range");
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    die_with_parent();
    if (argc > 1)
        read_options(argc - 1, argv + 1);
    if (strcmp(mode, "schedule") == 0)
        run_schedule();
    else if (strcmp(mode, "watch") == 0)
        run_watch();
    else
        fail("usage", "rdkafka_schedules schedule|watch --brokers B --topic T ...");
    return 0;
}
