// The client of the NATS peer: nats.go, a connection for each consumer.
//
//	nats_bench create    makes a file-backed stream
//	nats_bench consume   one durable pull consumer with explicit acks, shared by --consumers with a
//	                     connection each; each message must come once
//	nats_bench read      reads the stream from its first message on, in order, without acks
//	nats_bench endtoend  a paced publisher and a reader; latency of each message
//	nats_bench delay     publishes messages that the server holds back until each is due
//	nats_bench remove    deletes the stream
//
// Publishing as fast as can be is in nats_publish.c. Prints one JSON object. Exit code 0 means the
// run took place; "failed" says how it went.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	numberDigits   = 10
	unconfirmedMax = 4096
)

var (
	host       = flag.String("host", "127.0.0.1", "")
	port       = flag.Int("port", 4222, "")
	queue      = flag.String("queue", "", "stream, subject and consumer")
	count      = flag.Int64("count", 10_000, "")
	warmup     = flag.Int64("warmup", 0, "messages whose latency does not count")
	size       = flag.Int("size", 1000, "")
	consumers  = flag.Int("consumers", 8, "")
	batch      = flag.Int("batch", 100, "taken for the sake of a common command line")
	prefetch   = flag.Int("prefetch", 200, "messages asked for in advance by each connection")
	rate       = flag.Float64("rate", 1000, "messages per second, from end to end")
	delayMs    = flag.Int64("delay-ms", 10_000, "until the first message is due")
	windowMs   = flag.Int64("window-ms", 10_000, "from the first to the last that is due")
	secondsMax = flag.Float64("seconds-max", 60, "")
)

var modes = map[string]func(context.Context, jetstream.JetStream) (outcome, error){
	"create": create, "consume": consume, "read": read, "endtoend": endToEnd, "delay": delay,
	"remove": remove,
}

type outcome struct {
	Seconds    float64 `json:"seconds"`
	Acked      int64   `json:"acked"`
	Timed      int64   `json:"timed"`
	Failed     int64   `json:"failed"`
	Missing    int64   `json:"missing"`
	FirstError string  `json:"first_error"`
	CPUSeconds float64 `json:"cpu_seconds"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	Max        float64 `json:"max_ms"`
}

func main() {
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fail(errors.New("usage: nats_bench MODE --port P --queue Q ..."))
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || *queue == "" ||
		*size <= 2*numberDigits || *batch < 1 || *consumers < 1 || *rate <= 0 {
		fail(errors.New("--queue, or a number out of range"))
	}
	limit := time.Duration(*secondsMax * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	connection, js, err := connect()
	if err != nil {
		fail(err)
	}
	defer connection.Close()
	result, err := modes[os.Args[1]](ctx, js)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "nats_bench:", err)
	os.Exit(1)
}

func connect() (*nats.Conn, jetstream.JetStream, error) {
	connection, err := nats.Connect(fmt.Sprintf("nats://%s:%d", *host, *port))
	if err != nil {
		return nil, nil, err
	}
	stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(unconfirmedMax))
	return connection, stream, err
}

func create(ctx context.Context, js jetstream.JetStream) (outcome, error) {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: *queue, Subjects: []string{*queue}, Storage: jetstream.FileStorage,
	})
	return outcome{}, err
}

func remove(ctx context.Context, js jetstream.JetStream) (outcome, error) {
	return outcome{}, js.DeleteStream(ctx, *queue)
}

// run is one run, shared by all that take part in it.
type run struct {
	ctx      context.Context
	cancel   context.CancelFunc
	received atomic.Int64
	failed   atomic.Int64
	numbers  []atomic.Bool
	once     sync.Once
	reason   string
	samples  []time.Duration
}

func newRun(ctx context.Context) *run {
	r := &run{numbers: make([]atomic.Bool, *count)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

func (r *run) fail(reason string) {
	r.failed.Add(1)
	r.once.Do(func() { r.reason = reason })
	r.cancel()
}

// take checks a message and says whether it was the last; each number may come once.
func (r *run) take(data []byte) bool {
	if len(data) != *size {
		r.fail("a message has the wrong size")
		return true
	}
	number, err := strconv.ParseInt(string(data[:numberDigits]), 10, 64)
	if err != nil || number < 0 || number >= *count {
		r.fail("a message was never sent")
		return true
	}
	if r.numbers[number].Swap(true) {
		r.fail("a message came twice")
		return true
	}
	return r.received.Add(1) == *count
}

func (r *run) outcome(acked int64, elapsed time.Duration, cpu float64) outcome {
	slices.Sort(r.samples)
	return outcome{
		Seconds: elapsed.Seconds(), CPUSeconds: cpuSeconds() - cpu, Acked: acked,
		Timed: acked, Failed: r.failed.Load(), Missing: *count - r.received.Load(),
		FirstError: r.reason, P50: r.at(0.50), P99: r.at(0.99), P999: r.at(0.999), Max: r.at(1),
	}
}

// at gives the milliseconds at a fraction of the sorted samples.
func (r *run) at(fraction float64) float64 {
	if len(r.samples) == 0 {
		return 0
	}
	index := int(fraction*float64(len(r.samples)-1) + 0.5)
	return float64(r.samples[index]) / 1e6
}

func payload() []byte { return bytes.Repeat([]byte("x"), *size) }

func putNumber(value []byte, number int64) {
	copy(value, fmt.Sprintf("%0*d", numberDigits, number))
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	seconds := func(value syscall.Timeval) float64 { return float64(value.Nano()) / 1e9 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
