package control

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	apiv1 "gradnic/control/api/v1"
)

// finishWithin bounds how long the NIC may take to send what is left, after it was asked to end a stream.
const finishWithin = 10 * time.Second

// CaptureFrames runs a capture and gives each response to use: first one without frames, when the capture runs. When
// ctx ends, the capture does, and what is left is still given to use; that is no error.
func (c *Client) CaptureFrames(ctx context.Context, r *apiv1.CaptureRequest, use func(*apiv1.CaptureResponse) error) error {
	return watch(ctx, c.Capture, r, use)
}

// TraceFrames is CaptureFrames for a trace.
func (c *Client) TraceFrames(ctx context.Context, r *apiv1.TraceRequest, use func(*apiv1.TraceResponse) error) error {
	return watch(ctx, c.Trace, r, use)
}

// watch sends the one request, then receives until the stream's end; the end of ctx is told to the NIC by closing
// our side, so that it sends what is left.
func watch[Req, Resp any](
	ctx context.Context, call func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Req, Resp], error),
	r *Req, use func(*Resp) error,
) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stream, err := call(life)
	if err != nil {
		return err
	}
	if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv knows why
		return err
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		_ = stream.CloseSend()
		select {
		case <-done:
		case <-time.After(finishWithin):
			cancel()
		}
	}()
	defer func() { close(done); <-ended }()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := use(m); err != nil {
			return err
		}
	}
}
