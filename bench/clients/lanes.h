/* Publishing over many connections from one thread: each lane keeps up to `depth` messages
 * unacknowledged, and the next is sent when one has been acknowledged.
 *
 * A program says how a message is put into a lane, how what is queued goes out, and how many
 * acknowledgements have come in. Those of one lane come in the order of its messages.
 */
#ifndef BENCH_LANES_H
#define BENCH_LANES_H

#include "peer.h"

#include <sys/epoll.h>

typedef struct {
    int fd;
    int64_t sent, acked;
    int64_t *sent_at; /* ring of `depth` */
    bool wants_write;
    void *self; /* the connection, as its library knows it */
} lane_t;

typedef struct {
    void (*put)(lane_t *lane, char *payload);
    bool (*flush)(lane_t *lane);    /* true when something is left to be written */
    int64_t (*take)(lane_t *lane);  /* acknowledgements read; failures are noted */
} lane_calls_t;

static lane_t lanes[CONNECTIONS_MAX];
static samples_t lane_latency;
static int64_t lane_sent, lane_acked, lane_begin_ns, lane_stop_ns;
static int lane_epoll;

static inline void lane_open(lane_t *lane, int fd, void *self) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = lane};
    lane->fd = fd;
    lane->self = self;
    lane->sent_at = calloc((size_t)options.depth, sizeof *lane->sent_at);
    if (lane->sent_at == NULL || epoll_ctl(lane_epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("a connection cannot be watched");
}

/* Whether all is sent: the whole count, or what the time of --stop-after allowed. */
static inline bool lane_is_done(void) {
    return lane_sent >= options.count || (lane_stop_ns > 0 && now_ns() > lane_stop_ns);
}

static inline void lane_fill(lane_t *lane, const lane_calls_t *calls, char *payload) {
    while (lane->sent - lane->acked < options.depth && !lane_is_done()) {
        put_number(payload, lane_sent++);
        lane->sent_at[lane->sent++ % options.depth] = now_ns();
        calls->put(lane, payload);
    }
    bool is_left = calls->flush(lane);
    if (is_left != lane->wants_write) {
        struct epoll_event event = {.events = is_left ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                    .data.ptr = lane};
        epoll_ctl(lane_epoll, EPOLL_CTL_MOD, lane->fd, &event);
        lane->wants_write = is_left;
    }
}

static inline void lanes_begin(int64_t now) {
    lane_begin_ns = now;
    lane_stop_ns = options.stop_after > 0 ? now + (int64_t)(options.stop_after * 1e9) : 0;
}

static inline void lane_take(lane_t *lane, const lane_calls_t *calls) {
    int64_t count = calls->take(lane), now = now_ns();
    if (lane->acked + count > lane->sent)
        return note_failure("more was acknowledged than sent");
    for (; count > 0; count--) {
        if (++lane_acked == options.warmup)
            lanes_begin(now);
        else if (lane_acked > options.warmup)
            samples_add(&lane_latency, now - lane->sent_at[lane->acked % options.depth]);
        lane->acked++;
    }
}

/* Sends --count messages over the open lanes, of which the first --warmup are not timed, or as many
 * as --stop-after seconds allow. */
static inline void lanes_run(const lane_calls_t *calls) {
    struct epoll_event events[256];
    char *payload = make_payload();
    lanes_begin(now_ns());
    if (options.warmup > 0)
        lane_stop_ns = 0; /* the time is counted from the end of the warm-up */
    for (int i = 0; i < options.connections; i++)
        lane_fill(&lanes[i], calls, payload);
    while (!(lane_is_done() && lane_acked == lane_sent) && !is_over()) {
        int ready = epoll_wait(lane_epoll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            lane_t *lane = events[i].data.ptr;
            if ((events[i].events & ~EPOLLOUT) != 0)
                lane_take(lane, calls);
            lane_fill(lane, calls, payload);
        }
    }
    free(payload);
}

/* Opens all lanes, sends, and prints the account; `stored` says what the server then holds. */
static inline void run_publish(void (*open)(lane_t *lane), const lane_calls_t *calls,
                               int64_t (*stored)(void)) {
    lane_epoll = epoll_create1(0);
    for (int i = 0; i < options.connections; i++)
        open(&lanes[i]);
    double cpu = cpu_seconds();
    lanes_run(calls);
    double seconds = (double)(now_ns() - lane_begin_ns) / 1e9;
    cpu = cpu_seconds() - cpu;
    int64_t held = stored();
    if (failed == 0 && held != lane_acked) {
        char why[ERROR_BYTES];
        snprintf(why, sizeof why, "acknowledged %lld, stored %lld", (long long)lane_acked,
                 (long long)held);
        note_failure(why);
    }
    print_outcome(seconds, lane_acked, (int64_t)lane_latency.count, lane_sent - lane_acked, cpu,
                  &lane_latency);
}

#endif
