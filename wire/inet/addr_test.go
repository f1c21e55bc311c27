package inet

import (
	"encoding/json"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestAddressForms(t *testing.T) {
	if v := (MAC{0x02, 0, 0, 0, 1, 0}).Uint64(); v != 0x020000000100 {
		t.Errorf("MAC as integer: %#x", v)
	}
	if v := (Addr{10, 50, 0, 1}).Uint32(); v != 0x0a320001 {
		t.Errorf("IPv4 address as integer: %#x", v)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := MACFromUint64(rapid.Uint64Max(1<<48-1).Draw(t, "mac"))
		a := AddrFromUint32(rapid.Uint32().Draw(t, "ip"))
		type pair struct {
			M MAC
			A Addr
		}
		text, err := json.Marshal(pair{m, a})
		if err != nil {
			t.Fatal(err)
		}
		var back pair
		if err := json.Unmarshal(text, &back); err != nil || back.M != m || back.A != a {
			t.Fatalf("%s became %v, %v", text, back, err)
		}
		if MACFromUint64(m.Uint64()) != m || AddrFromUint32(a.Uint32()) != a {
			t.Fatal("integer form does not come back")
		}
		if n, ok := AddrFromNetip(a.Netip()); !ok || n != a {
			t.Fatal("netip form does not come back")
		}
	})
}

func TestAddressesRefused(t *testing.T) {
	for _, s := range []string{"", "02:00", "02:00:00:00:01", "02:00:00:00:01:00:00:00", "zz:00:00:00:01:00", "10.50.0.1"} {
		if m, err := ParseMAC(s); err == nil {
			t.Errorf("%q was read as %v", s, m)
		}
	}
	for _, s := range []string{"", "10.50.0", "10.50.0.256", "::1", "::ffff:10.50.0.1", "10.50.0.1/24", "host"} {
		if a, err := ParseAddr(s); err == nil {
			t.Errorf("%q was read as %v", s, a)
		}
	}
	if _, ok := AddrFromNetip(netip.MustParseAddr("::1")); ok {
		t.Error("an IPv6 address became an IPv4 address")
	}
	if a, ok := AddrFromNetip(netip.MustParseAddr("::ffff:10.50.0.1")); !ok || a != (Addr{10, 50, 0, 1}) {
		t.Error("a mapped address was not taken")
	}
}

func TestAddressKinds(t *testing.T) {
	if !Broadcast.IsMulticast() || (MAC{2}).IsMulticast() || !(MAC{1}).IsMulticast() {
		t.Error("group bit")
	}
	for a, want := range map[Addr]bool{{}: false, {10, 0, 0, 1}: true, {223, 1, 1, 1}: true, {224, 0, 0, 1}: false, {255, 255, 255, 255}: false} {
		if a.IsUnicast() != want {
			t.Errorf("%v unicast: %v", a, !want)
		}
	}
}
