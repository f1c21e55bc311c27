package inet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// MAC is a 48-bit Ethernet address in the order of the wire.
type MAC [6]byte

// Broadcast is the all-ones Ethernet address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ParseMAC reads an address as net.ParseMAC does and refuses those that are
// not 48 bits wide.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, fmt.Errorf("parse MAC address %q: want six octets as 02:00:00:00:01:00", s)
	}
	if len(hw) != 6 {
		return MAC{}, fmt.Errorf("parse MAC address %q: %d octets, want 6", s, len(hw))
	}
	return MAC(hw), nil
}

// MACFromUint64 takes the low 48 bits of v, first octet most significant.
func MACFromUint64(v uint64) MAC {
	return MAC{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

// Uint64 is the address as a 48-bit integer, first octet most significant:
// 02:00:00:00:01:00 is 0x020000000100.
func (m MAC) Uint64() uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

// IsMulticast reports whether the group bit is set; broadcast is included.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsZero reports whether no octet is set.
func (m MAC) IsZero() bool { return m == MAC{} }

// String is the usual form, lower case with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(text []byte) error {
	v, err := ParseMAC(string(text))
	if err != nil {
		return err
	}
	*m = v
	return nil
}

// Addr is an IPv4 address in the order of the wire.
type Addr [4]byte

// ParseAddr reads an IPv4 address in dotted decimal form.
func ParseAddr(s string) (Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return Addr{}, fmt.Errorf("parse IPv4 address %q: want four decimal octets as 10.50.0.1", s)
	}
	return a.As4(), nil
}

// AddrFromUint32 is the inverse of Uint32.
func AddrFromUint32(v uint32) Addr {
	var a Addr
	binary.BigEndian.PutUint32(a[:], v)
	return a
}

// AddrFromNetip converts an IPv4 or IPv4-mapped address; ok is false for others.
func AddrFromNetip(ip netip.Addr) (a Addr, ok bool) {
	ip = ip.Unmap()
	if !ip.Is4() {
		return Addr{}, false
	}
	return ip.As4(), true
}

// Netip converts to the standard library's address.
func (a Addr) Netip() netip.Addr { return netip.AddrFrom4(a) }

// Uint32 is the address as an integer, first octet most significant:
// 10.50.0.1 is 0x0a320001.
func (a Addr) Uint32() uint32 { return binary.BigEndian.Uint32(a[:]) }

// IsZero reports whether the address is 0.0.0.0.
func (a Addr) IsZero() bool { return a == Addr{} }

// IsUnicast reports whether a host may own the address: not 0.0.0.0/8, not
// multicast, not reserved or limited broadcast (224.0.0.0 and above).
func (a Addr) IsUnicast() bool { return a[0] != 0 && a[0] < 224 }

// String is dotted decimal.
func (a Addr) String() string { return netip.AddrFrom4(a).String() }

// MarshalText implements encoding.TextMarshaler.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Addr) UnmarshalText(text []byte) error {
	v, err := ParseAddr(string(text))
	if err != nil {
		return err
	}
	*a = v
	return nil
}
