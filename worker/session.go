package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "gradnic/control/switchml/switchmlproto"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

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
	failed := func(step string, err error) error {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return fmt.Errorf("controller %s: %s: %w", cfg.Controller, step, err)
	}
	session, sync := pb.NewSessionClient(conn), pb.NewSyncClient(conn)
	barrier := func(step string) error {
		if _, err := sync.Barrier(ctx, &pb.BarrierRequest{NumWorkers: uint32(cfg.Workers)}); err != nil {
			return failed(step, err)
		}
		return nil
	}

	number := &pb.BroadcastRequest{Rank: uint32(cfg.Rank), NumWorkers: uint32(cfg.Workers), Root: 0}
	if cfg.Rank == 0 {
		number.Value = uint64(time.Now().UnixNano())
	}
	got, err := sync.Broadcast(ctx, number)
	if err != nil {
		return mac, ip, failed("session number", err)
	}
	if cfg.Rank != 0 {
		if err := barrier("wait for rank 0"); err != nil {
			return mac, ip, err
		}
	}
	size, _ := switchml.SizeOf(cfg.Elements)
	reply, err := session.UdpSession(ctx, &pb.UdpSessionRequest{
		SessionId: got.GetValue(), Rank: uint32(cfg.Rank), NumWorkers: uint32(cfg.Workers),
		Mac: cfg.MAC.Uint64(), Ipv4: cfg.IP.Uint32(), PacketSize: pb.PacketSize(size),
	})
	if err != nil {
		return mac, ip, failed("register", err)
	}
	mac, ip = inet.MACFromUint64(reply.GetMac()), inet.AddrFromUint32(reply.GetIpv4())
	if mac.IsZero() || ip.IsZero() {
		// How this protocol says no; it has no room for a reason.
		return mac, ip, failed("register", fmt.Errorf("refused rank %d of %d with %v at %v, %d elements a packet: the controller's log says why",
			cfg.Rank, cfg.Workers, cfg.MAC, cfg.IP, cfg.Elements))
	}
	if cfg.Rank == 0 {
		if err := barrier("wait for rank 0"); err != nil {
			return mac, ip, err
		}
	}
	return mac, ip, barrier("wait for all workers")
}
