package dataplane

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"gradnic/aggregation"
	"gradnic/internal/logtest"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"

	"pgregory.net/rapid"
)

func values(frame []byte) []int32 {
	v := make([]int32, (len(frame)-switchml.ValuesOffset)/4)
	for i := range v {
		v[i] = int32(binary.BigEndian.Uint32(frame[switchml.ValuesOffset+4*i:]))
	}
	return v
}

// TestResultOfEightWorkers checks sum, exponents, addresses, echoed fields and silence before completion.
func TestResultOfEightWorkers(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 8)
	install(t, n, JobSpec{Name: "j", Workers: 8, Elements: 256, Members: members(8, false)})
	for r := range 7 {
		mustSend(t, mem[r], request(r, 256, 77, 1, uint32(100+r), int32(r+1)))
	}
	waitReceived(t, n, 7)
	silent(t, mem...)
	mustSend(t, mem[7], request(7, 256, 77, 1, 107, 8))
	for r := range 8 {
		got := recv(t, mem[r])
		want := make([]byte, switchml.FrameLen(256))
		rep := switchml.Reply{
			Switch:   switchml.Endpoint{MAC: nicMAC, IP: nicIP, Port: switchml.PortBase},
			Worker:   switchml.Endpoint{MAC: workerMAC(r), IP: workerIP(r), Port: 4007}, // of the last to arrive
			Elements: 256, PoolIndex: switchml.PoolIndexOf(1, 77), E0: 7 - 3, E1: 0, TSI: [4]byte{107},
		}
		switchml.PutReply(want, rep)
		for o := switchml.ValuesOffset; o < len(want); o += 4 {
			binary.BigEndian.PutUint32(want[o:], 36)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("rank %d:\ngot  %x\nwant %x", r, got[:60], want[:60])
		}
	}
	silent(t, mem...)
	s := check(t, n)
	if s.Total.Contributed != 8 || s.Total.Results != 1 || s.Total.Replicas != 8 || s.Total.Transmitted != 8 {
		t.Fatalf("%+v", s.Total)
	}
}

// TestAskingAgain: a duplicate of an incomplete slot is silent, one of a complete slot is answered to its sender alone,
// out of the port it came in by, with its own packet number.
func TestAskingAgain(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 3)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, true)})
	mustSend(t, mem[0], request(0, 64, 5, 0, 1, 10))
	mustSend(t, mem[0], request(0, 64, 5, 0, 1, 10))
	waitReceived(t, n, 2)
	silent(t, mem...)
	mustSend(t, mem[1], request(1, 64, 5, 0, 2, 20))
	recv(t, mem[0])
	recv(t, mem[1])
	mustSend(t, mem[2], request(0, 64, 5, 0, 9, 10)) // from another port
	got := recv(t, mem[2])
	if v := values(got); v[0] != 30 || v[63] != 30 || got[44] != 9 {
		t.Fatalf("answer %x", got)
	}
	waitReceived(t, n, 4)
	silent(t, mem...)
	s := check(t, n)
	if s.Total.Contributed != 2 || s.Total.Duplicates != 2 || s.Total.Resent != 1 || s.Total.Results != 1 || s.Total.Replicas != 3 {
		t.Fatalf("%+v", s.Total)
	}
	j, err := n.Job("j")
	if err != nil {
		t.Fatal(err)
	}
	if w := j.Status[0]; w.Port != 0 || w.Received != 3 || w.Duplicates != 2 || w.Contributed != 1 || w.Sent != 2 || !w.Joined || w.LastSeen.IsZero() {
		t.Fatalf("%+v", w)
	}
}

// TestWrapAndBadChecksums: sums wrap and are counted; bit 14 of the pool index and bit 3 of the first byte are ignored;
// wrong checksums are no reason to drop.
func TestWrapAndBadChecksums(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, true)})
	for r := range 2 {
		f := request(r, 64, 3, 0, 0, 1<<31-1)
		f[24], f[25] = 0xde, 0xad // IPv4
		f[40], f[41] = 0xbe, 0xef // UDP
		f[42] |= 8
		f[48] |= 0x40
		mustSend(t, mem[0], f)
	}
	got := recv(t, mem[0])
	if v := values(got); v[0] != -2 || got[42] != 0x11 || got[48] != 0 || got[49] != 3 {
		t.Fatalf("%x", got)
	}
	if s := check(t, n); s.Total.Wrapped != 64 {
		t.Fatalf("wrapped %d", s.Total.Wrapped)
	}
}

// TestAgainstModel sends random requests of random workers, slots and sets over several ports and compares what comes
// out with a pool driven directly, over one lane and three.
func TestAgainstModel(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		rapid.Check(t, func(rt *rapid.T) {
			workers := rapid.IntRange(1, 5).Draw(rt, "workers")
			slots := rapid.IntRange(1, 9).Draw(rt, "slots")
			seed := rapid.Uint64().Draw(rt, "seed")
			steps := rapid.IntRange(1, 120).Draw(rt, "steps")
			cfg := testConfig()
			cfg.Lanes = lanes
			mem := NewMemPort("m")
			n, err := New(cfg, mem)
			if err != nil {
				rt.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				rt.Fatal(err)
			}
			defer n.Stop(t.Context())
			m := members(workers, true)
			for i := range m {
				m[i].Port = 0 // random requests can complete a slot without all workers, by the protocol's own rule
			}
			if err := n.InstallJob(JobSpec{Name: "j", Workers: workers, Elements: 64, Slots: slots, Members: m}); err != nil {
				rt.Fatal(err)
			}
			pool, err := aggregation.NewPool(aggregation.Spec{Rule: aggregation.SwitchML, Workers: workers, Slots: slots, Elements: 64, Exponents: 2})
			if err != nil {
				rt.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(seed, 1))
			out := make([]byte, 256)
			for i := range steps {
				w, slot, set := rng.IntN(workers), rng.IntN(slots), rng.IntN(2)
				f := request(w, 64, slot, set, uint32(i), int32(rng.Uint32()))
				if err := mem.Send(f); err != nil {
					rt.Fatal(err)
				}
				c := aggregation.Contribution{Slot: slot, Set: set, Worker: w, Exponents: [2]int8{int8(f[50]), int8(f[51])}, Values: f[switchml.ValuesOffset:]}
				o := pool.Contribute(&c, 0, out)
				want := 0
				switch o {
				case aggregation.Completed:
					want = workers
				case aggregation.Answered:
					want = 1
				}
				s := waitReceived(t, n, uint64(i+1))
				if err := s.Check(); err != nil {
					rt.Fatal(err)
				}
				for range want {
					g := recv(t, mem)
					if !bytes.Equal(g[switchml.ValuesOffset:], out) {
						rt.Fatalf("step %d: values differ", i)
					}
					if o == aggregation.Answered && inet.MAC(g[:6]) != workerMAC(w) {
						rt.Fatalf("step %d: answer to %v", i, inet.MAC(g[:6]))
					}
				}
				if s.Total.Replicas-s.Total.ReplicasDropped() != s.Total.Transmitted {
					rt.Fatalf("step %d: %+v", i, s.Total)
				}
			}
		})
	}
}

// TestMulticastResult: one frame a port for all its workers; asking again is still answered to one.
func TestMulticastResult(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 2)
	group := inet.MAC{0x01, 0, 0x5e, 0, 0, 1}
	install(t, n, JobSpec{
		Name: "j", Workers: 3, Elements: 64, Members: members(3, true),
		Multicast: &MulticastSpec{MAC: group, IP: inet.Addr{239, 0, 0, 1}, Port: 4000, Ports: []int{0, 1}},
	})
	for r := range 3 {
		mustSend(t, mem[0], request(r, 64, 0, 0, 0, 1))
	}
	for _, m := range mem {
		g := recv(t, m)
		if inet.MAC(g[:6]) != group || binary.BigEndian.Uint16(g[36:]) != 4000 || values(g)[5] != 3 {
			t.Fatalf("%x", g)
		}
	}
	mustSend(t, mem[0], request(1, 64, 0, 0, 0, 1))
	if g := recv(t, mem[0]); inet.MAC(g[:6]) != workerMAC(1) {
		t.Fatalf("%x", g)
	}
	silent(t, mem...)
	check(t, n)
}

func TestFunctions(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 2)
	frame := request(0, 64, 0, 0, 0, 1)
	if err := n.SetFunction("m0", Function{Kind: Reflect}); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], frame)
	got := recv(t, mem[0])
	if inet.MAC(got[:6]) != workerMAC(0) || inet.MAC(got[6:12]) != nicMAC || !bytes.Equal(got[12:], frame[12:]) {
		t.Fatalf("reflected %x", got)
	}
	if err := n.SetFunction("m0", Function{Kind: Forward, To: "m1"}); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], frame)
	if got := recv(t, mem[1]); !bytes.Equal(got, frame) {
		t.Fatalf("forwarded %x", got)
	}
	if err := n.SetFunction("m0", Function{Kind: Sink}); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], frame)
	s := waitReceived(t, n, 3)
	silent(t, mem...)
	if s.Total.Passed != 3 || s.Ports[0].Function != "sink" || s.Ports[1].Transmitted != 1 {
		t.Fatalf("%+v", s)
	}
	if err := n.SetFunction("m0", Function{Kind: Forward, To: "nowhere"}); err == nil {
		t.Fatal("forward to a port that does not exist")
	}
	check(t, n)
}

// TestARPAndEcho: requests for the NIC's own address are answered and nothing else is.
func TestARPAndEcho(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	arp := make([]byte, 60)
	inet.PutARP(arp, inet.ARP{Op: inet.ARPRequest, SenderMAC: workerMAC(0), SenderIP: workerIP(0), TargetIP: nicIP})
	mustSend(t, mem[0], arp)
	got := recv(t, mem[0])
	var a inet.ARP
	if f := inet.ParseARP(got, &a); f != inet.OK || a.Op != inet.ARPReply || a.SenderMAC != nicMAC || a.SenderIP != nicIP || a.TargetMAC != workerMAC(0) || a.TargetIP != workerIP(0) {
		t.Fatalf("%+v %v", a, f)
	}

	echo := make([]byte, 14+20+8+32)
	inet.PutEthernet(echo, nicMAC, workerMAC(0), inet.EtherTypeIPv4)
	inet.PutIPv4(echo[14:], inet.IPv4{Proto: inet.ProtoICMP, Src: workerIP(0), Dst: nicIP, PayloadLen: 40})
	echo[34] = inet.ICMPEchoRequest
	echo[39], echo[41] = 7, 1 // identifier and sequence number
	binary.BigEndian.PutUint16(echo[36:], inet.Checksum(echo[34:]))
	mustSend(t, mem[0], echo)
	got = recv(t, mem[0])
	if inet.MAC(got[:6]) != workerMAC(0) || got[34] != inet.ICMPEchoReply || inet.Checksum(got[34:]) != 0 || inet.Checksum(got[14:34]) != 0 {
		t.Fatalf("%x", got)
	}

	other := bytes.Clone(arp)
	other[41]++ // another address
	mustSend(t, mem[0], other)
	reply := bytes.Clone(arp)
	reply[21] = inet.ARPReply
	mustSend(t, mem[0], reply)
	s := waitReceived(t, n, 4)
	silent(t, mem...)
	if s.Total.Answered != 2 || s.Total.Drops["not-for-us"] != 2 {
		t.Fatalf("%+v", s.Total)
	}
	check(t, n)
}

// TestAddressTwice: a station that announces the NIC's address as its own is answered, and named in the log, not each time.
func TestAddressTwice(t *testing.T) {
	var log logtest.Lines
	cfg := testConfig()
	cfg.Logger = log.Logger()
	n, mem := memNIC(t, cfg, 1)
	announce := func(from inet.MAC) {
		t.Helper()
		arp := make([]byte, 60)
		inet.PutARP(arp, inet.ARP{Op: inet.ARPRequest, SenderMAC: from, SenderIP: nicIP, TargetIP: nicIP})
		mustSend(t, mem[0], arp)
		recv(t, mem[0])
	}
	announce(nicMAC) // its own, by way of a switch
	if said := log.With("another station"); len(said) != 0 {
		t.Errorf("said %q", said)
	}
	for range 20 {
		announce(workerMAC(3))
	}
	if said := log.With("another station has the NIC's address", "ip="+nicIP.String()+" mac="+workerMAC(3).String()+" port="+n.Snapshot().Ports[0].Name); len(said) == 0 || len(said) == 20 {
		t.Errorf("said %q", said)
	}
	check(t, n)
}
