package datagram

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// ListenGroup opens a socket for the packets that the NIC sends to a multicast group; several on one host may. ifc is the
// interface that leads to the NIC. It must run in the interface's network namespace.
func ListenGroup(ifc *net.Interface, group, nic Endpoint, room int) (*UDP, error) {
	conn, err := bindGroup(group)
	if err != nil {
		return nil, fmt.Errorf("listen to group %v port %d: %w", group.IP, group.Port, err)
	}
	if err := ipv4.NewPacketConn(conn).JoinGroup(ifc, &net.UDPAddr{IP: net.IP(group.IP[:])}); err != nil {
		return nil, errors.Join(fmt.Errorf("join group %v on %s: %w", group.IP, ifc.Name, err), conn.Close())
	}
	t, err := NewUDP(conn, nic, room)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

// bindGroup binds a socket to the group's address itself. Package net would take the wildcard address, which connecting
// to the NIC then replaces by the host's own.
func bindGroup(group Endpoint) (*net.UDPConn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "multicast results")
	defer f.Close() // FilePacketConn makes a copy
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, fmt.Errorf("share the port: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: group.IP, Port: int(group.Port)}); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	pc, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return pc.(*net.UDPConn), nil
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
