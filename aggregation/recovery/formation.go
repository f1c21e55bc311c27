package recovery

// Formation is a job's workers as they went on together. It is immutable and may be read by several goroutines.
type Formation struct {
	Epoch uint32
	Life  uint32

	slots   uint64
	low     uint64
	reports []Report
}

// Low is the lowest chunk that some worker lacked the result of: all have those before.
func (f *Formation) Low() uint64 { return f.low }

// Want is a result that some workers have and others lack.
type Want struct {
	Slot  uint32
	Round uint32
}

func newFormation(epoch, life uint32, slots, low uint64, reports []Report) *Formation {
	return &Formation{Epoch: epoch, Life: life, slots: slots, low: low, reports: reports}
}

// Wanted lists what is wanted, at most one round a slot: results whose values some have and others lack. What nobody has the
// values of is computed again.
func (f *Formation) Wanted() (wants []Want) {
	for g := f.low; g < f.low+f.slots; g++ {
		have := 0
		for i := range f.reports {
			if f.reports[i].has(g) {
				have++
			}
		}
		if have > 0 && have < len(f.reports) {
			wants = append(wants, Want{Slot: uint32(g % f.slots), Round: uint32(g / f.slots)})
		}
	}
	return wants
}

// chunk is the chunk of a want: the one at or after the lowest mark with its slot and the low bits of its round.
func (f *Formation) chunk(w Want) uint64 {
	g := f.low - f.low%f.slots + uint64(w.Slot)
	if g < f.low {
		g += f.slots
	}
	return g
}

// Holder is a worker that has a wanted result: another one at every attempt, as long as there are.
func (f *Formation) Holder(w Want, attempt int) (rank int, ok bool) {
	g := f.chunk(w)
	var holders []int
	for i := range f.reports {
		if f.reports[i].has(g) {
			holders = append(holders, i)
		}
	}
	if len(holders) == 0 {
		return 0, false
	}
	return holders[attempt%len(holders)], true
}

// Lacks reports whether a worker lacked a wanted result when it reported.
func (f *Formation) Lacks(rank int, w Want) bool { return !f.reports[rank].has(f.chunk(w)) }
