package calm

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// script is a CPU's times one after the other, the last one for ever.
func script(times ...time.Duration) func(int) (time.Duration, error) {
	return func(int) (time.Duration, error) {
		d := times[0]
		if len(times) > 1 {
			times = times[1:]
		}
		return d, nil
	}
}

func TestCalm(t *testing.T) {
	for _, c := range []struct {
		name  string
		times []time.Duration
		want  []bool
	}{
		{"alone", []time.Duration{100, 100, 110, 114}, []bool{true, true, true, true}},
		{"a neighbour", []time.Duration{100, 116, 190, 101}, []bool{true, false, false, true}},
		{"disturbed from the start", []time.Duration{190, 190, 100, 190}, []bool{true, true, true, false}},
	} {
		w := &Watch{cpus: []int{0}, probe: script(c.times...)}
		for i, want := range c.want {
			if got, err := w.Calm(); err != nil || got != want {
				t.Errorf("%s: look %d: %t, %v; want %t", c.name, i, got, err, want)
			}
		}
		if w.Best() != 100 {
			t.Errorf("%s: the best is %v", c.name, w.Best())
		}
	}
}

// One CPU that is not calm is enough.
func TestAllCPUs(t *testing.T) {
	w := &Watch{cpus: []int{0, 1}, probe: func(cpu int) (time.Duration, error) { return time.Duration(100 + 50*cpu), nil }}
	if calm, err := w.Calm(); calm || err != nil {
		t.Errorf("%t, %v", calm, err)
	}
}

func TestWait(t *testing.T) {
	w := &Watch{cpus: []int{0}, best: 100, probe: script(200, 200, 200, 100)}
	if calm, err := w.Wait(t.Context(), time.Minute); !calm || err != nil {
		t.Errorf("calm at the fourth look: %t, %v", calm, err)
	}
	w.probe = script(200)
	if calm, err := w.Wait(t.Context(), 0); calm || err != nil {
		t.Errorf("never calm: %t, %v", calm, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if calm, err := w.Wait(ctx, time.Minute); calm || !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %t, %v", calm, err)
	}
	broken := errors.New("broken")
	w.probe = func(int) (time.Duration, error) { return 0, broken }
	if calm, err := w.Wait(t.Context(), time.Minute); calm || !errors.Is(err, broken) {
		t.Errorf("%t, %v", calm, err)
	}
}

// Every addition is made: the compiler has not found out what the sums will be.
func TestAdd(t *testing.T) {
	sums := [8]uint64{1, 2, 3, 4, 5, 6, 7, 8}
	add(8*100, &sums)
	for i, s := range sums {
		if want := uint64(i+1) + 100*99/2; s != want {
			t.Errorf("sum %d is %d, want %d", i, s, want)
		}
	}
	once, tenfold := time.Duration(1<<62), time.Duration(1<<62)
	for range 20 {
		begin := time.Now()
		add(additions/10, &sums)
		once = min(once, time.Since(begin))
		begin = time.Now()
		add(additions, &sums)
		tenfold = min(tenfold, time.Since(begin))
	}
	if tenfold < 4*once {
		t.Errorf("ten times as many additions take %v, not %v", tenfold, once)
	}
}

// The real loop takes time, in proportion to its additions, and leaves the thread where it may run as it was.
func TestLook(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !before.IsSet(cpu) {
		cpu++
	}
	w, err := New(cpu)
	if err != nil {
		t.Fatal(err)
	}
	// Between a nanosecond for a hundred additions and one for each.
	if b := w.Best(); b < additions/100 || b > 100*additions {
		t.Errorf("%d additions took %v", additions, b)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if before != after {
		t.Errorf("the thread may run on %v, before on %v", after, before)
	}
	if _, err := New(1 << 14); err == nil {
		t.Error("a CPU that there is not was looked after")
	}
	if _, err := New(); err == nil {
		t.Error("no CPU was looked after")
	}
}
