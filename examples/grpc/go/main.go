// Publishes lines and works through a queue group over gRPC.
//
//	goqueue-example HOST:PORT publish TOPIC          each line of the input is a message
//	goqueue-example HOST:PORT receive TOPIC GROUP    until Ctrl-C; prints and acknowledges
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	goqueue "example/goqueue/gen/goqueue/v1"
)

const batch = 100

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: HOST:PORT publish TOPIC | HOST:PORT receive TOPIC GROUP")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, explained(err))
		os.Exit(1)
	}
}

func run(address, command string, arguments []string) error {
	connection, err := grpc.NewClient(
		address,
		// With TLS: credentials.NewClientTLSFromFile("ca.pem", "").
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Notices a node that has vanished. Nodes disconnect clients that ask more often than every 10 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	)
	if err != nil {
		return err
	}
	defer connection.Close()
	switch {
	case command == "publish" && len(arguments) == 1:
		return publish(goqueue.NewPublishServiceClient(connection), arguments[0], os.Stdin)
	case command == "receive" && len(arguments) == 2:
		stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return receive(stopped, goqueue.NewConsumeServiceClient(connection), arguments[0], arguments[1])
	}
	return fmt.Errorf("unknown command %q", command)
}

// publish sends batches without waiting for each, and returns when all of them are durable.
// The node stops reading when it has too much to do, and Send blocks then.
func publish(client goqueue.PublishServiceClient, topic string, lines io.Reader) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.PublishStream(ctx)
	if err != nil {
		return err
	}
	confirmed := make(chan error, 1)
	var count int
	go func() { // responses are read while requests are sent
		for {
			response, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				confirmed <- nil
				return
			}
			if err == nil {
				err = refused(response)
			}
			if err != nil {
				cancel() // Send would block for ever
				confirmed <- err
				return
			}
			count += len(response.GetReport().GetOffsets())
		}
	}()
	scanner, number := bufio.NewScanner(lines), int64(0)
	var messages []*goqueue.OutgoingMessage
	send := func() error {
		if len(messages) == 0 {
			return nil
		}
		number++
		request := &goqueue.PublishStreamRequest{Number: number, Topic: topic, Messages: messages}
		messages = nil
		return stream.Send(request)
	}
	for err == nil && scanner.Scan() {
		messages = append(messages, &goqueue.OutgoingMessage{Value: []byte(scanner.Text())})
		if len(messages) == batch {
			err = send()
		}
	}
	if err == nil {
		err = errors.Join(scanner.Err(), send(), stream.CloseSend())
	}
	if reason := <-confirmed; reason != nil {
		return reason // Send only says that the stream has ended
	}
	fmt.Fprintf(os.Stderr, "published %d\n", count)
	return err
}

// refused returns why messages of a request were not published.
func refused(response *goqueue.PublishStreamResponse) error {
	failed := response.GetError()
	if errors := response.GetReport().GetErrors(); len(errors) > 0 {
		failed = errors[0].GetError()
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("request %d: %s (%s)", response.GetNumber(), failed.GetMessage(), failed.GetReason())
}

// receive prints and acknowledges messages until stopped. All that it has received is acknowledged by
// then, and what it has not received stays for others.
func receive(stopped context.Context, client goqueue.ConsumeServiceClient, topic, group string) error {
	stream, err := client.Receive(context.Background())
	if err != nil {
		return err
	}
	start := &goqueue.ReceiveStart{Group: group, Topic: topic, MessagesMax: batch}
	// The node sends what there is credit for; each batch that is done gives its credit back.
	if err := stream.Send(&goqueue.ReceiveRequest{Start: start, Credit: 10 * batch}); err != nil {
		return err
	}
	responses := make(chan *goqueue.ReceiveResponse)
	var ended error
	go func() {
		defer close(responses)
		for {
			response, err := stream.Recv()
			if err != nil {
				ended = err
				return
			}
			responses <- response
		}
	}()
	const stop = int64(1)
	number, count := stop, 0
	for stopping, isStopping := stopped.Done(), false; ; {
		select {
		case <-stopping:
			stopping, isStopping = nil, true
			if err := stream.Send(&goqueue.ReceiveRequest{Stop: true, Number: stop}); err != nil {
				return err
			}
		case response, ok := <-responses:
			if !ok {
				fmt.Fprintf(os.Stderr, "acknowledged %d\n", count)
				if errors.Is(ended, io.EOF) {
					return nil
				}
				return ended
			}
			var done []string
			for _, message := range response.GetMessages() {
				fmt.Println(string(message.GetValue()))
				done = append(done, message.GetReceipt())
			}
			if len(done) > 0 {
				number++
				request := &goqueue.ReceiveRequest{Number: number, Ack: done}
				if !isStopping {
					request.Credit = int32(len(done))
				}
				if err := stream.Send(request); err != nil {
					return err
				}
			}
			for _, settled := range response.GetSettlements() {
				count += int(settled.GetAccepted())
				for _, failed := range settled.GetErrors() { // the lease had ended: others receive it
					fmt.Fprintln(os.Stderr, failed.GetReceipt(), failed.GetError().GetMessage())
				}
				if settled.GetNumber() == stop { // the last message has come
					if err := stream.CloseSend(); err != nil {
						return err
					}
				}
			}
		}
	}
}

// explained returns an error with its reason, which is stable and meant for programs.
func explained(err error) string {
	text := err.Error()
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			text = fmt.Sprintf("%s (%s)", text, info.GetReason())
		}
	}
	return text
}
