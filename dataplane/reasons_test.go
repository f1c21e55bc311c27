package dataplane

import (
	"math/rand/v2"
	"regexp"
	"testing"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// TestReasonNames: every reason has a name of its own, in kebab case.
func TestReasonNames(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, name := range Reasons() {
		if !kebab.MatchString(name) || seen[name] || name == "unknown-reason" {
			t.Errorf("reason %q", name)
		}
		seen[name] = true
	}
	if len(ownNames) != numReasons-int(reasonOwn) {
		t.Fatalf("%d names for %d reasons", len(ownNames), numReasons-int(reasonOwn))
	}
	for _, want := range []string{"unknown-worker", "slot-out-of-range", "vlan-tagged", "switchml-length", "tx-full"} {
		if !seen[want] {
			t.Errorf("no reason %s", want)
		}
	}
}

// TestDropReasons sends one frame of each fault and expects exactly one count under its name.
func TestDropReasons(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 16, Members: members(2, true)})
	change := func(f func(b []byte) []byte) []byte { return f(request(0, 64, 0, 0, 0, 1)) }
	set := func(off int, v ...byte) []byte {
		return change(func(b []byte) []byte { copy(b[off:], v); return b })
	}
	sent := uint64(0)
	for _, c := range []struct {
		reason string
		frame  []byte
	}{
		{"short", set(0)[:13]},
		{"short", set(0)[:307]}, // shorter than the IPv4 length
		{"vlan-tagged", set(12, 0x81, 0)},
		{"not-ipv4", set(12, 0x86, 0xdd)},
		{"bad-ip-version", set(14, 0x65)},
		{"ip-options", set(14, 0x46)},
		{"ip-fragment", set(20, 0x20)},
		{"bad-length", set(38, 0xff)},
		{"bad-arp", set(12, 0x08, 0x06)},
		{"not-echo", set(23, inet.ProtoICMP)},
		{"unknown-protocol", set(23, 6)},
		{"unknown-port", set(36, 0xbe, 0xd0)},
		{"not-for-us", set(0, 2, 2, 2, 2, 2, 2)},
		{"not-for-us", set(30, 10, 50, 0, 253)},
		{"switchml-message-type", set(42, 0x21)},
		{"switchml-size-unknown", set(42, 0x17)},
		{"switchml-size-unsupported", set(42, 0x12)},
		{"switchml-length", set(42, 0x13)},
		{"switchml-short", change(func(b []byte) []byte { b[17], b[16] = 37, 0; b[39], b[38] = 17, 0; return b })},
		{"wrong-size", request(0, 256, 0, 0, 0, 1)},
		{"unknown-worker", request(9, 64, 0, 0, 0, 1)},
		{"unknown-worker", set(6, 2, 0, 0, 0, 9, 9)},
		{"slot-out-of-range", request(0, 64, 16, 0, 0, 1)},
		{"slot-out-of-range", request(1, 64, switchml.Slots-1, 1, 0, 1)},
	} {
		before := check(t, n).Total
		mustSend(t, mem[0], c.frame)
		sent++
		after := waitReceived(t, n, sent)
		if err := after.Check(); err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		if got := after.Total.Drops[c.reason] - before.Drops[c.reason]; got != 1 || after.Total.Dropped() != before.Dropped()+1 {
			t.Errorf("%s: drops %v, before %v", c.reason, after.Total.Drops, before.Drops)
		}
	}
	silent(t, mem...)
}

// TestTruncated cuts a request, an ARP request and an echo request at every length.
func TestTruncated(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
	sent := uint64(0)
	whole := request(0, 64, 0, 0, 0, 1)
	for l := 1; l < len(whole); l++ {
		mustSend(t, mem[0], whole[:l])
		sent++
	}
	s := waitReceived(t, n, sent)
	if s.Total.Drops["short"] != sent || s.Total.Contributed != 0 {
		t.Fatalf("%+v", s.Total)
	}
	silent(t, mem...)
	// With length fields that fit what is left.
	for l := 42; l < len(whole); l++ {
		b := append([]byte(nil), whole[:l]...)
		b[16], b[17] = byte((l-14)>>8), byte(l-14)
		b[38], b[39] = byte((l-34)>>8), byte(l-34)
		mustSend(t, mem[0], b)
		sent++
	}
	s = waitReceived(t, n, sent)
	if s.Total.Dropped() != sent || s.Total.Drops["switchml-short"] != 10 {
		t.Fatalf("%+v", s.Total)
	}
	arp := make([]byte, 42)
	inet.PutARP(arp, inet.ARP{Op: inet.ARPRequest, SenderMAC: workerMAC(0), SenderIP: workerIP(0), TargetIP: nicIP})
	for l := 1; l < len(arp); l++ {
		mustSend(t, mem[0], arp[:l])
		sent++
	}
	s = waitReceived(t, n, sent)
	if s.Total.Dropped() != sent {
		t.Fatalf("%+v", s.Total)
	}
	silent(t, mem...)
	check(t, n)
}

// TestRandomFrames sends random bytes, and requests with random changes.
func TestRandomFrames(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 4, Members: members(2, true)})
	rng := rand.New(rand.NewPCG(7, 7))
	stop := drainWire(mem[0])
	sent := uint64(0)
	for range 20000 {
		var b []byte
		if rng.IntN(2) == 0 {
			b = make([]byte, 1+rng.IntN(1500))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		} else {
			b = request(rng.IntN(3), 64, rng.IntN(5), rng.IntN(2), rng.Uint32(), int32(rng.Uint32()))
			for range rng.IntN(4) {
				b[rng.IntN(60)] = byte(rng.Uint32())
			}
			b = b[:len(b)-rng.IntN(2)*rng.IntN(len(b)-1)]
		}
		mustSend(t, mem[0], b)
		sent++
	}
	s := waitReceived(t, n, sent)
	stop()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if s.Total.Contributed == 0 || s.Total.Dropped() < sent/2 {
		t.Fatalf("%+v", s.Total)
	}
}
