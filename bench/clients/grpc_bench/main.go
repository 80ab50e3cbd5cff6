// The client of the gRPC rows: grpc-go, with a connection for each stream.
//
//	grpc_bench publish   --streams publish --count messages in requests of --batch, with up to --window
//	                     requests without a response on each
//	grpc_bench consume   --streams receive and acknowledge; each message must come once, and the time
//	                     ends with the last confirmation
//
// Requests are prebuilt bytes and responses are read field by field, so that the load costs little.
// Prints one JSON object. Exit code 0 means the run took place; "failed" says how it went.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

var (
	address    = flag.String("address", "127.0.0.1:9000", "")
	topic      = flag.String("topic", "", "")
	group      = flag.String("group", "", "")
	partitions = flag.Int("partitions", 6, "")
	count      = flag.Int64("count", 100_000, "")
	size       = flag.Int("size", 1000, "")
	streams    = flag.Int("streams", 1, "")
	batch      = flag.Int("batch", 100, "messages of a request, or of a response at most")
	window     = flag.Int("window", 32, "requests without a response, of each stream")
	credit     = flag.Int("credit", 1000, "of each stream")
	secondsMax = flag.Float64("seconds-max", 60, "")
)

var modes = map[string]func(*run, *grpc.ClientConn) error{"publish": publish, "consume": consume}

type outcome struct {
	Seconds    float64 `json:"seconds"`
	Acked      int64   `json:"acked"`
	Failed     int64   `json:"failed"`
	Missing    int64   `json:"missing"`
	FirstError string  `json:"first_error"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

func main() {
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fail(errors.New("usage: grpc_bench publish|consume --address A --topic T ..."))
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || *topic == "" || *streams < 1 || *batch < 1 {
		fail(errors.New("--topic, or a number out of range"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*secondsMax*float64(time.Second)))
	defer cancel()
	r := newRun(ctx)
	var connections []*grpc.ClientConn
	for range *streams {
		connection, err := grpc.NewClient(
			*address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(64<<20)),
			grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(8<<20),
		)
		if err != nil {
			fail(err)
		}
		defer connection.Close()
		connections = append(connections, connection)
	}
	begin, cpu := time.Now(), cpuSeconds()
	var all sync.WaitGroup
	for _, connection := range connections {
		all.Go(func() {
			if err := modes[os.Args[1]](r, connection); err != nil && r.ctx.Err() == nil {
				r.fail(err.Error())
			}
		})
	}
	all.Wait()
	elapsed := time.Since(begin)
	result := outcome{
		Seconds: elapsed.Seconds(), Acked: r.acked.Load(), Failed: r.failed.Load(),
		Missing: *count - r.acked.Load(), FirstError: r.reason, CPUSeconds: cpuSeconds() - cpu,
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

// run is one run, shared by all its streams.
type run struct {
	ctx    context.Context
	cancel context.CancelFunc
	begun  atomic.Int64
	acked  atomic.Int64
	failed atomic.Int64
	seen   [][]atomic.Bool
	once   sync.Once
	reason string
}

func newRun(ctx context.Context) *run {
	r := &run{seen: make([][]atomic.Bool, *partitions)}
	for number := range r.seen {
		r.seen[number] = make([]atomic.Bool, *count)
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

func (r *run) fail(reason string) {
	r.once.Do(func() { r.reason = reason })
	r.failed.Add(1)
	r.cancel()
}

// take gives the messages that a stream publishes next; 0 when all have been given.
func (r *run) take() int {
	before := r.begun.Add(int64(*batch)) - int64(*batch)
	return int(max(0, min(int64(*batch), *count-before)))
}

func publish(r *run, connection *grpc.ClientConn) error {
	stream, err := open(r.ctx, connection, "/goqueue.v1.PublishService/PublishStream")
	if err != nil {
		return err
	}
	room := make(chan struct{}, *window)
	confirmed := make(chan error, 1)
	go func() {
		for {
			var response []byte
			if err := stream.RecvMsg(&response); err != nil {
				if err.Error() == "EOF" {
					err = nil
				}
				confirmed <- err
				return
			}
			stored, problem := reported(response)
			if problem != "" {
				r.fail(problem)
			}
			r.acked.Add(stored)
			<-room
		}
	}()
	value := make([]byte, *size)
	for at := range value {
		value[at] = 'x'
	}
	message := protowire.AppendTag(nil, 2, protowire.BytesType)
	message = protowire.AppendBytes(message, value)
	var messages []byte
	for range *batch {
		messages = protowire.AppendTag(messages, 3, protowire.BytesType)
		messages = protowire.AppendBytes(messages, message)
	}
	each := len(messages) / *batch
	for number := uint64(1); ; number++ {
		taken := r.take()
		if taken == 0 {
			break
		}
		request := protowire.AppendTag(make([]byte, 0, len(messages)+300), 1, protowire.VarintType)
		request = protowire.AppendVarint(request, number)
		request = protowire.AppendTag(request, 2, protowire.BytesType)
		request = protowire.AppendString(request, *topic)
		request = append(request, messages[:taken*each]...)
		select {
		case room <- struct{}{}:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
		if err := stream.SendMsg(request); err != nil {
			break // The receiver knows why.
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return <-confirmed
}

// reported counts the messages of a response that were stored.
func reported(response []byte) (int64, string) {
	var stored int64
	problem := ""
	each(response, func(number protowire.Number, value []byte) {
		switch number {
		case 2: // the report
			each(value, func(number protowire.Number, value []byte) {
				switch number {
				case 2: // offsets, packed
					for len(value) > 0 {
						_, length := protowire.ConsumeVarint(value)
						value = value[length:]
						stored++
					}
				case 4:
					problem = fmt.Sprintf("a message was refused: %q", value)
				}
			})
		case 3:
			problem = fmt.Sprintf("a request was refused: %q", value)
		}
	})
	return stored, problem
}

func consume(r *run, connection *grpc.ClientConn) error {
	stream, err := open(r.ctx, connection, "/goqueue.v1.ConsumeService/Receive")
	if err != nil {
		return err
	}
	start := protowire.AppendTag(nil, 1, protowire.BytesType)
	start = protowire.AppendString(start, *group)
	start = protowire.AppendTag(start, 2, protowire.BytesType)
	start = protowire.AppendString(start, *topic)
	start = protowire.AppendTag(start, 5, protowire.VarintType)
	start = protowire.AppendVarint(start, uint64(*batch))
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendBytes(request, start)
	if err := stream.SendMsg(withCredit(request, *credit)); err != nil {
		return err
	}
	for number := uint64(1); ; {
		var response []byte
		if err := stream.RecvMsg(&response); err != nil {
			return err
		}
		var acks []byte
		received := 0
		each(response, func(field protowire.Number, value []byte) {
			switch field {
			case 1:
				received++
				acks = protowire.AppendTag(acks, 4, protowire.BytesType)
				acks = protowire.AppendBytes(acks, r.received(value))
			case 2:
				r.settled(value)
			}
		})
		if r.acked.Load() >= *count {
			r.cancel() // The other streams have nothing left to do.
			return nil
		}
		if received > 0 {
			acks = protowire.AppendTag(acks, 3, protowire.VarintType)
			acks = protowire.AppendVarint(acks, number)
			number++
			if err := stream.SendMsg(withCredit(acks, received)); err != nil {
				return err
			}
		}
	}
}

// received returns the receipt of a message, which must not have come before.
func (r *run) received(message []byte) []byte {
	var partition, offset uint64
	var receipt []byte
	length := 0
	for len(message) > 0 {
		number, kind, head := protowire.ConsumeTag(message)
		message = message[head:]
		taken := 0
		switch kind {
		case protowire.VarintType:
			var value uint64
			value, taken = protowire.ConsumeVarint(message)
			if number == 2 {
				partition = value
			} else if number == 3 {
				offset = value
			}
		case protowire.BytesType:
			var value []byte
			value, taken = protowire.ConsumeBytes(message)
			if number == 8 {
				receipt = value
			} else if number == 6 {
				length = len(value)
			}
		}
		message = message[taken:]
	}
	if length != *size {
		r.fail("a message has the wrong size")
	} else if r.seen[partition][offset].Swap(true) {
		r.fail("a message came twice")
	}
	return receipt
}

// settled counts what a settlement has accepted.
func (r *run) settled(settlement []byte) {
	for len(settlement) > 0 {
		number, kind, head := protowire.ConsumeTag(settlement)
		settlement = settlement[head:]
		if kind == protowire.BytesType {
			r.fail("an acknowledgement was refused")
		} else if value, _ := protowire.ConsumeVarint(settlement); number == 2 {
			r.acked.Add(int64(value))
		}
		settlement = settlement[protowire.ConsumeFieldValue(number, kind, settlement):]
	}
}

func withCredit(request []byte, credit int) []byte {
	request = protowire.AppendTag(request, 2, protowire.VarintType)
	return protowire.AppendVarint(request, uint64(credit))
}

// each calls take with the fields of a message that are bytes.
func each(message []byte, take func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, kind, head := protowire.ConsumeTag(message)
		message = message[head:]
		if kind == protowire.BytesType {
			value, length := protowire.ConsumeBytes(message)
			take(number, value)
			message = message[length:]
		} else {
			message = message[protowire.ConsumeFieldValue(number, kind, message):]
		}
	}
}

func open(ctx context.Context, connection *grpc.ClientConn, method string) (grpc.ClientStream, error) {
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	return connection.NewStream(ctx, both, method, grpc.WaitForReady(true))
}

// raw passes messages on as the bytes that they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, message any) error {
	*message.(*[]byte) = data.Materialize()
	return nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "grpc_bench:", err)
	os.Exit(1)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	seconds := func(value syscall.Timeval) float64 { return float64(value.Nano()) / 1e9 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
