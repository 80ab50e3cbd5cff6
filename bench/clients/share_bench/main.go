// The client of the share group rows: franz-go, a connection for each consumer.
//
// Every record must come exactly once, and every acknowledgement must be confirmed; the time ends
// with the last of them. Prints one JSON object. Exit code 0 means the run took place; "failed" says
// how it went.
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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	bootstrap  = flag.String("bootstrap", "127.0.0.1:9092", "")
	group      = flag.String("group", "", "")
	topic      = flag.String("topic", "", "")
	partitions = flag.Int("partitions", 6, "")
	count      = flag.Int64("count", 10_000, "")
	warmup     = flag.Int64("warmup", 0, "records that are not timed")
	size       = flag.Int("size", 1000, "")
	consumers  = flag.Int("consumers", 8, "")
	batch      = flag.Int("batch", 500, "records asked for at once")
	secondsMax = flag.Float64("seconds-max", 60, "")
)

type outcome struct {
	Seconds    float64 `json:"seconds"`
	Acked      int64   `json:"acked"`
	Timed      int64   `json:"timed"`
	Failed     int64   `json:"failed"`
	Missing    int64   `json:"missing"`
	FirstError string  `json:"first_error"`
	CPUSeconds float64 `json:"cpu_seconds"`
	FirstMs    float64 `json:"first_message_ms"`
}

// run is shared by all consumers.
type run struct {
	received atomic.Int64
	failed   atomic.Int64
	begin    atomic.Int64 // when the warm-up was received, in ns
	end      atomic.Int64 // when the last consumer had its acknowledgements confirmed
	first    atomic.Int64
	seen     [][]atomic.Bool
	once     sync.Once
	reason   string
	all      context.Context // until all records were received
	stop     context.CancelFunc
}

func main() {
	flag.Parse()
	if *group == "" || *topic == "" || *consumers < 1 || *count < 1 || *warmup >= *count {
		fail(errors.New("--group and --topic, or a number out of range"))
	}
	limit := time.Duration(*secondsMax * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := &run{seen: make([][]atomic.Bool, *partitions)}
	r.all, r.stop = context.WithCancel(ctx)
	for number := range r.seen {
		r.seen[number] = make([]atomic.Bool, *count)
	}
	if err := readFromStart(ctx); err != nil {
		fail(err)
	}
	started, cpu := time.Now(), cpuSeconds()
	r.begin.Store(started.UnixNano())
	var ended sync.WaitGroup
	for range *consumers {
		ended.Add(1)
		go func() {
			defer ended.Done()
			r.consume(ctx)
		}()
	}
	ended.Wait()
	received := r.received.Load()
	result := outcome{
		Seconds: float64(r.end.Load()-r.begin.Load()) / 1e9, Acked: received,
		Timed: received - *warmup, Failed: r.failed.Load(), Missing: *count - received,
		FirstError: r.reason, CPUSeconds: cpuSeconds() - cpu,
		FirstMs: float64(r.first.Load()-started.UnixNano()) / 1e6,
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "share_bench:", err)
	os.Exit(1)
}

// readFromStart lets the group begin with what is stored already.
func readFromStart(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(*bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	setting, value := kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), "earliest"
	setting.Name, setting.Value = "share.auto.offset.reset", &value
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, *group
	resource.Configs = append(resource.Configs, setting)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Resources[0].ErrorCode)
}

func (r *run) fail(reason string) {
	r.failed.Add(1)
	r.once.Do(func() { r.reason = reason })
	r.stop()
}

func (r *run) consume(ctx context.Context) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(*bootstrap),
		kgo.ShareGroup(*group),
		kgo.ShareMaxRecords(int32(*batch)),
		kgo.ConsumeTopics(*topic),
		// The client sends the last acknowledgements when the fetch that is under way has returned,
		// so that a short run would measure this wait; its default is 500 ms.
		kgo.FetchMaxWait(20*time.Millisecond),
		kgo.ShareAckCallback(r.confirmed),
	)
	if err != nil {
		r.fail(err.Error())
		return
	}
	defer client.Close()
	for r.all.Err() == nil {
		fetches := client.PollRecords(r.all, 0)
		fetches.EachError(func(_ string, _ int32, err error) {
			if r.all.Err() == nil {
				r.fail(err.Error())
			}
		})
		r.take(fetches.Records())
		client.MarkAcks(kgo.AckAccept)
	}
	if err := client.FlushAcks(ctx); err != nil {
		r.fail("the last acknowledgements: " + err.Error())
	}
	r.end.Store(time.Now().UnixNano())
}

// take checks records; each offset may come once.
func (r *run) take(records []*kgo.Record) {
	if len(records) == 0 {
		return
	}
	r.first.CompareAndSwap(0, time.Now().UnixNano())
	for _, one := range records {
		if len(one.Value) != *size {
			r.fail("a record has the wrong size")
		} else if int(one.Partition) >= *partitions || one.Offset >= *count {
			r.fail("a record was never sent")
		} else if r.seen[one.Partition][one.Offset].Swap(true) {
			r.fail("a record came twice")
		}
	}
	got := int64(len(records))
	after := r.received.Add(got)
	if after >= *warmup && after-got < *warmup {
		r.begin.Store(time.Now().UnixNano())
	}
	if after >= *count {
		r.stop()
	}
}

// confirmed is told what became of acknowledgements.
func (r *run) confirmed(_ *kgo.Client, results kgo.ShareAckResults) {
	for _, one := range results {
		if one.Err != nil {
			r.fail("an acknowledgement failed: " + one.Err.Error())
		}
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
