package interop

import (
	"encoding/binary"
	"maps"
	"slices"
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
