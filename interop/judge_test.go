package interop

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/wire/native"
)

// Native workers that come together anew begin again: with the same round and contents, after a result or without one, and
// nothing of it counts as sent again. What a worker does within an epoch is held against it as before.
func TestJudgeEpochs(t *testing.T) {
	o := options(t, 16)
	contribution := func(epoch, round uint32, flags native.Flags, value uint32) []byte {
		b := make([]byte, native.FrameLen(64))
		h := native.Header{Kind: native.Contribution, Flags: flags, Type: native.Int32, Job: 1, Epoch: epoch, Round: round, Elements: 16}
		from, to := native.Endpoint(DefaultWorker(0)), native.Endpoint{MAC: o.NIC.MAC, IP: o.NIC.IP, Port: native.Port}
		native.PutFrame(b, &from, &to, &h, 64)
		binary.BigEndian.PutUint32(b[native.ValuesOffset:], value)
		return b
	}
	const resend = native.FlagResend
	for _, x := range []struct {
		what   string
		frames [][]byte
		fresh  int
		broken []string
	}{
		{"the same in a new epoch", [][]byte{contribution(1, 0, 0, 5), contribution(2, 0, 0, 5), contribution(3, 0, 0, 5)}, 3, nil},
		{"other contents in a new epoch", [][]byte{contribution(1, 0, 0, 5), contribution(2, 0, 0, 6)}, 2, nil},
		{"an earlier round in a new epoch", [][]byte{contribution(1, 7, 0, 5), contribution(2, 0, 0, 6)}, 2, nil},
		{"sent again in a new epoch", [][]byte{contribution(1, 0, 0, 5), contribution(2, 0, resend, 5)}, 1, nil},
		{"sent again", [][]byte{contribution(1, 0, 0, 5), contribution(1, 0, resend, 5)}, 1, nil},
		{"sent again unsaid", [][]byte{contribution(1, 0, 0, 5), contribution(1, 0, 0, 5)}, 1, []string{"resend-flag"}},
		{"changed", [][]byte{contribution(1, 0, 0, 5), contribution(1, 0, resend, 6)}, 1, []string{"resend-same"}},
		{"in haste", [][]byte{contribution(1, 0, 0, 5), contribution(1, 1, 0, 5)}, 2, []string{"slot-free"}},
	} {
		j := newJudge(true)
		for _, f := range x.frames {
			if !j.request(f, time.Unix(0, 0)) {
				t.Fatalf("%s: no message", x.what)
			}
		}
		if got := slices.Sorted(maps.Keys(j.broken)); j.fresh != x.fresh || !slices.Equal(got, x.broken) {
			t.Errorf("%s: %d fresh, broken %v; want %d, %v", x.what, j.fresh, got, x.fresh, x.broken)
		}
	}
}

// A packet that was cut, or whose lengths contradict each other, is no message to the protocol's port; what is for other ports, or
// not to be read, is nobody's.
func TestJudgeBrokenHeaders(t *testing.T) {
	o := options(t, 16)
	h := native.Header{Kind: native.Contribution, Type: native.Int32, Job: 1, Elements: 16}
	from, to := native.Endpoint(DefaultWorker(0)), native.Endpoint{MAC: o.NIC.MAC, IP: o.NIC.IP, Port: native.Port}
	for _, x := range []struct {
		what   string
		spoil  func(b []byte) []byte
		broken string
	}{
		{"whole", func(b []byte) []byte { return b }, ""},
		{"cut", func(b []byte) []byte { return b[:len(b)-4] }, "short"},
		{"longer UDP length", func(b []byte) []byte { b[39] += 8; return b }, "bad-length"},
		{"first fragment", func(b []byte) []byte { b[20] = 0x20; return b }, "ip-fragment"},
		{"later fragment", func(b []byte) []byte { b[21] = 1; return b }, ""},
		{"cut, another port", func(b []byte) []byte { b[36] = 0; return b[:len(b)-4] }, ""},
		{"cut, not UDP", func(b []byte) []byte { b[23] = 6; return b[:len(b)-4] }, ""},
		{"cut in the header", func(b []byte) []byte { return b[:40] }, ""},
		{"ARP", func(b []byte) []byte { b[13] = 6; return b }, ""},
	} {
		b := make([]byte, native.FrameLen(64))
		native.PutFrame(b, &from, &to, &h, 64)
		j := newJudge(true)
		j.request(x.spoil(b), time.Unix(0, 0))
		if got := j.first["well-formed"]; (x.broken == "") != (got == "") || !strings.HasSuffix(got, x.broken) {
			t.Errorf("%s: %q, want %q", x.what, got, x.broken)
		}
	}
}
