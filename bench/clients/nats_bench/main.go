// The client of the NATS peer: nats.go, a connection for each consumer.
//
//	nats_bench fill    --queue Q --count N --size B   makes a file-backed stream and publishes to
//	                                                  it; every message must be acknowledged
//	nats_bench consume --queue Q --count N ...        one durable pull consumer with explicit acks,
//	                                                  shared by all connections; each message must
//	                                                  come once. The stream is deleted afterwards.
//
// Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
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
	unackedMax     = 100_000
	unconfirmedMax = 4096
	infoInterval   = time.Millisecond
)

var (
	host       = flag.String("host", "127.0.0.1", "")
	port       = flag.Int("port", 4222, "")
	queue      = flag.String("queue", "", "stream, subject and consumer")
	count      = flag.Int64("count", 10_000, "")
	size       = flag.Int("size", 1000, "")
	consumers  = flag.Int("consumers", 8, "")
	batch      = flag.Int("batch", 100, "taken for the sake of a common command line")
	prefetch   = flag.Int("prefetch", 200, "messages asked for in advance by each connection")
	secondsMax = flag.Float64("seconds-max", 60, "")
)

type outcome struct {
	Seconds    float64 `json:"seconds"`
	Acked      int64   `json:"acked"`
	Failed     int64   `json:"failed"`
	Missing    int64   `json:"missing"`
	FirstError string  `json:"first_error"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: nats_bench fill|consume --port P --queue Q ..."))
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || *queue == "" ||
		*size <= numberDigits || *batch < 1 || *consumers < 1 {
		fail(errors.New("--queue, or a number out of range"))
	}
	limit := time.Duration(*secondsMax * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var result outcome
	var err error
	switch os.Args[1] {
	case "fill":
		result, err = fill(ctx)
	case "consume":
		result, err = consume(ctx)
	default:
		err = fmt.Errorf("no such mode: %s", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
	result.Missing = *count - result.Acked
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

func fill(ctx context.Context) (outcome, error) {
	connection, js, err := connect()
	if err != nil {
		return outcome{}, err
	}
	defer connection.Close()
	config := jetstream.StreamConfig{
		Name: *queue, Subjects: []string{*queue}, Storage: jetstream.FileStorage,
	}
	stream, err := js.CreateStream(ctx, config)
	if err != nil {
		return outcome{}, err
	}
	value := bytes.Repeat([]byte("x"), *size)
	begin, cpu := time.Now(), cpuSeconds()
	for i := int64(0); i < *count; i++ {
		copy(value, fmt.Sprintf("%0*d", numberDigits, i))
		if _, err := js.PublishAsync(*queue, bytes.Clone(value)); err != nil {
			return outcome{}, err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return outcome{}, errors.New("not all messages were acknowledged in time")
	}
	result := outcome{Seconds: time.Since(begin).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	info, err := stream.Info(ctx)
	if err != nil {
		return outcome{}, err
	}
	result.Acked = int64(info.State.Msgs)
	return result, nil
}

// run is one consumption, shared by its connections.
type run struct {
	ctx      context.Context
	cancel   context.CancelFunc
	received atomic.Int64
	failed   atomic.Int64
	numbers  []atomic.Bool
	once     sync.Once
	reason   string
}

func consume(ctx context.Context) (outcome, error) {
	connection, js, err := connect()
	if err != nil {
		return outcome{}, err
	}
	defer connection.Close()
	shared, err := js.CreateConsumer(ctx, *queue, jetstream.ConsumerConfig{
		Durable: *queue, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: unackedMax,
		AckWait: 10 * time.Minute,
	})
	if err != nil {
		return outcome{}, err
	}
	iterators, closeAll, err := open(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer closeAll()
	r := &run{numbers: make([]atomic.Bool, *count)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	begin, cpu := time.Now(), cpuSeconds()
	var group sync.WaitGroup
	for _, iterator := range iterators {
		group.Go(func() { r.take(iterator) })
	}
	<-r.ctx.Done()
	for _, iterator := range iterators {
		iterator.Stop()
	}
	group.Wait()
	// An ack is not answered; the consumer's own account says when all have been taken in.
	pending, err := waitUntilAcked(ctx, shared)
	if err != nil {
		return outcome{}, err
	}
	result := outcome{
		Seconds: time.Since(begin).Seconds(), CPUSeconds: cpuSeconds() - cpu,
		Acked: r.received.Load() - pending, Failed: r.failed.Load(), FirstError: r.reason,
	}
	return result, js.DeleteStream(ctx, *queue)
}

// open gives every consumer a connection of its own.
func open(ctx context.Context) ([]jetstream.MessagesContext, func(), error) {
	var connections []*nats.Conn
	closeAll := func() {
		for _, connection := range connections {
			connection.Close()
		}
	}
	var iterators []jetstream.MessagesContext
	for range *consumers {
		connection, js, err := connect()
		if err != nil {
			return nil, closeAll, err
		}
		connections = append(connections, connection)
		consumer, err := js.Consumer(ctx, *queue, *queue)
		if err != nil {
			return nil, closeAll, err
		}
		iterator, err := consumer.Messages(jetstream.PullMaxMessages(*prefetch))
		if err != nil {
			return nil, closeAll, err
		}
		iterators = append(iterators, iterator)
	}
	return iterators, closeAll, nil
}

func (r *run) take(iterator jetstream.MessagesContext) {
	for r.ctx.Err() == nil {
		message, err := iterator.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return
		}
		if err != nil {
			r.fail(err.Error())
			return
		}
		number, err := strconv.ParseInt(string(message.Data()[:numberDigits]), 10, 64)
		if err != nil || len(message.Data()) != *size || number >= *count {
			r.fail("a message was never sent")
			return
		}
		if r.numbers[number].Swap(true) {
			r.fail("a message came twice")
			return
		}
		if err := message.Ack(); err != nil {
			r.fail(err.Error())
			return
		}
		if r.received.Add(1) == *count {
			r.cancel()
		}
	}
}

func (r *run) fail(reason string) {
	r.failed.Add(1)
	r.once.Do(func() { r.reason = reason })
	r.cancel()
}

func waitUntilAcked(ctx context.Context, shared jetstream.Consumer) (int64, error) {
	for {
		info, err := shared.Info(ctx)
		if err != nil {
			return 0, err
		}
		if info.NumAckPending == 0 || ctx.Err() != nil {
			return int64(info.NumAckPending), nil
		}
		time.Sleep(infoInterval)
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	seconds := func(value syscall.Timeval) float64 { return float64(value.Nano()) / 1e9 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
