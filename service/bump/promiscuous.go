package bump

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Promiscuous makes a netdev of the calling thread's network namespace take frames to any address, which a bump needs on
// both of its ports, until the returned function is called or the process ends, however it ends (packet(7)).
func Promiscuous(name string) (undo func() error, err error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("promiscuous mode of %s: %w", name, err)
	}
	// Protocol 0: the socket itself receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("promiscuous mode of %s: %w", name, withRight(err))
	}
	mreq := unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &mreq); err != nil {
		return nil, errors.Join(fmt.Errorf("promiscuous mode of %s: %w", name, err), unix.Close(fd))
	}
	return func() error { return unix.Close(fd) }, nil
}

// withRight says which right is missing.
func withRight(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: a bump needs root, or CAP_NET_RAW beside what gradnic run needs", err)
	}
	return err
}
