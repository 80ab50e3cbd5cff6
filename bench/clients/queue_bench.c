/* Queue groups over HTTP: consumers, and the way from a publisher to them.
 *
 *   queue_bench consume  --max-messages N ... each connection is a consumer: receive, ack, again,
 *                                             until --count messages have come. Of every
 *                                             --hold-every messages one is not acknowledged; its
 *                                             receipt goes to the file --receipts. With
 *                                             --together acks are part of the next receive
 *   queue_bench settle   --receipts F ...     acknowledges --count of those, in random order
 *   queue_bench endtoend --rate R ...         a steady publisher and long-polling consumers
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
 */
#define _GNU_SOURCE
#include "http.h"

#include <getopt.h>
#include <sys/timerfd.h>

enum { CONNECTIONS_MAX = 1024, PARTITIONS_MAX = 10000, DUE_DIGITS = 19 };
enum { RECEIPT_BYTES_MAX = 128 };
enum { PUBLISHER, CONSUMER };

typedef struct {
    const char *host;
    int port;
    const char *topic, *group, *receipts;
    int connections, publishers;
    int size; /* bytes of one value */
    int max_messages, wait_ms, visibility_ms;
    int hold_every; /* of every so many messages one is not acknowledged; 1 holds all */
    bool is_together; /* acks are a part of the next receive */
    int64_t count, warmup;
    double rate, seconds_max;
} options_t;

static options_t options = {.host = "127.0.0.1", .group = "bench", .connections = 8,
                            .publishers = 64, .size = 1000, .max_messages = 100,
                            .wait_ms = 1000, .visibility_ms = 600000, .count = 10000,
                            .rate = 1000, .seconds_max = 60};
static http_connection_t connections[CONNECTIONS_MAX];
static samples_t latency, ack_latency;
static int64_t begin_ns;

/* ---- receive and ack ------------------------------------------------------------------- */

static int64_t received, acked, received_at_begin, due_min_ns;
static buffer_t seen[PARTITIONS_MAX]; /* one byte per offset */
static char receive_path[512], ack_path[512];
static FILE *receipts_file;

static void build_paths(void) {
    snprintf(receive_path, sizeof receive_path, "/v1/groups/%s/receive", options.group);
    snprintf(ack_path, sizeof ack_path, "/v1/groups/%s/ack", options.group);
}

/* With `acks`, a list of receipts, the messages received before are acknowledged too. */
static void start_receive(http_connection_t *connection, const buffer_t *acks) {
    static buffer_t body;
    char text[1024];
    snprintf(text, sizeof text,
             "{\"topic\":\"%s\",\"consumer\":\"consumer-%d\",\"max_messages\":%d,"
             "\"wait_ms\":%d,\"visibility_ms\":%d",
             options.topic, connection->index, options.max_messages, options.wait_ms,
             options.visibility_ms);
    body.length = 0;
    buffer_text(&body, text);
    if (acks != NULL) {
        buffer_text(&body, ",\"acks\":");
        buffer_add(&body, acks->data, acks->length);
    }
    buffer_text(&body, "}");
    connection->is_receiving = true;
    http_put_request(&connection->out, "POST", receive_path, &body);
    http_start(connection);
}

static void mark_seen(int64_t partition, int64_t offset) {
    if (partition < 0 || partition >= PARTITIONS_MAX || offset < 0)
        return http_note_failure("a message has no place");
    buffer_t *bytes = &seen[partition];
    if ((size_t)offset >= bytes->length)
        buffer_fill(bytes, 0, (size_t)offset - bytes->length + 1);
    if (bytes->data[offset]++)
        http_note_failure("%lld/%lld came twice", (long long)partition, (long long)offset);
}

/* Keeps the receipts as a list, and counts every message once. */
static int64_t read_messages(http_connection_t *connection, json_t json) {
    int64_t partition = -1, offset = -1, receipts = 0, placed = 0;
    int64_t now = now_ns();
    buffer_t *list = &connection->held;
    list->length = 0;
    buffer_text(list, "[");
    while (json_next(&json)) {
        if (json_is(&json, "receipt")) {
            receipts++;
            if (options.hold_every == 0 || (received + receipts) % options.hold_every != 0) {
                buffer_text(list, connection->held_count++ ? ",\"" : "\"");
                buffer_add(list, json.value, json.value_length);
                buffer_text(list, "\"");
            } else if (receipts_file != NULL) {
                fprintf(receipts_file, "%.*s\n", (int)json.value_length, json.value);
            }
        } else if (json_is(&json, "partition")) {
            partition = json_number(&json);
        } else if (json_is(&json, "offset")) {
            offset = json_number(&json);
        } else if (json_is(&json, "value") && due_min_ns && json.value_length >= DUE_DIGITS) {
            int64_t due = strtoll(json.value, NULL, 10);
            if (due >= due_min_ns)
                samples_add(&latency, now - due);
        }
        if (partition >= 0 && offset >= 0) {
            mark_seen(partition, offset);
            placed++;
            partition = offset = -1;
        }
    }
    buffer_text(list, "]");
    if (placed != receipts)
        http_note_failure("%lld receipts for %lld messages", (long long)receipts,
                          (long long)placed);
    return receipts;
}

/* Counts the results of acks; `json` stands behind them then. */
static int64_t count_acks(json_t *json, const http_answer_t *answer) {
    int64_t results = 0;
    while (json_next(json)) {
        if (json_is(json, "failed")) {
            if (json_number(json) != 0)
                http_note_failure("an ack was refused: %.160s", answer->body);
            break;
        }
        results += json_is(json, "receipt");
    }
    return results;
}

static json_t json_of(const http_answer_t *answer) {
    return (json_t){.at = answer->body, .end = answer->body + answer->length};
}

static void start_ack(http_connection_t *connection) {
    static buffer_t body;
    body.length = 0;
    buffer_text(&body, "{\"receipts\":");
    buffer_add(&body, connection->held.data, connection->held.length);
    buffer_text(&body, "}");
    connection->is_receiving = false;
    http_put_request(&connection->out, "POST", ack_path, &body);
    http_start(connection);
}

/* All that was held is acknowledged. */
static void note_acked(http_connection_t *connection, json_t *json, const http_answer_t *answer) {
    int64_t done = count_acks(json, answer);
    if (done != connection->held_count)
        return http_note_failure("%lld of %lld acks were answered: %.120s", (long long)done,
                                 (long long)connection->held_count, answer->body);
    samples_add(&ack_latency, now_ns() - connection->sent_ns);
    acked += done;
    connection->held_count = 0;
    if (begin_ns == 0 && received >= options.warmup) {
        begin_ns = now_ns();
        received_at_begin = received;
    }
}

static void take_received(http_connection_t *connection, json_t messages) {
    int64_t got = read_messages(connection, messages);
    received += got;
    if (got && due_min_ns == 0)
        samples_add(&latency, now_ns() - connection->sent_ns);
    if (connection->held_count == 0)
        start_receive(connection, NULL);
    else if (options.is_together && received < options.count)
        start_receive(connection, &connection->held);
    else
        start_ack(connection);
}

static void take_consumed(http_connection_t *connection, const http_answer_t *answer) {
    json_t json = json_of(answer);
    if (connection->held_count)
        note_acked(connection, &json, answer);
    if (connection->is_receiving)
        take_received(connection, json);
    else
        start_receive(connection, NULL);
}

static int64_t acks_wanted(void) {
    return options.hold_every ? options.count - options.count / options.hold_every : options.count;
}

static bool is_consumed(void) { return received >= options.count && acked >= acks_wanted(); }

/* ---- settle ---------------------------------------------------------------------------- */

static char (*held_receipts)[RECEIPT_BYTES_MAX];
static int64_t held_total, settle_started;

static void read_receipts(void) {
    char line[RECEIPT_BYTES_MAX];
    int64_t capacity = 0;
    while (fgets(line, sizeof line, receipts_file) != NULL) {
        if (held_total == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            held_receipts = realloc(held_receipts, (size_t)capacity * sizeof *held_receipts);
            if (held_receipts == NULL)
                http_die("memory");
        }
        line[strcspn(line, "\n")] = 0;
        memcpy(held_receipts[held_total++], line, sizeof line);
    }
}

/* Always the same order, so that runs compare; xorshift is random enough for that. */
static void shuffle_receipts(void) {
    uint64_t state = 88172645463325252ULL;
    char swap[RECEIPT_BYTES_MAX];
    for (int64_t i = held_total - 1; i > 0; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        int64_t other = (int64_t)(state % (uint64_t)(i + 1));
        memcpy(swap, held_receipts[i], sizeof swap);
        memcpy(held_receipts[i], held_receipts[other], sizeof swap);
        memcpy(held_receipts[other], swap, sizeof swap);
    }
}

static void start_settle(http_connection_t *connection) {
    buffer_t *body = &connection->held;
    connection->held_count = 0;
    body->length = 0;
    buffer_text(body, "{\"receipts\":[");
    while (connection->held_count < options.max_messages && settle_started < options.count) {
        buffer_text(body, connection->held_count++ ? ",\"" : "\"");
        buffer_text(body, held_receipts[settle_started++]);
        buffer_text(body, "\"");
    }
    buffer_text(body, "]}");
    if (connection->held_count == 0)
        return;
    http_put_request(&connection->out, "POST", ack_path, body);
    http_start(connection);
}

static void take_settled(http_connection_t *connection, const http_answer_t *answer) {
    json_t json = json_of(answer);
    int64_t done = count_acks(&json, answer);
    if (done != connection->held_count)
        return http_note_failure("%lld of %lld acks were answered: %.120s", (long long)done,
                                 (long long)connection->held_count, answer->body);
    samples_add(&latency, now_ns() - connection->sent_ns);
    acked += done;
    start_settle(connection);
}

static bool is_settled(void) { return acked == options.count; }

/* ---- end to end ------------------------------------------------------------------------ */

static int pace_timer;
static int64_t pace_begin_ns, pace_sent, pace_answered;

static void send_paced(http_connection_t *connection, int64_t due) {
    static buffer_t body;
    char path[512];
    snprintf(path, sizeof path, "/v1/topics/%s/publish", options.topic);
    body.length = 0;
    buffer_text(&body, "{\"value\":\"");
    buffer_number(&body, due, DUE_DIGITS);
    buffer_fill(&body, 'x', (size_t)options.size - DUE_DIGITS);
    buffer_text(&body, "\"}");
    http_put_request(&connection->out, "POST", path, &body);
    http_start(connection);
    pace_sent++;
}

/* Sends all that is due, each on a connection of its own. What finds none waits, and its time
 * counts from when it was due: a slow server must not hide a delay by slowing the publisher. */
static void send_due(void) {
    uint64_t ticks;
    if (read(pace_timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
        http_die("timer");
    int64_t now = now_ns();
    for (int i = 0; i < options.publishers && pace_sent < options.count + options.warmup; i++) {
        int64_t due = pace_begin_ns + (int64_t)((double)pace_sent * 1e9 / options.rate);
        if (due > now)
            break;
        if (!connections[i].is_busy)
            send_paced(&connections[i], due);
    }
}

static void take_end_to_end(http_connection_t *connection, const http_answer_t *answer) {
    if (connection->role == CONSUMER)
        return take_consumed(connection, answer);
    if (count_offsets(answer) != 1)
        return http_note_failure("a publish was not stored: %.120s", answer->body);
    pace_answered++;
    send_due();
}

static bool is_all_come(void) { return acked == options.count + options.warmup; }

static void start_pace(void) {
    int64_t gap_ns = (int64_t)(1e9 / options.rate);
    pace_begin_ns = now_ns() + 50000000; /* the consumers' first calls arrive before this */
    due_min_ns = pace_begin_ns + (int64_t)((double)options.warmup * 1e9 / options.rate);
    pace_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec every = {
        .it_interval = {.tv_nsec = gap_ns % 1000000000, .tv_sec = gap_ns / 1000000000},
        .it_value = {.tv_sec = pace_begin_ns / 1000000000, .tv_nsec = pace_begin_ns % 1000000000}};
    prctl(PR_SET_TIMERSLACK, 1);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (timerfd_settime(pace_timer, TFD_TIMER_ABSTIME, &every, NULL) != 0 ||
        epoll_ctl(http_epoll, EPOLL_CTL_ADD, pace_timer, &event) != 0)
        http_die("timer");
}

/* ---- the runs -------------------------------------------------------------------------- */

static void report(int64_t timed, int64_t whole, int64_t missing, double cpu) {
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    printf("{\"seconds\": %.6f, \"timed\": %lld, \"acked\": %lld, \"failed\": %lld, "
           "\"missing\": %lld, \"first_error\": \"%s\", \"cpu_seconds\": %.4f, ",
           seconds, (long long)timed, (long long)whole, (long long)http_failed,
           (long long)missing, http_first_error, cpu);
    samples_sort(&ack_latency);
    printf("\"ack_p50_ms\": %.4f, \"ack_p99_ms\": %.4f, ", samples_ms(&ack_latency, 0.5),
           samples_ms(&ack_latency, 0.99));
    samples_print(&latency);
    printf("}\n");
}

static void open_connections(int count) {
    for (int i = 0; i < count; i++) {
        connections[i].index = i;
        http_open(&connections[i], options.host, options.port);
    }
}

static void run_consume(int64_t deadline_ns) {
    build_paths();
    open_connections(options.connections);
    double cpu = cpu_seconds();
    begin_ns = options.warmup ? 0 : now_ns();
    for (int i = 0; i < options.connections; i++)
        start_receive(&connections[i], NULL);
    http_run(is_consumed, take_consumed, NULL, deadline_ns);
    if (begin_ns == 0)
        begin_ns = now_ns();
    report(received - received_at_begin, acked, options.count - received, cpu_seconds() - cpu);
}

static void run_settle(int64_t deadline_ns) {
    build_paths();
    read_receipts();
    shuffle_receipts();
    if (options.count > held_total)
        options.count = held_total;
    open_connections(options.connections);
    double cpu = cpu_seconds();
    begin_ns = now_ns();
    for (int i = 0; i < options.connections; i++)
        start_settle(&connections[i]);
    http_run(is_settled, take_settled, NULL, deadline_ns);
    report(acked, acked, options.count - acked, cpu_seconds() - cpu);
}

static void run_end_to_end(int64_t deadline_ns) {
    int total = options.publishers + options.connections;
    build_paths();
    open_connections(total);
    for (int i = options.publishers; i < total; i++)
        connections[i].role = CONSUMER;
    double cpu = cpu_seconds();
    for (int i = options.publishers; i < total; i++)
        start_receive(&connections[i], NULL);
    start_pace();
    begin_ns = pace_begin_ns;
    http_run(is_all_come, take_end_to_end, send_due, deadline_ns);
    report((int64_t)latency.count, acked, options.count + options.warmup - acked,
           cpu_seconds() - cpu);
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},         {"port", 1, 0, 'p'},       {"topic", 1, 0, 't'},
        {"group", 1, 0, 'g'},        {"connections", 1, 0, 'c'}, {"publishers", 1, 0, 'b'},
        {"size", 1, 0, 's'},       {"max-messages", 1, 0, 'x'},
        {"wait-ms", 1, 0, 'a'},      {"visibility-ms", 1, 0, 'v'}, {"hold-every", 1, 0, 'H'},
        {"count", 1, 0, 'n'},        {"warmup", 1, 0, 'w'},     {"rate", 1, 0, 'R'},
        {"seconds-max", 1, 0, 'm'},  {"receipts", 1, 0, 'f'},   {"together", 0, 0, 'A'},
        {0, 0, 0, 0}};
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 't': options.topic = optarg; break;
        case 'g': options.group = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'b': options.publishers = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'x': options.max_messages = atoi(optarg); break;
        case 'a': options.wait_ms = atoi(optarg); break;
        case 'v': options.visibility_ms = atoi(optarg); break;
        case 'H': options.hold_every = atoi(optarg); break;
        case 'f': options.receipts = optarg; break;
        case 'A': options.is_together = true; break;
        case 'n': options.count = atoll(optarg); break;
        case 'w': options.warmup = atoll(optarg); break;
        case 'R': options.rate = atof(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        default: exit(2);
        }
    }
    if (options.topic == NULL || options.port == 0 || options.connections < 1 ||
        options.publishers < 1 || options.connections + options.publishers > CONNECTIONS_MAX ||
        options.size < DUE_DIGITS || options.rate <= 0 ||
        options.hold_every < 0) {
        fprintf(stderr, "queue_bench: --topic, --port, or a number out of range\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    die_with_parent();
    if (argc > 1)
        read_options(argc - 1, argv + 1);
    http_epoll = epoll_create1(0);
    int64_t deadline_ns = now_ns() + (int64_t)(options.seconds_max * 1e9);
    bool is_settle = strcmp(mode, "settle") == 0;
    if (options.receipts != NULL)
        receipts_file = fopen(options.receipts, is_settle ? "r" : "w");
    if (receipts_file == NULL && (is_settle || options.receipts != NULL))
        http_die("receipts");
    if (strcmp(mode, "consume") == 0)
        run_consume(deadline_ns);
    else if (is_settle)
        run_settle(deadline_ns);
    else if (strcmp(mode, "endtoend") == 0)
        run_end_to_end(deadline_ns);
    else {
        fprintf(stderr, "usage: queue_bench consume|settle|endtoend --port P --topic T ...\n");
        return 2;
    }
    if (receipts_file != NULL && (ferror(receipts_file) || fclose(receipts_file) != 0))
        http_die("receipts");
    return 0;
}
