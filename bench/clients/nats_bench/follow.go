package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	readAhead = 10_000
	paceMin   = 200 * time.Microsecond // closer ticks would only measure the timer
	// Whoever is so far behind does not catch up: a latency would only tell how long the run was.
	behindMax   = 3 * time.Second
	numbersStep = 7919 // a prime: numbers are due in another order than they came
)

// follow reads a subject from its first message on and hands every message over, in order.
func (r *run) follow(js jetstream.JetStream, subject string, take func([]byte)) (func(), error) {
	config := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		FilterSubject: subject, MemoryStorage: true,
	}
	consumer, err := js.CreateConsumer(r.ctx, *queue, config)
	if err != nil {
		return nil, err
	}
	onError := jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoHeartbeat) {
			r.fail(err.Error())
		}
	})
	consuming, err := consumer.Consume(
		func(message jetstream.Msg) { take(message.Data()) },
		jetstream.PullMaxMessages(readAhead), onError,
	)
	if err != nil {
		return nil, err
	}
	return consuming.Stop, nil
}

func read(ctx context.Context, js jetstream.JetStream) (outcome, error) {
	r := newRun(ctx)
	var begin time.Time
	var cpu float64
	value := make([]byte, numberDigits)
	stop, err := r.follow(js, *queue, func(data []byte) {
		putNumber(value, r.received.Load())
		if !bytes.HasPrefix(data, value) {
			r.fail("a message is missing or out of order")
			return
		}
		if begin.IsZero() { // what a reader waits for the first is not reading
			begin, cpu = time.Now(), cpuSeconds()
		}
		if r.take(data) {
			r.cancel()
		}
	})
	if err != nil {
		return outcome{}, err
	}
	<-r.ctx.Done()
	elapsed := time.Since(begin)
	stop()
	return r.outcome(r.received.Load(), elapsed, cpu), nil
}

func endToEnd(ctx context.Context, js jetstream.JetStream) (outcome, error) {
	if _, err := create(ctx, js); err != nil {
		return outcome{}, err
	}
	connection, publishing, err := connect()
	if err != nil {
		return outcome{}, err
	}
	defer connection.Close()
	r := newRun(ctx)
	base, cpu := time.Now(), cpuSeconds()
	stop, err := r.follow(js, *queue, func(data []byte) {
		now := time.Since(base)
		isLast := r.take(data)
		due := time.Duration(binary.LittleEndian.Uint64(data[numberDigits:]))
		if now-due > behindMax {
			fail(errors.New("it does not keep this pace"))
		}
		if r.received.Load() > *warmup {
			r.samples = append(r.samples, max(now-due, 0))
		}
		if isLast {
			r.cancel()
		}
	})
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	if err := r.publishPaced(publishing, base); err != nil {
		return outcome{}, err
	}
	<-r.ctx.Done()
	return r.outcome(*count, time.Since(base), cpu), nil
}

// publishPaced sends each message when it is due; it carries that time, so that a publisher which
// is held up cannot hide the delay. It returns when all have been acknowledged.
func (r *run) publishPaced(js jetstream.JetStream, base time.Time) error {
	gap := float64(time.Second) / *rate
	tick := max(time.Duration(gap), paceMin)
	begin := time.Since(base) + 20*time.Millisecond
	value, sent := payload(), int64(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, 1, 0)
	for turn := time.Duration(0); sent < *count && r.ctx.Err() == nil; turn++ {
		due := begin + turn*tick
		sleep(due - time.Since(base))
		for ; sent < *count && float64(sent)*gap <= float64(turn*tick); sent++ {
			putNumber(value, sent)
			binary.LittleEndian.PutUint64(value[numberDigits:], uint64(due))
			if _, err := js.PublishAsync(*queue, bytes.Clone(value), patient()); err != nil {
				return err
			}
		}
	}
	return r.waitForAcks(js)
}

// sleep keeps the thread: the timers of Go are a millisecond late, which would be all there is to see.
func sleep(pause time.Duration) {
	if pause > 0 {
		wait := syscall.NsecToTimespec(int64(pause))
		_ = syscall.Nanosleep(&wait, nil)
	}
}

// patient lets a publisher wait where too many messages are not yet acknowledged.
func patient() jetstream.PublishOpt {
	return jetstream.WithStallWait(time.Duration(*secondsMax * float64(time.Second)))
}

func (r *run) waitForAcks(js jetstream.JetStream) error {
	limit := time.Duration(*secondsMax * float64(time.Second))
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(limit):
		return errors.New("not all messages were acknowledged in time")
	}
}

// delay schedules every message on a subject of its own, as the server asks, and takes what it
// releases. The account's seconds are those of the insert.
func delay(ctx context.Context, js jetstream.JetStream) (outcome, error) {
	released := *queue + ".out"
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: *queue, Subjects: []string{*queue + ".in.*", released},
		Storage: jetstream.FileStorage, AllowMsgSchedules: true,
	})
	if err != nil {
		return outcome{}, err
	}
	r := newRun(ctx)
	stop, err := r.follow(js, released, func(data []byte) {
		due := time.UnixMilli(int64(binary.LittleEndian.Uint64(data[numberDigits:])))
		late := time.Since(due)
		// The scheduler looks a little ahead; a client that counts milliseconds would see it.
		if late < -time.Millisecond {
			r.fail("a message came early, by " + (-late).String())
		}
		r.samples = append(r.samples, max(late, 0))
		if r.take(data) {
			r.cancel()
		}
	})
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	begin, cpu := time.Now(), cpuSeconds()
	if err := r.schedule(js, released, begin); err != nil {
		return outcome{}, err
	}
	elapsed := time.Since(begin)
	if elapsed > time.Duration(*delayMs)*time.Millisecond {
		return outcome{}, fmt.Errorf("the insert took %.0f s, longer than the delay", elapsed.Seconds())
	}
	<-r.ctx.Done()
	result := r.outcome(*count, elapsed, cpu)
	return result, nil
}

func (r *run) schedule(js jetstream.JetStream, target string, begin time.Time) error {
	first := begin.Add(time.Duration(*delayMs) * time.Millisecond).UnixMilli()
	for sent := int64(0); sent < *count && r.failed.Load() == 0; sent++ {
		dueMs := first + (sent*numbersStep%*count)**windowMs / *count
		value := payload()
		putNumber(value, sent)
		binary.LittleEndian.PutUint64(value[numberDigits:], uint64(dueMs))
		at := time.UnixMilli(dueMs).UTC().Format("2006-01-02T15:04:05.000Z07:00")
		message := &nats.Msg{
			Subject: fmt.Sprintf("%s.in.%d", *queue, sent), Data: value,
			Header: nats.Header{"Nats-Schedule": {"@at " + at}, "Nats-Schedule-Target": {target}},
		}
		if _, err := js.PublishMsgAsync(message, patient()); err != nil {
			return err
		}
	}
	return r.waitForAcks(js)
}
