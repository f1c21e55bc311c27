package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "gradnic/control/switchml/switchmlproto"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// patience is how long a step of joining waits before it is said what for.
const patience = 2 * time.Second

// joinSession makes the session by the public client's sequence: everyone
// learns rank 0's session number; rank 0 registers first, because its request
// clears what an earlier session left; then the others; and no one sends
// before all are there. It returns the NIC's addresses.
func joinSession(ctx context.Context, cfg *Config) (mac inet.MAC, ip inet.Addr, err error) {
	conn, err := grpc.NewClient(cfg.Controller, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return mac, ip, fmt.Errorf("controller %s: %w", cfg.Controller, err)
	}
	defer conn.Close()
	// Each step may wait for others, who may never come: what for is said once, and in the error.
	step := func(what string, call func() error) error {
		waits := func() string {
			if conn.GetState() != connectivity.Ready {
				return fmt.Sprintf("SwitchML controller %s: no connection to it", cfg.Controller)
			}
			return fmt.Sprintf("SwitchML controller %s: %s", cfg.Controller, what)
		}
		if cfg.Waiting != nil {
			said := make(chan struct{})
			say := time.AfterFunc(patience, func() { defer close(said); cfg.Waiting(waits()) })
			defer func() {
				if !say.Stop() {
					<-said
				}
			}()
		}
		err := call()
		if err == nil {
			return nil
		}
		where := waits()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = cause
		} else if status.Code(err) == codes.DeadlineExceeded {
			// The deadline travels with the call, and the controller's clock may be a moment ahead of our timer.
			err = context.DeadlineExceeded
		}
		return fmt.Errorf("%s: %w", where, err)
	}
	session, sync := pb.NewSessionClient(conn), pb.NewSyncClient(conn)
	barrier := func(what string) error {
		return step(what, func() error {
			_, err := sync.Barrier(ctx, &pb.BarrierRequest{NumWorkers: uint32(cfg.Workers)})
			return err
		})
	}
	rank0 := fmt.Sprintf("rank 0 of %d workers has not come", cfg.Workers)
	all := fmt.Sprintf("not all %d workers have come (the controller's log and gradnic show job name who is missing)", cfg.Workers)

	number := &pb.BroadcastRequest{Rank: uint32(cfg.Rank), NumWorkers: uint32(cfg.Workers), Root: 0}
	if cfg.Rank == 0 {
		number.Value = uint64(time.Now().UnixNano())
	}
	var got *pb.BroadcastResponse
	if err := step(rank0, func() (err error) { got, err = sync.Broadcast(ctx, number); return err }); err != nil {
		return mac, ip, err
	}
	if cfg.Rank != 0 {
		if err := barrier(all); err != nil {
			return mac, ip, err
		}
	}
	size, _ := switchml.SizeOf(cfg.Elements)
	var reply *pb.UdpSessionResponse
	err = step("no answer to the registration", func() (err error) {
		reply, err = session.UdpSession(ctx, &pb.UdpSessionRequest{
			SessionId: got.GetValue(), Rank: uint32(cfg.Rank), NumWorkers: uint32(cfg.Workers),
			Mac: cfg.MAC.Uint64(), Ipv4: cfg.IP.Uint32(), PacketSize: pb.PacketSize(size),
		})
		return err
	})
	if err != nil {
		return mac, ip, err
	}
	mac, ip = inet.MACFromUint64(reply.GetMac()), inet.AddrFromUint32(reply.GetIpv4())
	if mac.IsZero() || ip.IsZero() {
		// How this protocol says no; it has no room for a reason.
		return mac, ip, fmt.Errorf("SwitchML controller %s: register: refused rank %d of %d with %v at %v, %d elements a packet: the controller's log says why",
			cfg.Controller, cfg.Rank, cfg.Workers, cfg.MAC, cfg.IP, cfg.Elements)
	}
	if cfg.Rank == 0 {
		if err := barrier(all); err != nil {
			return mac, ip, err
		}
	}
	return mac, ip, barrier(all)
}
