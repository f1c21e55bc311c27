package xdp

import (
	"errors"
	"testing"
)

// A job goes where the fewest slots are free in a row, so that a large one that comes and goes finds its place again, whatever
// small ones came meanwhile.
func TestSumRoom(t *testing.T) {
	s := newSums(t, 16)
	install := func(slots int, base uint32) SumJobID {
		t.Helper()
		id, err := s.Install(SumJob{Workers: 1, Elements: 64, Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.all[id].base; got != base {
			t.Fatalf("%d slots begin at %d, want %d", slots, got, base)
		}
		return id
	}
	remove := func(id SumJobID) {
		t.Helper()
		if err := s.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	install(1, 0)
	large := install(8, 1)
	install(2, 9)
	remove(large)
	last := install(1, 11) // 5 are free there, 8 where the large one was
	large = install(8, 1)
	remove(last)
	install(5, 11)
	if _, err := s.Install(SumJob{Workers: 1, Elements: 64, Slots: 1}); !errors.Is(err, ErrNoSumSlots) {
		t.Errorf("no slot is left: %v", err)
	}
	remove(large)
	install(8, 1)
}
