package dataplane

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"gradnic/wire/inet"
)

// checkAddress says why a NIC cannot have an address on any machine.
func checkAddress(a inet.Addr) error {
	ip := a.Netip()
	why := ""
	switch {
	case a.IsZero():
		return fmt.Errorf("config: IP %v: the NIC needs an IPv4 address of its own", a)
	case ip.IsLoopback():
		why = "it is a loopback address, which no network carries"
	case ip.IsMulticast():
		why = "it is a multicast address"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "it is the broadcast address"
	case !a.IsUnicast():
		why = "it is a reserved address"
	default:
		return nil
	}
	return fmt.Errorf("config: IP %v: %s: the NIC needs an unused unicast address of the workers' subnet", a, why)
}

// refuseKernelAddress refuses an address that the kernel has on any interface of the port's namespace, and the
// broadcast and network addresses of their subnets. The NIC would answer ARP for it, and cut the host off.
func (p XDPPort) refuseKernelAddress(a inet.Addr) error {
	return p.inNamespace(func() error {
		list, err := netlink.AddrList(nil, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("the kernel's addresses: %w", err)
		}
		for _, own := range list {
			if why := conflict(a.Netip(), own.IPNet); why != "" {
				return fmt.Errorf("IP %v: %s of interface %s: choose a free address of the workers' subnet, or the host is cut off", a, why, linkName(own.LinkIndex))
			}
		}
		return nil
	})
}

// conflict says why the NIC cannot have ip beside a kernel's address of this subnet; "" when it can.
func conflict(ip netip.Addr, own *net.IPNet) string {
	addr, ok := netip.AddrFromSlice(own.IP)
	if !ok {
		return ""
	}
	addr = addr.Unmap()
	ones, _ := own.Mask.Size()
	subnet := netip.PrefixFrom(addr, ones).Masked()
	switch {
	case addr == ip:
		return "it is the address"
	case ones > 30 || !subnet.Contains(ip): // hosts and point-to-point links have no broadcast address
		return ""
	case subnet.Addr() == ip:
		return fmt.Sprintf("it is the address of subnet %v", subnet)
	case !subnet.Contains(ip.Next()):
		return fmt.Sprintf("it is the broadcast address of subnet %v", subnet)
	}
	return ""
}

func linkName(index int) string {
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return fmt.Sprintf("%d", index)
	}
	return i.Name
}
