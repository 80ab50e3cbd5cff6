/* The client of the RabbitMQ peer: librabbitmq, a connection and a thread for each consumer.
 *
 *   rabbitmq_bench fill    --queue Q --count N --size B   declares a durable quorum queue and
 *                                                         publishes persistent messages, each of
 *                                                         which must be confirmed
 *   rabbitmq_bench consume --queue Q --count N ...        consumes them with manual acks, one ack
 *                                                         for every --batch; each message must
 *                                                         come once. The queue must be empty
 *                                                         afterwards, and is deleted.
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>

enum { CONSUMERS_MAX = 64, NUMBER_DIGITS = 10, UNCONFIRMED_MAX = 1000, ERROR_BYTES = 200 };
enum { CHANNEL = 1, IDLE_MS = 50 };

static struct {
    const char *host;
    int port;
    const char *queue;
    int size, consumers, batch, prefetch;
    int64_t count;
    double seconds_max;
} options = {.host = "127.0.0.1", .size = 1000, .consumers = 8, .batch = 100, .prefetch = 200,
             .count = 10000, .seconds_max = 60};
static atomic_llong received, failed;
static char first_error[ERROR_BYTES];
static atomic_uchar *numbers;
static int64_t deadline_ns;
static pthread_barrier_t barrier;

static void fail(const char *what) {
    fprintf(stderr, "rabbitmq_bench: %s\n", what);
    exit(1);
}

static void note_failure(const char *why) {
    if (atomic_fetch_add(&failed, 1) == 0)
        snprintf(first_error, sizeof first_error, "%s", why);
}

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "rabbitmq_bench: %s: %s\n", what,
                reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                    ? amqp_error_string2(reply.library_error)
                    : "refused by the server");
        exit(1);
    }
}

static amqp_connection_state_t open_connection(void) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (socket == NULL || amqp_socket_open(socket, options.host, options.port) != AMQP_STATUS_OK)
        fail("connect");
    check(amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"),
          "login");
    amqp_channel_open(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "channel");
    return connection;
}

static void close_connection(amqp_connection_state_t connection) {
    check(amqp_channel_close(connection, CHANNEL, AMQP_REPLY_SUCCESS), "close the channel");
    check(amqp_connection_close(connection, AMQP_REPLY_SUCCESS), "close");
    amqp_destroy_connection(connection);
}

/* Declares the queue, or only asks how many messages are ready in it. */
static int64_t declare_queue(amqp_connection_state_t connection, bool is_passive) {
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x-queue-type"),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                          .value.bytes = amqp_cstring_bytes("quorum")}};
    amqp_table_t arguments = {.num_entries = 1, .entries = &entry};
    amqp_queue_declare_ok_t *answer =
        amqp_queue_declare(connection, CHANNEL, amqp_cstring_bytes(options.queue), is_passive, 1, 0,
                           0, is_passive ? amqp_empty_table : arguments);
    check(amqp_get_rpc_reply(connection), "declare");
    return answer->message_count;
}

static void print_outcome(double seconds, int64_t acked, double cpu) {
    printf("{\"seconds\": %.6f, \"acked\": %lld, \"failed\": %lld, \"missing\": %lld, "
           "\"first_error\": \"%s\", \"cpu_seconds\": %.4f}\n",
           seconds, (long long)acked, (long long)failed, (long long)(options.count - acked),
           first_error, cpu);
}

/* ---- fill ------------------------------------------------------------------------------ */

/* Reads one confirmation and returns how many messages it confirms. */
static int64_t read_confirm(amqp_connection_state_t connection, int64_t confirmed) {
    amqp_frame_t frame;
    if (amqp_simple_wait_frame(connection, &frame) != AMQP_STATUS_OK)
        fail("the connection broke while messages were to be confirmed");
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        fail("a message was not confirmed");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    return ack->multiple ? (int64_t)ack->delivery_tag - confirmed : 1;
}

static void run_fill(void) {
    amqp_connection_state_t connection = open_connection();
    declare_queue(connection, false);
    amqp_confirm_select(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "confirms");
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = AMQP_DELIVERY_PERSISTENT};
    char *value = malloc((size_t)options.size + 1);
    memset(value, 'x', (size_t)options.size);
    int64_t sent = 0, confirmed = 0, begin = now_ns();
    double cpu = cpu_seconds();
    while (confirmed < options.count && now_ns() < deadline_ns) {
        for (; sent < options.count && sent - confirmed < UNCONFIRMED_MAX; sent++) {
            snprintf(value, (size_t)options.size, "%0*lld", NUMBER_DIGITS, (long long)sent);
            value[NUMBER_DIGITS] = 'x';
            amqp_bytes_t body = {.len = (size_t)options.size, .bytes = value};
            if (amqp_basic_publish(connection, CHANNEL, amqp_empty_bytes,
                                   amqp_cstring_bytes(options.queue), 0, 0, &properties,
                                   body) != AMQP_STATUS_OK)
                fail("publish");
        }
        confirmed += read_confirm(connection, confirmed);
        amqp_maybe_release_buffers(connection);
    }
    print_outcome((double)(now_ns() - begin) / 1e9, confirmed, cpu_seconds() - cpu);
    close_connection(connection);
}

/* ---- consume --------------------------------------------------------------------------- */

static void take(const amqp_envelope_t *envelope) {
    const amqp_bytes_t *body = &envelope->message.body;
    char number[NUMBER_DIGITS + 1] = {0};
    if (body->len != (size_t)options.size)
        return note_failure("a message has the wrong size");
    memcpy(number, body->bytes, NUMBER_DIGITS);
    int64_t index = atoll(number);
    if (index < 0 || index >= options.count || atomic_fetch_add(&numbers[index], 1) != 0)
        return note_failure("a message came twice, or was never sent");
    atomic_fetch_add(&received, 1);
}

static void acknowledge(amqp_connection_state_t connection, uint64_t tag, int *unacked) {
    if (*unacked && amqp_basic_ack(connection, CHANNEL, tag, 1) != AMQP_STATUS_OK)
        fail("ack");
    *unacked = 0;
}

static void *run_consumer(void *argument) {
    amqp_connection_state_t connection = open_connection();
    (void)argument;
    amqp_basic_qos(connection, CHANNEL, 0, (uint16_t)options.prefetch, 0);
    check(amqp_get_rpc_reply(connection), "prefetch");
    pthread_barrier_wait(&barrier);
    amqp_basic_consume(connection, CHANNEL, amqp_cstring_bytes(options.queue), amqp_empty_bytes, 0,
                       0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(connection), "consume");
    int unacked = 0;
    uint64_t tag = 0;
    while (received < options.count && failed == 0 && now_ns() < deadline_ns) {
        struct timeval wait = {.tv_usec = IDLE_MS * 1000};
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(connection);
        amqp_rpc_reply_t reply = amqp_consume_message(connection, &envelope, &wait, 0);
        if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
            reply.library_error == AMQP_STATUS_TIMEOUT) {
            acknowledge(connection, tag, &unacked);
            continue;
        }
        check(reply, "receive");
        take(&envelope);
        tag = envelope.delivery_tag;
        amqp_destroy_envelope(&envelope);
        if (++unacked >= options.batch)
            acknowledge(connection, tag, &unacked);
    }
    acknowledge(connection, tag, &unacked);
    /* A call on the same channel is answered after the acks before it were taken in. */
    amqp_basic_qos(connection, CHANNEL, 0, (uint16_t)options.prefetch, 0);
    check(amqp_get_rpc_reply(connection), "last call");
    pthread_barrier_wait(&barrier);
    close_connection(connection);
    return NULL;
}

static void run_consume(void) {
    pthread_t threads[CONSUMERS_MAX];
    numbers = calloc((size_t)options.count, sizeof *numbers);
    pthread_barrier_init(&barrier, NULL, (unsigned)options.consumers + 1);
    for (int i = 0; i < options.consumers; i++)
        if (pthread_create(&threads[i], NULL, run_consumer, NULL) != 0)
            fail("thread");
    pthread_barrier_wait(&barrier);
    int64_t begin = now_ns();
    double cpu = cpu_seconds();
    pthread_barrier_wait(&barrier);
    double seconds = (double)(now_ns() - begin) / 1e9;
    cpu = cpu_seconds() - cpu;
    for (int i = 0; i < options.consumers; i++)
        pthread_join(threads[i], NULL);
    amqp_connection_state_t connection = open_connection();
    if (declare_queue(connection, true) != 0)
        note_failure("messages came back after their acks");
    amqp_queue_delete(connection, CHANNEL, amqp_cstring_bytes(options.queue), 0, 0);
    check(amqp_get_rpc_reply(connection), "delete");
    print_outcome(seconds, received, cpu);
    close_connection(connection);
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},  {"port", 1, 0, 'p'},      {"queue", 1, 0, 'q'},
        {"size", 1, 0, 's'},  {"consumers", 1, 0, 'c'}, {"batch", 1, 0, 'b'},
        {"count", 1, 0, 'n'}, {"prefetch", 1, 0, 'f'},  {"seconds-max", 1, 0, 'm'},
        {0, 0, 0, 0}};
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 'q': options.queue = optarg; break;
        case 's': options.size = atoi(optarg); break;
        case 'c': options.consumers = atoi(optarg); break;
        case 'b': options.batch = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'f': options.prefetch = atoi(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        default: exit(2);
        }
    }
    if (options.queue == NULL || options.port == 0 || options.consumers < 1 ||
        options.consumers > CONSUMERS_MAX || options.size <= NUMBER_DIGITS || options.count < 1 ||
        options.batch < 1 || options.prefetch < options.batch || options.prefetch > 65535)
        fail("--queue, --port, or a number out of range");
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    die_with_parent();
    if (argc > 1)
        read_options(argc - 1, argv + 1);
    deadline_ns = now_ns() + (int64_t)(options.seconds_max * 1e9);
    if (strcmp(mode, "fill") == 0)
        run_fill();
    else if (strcmp(mode, "consume") == 0)
        run_consume();
    else
        fail("usage: rabbitmq_bench fill|consume --port P --queue Q ...");
    return 0;
}
