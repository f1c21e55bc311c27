package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a netdev's XDP features are, by bit: enum netdev_xdp_act of the kernel's uapi/linux/netdev.h.
const (
	xdpBasic uint64 = 1 << iota
	xdpRedirect
	xdpXmit
	xdpZeroCopy
	xdpOffload
	xdpRxSG
	xdpXmitSG
)

// The netdev family of generic netlink, same header.
const (
	netdevFamily     = "netdev"
	netdevDevGet     = 1
	netdevIfindex    = 1
	netdevFeatures   = 3
	netdevZCSegments = 4
)

// genlHeader is a generic netlink header: command, version, and two reserved bytes that this family wants to be zero.
// nl.Genlmsg has whatever follows it in memory there.
type genlHeader struct{ command, version byte }

// Len implements nl.NetlinkRequestData.
func (genlHeader) Len() int { return nl.SizeofGenlmsg }

// Serialize implements nl.NetlinkRequestData.
func (h genlHeader) Serialize() []byte { return []byte{h.command, h.version, 0, 0} }

// xdpFeatures asks the kernel what a netdev's driver can; known is false where the kernel does not tell (before 6.3).
func xdpFeatures(ifindex int) (features uint64, segments uint32, known bool, err error) {
	f, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("generic netlink family %s: %w", netdevFamily, err)
	}
	req := nl.NewNetlinkRequest(int(f.ID), 0)
	req.AddData(genlHeader{netdevDevGet, 1})
	req.AddData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, 0, false, fmt.Errorf("XDP features of interface %d: %w", ifindex, err)
	}
	for _, m := range msgs {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, 0, false, fmt.Errorf("XDP features of interface %d: %w", ifindex, err)
		}
		for _, a := range attrs {
			switch {
			case a.Attr.Type == netdevFeatures && len(a.Value) >= 8:
				features, known = binary.NativeEndian.Uint64(a.Value), true
			case a.Attr.Type == netdevZCSegments && len(a.Value) >= 4:
				segments = binary.NativeEndian.Uint32(a.Value)
			}
		}
	}
	return features, segments, known, nil
}
