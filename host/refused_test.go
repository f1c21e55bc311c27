package host

import (
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gradnic/host/nic"
	"gradnic/host/shm"
)

// bad are requests that no NIC may take, for an arena of 4096 bytes.
var bad = map[string]shm.Request{
	"gradients at offset 2":               {Data: 2, Elements: 1, Weights: shm.NoWeights},
	"gradients of 1025 elements":          {Data: 0, Elements: 1025, Weights: shm.NoWeights},
	"gradients of 1 elements":             {Data: 4096, Elements: 1, Weights: shm.NoWeights},
	"gradients of 0 elements":             {Data: 4100, Elements: 0, Weights: shm.NoWeights},
	"gradients of 4611686018427387904":    {Data: 0, Elements: 1 << 62, Weights: shm.NoWeights},
	"gradients of 18446744073709551615":   {Data: 4, Elements: math.MaxUint64, Weights: shm.NoWeights},
	"at offset 18446744073709551612":      {Data: math.MaxUint64 - 3, Elements: 1, Weights: shm.NoWeights},
	"weights at offset 1":                 {Data: 0, Elements: 1, Weights: 1},
	"weights of 10 elements":              {Data: 0, Elements: 10, Weights: 4060},
	"overlap":                             {Data: 0, Elements: 10, Weights: 36},
	"gradients and weights overlap":       {Data: 100, Elements: 10, Weights: 100},
	"weights of 2 elements at offset 184": {Data: 0, Elements: 2, Weights: math.MaxUint64 - 7},
}

func TestRequestRefused(t *testing.T) {
	for want, w := range bad {
		var b [shm.RequestBytes]byte
		if err := w.Put(b[:]); err != nil {
			t.Fatal(err)
		}
		if err := new(shm.Request).Parse(b[:], 4096); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", w, err, want)
		}
	}
}

// TestRequestsRefused: each bad request fails with its reason, the client stays, and a good one is done.
func TestRequestsRefused(t *testing.T) {
	r := newRig(t, 1, nic.Options{}, nil)
	k := knock(t, r.paths[0])
	k.enter(4096)
	for want, w := range bad {
		k.post(w)
		if got := k.await(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	k.post(shm.Request{Elements: 5, Weights: shm.NoWeights, Codec: "nope"})
	if got := k.await(); !strings.Contains(got, "nope") {
		t.Error(got)
	}
	k.mem.Floats(40, 1)[0] = 3
	k.post(shm.Request{Data: 40, Elements: 1, Weights: shm.NoWeights, Codec: "none"})
	if got := k.await(); got != "" || k.mem.Floats(40, 1)[0] != 3 {
		t.Error(got, k.mem.Floats(40, 1))
	}
	// The file cannot be cut under the NIC.
	if err := unix.Ftruncate(k.fds[shm.FDMemory], 4096); !errors.Is(err, unix.EPERM) {
		t.Errorf("cut: %v", err)
	}
	if err := shm.Send(k.conn, &shm.Ask{Op: "fly"}, []int{k.fds[shm.FDMemory]}); err != nil {
		t.Fatal(err)
	}
	var a shm.Answer
	if _, err := shm.Receive(k.conn, &a); err != nil || !strings.Contains(a.Error, "fly") {
		t.Error(err, a)
	}
}
