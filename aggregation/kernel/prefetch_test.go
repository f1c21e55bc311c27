package kernel

import (
	"bytes"
	"testing"
)

// TestPrefetch: a hint changes nothing, whatever the length, and does not allocate.
func TestPrefetch(t *testing.T) {
	b := bytes.Repeat([]byte{7}, 9100)
	for n := range len(b) + 1 {
		Prefetch(b[n:n:n])
		Prefetch(b[:n])
	}
	if !bytes.Equal(b, bytes.Repeat([]byte{7}, 9100)) {
		t.Error("the memory changed")
	}
	if n := testing.AllocsPerRun(100, func() { Prefetch(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
