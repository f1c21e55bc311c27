package ring_test

import (
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/ringlab"
	. "gradnic/service/ring"
	"gradnic/wire/inet"
	wire "gradnic/wire/ring"
)

// TestStrangers: what does not come from the address of the node that it names is dropped with its reason and changes nothing;
// the same message from the node's own address counts.
func TestStrangers(t *testing.T) {
	var peers []Peer
	for i := range 3 {
		peers = append(peers, Peer{Node: uint16(i), Endpoint: ringlab.NICAddress(i)})
	}
	self, up := peers[0].Endpoint, peers[1].Endpoint
	port := dataplane.NewMemPort(ringlab.Iface)
	nic, err := dataplane.New(dataplane.Config{MAC: self.MAC, IP: self.IP, Wait: dataplane.Interrupt}, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nic.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	node, err := New(Config{Node: 0, Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if err := node.Attach(nic, 0, ringlab.Iface); err != nil {
		t.Fatal(err)
	}
	drops := func(reason string) uint64 { return nic.Snapshot().Total.Drops[reason] }
	send := func(from wire.Endpoint, node uint16, udp uint16) {
		t.Helper()
		frame := make([]byte, 1500)
		h := wire.HelloHeader{Common: wire.Common{Node: node, Generation: 1}, SliceElements: DefaultSlice, MTU: 1500, Window: 16, Boot: 7}
		n := h.Put(frame[inet.PayloadOffset:], []wire.Member{{Node: 0}, {Node: 1, Boot: 7}, {Node: 2}})
		n = wire.PutFrame(frame, &from, &self, n)
		frame[inet.L4Offset], frame[inet.L4Offset+1] = byte(udp>>8), byte(udp)
		if err := port.Send(frame[:n]); err != nil {
			t.Fatal(err)
		}
	}
	other := ringlab.NICAddress(77)
	tries := []struct {
		from wire.Endpoint
		node uint16
		udp  uint16
	}{
		{wire.Endpoint{MAC: other.MAC, IP: up.IP}, 1, wire.Port},
		{wire.Endpoint{MAC: up.MAC, IP: other.IP}, 1, wire.Port},
		{up, 1, wire.Port + 1},
		{peers[2].Endpoint, 1, wire.Port}, // a member that says it is another
		{up, 0, wire.Port},                // or this very node
		{up, 9, wire.Port},                // no member
		{other, 9, wire.Port},
	}
	for _, x := range tries {
		send(x.from, x.node, x.udp)
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v, %+v", what, nic.Snapshot().Total.Drops, node.Status())
			}
		}
	}
	await("strangers", func() bool { return drops("ring-stranger") == uint64(len(tries)) })
	if m := node.Status().Missing; len(m) != 2 {
		t.Errorf("a stranger was believed: missing are %v", m)
	}
	send(up, 1, wire.Port)
	await("the node itself", func() bool { m := node.Status().Missing; return len(m) == 1 && m[0] == 2 })
	if n := drops("ring-stranger"); n != uint64(len(tries)) {
		t.Errorf("%d strangers", n)
	}
}
