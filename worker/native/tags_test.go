package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
)

func testKeys(workers int) []wire.Key {
	keys := make([]wire.Key, workers)
	for r := range keys {
		for i := range keys[r] {
			keys[r][i] = byte(16*r + i)
		}
	}
	return keys
}

// recorder keeps the frames of a rig.
type recorder struct {
	mu   sync.Mutex
	up   [][][]byte // by rank: from the worker
	down [][][]byte // and to it
}

func record(r *rig) *recorder {
	c := &recorder{up: make([][][]byte, len(r.cables)), down: make([][][]byte, len(r.cables))}
	for rank, cable := range r.cables {
		cable.tap = func(fromWorker bool, frame []byte) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if fromWorker {
				c.up[rank] = append(c.up[rank], bytes.Clone(frame))
			} else {
				c.down[rank] = append(c.down[rank], bytes.Clone(frame))
			}
		}
	}
	return c
}

// sum runs an all-reduce of n elements and checks it.
func sum(t *testing.T, r *rig, ws []*Worker, n int, seed uint64) {
	t.Helper()
	in, out := make([][]int32, len(ws)), make([][]int32, len(ws))
	for i := range ws {
		in[i], out[i] = random[int32](seed+uint64(i), n), make([]int32, n)
	}
	each(t, len(ws), func(ctx context.Context, i int) error {
		_, err := AllReduce(ctx, ws[i], out[i], in[i])
		return err
	})
	compare(t, r, in, out)
}

// drops waits until the NIC has dropped so many frames for a reason.
func drops(t *testing.T, r *rig, reason string, want uint64) {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		got := r.nic.Snapshot().Total.Drops[reason]
		if got == want {
			return
		}
		if got > want || time.Now().After(until) {
			t.Fatalf("%d frames dropped as %s, want %d: %v", got, reason, want, r.nic.Snapshot().Total.Drops)
		}
	}
}

// Whoever has the wire, but no key, cannot change a sum: replayed, forged and untagged messages are dropped, each under
// its reason, in either direction.
func TestTagsKeepOthersOut(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		t.Run(fmt.Sprintf("lanes=%d", lanes), func(t *testing.T) {
			r := newRig(t, dataplane.JobSpec{Workers: 3, Native: &dataplane.NativeSpec{Keys: testKeys(3)}})
			r.stop()
			r.cfg.Lanes = lanes
			r.start(nil)
			wire0 := record(r)
			ws := r.join()
			sum(t, r, ws, 3000, 1)
			wire0.mu.Lock()
			up, down := slices.Clone(wire0.up[1]), slices.Clone(wire0.down[1])
			wire0.mu.Unlock()
			if d := r.nic.Snapshot().Total.Drops; len(d) != 0 {
				t.Fatalf("an honest job: drops %v", d)
			}
			cable := r.cables[1]
			send := func(f []byte) {
				t.Helper()
				if err := cable.Send(f); err != nil {
					t.Fatal(err)
				}
			}
			for i, f := range up {
				send(f)
				if i%64 == 63 {
					time.Sleep(time.Millisecond)
				}
			}
			drops(t, r, "replayed", uint64(len(up)))
			// A bit of the values, of the header, of the tag; then without a tag.
			forged := uint64(0)
			for _, at := range []int{wire.ValuesOffset, inet.PayloadOffset + 15, -1, -20} {
				f := bytes.Clone(up[len(up)-1])
				if at < 0 {
					at += len(f)
				}
				f[at] ^= 4
				send(f)
				forged++
			}
			last := up[len(up)-1]
			v, _ := wire.Validate(last[inet.PayloadOffset:])
			h := v.Header()
			h.Flags, h.Round = 0, h.Round+1
			plain := make([]byte, len(last)-wire.TrailerLen)
			copy(plain, last)
			from := wire.Endpoint{MAC: workerMAC(1), IP: workerIP(1), Port: 4001}
			wire.PutFrame(plain, &from, &wire.Endpoint{MAC: nicMAC, IP: nicIP, Port: wire.Port}, &h, len(plain)-wire.ValuesOffset)
			send(plain)
			drops(t, r, "wrong-tag", forged+1)
			sum(t, r, ws, 3000, 2)
			// The other direction, to the worker: what the network said before, and a notice that nobody tagged.
			e := ws[1].e
			e.mu.Lock()
			before, state := e.counts.Untrusted, e.state
			abort := wire.Header{Kind: wire.Notice, Job: 1, Rank: 1, Epoch: e.epoch, Type: e.job.Type}
			body := make([]byte, wire.HeaderLen+wire.NoticeLen)
			abort.Put(body, (&wire.NoticeBody{Code: wire.Aborted, Workers: 3}).Put(body[wire.HeaderLen:]))
			e.take(e.now(), body)
			for _, f := range down {
				e.take(e.now(), f[inet.PayloadOffset:])
			}
			got, after := e.counts.Untrusted-before, e.state
			e.mu.Unlock()
			if got != uint64(len(down))+1 || after != state {
				t.Errorf("the worker refused %d of %d messages, state %d, was %d", got, len(down)+1, after, state)
			}
			sum(t, r, ws, 3000, 3)
		})
	}
}

// No nonce comes twice under a key: not over lanes, losses, resends, a NIC that lost its memory, nor a worker that was
// started again.
func TestNoncesNeverRepeat(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 2, Slots: 16, Native: &dataplane.NativeSpec{Keys: testKeys(2)}})
	r.stop()
	r.cfg.Lanes = 2
	lossy := func(int) dataplane.Impairment {
		return dataplane.Impairment{IngressLoss: 0.05, EgressLoss: 0.05, Duplicate: 0.05}
	}
	r.start(lossy)
	frames := record(r)
	for life := range 2 {
		ws := r.join()
		for k := range 3 {
			sum(t, r, ws, 2000, uint64(10*life+k))
			if k == 1 {
				r.kill(lossy)
			}
		}
		for _, w := range ws {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	type nonce struct {
		rank    int
		process wire.Salt
		down    bool
		epoch   uint32
		counter uint64
	}
	seen := map[nonce][]byte{}
	copies := 0
	for rank := range 2 {
		var process wire.Salt
		// What the network sends is under the key of the process that it has heard of: which that is does not matter, as
		// its counters go on.
		for k, list := range [][][]byte{frames.up[rank], frames.down[rank]} {
			for _, f := range list {
				v, fault := wire.Validate(f[inet.PayloadOffset:])
				if fault != wire.OK || !v.Tagged() {
					t.Fatalf("%v, tagged %t", fault, v.Tagged())
				}
				if k == 0 && v.Kind() == wire.Report {
					process = v.Salt()
				}
				n := nonce{rank: rank, down: k == 1, epoch: v.Epoch(), counter: binary.BigEndian.Uint64(v[len(v)-wire.TrailerLen:])}
				if k == 0 {
					n.process = process
				}
				if other, twice := seen[n]; twice {
					if k == 1 && bytes.Equal(other, v) {
						copies++ // a double of the impaired link
						continue
					}
					t.Fatalf("nonce %+v twice", n)
				}
				seen[n] = v
			}
		}
	}
	t.Logf("%d nonces, %d frames doubled on the way", len(seen), copies)
}

// A worker whose key is wrong, or that has none, does not get in, and neither does one with a key where there are none.
func TestWrongKeyDoesNotGetIn(t *testing.T) {
	keys := testKeys(1)
	for name, c := range map[string]struct {
		job, worker *wire.Key
	}{
		"another key": {&keys[0], &wire.Key{1}}, "no key": {&keys[0], nil}, "no keys here": {nil, &keys[0]},
	} {
		spec := dataplane.JobSpec{Workers: 1, Native: &dataplane.NativeSpec{}}
		if c.job != nil {
			spec.Native.Keys = []wire.Key{*c.job}
		}
		r := newRig(t, spec)
		cfg := r.config(0)
		cfg.Key = c.worker
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		if w, err := Join(ctx, cfg); err == nil {
			w.Close()
			t.Errorf("%s: it got in", name)
		}
		cancel()
		if d := r.nic.Snapshot().Total.Drops; d["wrong-tag"] == 0 {
			t.Errorf("%s: drops %v", name, d)
		}
		cfg.Key = c.job
		w, err := Join(t.Context(), cfg)
		if err != nil {
			t.Errorf("%s: the right one: %v", name, err)
			continue
		}
		w.Close()
	}
}
