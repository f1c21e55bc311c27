package dataplane

import (
	"bytes"
	"testing"

	"gradnic/xdp"
)

// TestScatter: a frame that was made elsewhere takes as many chunks as it needs and none more, also at the chunks' edges; a
// last piece without bytes would be a descriptor that the kernel never completes.
func TestScatter(t *testing.T) {
	const chunk, chunks = 2048, 8
	l := &lane{chunk: chunk, share: chunk * chunks, shift: 11, area: make([]byte, chunk*chunks), chains: newChains(9014), cfg: &Config{}}
	for i := range uint64(chunks) {
		l.free = append(l.free, i*chunk)
	}
	for _, size := range []int{1, 60, chunk - 1, chunk, chunk + 1, 2*chunk - 1, 2 * chunk, 2*chunk + 1, 4 * chunk, 9014} {
		flat := udpFrame(max(60, size), uint32(size))[:size]
		head, tail, ok := l.scatter(flat)
		if !ok {
			t.Fatalf("%d bytes: no chunks", size)
		}
		var got []byte
		pieces := append([]Desc{head}, tail...)
		for i, d := range pieces {
			if more := i < len(pieces)-1; d.Len == 0 || (d.Options == xdp.PacketContinues) != more || d.Options != 0 && !more {
				t.Fatalf("%d bytes: piece %d is %+v", size, i, d)
			}
			got = append(got, l.frame(d)...)
		}
		if !bytes.Equal(got, flat) || len(pieces) != (size+chunk-1)/chunk {
			t.Fatalf("%d bytes came as %d in %d pieces", size, len(got), len(pieces))
		}
		l.freePieces(head, tail)
	}
	if _, _, ok := l.scatter(make([]byte, chunk*chunks+1)); ok || len(l.free) != chunks {
		t.Fatalf("more than there are chunks: %t, %d are free", ok, len(l.free))
	}
}
