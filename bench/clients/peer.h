/* What the clients of all peers share: options, numbered messages, and the account of a run.
 *
 * Every message begins with its number, so that a reader can tell one that is missing, one that
 * comes twice and one that is out of order. All programs print one JSON object; exit code 0 means
 * that the run took place, and "failed" says how it went.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "timing.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { NUMBER_DIGITS = 10, ERROR_BYTES = 200, CONSUMERS_MAX = 64, CONNECTIONS_MAX = 1024 };
enum { DEPTH_MAX = 8192, PACE_NS_MIN = 200000 }; /* closer ticks would only measure the timer */

static struct {
    const char *program, *host, *queue, *kind;
    int port, size, connections, depth, consumers, batch, prefetch;
    int64_t count, warmup, delay_ms;
    double seconds_max, stop_after, rate; /* a run may stop before its count, by the clock */
} options = {.host = "127.0.0.1", .kind = "quorum", .size = 1000, .connections = 1, .depth = 1,
             .consumers = 8, .batch = 100, .prefetch = 200, .count = 10000, .seconds_max = 60,
             .rate = 1000};
static atomic_llong received, failed;
static char first_error[ERROR_BYTES];
static atomic_uchar *numbers; /* how often each message came */
static int64_t deadline_ns;

static inline void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", options.program, what);
    exit(1);
}

static inline void note_failure(const char *why) {
    if (atomic_fetch_add(&failed, 1) == 0) {
        snprintf(first_error, sizeof first_error, "%s", why);
        for (char *at = first_error; *at != 0; at++) /* it is printed inside quotes */
            if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
                *at = ' ';
    }
}

static inline bool is_over(void) { return failed > 0 || now_ns() > deadline_ns; }

static inline char *make_payload(void) {
    char *payload = malloc((size_t)options.size + 1);
    if (payload == NULL)
        fail("no memory for a message");
    memset(payload, 'x', (size_t)options.size);
    payload[options.size] = 0;
    return payload;
}

static inline void put_number(char *payload, int64_t number) {
    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, number /= 10)
        payload[i] = (char)('0' + number % 10);
}

/* The number of a message, or -1 for one that was never sent. */
static inline int64_t get_number(const char *body, size_t length) {
    int64_t number = 0;
    if (length != (size_t)options.size)
        return -1;
    for (int i = 0; i < NUMBER_DIGITS; i++) {
        if (body[i] < '0' || body[i] > '9')
            return -1;
        number = number * 10 + (body[i] - '0');
    }
    return number < options.count ? number : -1;
}

/* For consumers that share a queue: each number once, in any order. */
static inline void take_once(const char *body, size_t length) {
    int64_t number = get_number(body, length);
    if (number < 0)
        return note_failure("a message was never sent");
    if (atomic_fetch_add(&numbers[number], 1) != 0)
        return note_failure("a message came twice");
    atomic_fetch_add(&received, 1);
}

/* For the one reader of a log: each number after the one before. */
static inline void take_next(const char *body, size_t length) {
    if (get_number(body, length) != received)
        return note_failure("a message is missing, out of order or of the wrong size");
    received++;
}

static inline void print_outcome(double seconds, int64_t acked, int64_t timed, int64_t missing,
                                 double cpu, samples_t *latency) {
    printf("{\"seconds\": %.6f, \"acked\": %lld, \"timed\": %lld, \"failed\": %lld, "
           "\"missing\": %lld, \"first_error\": \"%s\", \"cpu_seconds\": %.4f",
           seconds, (long long)acked, (long long)timed, (long long)failed, (long long)missing,
           first_error, cpu);
    if (latency != NULL) {
        printf(", ");
        samples_print(latency);
    }
    printf("}\n");
    fflush(stdout);
}

static inline void check_options(void) {
    if (options.queue == NULL || options.port == 0 || options.size <= 2 * NUMBER_DIGITS ||
        options.count < 1 || options.warmup < 0 || options.rate <= 0)
        fail("--queue, --port, --size, --count, --warmup or --rate is missing or out of range");
    if (options.connections < 1 || options.connections > CONNECTIONS_MAX || options.depth < 1 ||
        options.depth > DEPTH_MAX)
        fail("--connections or --depth is out of range");
    if (options.consumers < 1 || options.consumers > CONSUMERS_MAX || options.batch < 1 ||
        options.prefetch < options.batch || options.prefetch > 65535)
        fail("--consumers, --batch or --prefetch is out of range");
}

static inline void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},     {"port", 1, 0, 'p'},        {"queue", 1, 0, 'q'},
        {"size", 1, 0, 's'},     {"consumers", 1, 0, 'c'},   {"batch", 1, 0, 'b'},
        {"count", 1, 0, 'n'},    {"prefetch", 1, 0, 'f'},    {"seconds-max", 1, 0, 'm'},
        {"kind", 1, 0, 'k'},     {"connections", 1, 0, 'C'}, {"depth", 1, 0, 'd'},
        {"warmup", 1, 0, 'w'},   {"rate", 1, 0, 'r'},        {"delay-ms", 1, 0, 'D'},
        {"stop-after", 1, 0, 'S'}, {0, 0, 0, 0}};
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
        case 'k': options.kind = optarg; break;
        case 'C': options.connections = atoi(optarg); break;
        case 'd': options.depth = atoi(optarg); break;
        case 'w': options.warmup = atoll(optarg); break;
        case 'r': options.rate = atof(optarg); break;
        case 'S': options.stop_after = atof(optarg); break;
        case 'D': options.delay_ms = atoll(optarg); break;
        default: exit(2);
        }
    }
    check_options();
}

/* Begins a program that is called as `program mode --option value ...` and returns the mode. */
static inline const char *begin(int argc, char **argv, const char *program) {
    options.program = program;
    die_with_parent();
    if (argc < 2)
        fail("a mode is missing");
    read_options(argc - 1, argv + 1);
    deadline_ns = now_ns() + (int64_t)(options.seconds_max * 1e9);
    return argv[1];
}

#endif
