package datagram

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

var background = context.Background()

// reuseAddress lets several workers of one host listen to one group.
func reuseAddress(_, _ string, c syscall.RawConn) error {
	var opErr error
	err := c.Control(func(fd uintptr) { opErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	if err != nil {
		return err
	}
	return opErr
}

// InterfaceOf is the interface that has an address, in the calling thread's network namespace.
func InterfaceOf(ip inet.Addr) (*net.Interface, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range ifs {
		addrs, err := i.Addrs()
		if err != nil {
			continue // gone in the meantime
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && inet.Addr(n.IP.To4()) == ip {
				return &i, nil
			}
		}
	}
	return nil, fmt.Errorf("no interface has the address %v", ip)
}
