package dataplane

import (
	"slices"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/wire/native"
)

// A round that waits for a worker is given up at its deadline although nobody asks again, on every lane and in every way of
// waiting; rounds that complete in time leave no alarm behind.
func TestNativeDeadlineUnasked(t *testing.T) {
	for _, wait := range []Wait{Adaptive, Interrupt, Busy} {
		for lanes := 1; lanes <= 2; lanes++ {
			cfg := testConfig()
			cfg.Wait, cfg.Lanes = wait, lanes
			const deadline = 150 * time.Millisecond
			n, ws := nativeJob(t, cfg, JobSpec{Workers: 3, Slots: 4, Native: &NativeSpec{Deadline: deadline}})
			for slot := range uint32(4) {
				for _, w := range ws {
					mustSend(t, w.port, w.contribution(slot, 0, le32(1, 2, 3, 4)))
				}
				for _, w := range ws {
					w.result(le32(3, 6, 9, 12), 0)
				}
			}
			time.Sleep(2 * deadline)
			silent(t, ws[0].port, ws[1].port, ws[2].port)
			if st, _ := n.Job("j"); st.State.State != "ready" {
				t.Fatalf("%v, %d lanes: %+v", wait, lanes, st.State)
			}
			start := time.Now()
			for _, w := range ws[:2] {
				mustSend(t, w.port, w.contribution(1, 1, le32(1, 2, 3, 4)))
			}
			for _, w := range ws {
				if b := w.notice(native.Aborted); !slices.Equal(native.Bits(b.Ranks, 3), []int{2}) {
					t.Fatalf("%v, %d lanes: rank %d is told of %v", wait, lanes, w.rank, native.Bits(b.Ranks, 3))
				}
			}
			if took := time.Since(start); took < deadline || took > 30*deadline {
				t.Errorf("%v, %d lanes: aborted after %v", wait, lanes, took)
			}
			if st, _ := n.Job("j"); st.Use.InUse != 0 || st.State.State != "aborted" {
				t.Errorf("%v, %d lanes: slots %+v, state %+v", wait, lanes, st.Use, st.State)
			}
			check(t, n)
		}
	}
}

// Nor does the job wait for ever for a worker that does not come back after a loss of memory.
func TestNativeDeadlineOfReturn(t *testing.T) {
	n, ws := nativeJob(t, testConfig(), JobSpec{Workers: 2, Slots: 4, Native: &NativeSpec{Type: aggregation.Int32, Deadline: 150 * time.Millisecond}})
	if err := n.ResetJob("j"); err != nil {
		t.Fatal(err)
	}
	ws[0].report(0, 4)
	for {
		v := ws[0].recv()
		b, ok := native.ParseNotice(v.Payload())
		if !ok {
			t.Fatalf("%v", v.Kind())
		}
		if b.Code == native.Aborted {
			if !slices.Equal(native.Bits(b.Ranks, 2), []int{1}) {
				t.Errorf("told of %v", native.Bits(b.Ranks, 2))
			}
			break
		}
		if b.Code != native.Waiting {
			t.Fatalf("code %v", b.Code)
		}
		if v.Epoch() != ws[0].epoch { // the answer to a report that does not know of the loss
			ws[0].epoch = v.Epoch()
			ws[0].report(0, 4)
		}
	}
	check(t, n)
}
