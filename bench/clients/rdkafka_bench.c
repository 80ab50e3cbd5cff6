/* Load by librdkafka in C: the fastest stock client, so that the broker and not Python is measured.
 *
 *   rdkafka_bench produce   count messages, every delivery report counted
 *   rdkafka_bench publish   one outstanding message at a time; latency of each
 *   rdkafka_bench consume   reads every partition up to `count` messages; offsets must be gapless
 *   rdkafka_bench endtoend  a paced producer and a consumer in one process; latency of each message
 *   rdkafka_bench version   which librdkafka this is
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went. Any
 * librdkafka property can be given with -X name=value.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { PARTITIONS_MAX = 10000, FETCHED_AT_ONCE = 10000, ERROR_BYTES = 512 };
enum { PACE_NS_MIN = 200000 }; /* closer ticks would only measure the timer */

typedef struct {
    const char *brokers, *topic, *linger_ms, *acks;
    int partitions, size;
    int block; /* messages to one partition before the next; 0 leaves it to librdkafka */
    int64_t count, warmup;
    double seconds_max, rate;
} options_t;

static options_t options = {.partitions = 6, .size = 1000, .count = 100000, .seconds_max = 60,
                            .rate = 1000, .acks = "1"};
static const char *overrides[64][2];
static int override_count;
static int64_t acked, failed;
static char first_error[ERROR_BYTES];
static int64_t deadline_ns;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "rdkafka_bench: %s: %s\n", what, why);
    exit(1);
}

static void note_failure(const char *why) {
    failed++;
    if (first_error[0] == 0)
        snprintf(first_error, sizeof first_error, "%s", why);
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
    for (int i = 0; i < override_count; i++)
        set(conf, overrides[i][0], overrides[i][1]);
    rd_kafka_t *client = rd_kafka_new(type, conf, why, sizeof why);
    if (client == NULL)
        fail("client", why);
    return client;
}

static rd_kafka_t *open_producer(const char *linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", options.acks);
    set(conf, "linger.ms", options.linger_ms ? options.linger_ms : linger_ms);
    set(conf, "queue.buffering.max.messages", "500000");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return open_client(RD_KAFKA_PRODUCER, conf);
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *client) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    if (topic == NULL)
        fail("topic", rd_kafka_err2str(rd_kafka_last_error()));
    return topic;
}

static char *make_payload(void) {
    char *payload = malloc((size_t)options.size);
    if (payload == NULL)
        fail("payload", "no memory");
    memset(payload, 'x', (size_t)options.size);
    return payload;
}

/* Queues one message, waiting for room; false when it was refused or time is up. */
static bool queue_message(rd_kafka_t *client, rd_kafka_topic_t *topic, int partition, int flags,
                          char *payload) {
    while (rd_kafka_produce(topic, partition, flags, payload, (size_t)options.size, NULL, 0,
                            NULL) == -1) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            note_failure(rd_kafka_err2str(rd_kafka_last_error()));
            return false;
        }
        if (now_ns() > deadline_ns)
            return false;
        rd_kafka_poll(client, 5);
    }
    return true;
}

/* One message to each partition (up to 64), so that connections and metadata are not timed. */
static int64_t warm_up(rd_kafka_t *client, rd_kafka_topic_t *topic, char *payload) {
    int partitions = options.partitions < 64 ? options.partitions : 64;
    for (int p = 0; p < partitions; p++)
        queue_message(client, topic, p, 0, payload);
    if (rd_kafka_flush(client, 30000) != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("warm-up", "not acknowledged within 30 s");
    return partitions;
}

static void print_outcome(double seconds, int64_t timed, int64_t missing, double cpu) {
    printf("{\"acked\": %lld, \"failed\": %lld, \"missing\": %lld, \"first_error\": \"%s\", "
           "\"seconds\": %.6f, \"timed\": %lld, \"messages_per_s\": %.1f, \"cpu_seconds\": %.4f",
           (long long)acked, (long long)failed, (long long)missing, first_error, seconds,
           (long long)timed, seconds > 0 ? (double)timed / seconds : 0.0, cpu);
}

static void run_produce(void) {
    rd_kafka_t *client = open_producer("5");
    rd_kafka_topic_t *topic = open_topic(client);
    char *payload = make_payload();
    int64_t warm = warm_up(client, topic, payload);
    int64_t queued = 0, begin = now_ns();
    double cpu = cpu_seconds();
    for (; queued < options.count; queued++) {
        int partition = RD_KAFKA_PARTITION_UA;
        if (options.block > 0)
            partition = (int)(queued / options.block % options.partitions);
        if (!queue_message(client, topic, partition, 0, payload))
            break;
        if ((queued & 255) == 0)
            rd_kafka_poll(client, 0);
    }
    rd_kafka_flush(client, (int)(options.seconds_max * 1000));
    double seconds = (double)(now_ns() - begin) / 1e9;
    cpu = cpu_seconds() - cpu;
    int64_t missing = options.count + warm - acked - failed;
    print_outcome(seconds, acked - warm, missing, cpu);
    printf("}\n");
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
}

static void run_publish(void) {
    rd_kafka_t *client = open_producer("0");
    rd_kafka_topic_t *topic = open_topic(client);
    char *payload = make_payload();
    samples_t latency = {0};
    int64_t warm = warm_up(client, topic, payload), timed_begin = now_ns();
    int64_t total = options.count + options.warmup, sent = 0;
    double cpu = cpu_seconds();
    for (; sent < total && failed == 0 && now_ns() < deadline_ns; sent++) {
        if (sent == options.warmup)
            timed_begin = now_ns();
        int64_t begin = now_ns(), before = acked;
        if (!queue_message(client, topic, (int)(sent % options.partitions), 0, payload))
            break;
        while (acked == before && failed == 0 && now_ns() < deadline_ns)
            rd_kafka_poll(client, 100);
        if (sent >= options.warmup)
            samples_add(&latency, now_ns() - begin);
    }
    double seconds = (double)(now_ns() - timed_begin) / 1e9;
    print_outcome(seconds, (int64_t)latency.count, total + warm - acked - failed,
                  cpu_seconds() - cpu);
    printf(", ");
    samples_print(&latency);
    printf("}\n");
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
}

/* ---- consuming ------------------------------------------------------------------------- */

static int64_t next_offset[PARTITIONS_MAX];

static rd_kafka_t *open_consumer(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "bench");
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.auto.offset.store", "false");
    set(conf, "auto.offset.reset", "error");
    /* Below these marks librdkafka stops fetching for a second at a time, and the run would
     * measure that pause. */
    set(conf, "queued.min.messages", "5000000");
    set(conf, "queued.max.messages.kbytes", "2097151");
    rd_kafka_t *client = open_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(client);
    return client;
}

/* Reads by assignment and from the first offset: no group is joined. */
static void assign_all(rd_kafka_t *client) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(options.partitions);
    for (int p = 0; p < options.partitions; p++)
        rd_kafka_topic_partition_list_add(list, options.topic, p)->offset = next_offset[p];
    rd_kafka_resp_err_t error = rd_kafka_assign(client, list);
    if (error)
        fail("assign", rd_kafka_err2str(error));
    rd_kafka_topic_partition_list_destroy(list);
}

/* Counts a message if it is the next one of its partition. */
static bool check_message(const rd_kafka_message_t *message) {
    if (message->err) {
        note_failure(rd_kafka_message_errstr(message));
        return false;
    }
    int partition = message->partition;
    if (partition < 0 || partition >= options.partitions ||
        message->offset != next_offset[partition] || message->len != (size_t)options.size) {
        note_failure("a message is out of order or of the wrong size");
        return false;
    }
    next_offset[partition]++;
    return true;
}

static void run_consume(void) {
    rd_kafka_t *client = open_consumer();
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t **messages = calloc(FETCHED_AT_ONCE, sizeof *messages);
    int64_t received = 0, first_count = 0, first_ns = 0, assigned_ns = now_ns();
    double cpu = cpu_seconds();
    assign_all(client);
    while (received < options.count && failed == 0 && now_ns() < deadline_ns) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 20, messages, FETCHED_AT_ONCE);
        for (ssize_t i = 0; i < got; i++) {
            received += check_message(messages[i]);
            rd_kafka_message_destroy(messages[i]);
        }
        if (first_ns == 0 && got > 0) {
            first_ns = now_ns();
            first_count = received;
            cpu = cpu_seconds();
        }
    }
    int64_t end = now_ns();
    acked = received;
    print_outcome((double)(end - first_ns) / 1e9, received - first_count,
                  options.count - received, cpu_seconds() - cpu);
    printf(", \"first_message_ms\": %.3f}\n", (double)(first_ns - assigned_ns) / 1e6);
    fflush(stdout);
    /* Closing waits for the coordinator; nothing was joined, so there is nothing to leave. */
    _exit(0);
}

/* ---- end to end ------------------------------------------------------------------------ */

static void *run_paced_producer(void *argument) {
    rd_kafka_t *client = argument;
    rd_kafka_topic_t *topic = open_topic(client);
    char *payload = make_payload();
    int64_t total = options.count + options.warmup;
    double gap_ns = 1e9 / options.rate;
    int64_t tick_ns = gap_ns > PACE_NS_MIN ? (int64_t)gap_ns : PACE_NS_MIN;
    int64_t begin = now_ns() + 1000000, sent = 0;
    prctl(PR_SET_TIMERSLACK, 1);
    for (int64_t tick = 0; sent < total && now_ns() < deadline_ns; tick++) {
        int64_t due = begin + tick * tick_ns;
        struct timespec until = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        /* The time a message was due is what it carries: a producer that is held up must not
         * hide the delay by sending later. */
        for (; sent < total && (double)sent * gap_ns <= (double)(tick * tick_ns); sent++) {
            memcpy(payload, &due, sizeof due);
            queue_message(client, topic, (int)(sent % options.partitions), RD_KAFKA_MSG_F_COPY,
                          payload);
        }
        rd_kafka_poll(client, 0);
    }
    rd_kafka_flush(client, 10000);
    rd_kafka_topic_destroy(topic);
    return NULL;
}

static void run_end_to_end(void) {
    rd_kafka_t *producer = open_producer("0");
    rd_kafka_t *consumer = open_consumer();
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
    rd_kafka_message_t **messages = calloc(FETCHED_AT_ONCE, sizeof *messages);
    samples_t latency = {0};
    rd_kafka_topic_t *topic = open_topic(producer);
    char *payload = make_payload();
    int64_t zero = 0, received = 0;
    memcpy(payload, &zero, sizeof zero);
    assign_all(consumer);
    int64_t total = warm_up(producer, topic, payload) + options.warmup + options.count;
    pthread_t thread;
    bool is_sending = false;
    double cpu = cpu_seconds();
    while (received < total && failed == 0 && now_ns() < deadline_ns) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 100, messages, 1);
        int64_t now = now_ns(), due;
        for (ssize_t i = 0; i < got; i++) {
            if (check_message(messages[i])) {
                memcpy(&due, messages[i]->payload, sizeof due);
                if (++received > total - options.count)
                    samples_add(&latency, now - due);
            }
            rd_kafka_message_destroy(messages[i]);
        }
        /* The pace begins when the first message has made the whole way. */
        if (!is_sending && received > 0) {
            is_sending = true;
            if (pthread_create(&thread, NULL, run_paced_producer, producer) != 0)
                fail("thread", "not started");
        }
    }
    if (is_sending)
        pthread_join(thread, NULL);
    print_outcome((double)options.count / options.rate, received, total - received,
                  cpu_seconds() - cpu);
    printf(", ");
    samples_print(&latency);
    printf("}\n");
    fflush(stdout);
    _exit(0);
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"brokers", 1, 0, 'b'}, {"topic", 1, 0, 't'},  {"partitions", 1, 0, 'P'},
        {"size", 1, 0, 's'},    {"count", 1, 0, 'n'},  {"warmup", 1, 0, 'w'},
        {"rate", 1, 0, 'r'},    {"from", 1, 0, 'f'},   {"seconds-max", 1, 0, 'm'},
        {"block", 1, 0, 'B'},   {"linger", 1, 0, 'l'}, {"acks", 1, 0, 'a'},
        {0, 0, 0, 0}};
    int name, partition = 0;
    while ((name = getopt_long(argc, argv, "X:", names, NULL)) != -1) {
        switch (name) {
        case 'b': options.brokers = optarg; break;
        case 't': options.topic = optarg; break;
        case 'P': options.partitions = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'w': options.warmup = atoll(optarg); break;
        case 'r': options.rate = atof(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        case 'B': options.block = atoi(optarg); break;
        case 'l': options.linger_ms = optarg; break;
        case 'a': options.acks = optarg; break;
        case 'f': /* first offset by partition, comma separated */
            for (char *at = strtok(optarg, ","); at != NULL && partition < PARTITIONS_MAX;
                 at = strtok(NULL, ","))
                next_offset[partition++] = atoll(at);
            break;
        case 'X': {
            char *value = strchr(optarg, '=');
            if (value == NULL || override_count == 64)
                fail("-X", "wants name=value");
            *value = 0;
            overrides[override_count][0] = optarg;
            overrides[override_count++][1] = value + 1;
            break;
        }
        default: exit(2);
        }
    }
    if (options.brokers == NULL || options.topic == NULL || options.partitions < 1 ||
        options.partitions > PARTITIONS_MAX || options.size < 8 || options.rate <= 0)
        fail("options", "--brokers, --topic, or a number out of range");
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    die_with_parent();
    if (strcmp(mode, "version") == 0) {
        printf("{\"librdkafka\": \"%s\"}\n", rd_kafka_version_str());
        return 0;
    }
    if (argc > 1)
        read_options(argc - 1, argv + 1);
    deadline_ns = now_ns() + (int64_t)(options.seconds_max * 1e9);
    if (strcmp(mode, "produce") == 0)
        run_produce();
    else if (strcmp(mode, "publish") == 0)
        run_publish();
    else if (strcmp(mode, "consume") == 0)
        run_consume();
    else if (strcmp(mode, "endtoend") == 0)
        run_end_to_end();
    else
        fail("usage", "rdkafka_bench produce|publish|consume|endtoend --brokers B --topic T ...");
    return 0;
}
