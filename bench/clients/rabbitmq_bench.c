/* The client of the RabbitMQ peer: librabbitmq, which speaks AMQP 0-9-1, on a durable queue of
 * --kind quorum or stream. The stream protocol of RabbitMQ has no client in C.
 *
 *   rabbitmq_bench create    declares the queue
 *   rabbitmq_bench publish   declares it, and publishes persistent messages over --connections with
 *                            --depth unconfirmed on each; every one must be confirmed
 *   rabbitmq_bench consume   consumes with manual acks, one for every --batch, by --consumers with
 *                            a connection each; each message must come once, and the queue be empty
 *                            afterwards
 *   rabbitmq_bench read      reads a stream from its first message on, in order
 *   rabbitmq_bench endtoend  a paced publisher and a consumer; latency of each message
 *   rabbitmq_bench delay     publishes to a queue whose messages live for --delay-ms and then go to
 *                            a second queue, from which a consumer takes them
 *   rabbitmq_bench remove    deletes the queue
 */
#define _GNU_SOURCE
#include "rabbitmq.h"

#include <pthread.h>

enum { IDLE_MS = 50, STORED_WAIT_MS = 5000, MESSAGE_OVERHEAD_BYTES = 64 };

/* As the server sets it where nobody else does. */
static const int64_t STREAM_FILE_BYTES = 500000000;

static pthread_barrier_t barrier;

/* ---- publish ---------------------------------------------------------------------------- */

static void open_lane(lane_t *lane) {
    publisher_t *publisher = open_publisher(options.queue);
    lane_open(lane, amqp_get_sockfd(publisher->connection), publisher);
}

static void put_message(lane_t *lane, char *payload) { publish(lane->self, payload); }

static bool flush_lane(lane_t *lane) {
    (void)lane; /* a publish has been written when it returns */
    return false;
}

static int64_t take_confirms(lane_t *lane) { return read_confirms(lane->self); }

/* The count of a queue follows its confirms, so it is given a while to arrive there. */
static int64_t count_queue(amqp_connection_state_t connection) {
    int64_t held = 0, until_ns = now_ns() + STORED_WAIT_MS * 1000000LL;
    struct timespec pause = {.tv_nsec = 10000000};
    while ((held = count_ready(connection, options.queue)) != lane_acked && now_ns() < until_ns)
        nanosleep(&pause, NULL);
    return held;
}

/* A stream counts itself only every few seconds, but its last messages say where they stand. A note
 * with which each further file of a stream begins takes a place too, and is no message. */
static int64_t count_stream(amqp_connection_state_t connection) {
    int64_t held = 0;
    amqp_envelope_t envelope;
    set_prefetch(connection);
    subscribe(connection, options.queue, "last");
    while (true) {
        struct timeval wait = {.tv_usec = IDLE_MS * 1000};
        amqp_maybe_release_buffers(connection);
        if (amqp_consume_message(connection, &envelope, &wait, 0).reply_type !=
            AMQP_RESPONSE_NORMAL)
            break;
        held = offset_of(&envelope) + 1;
        if (amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 0) != AMQP_STATUS_OK)
            fail("ack");
        amqp_destroy_envelope(&envelope);
    }
    int64_t notes = held - lane_acked;
    int64_t notes_max = lane_acked * (options.size + MESSAGE_OVERHEAD_BYTES) / STREAM_FILE_BYTES;
    return notes > 0 && notes <= notes_max ? lane_acked : held;
}

static int64_t stored(void) {
    amqp_connection_state_t connection = open_connection();
    return strcmp(options.kind, "stream") == 0 ? count_stream(connection) : count_queue(connection);
}

/* ---- consume ---------------------------------------------------------------------------- */

static void acknowledge(amqp_connection_state_t connection, uint64_t tag, int *unacked) {
    if (*unacked && amqp_basic_ack(connection, CHANNEL, tag, 1) != AMQP_STATUS_OK)
        fail("ack");
    *unacked = 0;
}

/* Takes messages, with an ack for every --batch and when none comes, until all are there. */
static void take_all(amqp_connection_state_t connection, void (*take)(const char *, size_t)) {
    int unacked = 0;
    uint64_t tag = 0;
    while (received < options.count && !is_over()) {
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
        take(envelope.message.body.bytes, envelope.message.body.len);
        tag = envelope.delivery_tag;
        amqp_destroy_envelope(&envelope);
        if (++unacked >= options.batch)
            acknowledge(connection, tag, &unacked);
    }
    acknowledge(connection, tag, &unacked);
}

static void *run_consumer(void *argument) {
    amqp_connection_state_t connection = open_connection();
    (void)argument;
    set_prefetch(connection);
    pthread_barrier_wait(&barrier);
    subscribe(connection, options.queue, NULL);
    take_all(connection, take_once);
    /* A call on the same channel is answered after the acks before it were taken in. */
    set_prefetch(connection);
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
    int64_t begin_ns = now_ns();
    double cpu = cpu_seconds();
    pthread_barrier_wait(&barrier);
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    cpu = cpu_seconds() - cpu;
    for (int i = 0; i < options.consumers; i++)
        pthread_join(threads[i], NULL);
    if (count_ready(open_connection(), options.queue) != 0)
        note_failure("messages came back after their acks");
    print_outcome(seconds, received, received, options.count - received, cpu, NULL);
}

/* ---- read, end to end and delay ----------------------------------------------------------- */

static int64_t first_ns, first_count;
static double first_cpu;

/* What a reader waits for the first message is not reading. */
static void take_read(const char *body, size_t length) {
    take_next(body, length);
    if (first_ns == 0) {
        first_ns = now_ns();
        first_count = received;
        first_cpu = cpu_seconds();
    }
}

static void run_read(void) {
    amqp_connection_state_t connection = open_connection();
    set_prefetch(connection);
    subscribe(connection, options.queue, "first");
    take_all(connection, take_read);
    print_outcome((double)(now_ns() - first_ns) / 1e9, received, received - first_count,
                  options.count - received, cpu_seconds() - first_cpu, NULL);
}

static void send_paced(const char *payload, void *self) { publish(self, payload); }

static void after_tick(void *self) {
    publisher_t *publisher = self;
    publisher->confirmed_total += read_confirms(publisher);
}

static void *run_sender(void *self) {
    run_pace(send_paced, after_tick, self);
    return NULL;
}

static void wait_for_confirms(publisher_t *publisher) {
    struct timespec pause = {.tv_nsec = 1000000};
    while (publisher->confirmed_total < options.count && !is_over()) {
        after_tick(publisher);
        nanosleep(&pause, NULL);
    }
}

static void run_end_to_end(void) {
    bool is_stream = strcmp(options.kind, "stream") == 0;
    pthread_t thread;
    publisher_t *publisher = open_publisher(options.queue);
    amqp_connection_state_t connection = open_connection();
    set_prefetch(connection);
    subscribe(connection, options.queue, is_stream ? "first" : NULL);
    double cpu = cpu_seconds();
    if (pthread_create(&thread, NULL, run_sender, publisher) != 0)
        fail("thread");
    take_all(connection, take_paced);
    pthread_join(thread, NULL);
    wait_for_confirms(publisher);
    print_pace(cpu_seconds() - cpu, publisher->confirmed_total);
}

static samples_t delay_error;
static int64_t delay_early;

/* A message says when it was handed over; it is due --delay-ms later. */
static void take_delayed(const char *body, size_t length) {
    int64_t sent_ns, now = now_ns();
    take_once(body, length);
    memcpy(&sent_ns, body + DUE_AT, DUE_BYTES);
    int64_t error_ns = now - sent_ns - options.delay_ms * 1000000;
    delay_early += error_ns < -1000000; /* the server counts whole milliseconds */
    samples_add(&delay_error, error_ns);
}

static void *run_delayed_consumer(void *argument) {
    set_prefetch(argument);
    subscribe(argument, DEAD_LETTERS, NULL);
    take_all(argument, take_delayed);
    return NULL;
}

static void run_delay(void) {
    publisher_t *publisher = open_delaying_publisher();
    amqp_connection_state_t connection = open_connection();
    char *payload = make_payload();
    pthread_t thread;
    numbers = calloc((size_t)options.count, sizeof *numbers);
    if (pthread_create(&thread, NULL, run_delayed_consumer, connection) != 0)
        fail("thread");
    int64_t begin_ns = now_ns();
    double cpu = cpu_seconds();
    for (int64_t sent = 0; sent < options.count && !is_over(); sent++) {
        int64_t now = now_ns();
        put_number(payload, sent);
        memcpy(payload + DUE_AT, &now, DUE_BYTES);
        publish(publisher, payload);
        while (sent + 1 - publisher->confirmed_total >= options.depth && !is_over())
            publisher->confirmed_total += wait_for_confirm(publisher);
    }
    wait_for_confirms(publisher);
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    pthread_join(thread, NULL);
    if (delay_early > 0)
        note_failure("messages came early");
    print_outcome(seconds, publisher->confirmed_total, received, options.count - received,
                  cpu_seconds() - cpu, &delay_error);
    delete_queue(DEAD_LETTERS);
}

int main(int argc, char **argv) {
    static const lane_calls_t calls = {put_message, flush_lane, take_confirms};
    const char *mode = begin(argc, argv, "rabbitmq_bench");
    bool is_short = strcmp(mode, "create") == 0 || strcmp(mode, "remove") == 0;
    if (strcmp(mode, "create") == 0 || strcmp(mode, "publish") == 0 ||
        strcmp(mode, "endtoend") == 0)
        declare_queue(open_connection(), options.queue, 0);
    if (strcmp(mode, "remove") == 0)
        delete_queue(options.queue);
    if (is_short)
        print_outcome(0, 0, 0, 0, 0, NULL);
    else if (strcmp(mode, "publish") == 0)
        run_publish(open_lane, &calls, stored);
    else if (strcmp(mode, "consume") == 0)
        run_consume();
    else if (strcmp(mode, "read") == 0)
        run_read();
    else if (strcmp(mode, "endtoend") == 0)
        run_end_to_end();
    else if (strcmp(mode, "delay") == 0)
        run_delay();
    else
        fail("create, publish, consume, read, endtoend, delay or remove");
    fflush(stdout);
    _exit(0); /* open connections end with the program */
}
