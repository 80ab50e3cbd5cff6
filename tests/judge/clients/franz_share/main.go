// A share consumer of franz-go. `story` settles ten records in every way and prints what came;
// `drain` accepts what it gets, and prints it once that is confirmed, until it is ended.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	lock    sync.Mutex
	refused int
)

func main() {
	bootstrap, group, topic, mode := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			lock.Lock()
			defer lock.Unlock()
			for _, one := range results {
				if one.Err != nil {
					refused++
				}
			}
		}),
	)
	if err != nil {
		panic(err)
	}
	if mode == "story" {
		story(client)
	} else {
		drain(client)
	}
	client.Close()
}

func story(client *kgo.Client) {
	first := take(client, 10)
	for _, record := range first {
		number, _ := strconv.Atoi(string(record.Value))
		switch {
		case number < 5:
			record.Ack(kgo.AckAccept)
		case number < 8:
			record.Ack(kgo.AckRelease)
		case number < 9:
			record.Ack(kgo.AckReject)
		default:
			record.Ack(kgo.AckRenew)
		}
	}
	flush(client)
	for _, record := range first {
		if string(record.Value) == "9" {
			record.Ack(kgo.AckAccept)
		}
	}
	flush(client)
	second := take(client, 3)
	for _, record := range second {
		record.Ack(kgo.AckAccept)
	}
	flush(client)
	lock.Lock()
	defer lock.Unlock()
	line, _ := json.Marshal(map[string]any{
		"first": counts(first), "second": counts(second), "refused": refused,
	})
	fmt.Println(string(line))
}

func flush(client *kgo.Client) {
	if err := client.FlushAcks(context.Background()); err != nil {
		panic(err)
	}
}

func take(client *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		client.PollFetches(context.Background()).EachRecord(func(one *kgo.Record) {
			found = append(found, one)
		})
	}
	return found
}

func counts(records []*kgo.Record) map[string]int32 {
	found := map[string]int32{}
	for _, one := range records {
		found[string(one.Value)] = one.DeliveryCount()
	}
	return found
}

func drain(client *kgo.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until its input ends
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	for ctx.Err() == nil {
		polled, stop := context.WithTimeout(ctx, 200*time.Millisecond)
		records := client.PollFetches(polled).Records()
		stop()
		for _, one := range records {
			fmt.Println("got", string(one.Value))
			one.Ack(kgo.AckAccept)
		}
		lock.Lock()
		refused = 0
		lock.Unlock()
		flush(client)
		lock.Lock()
		if refused == 0 {
			for _, one := range records {
				fmt.Println("settled", string(one.Value))
			}
		}
		lock.Unlock()
	}
}
