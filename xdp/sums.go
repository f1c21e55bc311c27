package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"gradnic/xdp/bpf"
)

// Limits of Sums, as in bpf/sum.h.
const (
	// MaxSumJobs is how many jobs can be there at a time, MaxSumWorkers how many workers a job has.
	MaxSumJobs    = 256
	MaxSumWorkers = 32
	// SumBuckets is the length of SumStatus.Times: bucket i counts times below 2^(10+i) ns, the last one all others.
	SumBuckets = 27
	sumNumbers = 2 * MaxSumJobs * MaxSumWorkers
	sumNears   = 1024
)

// SumMark is what a frame of a job's worker says in its UDP checksum, in network byte order, when the program lets it go
// on to a socket: the mark plus four times the job's SumJob.Tag. The program overwrites what the sender had written there.
type SumMark uint16

const (
	// NotJudged is a frame of a known worker that is not what its job's frames are; the reason is the receiver's to find.
	NotJudged SumMark = iota
	// SumCompleted is a contribution that was the last of its slot: its values and exponents are the result now.
	SumCompleted
	// SumAnswered is a contribution that its slot had already, of a slot that is complete: its values and exponents are
	// the result now, and its sender has to get it once more.
	SumAnswered
)

// Sums is the memory of jobs whose contributions steering programs add up where they arrive: SwitchML's slots, its
// rule and its frames (bpf/sum.h). A frame that has only been added to its slot is dropped, under the verdict Summed; a
// frame that has a result to tell goes to its socket with a SumMark. So the receiving side of a slot costs one frame's
// copy to user space for all of its workers.
//
// One Sums serves the steering programs of several netdevs (Steering.SetSums), whose frames then meet in the same
// slots. Its methods may be called by several goroutines, beside running traffic.
type Sums struct {
	mu         sync.Mutex
	slots      *ebpf.Map
	members    *ebpf.Map
	numbers    *ebpf.Map
	near       *ebpf.Map
	workers    *ebpf.Map
	jobs       *ebpf.Map
	size       int
	perCPU     int // possible CPUs
	all        map[SumJobID]*sumJob
	next       SumJobID // where the search for a free number begins
	generation uint32
	free       []uint32         // numbers, the longest unused first
	nearby     [sumNears]uint32 // what near holds
	closed     bool
}

// SumsOptions says how large the memory is.
type SumsOptions struct {
	// Slots is the number of slots of all jobs together; each takes 2.1 KB. Zero means DefaultSumSlots.
	Slots int
}

// DefaultSumSlots takes 8.7 MB.
const DefaultSumSlots = 4096

// sumMostSlots is how many slots a frame can name.
const sumMostSlots = 1 << 14

// MaxSumSlots is what SumsOptions.Slots may be at most: 139 MB.
const MaxSumSlots = 1 << 16

// SumJob is a job's share.
type SumJob struct {
	Workers  int // 1 to MaxSumWorkers
	Elements int // int32 values of a frame: 64 or 256
	Slots    int // each in two versions
	// Tag, 0 to MaxSumTag, is beside the marks of the job's frames. Who chooses it at random can tell them from frames that came
	// by no summing program, at the moment when one is set.
	Tag uint16
}

// MaxSumTag is the largest SumJob.Tag.
const MaxSumTag = 1<<14 - 1

// SumJobID is a job's number among those of a Sums.
type SumJobID int

type sumJob struct {
	SumJob
	base       uint32
	generation uint32
	members    map[int]sumMember // by rank
}

// ErrNoSumSlots is wrapped by the error of Install when there is no room for the job's slots.
var ErrNoSumSlots = errors.New("no room for the slots")

// ErrSumsClosed is what a closed Sums returns.
var ErrSumsClosed = errors.New("the memory of the sums is closed")

// NewSums makes the memory. It needs CAP_BPF.
func NewSums(o SumsOptions) (*Sums, error) {
	if o.Slots == 0 {
		o.Slots = DefaultSumSlots
	}
	if o.Slots < 1 || o.Slots > MaxSumSlots {
		return nil, fmt.Errorf("sums: %d slots: legal are 1 to %d", o.Slots, MaxSumSlots)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("sums: possible CPUs: %w", err)
	}
	spec, err := bpf.LoadSteer()
	if err != nil {
		return nil, fmt.Errorf("sums: read steering program: %w", err)
	}
	s := &Sums{size: o.Slots, perCPU: cpus, all: map[SumJobID]*sumJob{}}
	for n := range uint32(sumNumbers - 1) {
		s.free = append(s.free, n+1) // 0 is nobody's
	}
	for name, place := range s.maps() {
		m := spec.Maps[name]
		switch name {
		case bpf.SteerMapSumSlots:
			m.MaxEntries = uint32(o.Slots)
		case bpf.SteerMapSumJobs:
			m.MaxEntries = MaxSumJobs
		}
		made, err := ebpf.NewMap(m)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sums: %s of %d entries: %w", name, m.MaxEntries, lacking(err, unix.CAP_BPF)), s.Close())
		}
		*place = made
	}
	return s, nil
}

// maps are the maps that the programs have for it, by name, and where each is kept.
func (s *Sums) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		bpf.SteerMapSumSlots: &s.slots, bpf.SteerMapSumMembers: &s.members,
		bpf.SteerMapSumNumbers: &s.numbers, bpf.SteerMapSumNear: &s.near,
		bpf.SteerMapSumWorkers: &s.workers, bpf.SteerMapSumJobs: &s.jobs,
	}
}

// Close frees the memory, once no program uses it any more. It is idempotent.
func (s *Sums) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for name, m := range s.maps() {
		if *m == nil {
			continue
		}
		if err := (*m).Close(); err != nil {
			errs = append(errs, fmt.Errorf("sums: close %s: %w", name, err))
		}
		*m = nil
	}
	return errors.Join(errs...)
}

// Install gives a job slots, which are empty, and counters of zero. Its workers are not known yet.
func (s *Sums) Install(j SumJob) (SumJobID, error) {
	switch {
	case j.Workers < 1 || j.Workers > MaxSumWorkers:
		return 0, fmt.Errorf("sums: %d workers: legal are 1 to %d", j.Workers, MaxSumWorkers)
	case j.Elements != 64 && j.Elements != 256:
		return 0, fmt.Errorf("sums: %d elements: legal are 64 and 256", j.Elements)
	case j.Slots < 1 || j.Slots > min(s.size, sumMostSlots):
		return 0, fmt.Errorf("sums: %d slots: legal are 1 to %d", j.Slots, min(s.size, sumMostSlots))
	case j.Tag > MaxSumTag:
		return 0, fmt.Errorf("sums: tag %d: legal are 0 to %d", j.Tag, MaxSumTag)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrSumsClosed
	}
	base, most, ok := s.room(j.Slots)
	switch {
	case len(s.all) == MaxSumJobs:
		return 0, fmt.Errorf("sums: %d jobs are there already, the most that can be: %w", MaxSumJobs, ErrNoSumSlots)
	case !ok:
		return 0, fmt.Errorf("sums: %d slots: %w: of %d, which the %d jobs there share, %d in a row are free", j.Slots, ErrNoSumSlots, s.size, len(s.all), most)
	}
	// Numbers are used in turn, so that a program that still counts for a job that is gone does not count for the next.
	id := s.next % MaxSumJobs
	for s.all[id] != nil {
		id = (id + 1) % MaxSumJobs
	}
	made := &sumJob{SumJob: j, base: base, members: map[int]sumMember{}}
	if err := s.empty(id, made); err != nil {
		return 0, err
	}
	s.next = id + 1
	s.all[id] = made
	return id, nil
}

// empty zeroes a job's counters, and begins a generation: what is in its slots is of an earlier one, and so is not there.
func (s *Sums) empty(id SumJobID, j *sumJob) error {
	if err := s.jobs.Put(uint32(id), make([]bpf.SteerSumJob, s.perCPU)); err != nil {
		return fmt.Errorf("sums: counters of job %d: %w", id, err)
	}
	none := make([]bpf.SteerSumWorker, s.perCPU)
	for rank := range j.Workers {
		if err := s.workers.Put(sumWorker(id, rank), none); err != nil {
			return fmt.Errorf("sums: counters of rank %d of job %d: %w", rank, id, err)
		}
	}
	s.generation++
	j.generation = s.generation
	return nil
}

// Reset empties a job's slots and zeroes its counters. Its members stay.
func (s *Sums) Reset(id SumJobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.job(id)
	if err != nil {
		return err
	}
	if err := s.empty(id, j); err != nil {
		return err
	}
	for rank, m := range j.members {
		if err := s.place(id, j, rank, m.key, ebpf.UpdateExist); err != nil {
			return err
		}
		s.free = append(s.free, m.number)
	}
	return nil
}

// room finds slots in a row that no job has, where the fewest are: what is left in a row stays long for a large job.
func (s *Sums) room(slots int) (base uint32, most int, ok bool) {
	jobs := slices.SortedFunc(maps.Values(s.all), func(a, b *sumJob) int { return cmp.Compare(a.base, b.base) })
	begin, least := 0, s.size+1
	for _, j := range append(jobs, &sumJob{base: uint32(s.size)}) {
		free := int(j.base) - begin
		if free >= slots && free < least {
			base, least, ok = uint32(begin), free, true
		}
		most, begin = max(most, free), int(j.base)+j.Slots
	}
	return base, most, ok
}

func sumWorker(id SumJobID, rank int) uint32 { return uint32(int(id)*MaxSumWorkers + rank) }

// sumRange is what bpf/sum.h calls k, B and the guard, for so many workers.
func sumRange(workers int) (most, bias uint32, guard uint64) {
	k := bits.Len(uint(workers - 1))
	half := uint64(1<<k-1) << (32 - k)
	return 1 << k, 1 << (31 - k), half<<32 | half
}

// sumMember is where the programs find a member.
type sumMember struct {
	key    bpf.SteerSumKey
	number uint32
}

// place gives a rank a number, writes what it stands for, and has frames with these addresses find it.
func (s *Sums) place(id SumJobID, j *sumJob, rank int, key bpf.SteerSumKey, how ebpf.MapUpdateFlags) error {
	most, bias, guard := sumRange(j.Workers)
	number := s.free[0]
	err := s.members.Put(number, &bpf.SteerSumMember{
		Key: key, Guard: guard, Bias: bias, Most: most, Base: j.base, Generation: j.generation, Job: uint32(id), Worker: sumWorker(id, rank),
		Slots: uint16(j.Slots), Elements: uint16(j.Elements), Workers: uint8(j.Workers), Rank: uint8(rank), Tag: j.Tag << 2,
	})
	if err != nil {
		return fmt.Errorf("sums: rank %d of job %d: %w", rank, id, err)
	}
	if err := s.numbers.Update(&key, number, how); err != nil {
		return fmt.Errorf("sums: rank %d of job %d: %w", rank, id, err)
	}
	s.free = s.free[1:]
	j.members[rank] = sumMember{key, number}
	// Of members that share a place the latest has it; the hash finds the others.
	return s.putNear(key, number)
}

// nearPlace is the place in sum_near of an address.
func nearPlace(key bpf.SteerSumKey) uint32 {
	return (uint32(key.Ip[2])<<8 | uint32(key.Ip[3])) % sumNears
}

func (s *Sums) putNear(key bpf.SteerSumKey, number uint32) error {
	at := nearPlace(key)
	if err := s.near.Put(at, number); err != nil {
		return fmt.Errorf("sums: place %d of near members: %w", at, err)
	}
	s.nearby[at] = number
	return nil
}

// SetMember makes the frames with these source addresses count for a rank of a job, and no others. What the rank has
// contributed stays. The addresses must not be another member's.
func (s *Sums) SetMember(id SumJobID, rank int, mac [6]byte, ip [4]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.job(id)
	if err != nil {
		return err
	}
	if rank < 0 || rank >= j.Workers {
		return fmt.Errorf("sums: rank %d: legal are 0 to %d", rank, j.Workers-1)
	}
	key := bpf.SteerSumKey{Mac: mac, Ip: ip}
	old, had := j.members[rank]
	if had && old.key == key {
		return nil
	}
	err = s.place(id, j, rank, key, ebpf.UpdateNoExist)
	if had && j.members[rank] != old {
		err = errors.Join(err, s.forget(old))
	}
	return err
}

// forget has no frame find a member any more. What its number stands for stays: a program may be about to use it.
func (s *Sums) forget(m sumMember) error {
	s.free = append(s.free, m.number)
	if s.nearby[nearPlace(m.key)] == m.number {
		if err := s.putNear(m.key, 0); err != nil {
			return err
		}
	}
	if err := s.numbers.Delete(&m.key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("sums: forget a member: %w", err)
	}
	return nil
}

func (s *Sums) job(id SumJobID) (*sumJob, error) {
	if s.closed {
		return nil, ErrSumsClosed
	}
	j := s.all[id]
	if j == nil {
		return nil, fmt.Errorf("sums: there is no job %d", id)
	}
	return j, nil
}

// Remove takes a job away: its members' frames are any other's from now on.
func (s *Sums) Remove(id SumJobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.job(id)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range j.members {
		errs = append(errs, s.forget(m))
	}
	delete(s.all, id)
	return errors.Join(errs...)
}

// SumStatus is what was counted of a job, and how far its slots are.
type SumStatus struct {
	Results, Resent uint64
	Wrapped         uint64             // additions that wrapped
	Sum             time.Duration      // from first contribution to completion, of all results together
	Times           [SumBuckets]uint64 // results by that time
	Workers         []SumWorkerStatus  // by rank
	Collecting      int                // versions with some contributions
	Complete        int                // versions with all
}

// SumWorkerStatus is what was counted of one rank.
type SumWorkerStatus struct {
	Received, Contributed, Duplicates uint64
	Resent                            uint64 // of the duplicates, those that were answered with a result
	Last                              uint64 // results that it completed
	// Seen is when its latest frame came, to some milliseconds, and Since when the oldest version that lacks it began; on
	// CLOCK_MONOTONIC, 0 for never.
	Seen, Since time.Duration
}

// Status reads a job's counters and slots. The slots are read one after the other.
func (s *Sums) Status(id SumJobID) (SumStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.job(id)
	if err != nil {
		return SumStatus{}, err
	}
	st := SumStatus{Workers: make([]SumWorkerStatus, j.Workers)}
	var perCPU []bpf.SteerSumJob
	if err := s.jobs.Lookup(uint32(id), &perCPU); err != nil {
		return st, fmt.Errorf("sums: counters of job %d: %w", id, err)
	}
	for i := range perCPU {
		c := &perCPU[i]
		st.Results += c.Results
		st.Resent += c.Resent
		st.Wrapped += c.Wrapped
		st.Sum += time.Duration(c.Nanoseconds)
		for k, n := range c.Times {
			st.Times[k] += n
		}
	}
	for rank := range st.Workers {
		var perCPU []bpf.SteerSumWorker
		if err := s.workers.Lookup(sumWorker(id, rank), &perCPU); err != nil {
			return st, fmt.Errorf("sums: counters of rank %d of job %d: %w", rank, id, err)
		}
		w := &st.Workers[rank]
		for i := range perCPU {
			c := &perCPU[i]
			w.Received += c.Received
			w.Contributed += c.Contributed
			w.Duplicates += c.Duplicates
			w.Resent += c.Resent
			w.Last += c.Last
			w.Seen = max(w.Seen, time.Duration(c.Seen))
		}
	}
	return st, s.occupancy(j, &st)
}

func (s *Sums) occupancy(j *sumJob, st *SumStatus) error {
	var slot bpf.SteerSumSlot
	for i := range uint32(j.Slots) {
		if err := s.slots.LookupWithFlags(j.base+i, &slot, ebpf.LookupLock); err != nil {
			return fmt.Errorf("sums: slot %d: %w", i, err)
		}
		if slot.Generation != j.generation {
			continue
		}
		for k := range slot.Version {
			v := &slot.Version[k]
			switch {
			case v.Count != 0:
				st.Collecting++
				for rank := range st.Workers {
					if w := &st.Workers[rank]; v.Seen>>rank&1 == 0 && (w.Since == 0 || time.Duration(v.Started) < w.Since) {
						w.Since = max(1, time.Duration(v.Started))
					}
				}
			case v.Seen != 0:
				st.Complete++
			}
		}
	}
	return nil
}
