/* Schedules over HTTP: many messages that are due later, and their cancellation.
 *
 *   http_schedules schedule --count N --records M --due-from-ms A --due-until-ms B --ids F ...
 *       publishes N messages, M per request, due between A and B milliseconds after the start, in
 *       no order; writes the ids that were given, a line each. A value begins with the time it is
 *       due and its number, so that whoever reads it later can tell.
 *   http_schedules cancel --ids F --records M ...
 *       cancels them one per request, or M per request where the server takes lists
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
 */
#define _GNU_SOURCE
#include "http.h"

#include <getopt.h>

enum { CONNECTIONS_MAX = 1024, DUE_DIGITS = 13, NUMBER_DIGITS = 10, ID_BYTES_MAX = 128 };
/* Larger than any count, so that steps of this size visit every number once. */
static const int64_t STRIDE = 2147483647;

typedef struct {
    const char *host;
    int port;
    const char *topic, *ids;
    int connections, records, size;
    int64_t count, due_from_ms, due_until_ms;
    double seconds_max;
} options_t;

static options_t options = {.host = "127.0.0.1", .connections = 4, .records = 1000, .size = 100,
                            .count = 10000, .due_from_ms = 3600000, .due_until_ms = 7200000,
                            .seconds_max = 60};
static http_connection_t connections[CONNECTIONS_MAX];
static samples_t latency;
static int64_t started, answered, base_ms;
static FILE *ids;
static char path[512];

static int64_t left_for_request(void) {
    int64_t left = options.count - started;
    return left < options.records ? left : options.records;
}

/* ---- schedule -------------------------------------------------------------------------- */

static void start_schedule(http_connection_t *connection) {
    buffer_t *body = &connection->held;
    connection->held_count = left_for_request();
    if (connection->held_count == 0)
        return;
    body->length = 0;
    buffer_text(body, "{\"messages\":[");
    for (int64_t i = 0; i < connection->held_count; i++, started++) {
        int64_t place = started * (STRIDE % options.count) % options.count;
        int64_t window = options.due_until_ms - options.due_from_ms;
        int64_t due = base_ms + options.due_from_ms + place * window / options.count;
        buffer_text(body, i ? ",{\"value\":\"" : "{\"value\":\"");
        buffer_number(body, due, DUE_DIGITS);
        buffer_text(body, " ");
        buffer_number(body, started, NUMBER_DIGITS);
        buffer_fill(body, 'x', (size_t)(options.size - DUE_DIGITS - 1 - NUMBER_DIGITS));
        buffer_text(body, "\",\"deliver_at\":");
        buffer_number(body, due, DUE_DIGITS);
        buffer_text(body, "}");
    }
    buffer_text(body, "]}");
    http_put_request(&connection->out, "POST", path, body);
    http_start(connection);
}

static void take_scheduled(http_connection_t *connection, const http_answer_t *answer) {
    json_t json = {.at = answer->body, .end = answer->body + answer->length};
    int64_t given = 0;
    samples_add(&latency, now_ns() - connection->sent_ns);
    while (json_next(&json)) {
        if (!json_is(&json, "schedule_id"))
            continue;
        given++;
        if (fwrite(json.value, 1, json.value_length, ids) != json.value_length ||
            putc('\n', ids) == EOF)
            http_die("ids");
    }
    if (given != connection->held_count)
        return http_note_failure("%lld messages were sent and %lld scheduled: %.120s",
                                 (long long)connection->held_count, (long long)given,
                                 answer->body);
    answered += given;
    start_schedule(connection);
}

/* ---- cancel ---------------------------------------------------------------------------- */

static bool read_id(char *id) {
    if (fgets(id, ID_BYTES_MAX, ids) == NULL)
        return false;
    id[strcspn(id, "\n")] = 0;
    return true;
}

static void start_cancel(http_connection_t *connection) {
    char id[ID_BYTES_MAX], one[512];
    buffer_t *body = &connection->held;
    int64_t wanted = left_for_request();
    connection->held_count = 0;
    body->length = 0;
    buffer_text(body, "{\"ids\":[");
    while (connection->held_count < wanted && read_id(id)) {
        buffer_text(body, connection->held_count++ ? ",\"" : "\"");
        buffer_text(body, id);
        buffer_text(body, "\"");
    }
    buffer_text(body, "]}");
    started += connection->held_count;
    if (connection->held_count == 0)
        return;
    if (options.records == 1) {
        snprintf(one, sizeof one, "/v1/schedules/%s", id);
        http_put_request(&connection->out, "DELETE", one, NULL);
    } else {
        http_put_request(&connection->out, "POST", "/v1/schedules/cancel", body);
    }
    http_start(connection);
}

static void take_cancelled(http_connection_t *connection, const http_answer_t *answer) {
    json_t json = {.at = answer->body, .end = answer->body + answer->length};
    samples_add(&latency, now_ns() - connection->sent_ns);
    int64_t results = 0;
    while (json_next(&json)) {
        if (json_is(&json, "failed") && json_number(&json) != 0)
            return http_note_failure("a cancel was refused: %.160s", answer->body);
        results += json_is(&json, "id");
    }
    if (options.records > 1 && results != connection->held_count)
        return http_note_failure("%lld ids were sent and %lld answered",
                                 (long long)connection->held_count, (long long)results);
    answered += connection->held_count;
    start_cancel(connection);
}

/* ---- the two runs ---------------------------------------------------------------------- */

static bool is_done(void) { return answered == options.count; }

static void run(void (*start)(http_connection_t *),
                void (*take)(http_connection_t *, const http_answer_t *)) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    base_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    http_epoll = epoll_create1(0);
    for (int i = 0; i < options.connections; i++)
        http_open(&connections[i], options.host, options.port);
    int64_t begin = now_ns();
    double cpu = cpu_seconds();
    for (int i = 0; i < options.connections; i++)
        start(&connections[i]);
    http_run(is_done, take, NULL, begin + (int64_t)(options.seconds_max * 1e9));
    double seconds = (double)(now_ns() - begin) / 1e9;
    printf("{\"seconds\": %.6f, \"acked\": %lld, \"failed\": %lld, \"missing\": %lld, "
           "\"first_error\": \"%s\", \"cpu_seconds\": %.4f, ",
           seconds, (long long)answered, (long long)http_failed,
           (long long)(options.count - answered), http_first_error, cpu_seconds() - cpu);
    samples_print(&latency);
    printf("}\n");
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},        {"port", 1, 0, 'p'},    {"topic", 1, 0, 't'},
        {"ids", 1, 0, 'i'},         {"connections", 1, 0, 'c'}, {"records", 1, 0, 'r'},
        {"size", 1, 0, 's'},        {"count", 1, 0, 'n'},   {"due-from-ms", 1, 0, 'f'},
        {"due-until-ms", 1, 0, 'u'}, {"seconds-max", 1, 0, 'm'}, {0, 0, 0, 0}};
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 't': options.topic = optarg; break;
        case 'i': options.ids = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'r': options.records = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'f': options.due_from_ms = atoll(optarg); break;
        case 'u': options.due_until_ms = atoll(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        default: exit(2);
        }
    }
    if (options.port == 0 || options.ids == NULL || options.connections < 1 ||
        options.connections > CONNECTIONS_MAX || options.records < 1 || options.count < 1 ||
        options.size < DUE_DIGITS + 1 + NUMBER_DIGITS ||
        options.due_until_ms < options.due_from_ms) {
        fprintf(stderr, "http_schedules: --port, --ids, or a number out of range\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    bool is_schedule = strcmp(mode, "schedule") == 0;
    die_with_parent();
    if (!is_schedule && strcmp(mode, "cancel") != 0) {
        fprintf(stderr, "usage: http_schedules schedule|cancel --port P --ids F ...\n");
        return 2;
    }
    read_options(argc - 1, argv + 1);
    snprintf(path, sizeof path, "/v1/topics/%s/batch", options.topic ? options.topic : "");
    ids = fopen(options.ids, is_schedule ? "w" : "r");
    if (ids == NULL)
        http_die("ids");
    run(is_schedule ? start_schedule : start_cancel, is_schedule ? take_scheduled : take_cancelled);
    if (fclose(ids) != 0)
        http_die("ids");
    return 0;
}
