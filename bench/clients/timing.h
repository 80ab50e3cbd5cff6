/* Clocks, latency samples and processor time, for the load generators.
 *
 * Samples are kept whole and sorted at the end: a run is bounded in count, so the memory is too,
 * and a percentile is then a measured value and not the edge of a bucket.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

typedef struct {
    uint64_t *ns;
    size_t count;
    size_t capacity;
} samples_t;

static inline int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static inline double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

/* A load generator must not outlive the benchmark that started it. */
static inline void die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static inline void samples_add(samples_t *samples, int64_t ns) {
    if (samples->count == samples->capacity) {
        size_t wanted = samples->capacity ? samples->capacity * 2 : 65536;
        uint64_t *grown = realloc(samples->ns, wanted * sizeof *grown);
        if (grown == NULL) {
            fprintf(stderr, "no memory for %zu latency samples\n", wanted);
            exit(1);
        }
        samples->ns = grown;
        samples->capacity = wanted;
    }
    samples->ns[samples->count++] = ns < 0 ? 0 : (uint64_t)ns;
}

static inline int samples_compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static inline void samples_sort(samples_t *samples) {
    if (samples->count > 1)
        qsort(samples->ns, samples->count, sizeof *samples->ns, samples_compare);
}

/* Milliseconds at `fraction` of sorted samples; 0 when there are none. */
static inline double samples_ms(const samples_t *samples, double fraction) {
    if (samples->count == 0)
        return 0.0;
    size_t index = (size_t)(fraction * (double)(samples->count - 1) + 0.5);
    return (double)samples->ns[index] / 1e6;
}

/* The latency fields of a report, without braces, so that a caller can add its own. */
static inline void samples_print(samples_t *samples) {
    samples_sort(samples);
    printf("\"samples\": %zu, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, "
           "\"max_ms\": %.4f",
           samples->count, samples_ms(samples, 0.50), samples_ms(samples, 0.99),
           samples_ms(samples, 0.999), samples_ms(samples, 1.0));
}

#endif
