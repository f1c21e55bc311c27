package switchml

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"gradnic/control"
	pb "gradnic/control/switchml/switchmlproto"
	"gradnic/dataplane"
	"gradnic/internal/logtest"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	nicMAC = inet.MAC{0x00, 0x11, 0x22, 0x33, 0x44, 0x55}
	nicIP  = inet.Addr{10, 50, 0, 254}
)

// rig is a running NIC with a controller on loopback.
type rig struct {
	nic     *dataplane.NIC
	server  *Server
	address string
	log     *logtest.Lines
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{log: &logtest.Lines{}}
	logger := r.log.Logger()
	var err error
	r.nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP}, dataplane.NewMemPort("mem0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	plane, err := control.New(control.Options{NIC: r.nic, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	r.server, err = New(Options{Jobs: plane.Jobs(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	t.Cleanup(func() {
		r.server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

type client struct {
	pb.SessionClient
	pb.SyncClient
	conn *grpc.ClientConn
}

func (r *rig) dial(t *testing.T) client {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return client{pb.NewSessionClient(conn), pb.NewSyncClient(conn), conn}
}

func request(rank, workers int) *pb.UdpSessionRequest {
	return &pb.UdpSessionRequest{
		Rank: uint32(rank), NumWorkers: uint32(workers),
		Mac: 0x020000000100 + uint64(rank), Ipv4: 0x0a320001 + uint32(rank), PacketSize: pb.PacketSize_MTU_1024,
	}
}

// join does what the public client does, call by call.
func (c client) join(ctx context.Context, rank, workers int, stamp uint64) error {
	return c.joinFrom(ctx, 0, rank, workers, stamp)
}

// joinFrom is join of workers whose addresses begin behind the first so many.
func (c client) joinFrom(ctx context.Context, first, rank, workers int, stamp uint64) error {
	n := uint32(workers)
	b, err := c.Broadcast(ctx, &pb.BroadcastRequest{Value: stamp + uint64(rank), Rank: uint32(rank), NumWorkers: n, Root: 0})
	if err != nil {
		return fmt.Errorf("broadcast: %w", err)
	}
	if b.GetValue() != stamp {
		return fmt.Errorf("session id %d, want rank 0's %d", b.GetValue(), stamp)
	}
	session := func() error {
		r := request(rank, workers)
		r.SessionId, r.Mac, r.Ipv4 = b.GetValue(), r.GetMac()+uint64(first), r.GetIpv4()+uint32(first)
		s, err := c.UdpSession(ctx, r)
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if s.GetSessionId() != stamp || s.GetMac() != 0x001122334455 || s.GetIpv4() != 0x0a3200fe {
			return fmt.Errorf("session: %v", s)
		}
		return nil
	}
	barrier := func() error {
		_, err := c.Barrier(ctx, &pb.BarrierRequest{NumWorkers: n})
		return err
	}
	steps := []func() error{barrier, session, barrier}
	if rank == 0 {
		steps = []func() error{session, barrier, barrier}
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func (r *rig) joinAll(t *testing.T, workers int, stamp uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	errs := make(chan error, workers)
	for rank := range workers {
		c := r.dial(t)
		go func() {
			if err := c.join(ctx, rank, workers, stamp); err != nil {
				errs <- fmt.Errorf("rank %d: %w", rank, err)
				return
			}
			errs <- nil
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func TestClientSequence(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			r := newRig(t)
			// Twice: all workers end and start again, with no word at the end.
			for _, stamp := range []uint64{1111, 2222} {
				r.joinAll(t, workers, stamp)
				job, err := r.nic.Job(DefaultJob)
				if err != nil {
					t.Fatal(err)
				}
				if job.Workers != workers || job.Elements != 256 || job.Slots != DefaultSlots || len(job.Members) != workers {
					t.Errorf("job %+v", job.JobSpec)
				}
				for rank, m := range job.Members {
					want := dataplane.WorkerSpec{Rank: rank, MAC: inet.MAC{2, 0, 0, 0, 1, byte(rank)}, IP: inet.Addr{10, 50, 0, byte(1 + rank)}, Port: -1}
					if m != want {
						t.Errorf("member %+v, want %+v", m, want)
					}
				}
				if !r.server.meetings.idle() {
					t.Error("something half done is left")
				}
			}
		})
	}
}

// A rank is killed while it waits in a barrier; all start again and must not be wedged.
func TestKilledInBarrier(t *testing.T) {
	r := newRig(t)
	c := r.dial(t)
	got := make(chan error, 1)
	go func() {
		_, err := c.Barrier(t.Context(), &pb.BarrierRequest{NumWorkers: 2})
		got <- err
	}()
	waitFor(t, func() bool { return !r.server.meetings.idle() })
	c.conn.Close()
	if err := <-got; err == nil {
		t.Fatal("the barrier opened for one of two")
	}
	waitFor(t, r.server.meetings.idle)
	r.joinAll(t, 2, 5)
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited 5 s in vain")
		}
	}
}

// The end of a connection is seen, so that a Broadcast of a dead root is dropped.
func TestDeadRootOverGRPC(t *testing.T) {
	r := newRig(t)
	root := r.dial(t)
	if _, err := root.Broadcast(t.Context(), &pb.BroadcastRequest{Value: 1, NumWorkers: 2}); err != nil {
		t.Fatal(err)
	}
	root.conn.Close()
	waitFor(t, func() bool {
		r.server.meetings.mu.Lock()
		defer r.server.meetings.mu.Unlock()
		rounds := r.server.meetings.rounds[circle{r.door(), 2, 0}]
		if len(rounds) != 1 {
			t.Fatalf("%d rounds", len(rounds))
		}
		return rounds[0].root.ended()
	})
	r.joinAll(t, 2, 99) // the new root's value, not 1: joinAll checks
}

func TestSessionRefused(t *testing.T) {
	r := newRig(t)
	c := r.dial(t)
	call := func(change func(*pb.UdpSessionRequest), rank, workers int) *pb.UdpSessionResponse {
		t.Helper()
		req := request(rank, workers)
		req.SessionId = 77
		if change != nil {
			change(req)
		}
		resp, err := c.UdpSession(t.Context(), req)
		if err != nil {
			t.Fatalf("a client would abort: %v", err)
		}
		return resp
	}
	zero := &pb.UdpSessionResponse{}
	refused := func(name, why string, change func(*pb.UdpSessionRequest), rank, workers int) {
		t.Helper()
		before := len(r.log.String())
		if got := call(change, rank, workers); !proto.Equal(got, zero) {
			t.Errorf("%s: got %v, want all zero", name, got)
		}
		if log := r.log.String()[before:]; !strings.Contains(log, why) {
			t.Errorf("%s: the log does not say %q: %s", name, why, log)
		}
	}
	accepted := func(name string, rank, workers int) {
		t.Helper()
		if got := call(nil, rank, workers); got.GetSessionId() != 77 || got.GetMac() == 0 {
			t.Errorf("%s: got %v", name, got)
		}
	}

	refused("before rank 0", "rank 0 has not begun a session", nil, 1, 3)
	refused("no workers", "num_workers 0", nil, 0, 0)
	refused("too many workers", "num_workers 33", nil, 0, 33)
	refused("rank out of range", "rank 3", nil, 3, 3)
	refused("rank far out of range", "rank", func(q *pb.UdpSessionRequest) { q.Rank = 1 << 31 }, 0, 3)
	refused("128 bytes", "MTU_128", func(q *pb.UdpSessionRequest) { q.PacketSize = pb.PacketSize_MTU_128 }, 0, 3)
	refused("512 bytes", "MTU_512", func(q *pb.UdpSessionRequest) { q.PacketSize = pb.PacketSize_MTU_512 }, 0, 3)
	refused("unknown size", "packet_size 9", func(q *pb.UdpSessionRequest) { q.PacketSize = 9 }, 0, 3)
	refused("MAC of 49 bits", "48 bits", func(q *pb.UdpSessionRequest) { q.Mac = 1 << 48 }, 0, 3)
	refused("no MAC", "not a unicast address", func(q *pb.UdpSessionRequest) { q.Mac = 0 }, 0, 3)
	refused("group MAC", "not a unicast address", func(q *pb.UdpSessionRequest) { q.Mac = 0x010000000001 }, 0, 3)
	refused("no address", "not a unicast address", func(q *pb.UdpSessionRequest) { q.Ipv4 = 0 }, 0, 3)
	refused("the NIC's MAC", "NIC's own address", func(q *pb.UdpSessionRequest) { q.Mac = nicMAC.Uint64() }, 0, 3)
	refused("the NIC's address", "NIC's own address", func(q *pb.UdpSessionRequest) { q.Ipv4 = nicIP.Uint32() }, 0, 3)
	if _, err := r.nic.Job(DefaultJob); !errors.Is(err, dataplane.ErrNoJob) {
		t.Fatalf("a refused request installed a job: %v", err)
	}

	accepted("rank 0", 0, 3)
	accepted("rank 1", 1, 3)
	refused("rank 1 alone again", "restart all", nil, 1, 3)
	refused("rank 1 as another", "rank 1 of job switchml is", func(q *pb.UdpSessionRequest) { q.Mac++; q.Ipv4 += 9 }, 1, 3)
	refused("rank 2 with rank 1's address", "10.50.0.2 is rank 1", func(q *pb.UdpSessionRequest) { q.Ipv4-- }, 2, 3)
	refused("another number of workers", "rank 0 said 3", nil, 2, 4)
	refused("another packet size", "rank 0 said 256", func(q *pb.UdpSessionRequest) { q.PacketSize = pb.PacketSize_MTU_256 }, 2, 3)
	refused("rank 0 with a bad size", "MTU_128", func(q *pb.UdpSessionRequest) { q.PacketSize = pb.PacketSize_MTU_128 }, 0, 3)
	job, err := r.nic.Job(DefaultJob)
	if err != nil || len(job.Members) != 2 {
		t.Fatalf("the session was touched: %+v, %v", job.Members, err)
	}
	accepted("rank 0 again", 0, 3) // clears
	if job, err := r.nic.Job(DefaultJob); err != nil || len(job.Members) != 1 {
		t.Errorf("rank 0 did not clear the session: %+v, %v", job.Members, err)
	}
}

func TestRDMAIsUnimplemented(t *testing.T) {
	r := newRig(t)
	_, err := r.dial(t).RdmaSession(t.Context(), &pb.RdmaSessionRequest{NumWorkers: 2, Qpns: []uint32{1}})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "RDMA") {
		t.Errorf("got %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a controller without a registry")
	}
}
