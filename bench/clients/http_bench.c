/* Publishes over HTTP: prebuilt requests with any number of messages, one request outstanding on
 * each connection. Every answer's results are counted.
 *
 *   http_bench --port P --topic T --connections C --records N --size B --count R ...
 *
 * Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
 */
#define _GNU_SOURCE
#include "http.h"

#include <getopt.h>

enum { CONNECTIONS_MAX = 1024 };

typedef struct {
    const char *host;
    int port;
    const char *topic;
    int connections;
    int records; /* per request */
    int size;    /* bytes of one value */
    int64_t count, warmup; /* requests */
    double seconds_max;
} options_t;

static options_t options = {.host = "127.0.0.1", .connections = 16, .records = 1, .size = 1000,
                            .count = 10000, .seconds_max = 60};
static http_connection_t connections[CONNECTIONS_MAX];
static samples_t latency;
static int64_t begin_ns;

static buffer_t request;
static int64_t started, answered, published;

static void build_request(void) {
    buffer_t body = {0};
    char path[512];
    bool is_batch = options.records > 1;
    snprintf(path, sizeof path, "/v1/topics/%s/%s", options.topic, is_batch ? "batch" : "publish");
    buffer_text(&body, is_batch ? "{\"messages\":[" : "");
    for (int i = 0; i < options.records; i++) {
        buffer_text(&body, i ? ",{\"value\":\"" : "{\"value\":\"");
        buffer_fill(&body, 'x', (size_t)options.size);
        buffer_text(&body, "\"}");
    }
    buffer_text(&body, is_batch ? "]}" : "");
    http_put_request(&request, "POST", path, &body);
    free(body.data);
}

static void start_publish(http_connection_t *connection) {
    if (started == options.count + options.warmup)
        return;
    started++;
    buffer_add(&connection->out, request.data, request.length);
    http_start(connection);
}

static void take_published(http_connection_t *connection, const http_answer_t *answer) {
    int64_t now = now_ns(), stored = count_offsets(answer);
    if (stored != options.records)
        return http_note_failure("%d messages were sent and %lld stored: %.120s", options.records,
                                 (long long)stored, answer->body);
    published += stored;
    answered++;
    if (answered == options.warmup)
        begin_ns = now;
    else if (answered > options.warmup)
        samples_add(&latency, now - connection->sent_ns);
    start_publish(connection);
}

static bool is_published(void) { return answered == options.count + options.warmup; }

static void report(double cpu) {
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    printf("{\"seconds\": %.6f, \"timed\": %zu, \"acked\": %lld, \"failed\": %lld, "
           "\"missing\": %lld, \"first_error\": \"%s\", \"cpu_seconds\": %.4f, ",
           seconds, latency.count, (long long)published, (long long)http_failed,
           (long long)(options.count + options.warmup - answered), http_first_error, cpu);
    samples_print(&latency);
    printf("}\n");
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},        {"port", 1, 0, 'p'},    {"topic", 1, 0, 't'},
        {"connections", 1, 0, 'c'}, {"records", 1, 0, 'r'}, {"size", 1, 0, 's'},
        {"count", 1, 0, 'n'},       {"warmup", 1, 0, 'w'},  {"seconds-max", 1, 0, 'm'},
        {0, 0, 0, 0}};
    int name;
    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 't': options.topic = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'r': options.records = atoi(optarg); break;
        case 's': options.size = atoi(optarg); break;
        case 'n': options.count = atoll(optarg); break;
        case 'w': options.warmup = atoll(optarg); break;
        case 'm': options.seconds_max = atof(optarg); break;
        default: exit(2);
        }
    }
    if (options.topic == NULL || options.port == 0 || options.connections < 1 ||
        options.connections > CONNECTIONS_MAX || options.records < 1 || options.size < 1) {
        fprintf(stderr, "http_bench: --topic, --port, or a number out of range\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    die_with_parent();
    read_options(argc, argv);
    build_request();
    http_epoll = epoll_create1(0);
    for (int i = 0; i < options.connections; i++)
        http_open(&connections[i], options.host, options.port);
    double cpu = cpu_seconds();
    begin_ns = now_ns();
    for (int i = 0; i < options.connections; i++)
        start_publish(&connections[i]);
    http_run(is_published, take_published, NULL, begin_ns + (int64_t)(options.seconds_max * 1e9));
    report(cpu_seconds() - cpu);
    return 0;
}
