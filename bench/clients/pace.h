/* Sending at a steady pace, for latencies from end to end.
 *
 * A message carries the time at which it was due, not the time at which it was sent: a sender that
 * is held up must not hide the delay.
 */
#ifndef BENCH_PACE_H
#define BENCH_PACE_H

#include "peer.h"

enum { DUE_AT = NUMBER_DIGITS, DUE_BYTES = sizeof(int64_t) };

/* Whoever is so far behind does not catch up: a latency would only tell how long the run was. */
static const int64_t BEHIND_NS_MAX = 3000000000;

static samples_t pace_latency;

/* Calls `send` for every message when it is due, and `after` once for those due together. */
static inline void run_pace(void (*send)(const char *payload, void *self), void (*after)(void *),
                            void *self) {
    double gap_ns = 1e9 / options.rate;
    int64_t tick_ns = gap_ns > PACE_NS_MIN ? (int64_t)gap_ns : PACE_NS_MIN;
    int64_t begin_ns = now_ns() + 1000000, sent = 0;
    char *payload = make_payload();
    prctl(PR_SET_TIMERSLACK, 1);
    for (int64_t tick = 0; sent < options.count && !is_over(); tick++) {
        int64_t due = begin_ns + tick * tick_ns;
        struct timespec until = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        for (; sent < options.count && (double)sent * gap_ns <= (double)(tick * tick_ns); sent++) {
            put_number(payload, sent);
            memcpy(payload + DUE_AT, &due, DUE_BYTES);
            send(payload, self);
        }
        after(self);
    }
    free(payload);
}

/* Takes the next message of a log that is followed, with the time it took. */
static inline void take_paced(const char *body, size_t length) {
    int64_t due, now = now_ns();
    take_next(body, length);
    memcpy(&due, body + DUE_AT, DUE_BYTES);
    if (now - due > BEHIND_NS_MAX)
        fail("it does not keep this pace");
    if (failed == 0 && received > options.warmup)
        samples_add(&pace_latency, now - due);
}

static inline void print_pace(double cpu, int64_t acked) {
    if (failed == 0 && acked != options.count)
        note_failure("messages were sent and not acknowledged");
    print_outcome((double)options.count / options.rate, acked, (int64_t)pace_latency.count,
                  options.count - received, cpu, &pace_latency);
}

#endif
