package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	unackedMax   = 100_000
	infoInterval = time.Millisecond
)

func consume(ctx context.Context, js jetstream.JetStream) (outcome, error) {
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
	r := newRun(ctx)
	begin, cpu := time.Now(), cpuSeconds()
	var group sync.WaitGroup
	for _, iterator := range iterators {
		group.Go(func() { r.takeAll(iterator) })
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
	if pending > 0 {
		r.fail("messages are pending after their acks")
	}
	return r.outcome(r.received.Load()-pending, time.Since(begin), cpu), nil
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

func (r *run) takeAll(iterator jetstream.MessagesContext) {
	for r.ctx.Err() == nil {
		message, err := iterator.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return
		}
		if err != nil {
			r.fail(err.Error())
			return
		}
		isLast := r.take(message.Data())
		if r.failed.Load() > 0 {
			return
		}
		if err := message.Ack(); err != nil {
			r.fail(err.Error())
			return
		}
		if isLast {
			r.cancel()
		}
	}
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
