package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

// A response of a capture has at most so many frames, and about so many bytes of them.
const (
	captureFrames = 256
	captureBytes  = 1 << 20
)

// sightService answers the API's calls that watch frames.
type sightService struct {
	apiv1.UnimplementedSightServiceServer
	server *Server
}

// watchUntil returns a context that ends when the stream's client ends it, has closed its side, or the server stops.
// Whoever asked for frames and goes away must not keep the server from stopping.
func (s *sightService) watchUntil(stream grpc.ServerStream) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(stream.Context())
	go func() {
		// The client says nothing more: any message and any error ends it. The call's end ends this.
		var m apiv1.CaptureRequest
		_ = stream.RecvMsg(&m)
		cancel()
	}()
	go func() {
		select {
		case <-s.server.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (s *sightService) Capture(stream grpc.BidiStreamingServer[apiv1.CaptureRequest, apiv1.CaptureResponse]) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	o, err := captureFromProto(r)
	if err != nil {
		return err
	}
	c, err := s.server.nic.Capture(o)
	if err != nil {
		return sightError(err)
	}
	defer c.Close()
	if err := stream.Send(&apiv1.CaptureResponse{Ports: c.PortNames()}); err != nil {
		return err
	}
	ctx, cancel := s.watchUntil(stream)
	defer cancel()
	left := r.GetCount()
	for {
		most := uint64(min(captureFrames, max(1, captureBytes/o.SnapLen)))
		if r.GetCount() != 0 {
			most = min(most, left)
		}
		frames, err := c.Read(ctx, int(most))
		if err != nil && stream.Context().Err() != nil {
			return stream.Context().Err()
		}
		if errors.Is(err, context.Canceled) {
			c.Close() // what is left is still to be read
			ctx = stream.Context()
			continue
		}
		resp := &apiv1.CaptureResponse{Lost: lossToProto(c.Lost())}
		for i := range frames {
			resp.Frames = append(resp.Frames, capturedToProto(&frames[i]))
		}
		if sendErr := stream.Send(resp); sendErr != nil {
			return sendErr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return sightError(err)
		}
		if left -= uint64(len(frames)); r.GetCount() != 0 && left == 0 {
			return nil
		}
	}
}

func (s *sightService) Trace(stream grpc.BidiStreamingServer[apiv1.TraceRequest, apiv1.TraceResponse]) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	t, err := s.server.nic.Trace(dataplane.TraceOptions{Slot: clampInt(r.GetSlot()), Job: r.GetJob(), Count: clampInt(r.GetCount())})
	if err != nil {
		return sightError(err)
	}
	defer t.Close()
	if err := stream.Send(&apiv1.TraceResponse{}); err != nil {
		return err
	}
	ctx, cancel := s.watchUntil(stream)
	defer cancel()
	for {
		f, err := t.Read(ctx)
		switch {
		case err == nil:
			if err := stream.Send(&apiv1.TraceResponse{Frame: tracedToProto(&f), Lost: t.Lost()}); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return nil
		case stream.Context().Err() != nil:
			return stream.Context().Err()
		case errors.Is(err, context.Canceled):
			t.Close()
			ctx = stream.Context()
		default:
			return sightError(err)
		}
	}
}

func (s *sightService) ListStages(context.Context, *apiv1.ListStagesRequest) (*apiv1.ListStagesResponse, error) {
	snap := s.server.nic.Snapshot()
	resp := &apiv1.ListStagesResponse{Total: stagesToProto(snap.Stages)}
	for i := range snap.Lanes {
		l := &snap.Lanes[i]
		resp.Lanes = append(resp.Lanes, &apiv1.LaneStages{Lane: uint32(l.Lane), Stages: stagesToProto(l.Stages)})
	}
	return resp, nil
}

// sightError is a refusal: what the data plane refuses to watch was asked for wrongly, or it is stopping.
func sightError(err error) error {
	switch {
	case errors.Is(err, dataplane.ErrNoJob):
		return &Error{Kind: NotFound, Why: err.Error()}
	case errors.Is(err, dataplane.ErrStopped):
		return &Error{Kind: Stopped, Why: err.Error()}
	}
	return &Error{Kind: Invalid, Why: err.Error()}
}

func captureFromProto(r *apiv1.CaptureRequest) (o dataplane.CaptureOptions, err error) {
	o = dataplane.CaptureOptions{Ports: r.GetPorts(), SnapLen: clampInt(r.GetSnapLen()), Buffer: clampInt(r.GetBuffer())}
	if o.SnapLen == 0 {
		o.SnapLen = dataplane.MaxSnapLen
	}
	for _, s := range r.GetStages() {
		if s < apiv1.CaptureStage_CAPTURE_STAGE_RX || s > apiv1.CaptureStage_CAPTURE_STAGE_DROP {
			return o, refuse(Invalid, "stages", "%v: legal are rx, tx and drop", s)
		}
		o.Stages = append(o.Stages, dataplane.CaptureStage(s-apiv1.CaptureStage_CAPTURE_STAGE_RX))
	}
	return o, nil
}

func captureStageToProto(s dataplane.CaptureStage) apiv1.CaptureStage {
	return apiv1.CaptureStage(s) + apiv1.CaptureStage_CAPTURE_STAGE_RX
}

func capturedToProto(f *dataplane.CapturedFrame) *apiv1.CapturedFrame {
	return &apiv1.CapturedFrame{
		Time: timestamppb.New(f.Time), Stage: captureStageToProto(f.Stage), Port: uint32(f.Port), Lane: uint32(f.Lane),
		Reason: f.Reason, Length: uint32(f.Length), Data: f.Data,
	}
}

func lossToProto(lost []dataplane.CaptureLoss) []*apiv1.CaptureLoss {
	out := make([]*apiv1.CaptureLoss, 0, len(lost))
	for _, l := range lost {
		out = append(out, &apiv1.CaptureLoss{Port: uint32(l.Port), Stage: captureStageToProto(l.Stage), Frames: l.Frames})
	}
	return out
}

func tracedToProto(f *dataplane.TraceFrame) *apiv1.TracedFrame {
	m := &f.Message
	lost := map[string]uint64{}
	for reason, n := range f.Lost {
		lost[reason] = uint64(n)
	}
	t := &apiv1.TracedFrame{
		Time: timestamppb.New(f.Time), Lane: uint32(f.Lane), FromLane: int32(f.From), Port: f.Port, Length: uint32(f.Length),
		Message: &apiv1.TracedMessage{
			Protocol: m.Protocol, Mac: m.MAC.String(), Ipv4: m.IP.String(), UdpPort: uint32(m.UDPPort), ToUdpPort: uint32(m.To), Kind: m.Kind,
			JobId: uint32(m.JobID), Slot: uint32(m.Slot), Set: uint32(m.Set), Round: m.Round, Tsi: m.TSI, Elements: uint32(m.Elements),
		},
		Job: f.Job, Rank: int32(f.Rank), Outcome: f.Outcome, Seen: ranksToProto(f.Seen), Waiting: ranksToProto(f.Waiting),
		Lost: dropsToProto(lost), Verdict: f.Verdict, Reason: f.Reason,
	}
	for i := range f.Replies {
		r := &f.Replies[i]
		t.Replies = append(t.Replies, &apiv1.TracedReply{
			Rank: int32(r.Rank), Mac: r.MAC.String(), Ipv4: r.IP.String(), UdpPort: uint32(r.UDPPort), Port: r.Port, Length: uint32(r.Length),
			Posted: r.Posted, Reason: r.Reason,
		})
	}
	return t
}

func stagesToProto(stages []dataplane.StageSnapshot) []*apiv1.Stage {
	out := make([]*apiv1.Stage, 0, len(stages))
	for i := range stages {
		s := &stages[i]
		out = append(out, &apiv1.Stage{Name: s.Stage, Frames: s.Frames, Batches: s.Batches, TimedFrames: s.TimedFrames, TimedNs: s.TimedNS})
	}
	return out
}

func queuesToProto(queues []dataplane.QueueSnapshot) (out []*apiv1.Queue) {
	for _, q := range queues {
		out = append(out, &apiv1.Queue{
			Index: uint32(q.Queue), Lane: uint32(q.Lane), Received: q.Received, Batches: q.Batches, Transmitted: q.Transmitted, Completed: q.Completed,
			Rings: ringsToProto(q.Rings),
		})
	}
	return out
}

func ringsToProto(r dataplane.Rings) *apiv1.Rings {
	return &apiv1.Rings{Fill: r.Fill, FillMost: r.FillMost, Transmit: r.Transmit, TransmitMost: r.TransmitMost}
}

func laneTimeToProto(t dataplane.LaneTime) *apiv1.LaneTime {
	return &apiv1.LaneTime{LifeNs: uint64(t.Life), BusyNs: uint64(t.Busy), SpinNs: uint64(t.Spin), SleepNs: uint64(t.Sleep)}
}

// guardStream is Guard for streams.
func guardStream(logger *slog.Logger) grpc.StreamServerInterceptor {
	q := &quiet{logger: logger}
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if p := recover(); p != nil {
				logger.Error("call panicked", "method", info.FullMethod, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				err = status.Errorf(codes.Internal, "%s panicked: this is a bug of gradnic, its log has more", info.FullMethod)
			}
		}()
		err = handler(srv, stream)
		if err != nil && status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
			q.refused(info.FullMethod, err)
		}
		return err
	}
}
