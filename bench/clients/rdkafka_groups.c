/* A consumer group of many members, each a stock librdkafka consumer, fed by one producer.
 *
 *   rdkafka_groups group --brokers B --topic T --partitions N --members M --count C
 *
 * All members join first; that is timed by itself. Then the producer sends `count` messages to all
 * partitions in turn, and the run ends when the members have had them all. Members commit as they
 * do by default. The processor time of the server is read here, because only this program knows
 * when joining ends and delivering begins. Prints one JSON object; "failed" says how it went.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { MEMBERS_MAX = 256, PARTITIONS_MAX = 10000, AT_ONCE = 1000, ERROR_BYTES = 512 };

static struct {
    const char *brokers, *topic, *group;
    int partitions, members, size, block;
    int64_t count;
    double seconds_max;
    pid_t server;
} options = {.group = "bench", .partitions = 64, .members = 1, .size = 100, .block = 100,
             .count = 100000, .seconds_max = 60};

static rd_kafka_t *members[MEMBERS_MAX];
static int64_t next_offset[PARTITIONS_MAX], received, sent_failed, failed, deadline_ns;
static char first_error[ERROR_BYTES];

static void fail(const char *what, const char *why) {
    fprintf(stderr, "rdkafka_groups: %s: %s\n", what, why);
    exit(1);
}

static void note_failure(const char *why) {
    failed++;
    if (first_error[0] == 0)
        snprintf(first_error, sizeof first_error, "%s", why);
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

static double server_cpu_seconds(void) {
    clockid_t clock;
    struct timespec spent;
    if (options.server == 0 || clock_getcpuclockid(options.server, &clock) != 0 ||
        clock_gettime(clock, &spent) != 0)
        return 0;
    return (double)spent.tv_sec + (double)spent.tv_nsec / 1e9;
}

/* ---- members --------------------------------------------------------------------------- */

static void open_members(rd_kafka_queue_t **all) {
    for (int i = 0; i < options.members; i++) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "group.id", options.group);
        set(conf, "auto.offset.reset", "earliest");
        /* The members of one run are gone before the next run needs the machine. */
        set(conf, "session.timeout.ms", "6000");
        members[i] = open_client(RD_KAFKA_CONSUMER, conf);
        if (*all == NULL)
            *all = rd_kafka_queue_new(members[0]);
        rd_kafka_poll_set_consumer(members[i]);
        rd_kafka_queue_t *own = rd_kafka_queue_get_consumer(members[i]);
        rd_kafka_queue_forward(own, *all);
        rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(topics, options.topic, RD_KAFKA_PARTITION_UA);
        rd_kafka_resp_err_t error = rd_kafka_subscribe(members[i], topics);
        if (error)
            fail("subscribe", rd_kafka_err2str(error));
        rd_kafka_topic_partition_list_destroy(topics);
    }
}

static void take(const rd_kafka_message_t *message) {
    if (message->err) {
        /* A topic that was made just now may not be known to a member at first; it asks again. */
        if (message->err != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
            note_failure(rd_kafka_message_errstr(message));
        return;
    }
    int partition = message->partition;
    if (partition < 0 || partition >= options.partitions ||
        message->offset != next_offset[partition] || message->len != (size_t)options.size)
        return note_failure("a message is out of order, came twice or has the wrong size");
    next_offset[partition]++;
    received++;
}

static void poll_members(rd_kafka_queue_t *all, int wait_ms) {
    static rd_kafka_message_t *messages[AT_ONCE];
    ssize_t got = rd_kafka_consume_batch_queue(all, wait_ms, messages, AT_ONCE);
    for (ssize_t i = 0; i < got; i++) {
        take(messages[i]);
        rd_kafka_message_destroy(messages[i]);
    }
}

/* Whether all partitions are given out, and to all members if there are enough. */
static bool is_assembled(void) {
    int given = 0, idle = 0;
    for (int i = 0; i < options.members; i++) {
        rd_kafka_topic_partition_list_t *list = NULL;
        if (rd_kafka_assignment(members[i], &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
            return false;
        given += list->cnt;
        idle += list->cnt == 0;
        rd_kafka_topic_partition_list_destroy(list);
    }
    return given == options.partitions && (idle == 0 || options.members > options.partitions);
}

/* ---- the producer ---------------------------------------------------------------------- */

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err)
        __atomic_add_fetch(&sent_failed, 1, __ATOMIC_RELAXED);
}

static rd_kafka_t *open_producer(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", "1");
    set(conf, "queue.buffering.max.messages", "500000");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return open_client(RD_KAFKA_PRODUCER, conf);
}

static void send_one(rd_kafka_t *client, rd_kafka_topic_t *topic, int partition, char *payload) {
    while (rd_kafka_produce(topic, partition, 0, payload, (size_t)options.size, NULL, 0, NULL) ==
               -1 &&
           now_ns() < deadline_ns)
        rd_kafka_poll(client, 5);
}

typedef struct {
    rd_kafka_t *client;
    int64_t count;
    int block;
} batch_t;

static void *send_all(void *argument) {
    const batch_t *batch = argument;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(batch->client, options.topic, NULL);
    char *payload = malloc((size_t)options.size);
    if (topic == NULL || payload == NULL)
        fail("producer", "no topic or no memory");
    memset(payload, 'x', (size_t)options.size);
    for (int64_t i = 0; i < batch->count; i++) {
        send_one(batch->client, topic, (int)(i / batch->block % options.partitions), payload);
        if ((i & 255) == 0)
            rd_kafka_poll(batch->client, 0);
    }
    rd_kafka_flush(batch->client, 30000);
    rd_kafka_topic_destroy(topic);
    free(payload);
    return NULL;
}

static void deliver(rd_kafka_t *client, rd_kafka_queue_t *all, int64_t count, int block) {
    batch_t batch = {.client = client, .count = count, .block = block};
    int64_t wanted = received + count;
    pthread_t thread;
    if (pthread_create(&thread, NULL, send_all, &batch) != 0)
        fail("thread", "not started");
    while (received < wanted && failed == 0 && now_ns() < deadline_ns)
        poll_members(all, 20);
    pthread_join(thread, NULL);
}

/* ---- the run --------------------------------------------------------------------------- */

static void run(void) {
    rd_kafka_queue_t *all = NULL;
    rd_kafka_t *producer = open_producer();
    double server_begin = server_cpu_seconds();
    int64_t begin = now_ns();
    open_members(&all);
    while (!is_assembled() && failed == 0 && now_ns() < deadline_ns)
        poll_members(all, 10);
    double join = (double)(now_ns() - begin) / 1e9, server_joined = server_cpu_seconds();
    /* One message to each partition, so that every member has fetched once. */
    deliver(producer, all, options.partitions, 1);
    int64_t warm = received;
    begin = now_ns();
    double cpu = cpu_seconds(), server = server_cpu_seconds();
    deliver(producer, all, options.count, options.block);
    double seconds = (double)(now_ns() - begin) / 1e9;
    if (sent_failed)
        note_failure("messages were not acknowledged");
    int64_t timed = received - warm;
    printf("{\"acked\": %lld, \"failed\": %lld, \"missing\": %lld, \"first_error\": \"%s\", "
           "\"seconds\": %.6f, \"messages_per_s\": %.1f, \"cpu_seconds\": %.4f, "
           "\"server_cpu_seconds\": %.6f, \"join_seconds\": %.4f, "
           "\"join_server_cpu_seconds\": %.6f}\n",
           (long long)timed, (long long)failed, (long long)(options.count - timed), first_error,
           seconds, (double)timed / seconds, cpu_seconds() - cpu, server_cpu_seconds() - server,
           join, server_joined - server_begin);
    fflush(stdout);
    _exit(0); /* Leaving in order would be one rebalance for each member. */
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"brokers", 1, 0, 'b'}, {"topic", 1, 0, 't'},      {"partitions", 1, 0, 'P'},
        {"members", 1, 0, 'M'}, {"size", 1, 0, 's'},       {"count", 1, 0, 'n'},
        {"group", 1, 0, 'g'},   {"server-pid", 1, 0, 'p'}, {"seconds-max", 1, 0, 'm'},
        {0, 0, 0, 0}};
    int name;
    die_with_parent();
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'b': options.brokers = optarg; break;
        case 't': options.topic = optarg; break;
        case 'g': options.group = optarg; break;
        case 'P': options.partitions = atoi(optarg); break;
        case 'M': options.members = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'p': options.server = atoi(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        default: return 2;
        }
    }
    if (options.brokers == NULL || options.topic == NULL || options.members < 1 ||
        options.members > MEMBERS_MAX || options.partitions < 1 ||
        options.partitions > PARTITIONS_MAX || options.size < 1 || options.count < 1) {
        fprintf(stderr, "rdkafka_groups: --brokers, --topic, or a number out of range\n");
        return 2;
    }
    deadline_ns = now_ns() + (int64_t)(options.seconds_max * 1e9);
    run();
    return 0;
}
